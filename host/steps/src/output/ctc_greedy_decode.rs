//! `ctc-greedy-decode`: what an acoustic model gives → text.

use std::collections::BTreeMap;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use crate::deadline::{Deadline, DeadlineExceeded, rows_per_check};
use crate::metadata_source::MetadataSource;
use crate::operation::{BuiltinStep, Inputs, Operation};
use crate::ports;
use gpux_core::{
    BuildError, Builtin, Dim, ElementSet, ElementType, FileError, Group, Kind, OptionOrigin, Port, Signature,
    StepFailure, TensorKind, Value, float32_to_json,
};

/// Largest file of a vocabulary that is read, in bytes.
const MAX_VOCABULARY_FILE: u64 = 16 << 20;

/// Most tokens of a vocabulary.
const MAX_TOKENS: usize = 1 << 20;

/// Most bytes of text that one request may become.
const MAX_TEXT: usize = 64 << 20;

/// Options of `ctc-greedy-decode`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
struct Options {
    /// The tokens, in the order of the last axis: a list, or the path of a file: Hugging Face's `vocab.json`
    /// (`{"<pad>": 0, "|": 4, …}`) with the `added_tokens.json` and `tokenizer_config.json` beside it, or text with one
    /// token a line; or `{ model: NAME, key: KEY }`, a key of a model's metadata. Required.
    vocabulary: Vocabulary,
    /// Where a blank is added that the vocabulary lacks: `first` or `last`. Default: nowhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    add_blank: Option<End>,
    /// Whether a space is added as the last token (before a blank that is added there), as PaddleOCR's readers have it.
    /// Default: false.
    #[serde(default)]
    append_space: bool,
    /// The token that stands for nothing, between tokens and in silence. Default: the `pad_token` of
    /// `tokenizer_config.json`, else `<pad>`, `<blk>`, `<blank>`, `[PAD]` or `-`, whichever the vocabulary has first in
    /// this order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    blank: Option<String>,
    /// The token that becomes a space; `""` for none. Default: the `word_delimiter_token` of `tokenizer_config.json`,
    /// else `|`, if there is one, unless a space is a token itself. Required where `|` stands among `{` and `}`, which
    /// are characters of a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    word_delimiter: Option<String>,
    /// Whether spaces at both ends of the text are left out. Default: true.
    #[serde(default = "ports::default_true")]
    trim: bool,
    /// Whether a second output, `score`, is the mean of the numbers that the model gives for the tokens of the text, each
    /// in its first frame; 0 for an empty text. They are probabilities where the model ends in a softmax. Default: false.
    #[serde(default)]
    score: bool,
    /// Whether the text becomes lower case. Default: false.
    #[serde(default)]
    lowercase: bool,
    /// Whether the result is JSON with the symbols of the text, too: `{"text": "ab", "symbols": [{"symbol": "a",
    /// "start": 3, "end": 5, "score": 0.9}, …]}`. `start` is the first frame, `end` the frame after the last, `score`
    /// the token's number in its first frame as the model gives it. Default: false.
    #[serde(default)]
    symbols: bool,
    /// Seconds from one frame to the next, in which `start` and `end` are then given, above 0. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    seconds_per_frame: Option<f64>,
}

#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum Vocabulary {
    File(String),
    List(Vec<String>),
    Metadata(MetadataSource),
}

/// An end of the vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum End {
    First,
    Last,
}

const BLANKS: [&str; 5] = ["<pad>", "<blk>", "<blank>", "[PAD]", "-"];
const DELIMITER: &str = "|";

/// Turns the scores of a model trained with connectionist temporal classification into text: the best token
/// of each frame, repeated ones once, blanks left out. `[frames, tokens]` gives a text, `[batch, frames, tokens]`
/// a text if the batch is one, else a JSON list of texts.
///
/// Follows `Wav2Vec2CTCTokenizer.decode` of transformers on `argmax` of the scores, without its cleaning up of
/// spaces before punctuation; so does torchaudio's `GreedyCTCDecoder`. With `add_blank: first`, `append_space`, `score`
/// and without `trim` it is RapidOCR's `CTCLabelDecode`, which rounds its scores to five places.
struct Decode {
    options: Options,
    tokens: Vec<String>,
    blank: usize,
    longest: usize,
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "ctc-greedy-decode",
        summary: "Turns the scores of a CTC model into text",
        group: Group::Output,
        follows: "transformers: Wav2Vec2CTCTokenizer.decode",
        example: "ctc-greedy-decode: { vocabulary: ./vocab.json }",
        schema: || schemars::schema_for!(Options),
        build: |options, site| Ok(Box::new(Decode::new(ports::options(options)?, site)?)),
    }
}

impl Decode {
    fn new(options: Options, site: &OptionOrigin<'_>) -> Result<BuiltinStep<Self>, BuildError> {
        let VocabularyFile { mut tokens, pad_token, word_delimiter } = match &options.vocabulary {
            Vocabulary::List(tokens) => VocabularyFile { tokens: tokens.clone(), ..VocabularyFile::default() },
            Vocabulary::File(path) => read(path, site)?,
            Vocabulary::Metadata(source) => {
                VocabularyFile { tokens: source.names("vocabulary", site)?, ..VocabularyFile::default() }
            }
        };
        if options.append_space {
            tokens.push(" ".to_owned());
        }
        // No other token is the empty text.
        match options.add_blank {
            Some(End::First) => tokens.insert(0, String::new()),
            Some(End::Last) => tokens.push(String::new()),
            None => {}
        }

        if options.seconds_per_frame.is_some_and(|seconds| !(seconds > 0.0 && seconds.is_finite())) {
            return Err(BuildError::option("seconds_per_frame", "must be more than 0"));
        }
        if tokens.is_empty() || tokens.len() > MAX_TOKENS {
            let why = format!("there are {} tokens, but there must be 1 to {MAX_TOKENS}", tokens.len());
            return Err(BuildError::option("vocabulary", why));
        }

        let find = |token: &str| tokens.iter().position(|known| known == token);
        let unknown = |option: &str, token: &str| BuildError::option(option, format!("there is no token `{token}`"));
        let blank = match (options.add_blank, &options.blank) {
            (Some(_), Some(_)) => {
                return Err(BuildError::option("add_blank", "a blank is added, but `blank` names another")
                    .with_hint("leave `blank` out, or `add_blank` where the vocabulary has the blank"));
            }
            (Some(End::First), None) => 0,
            (Some(End::Last), None) => tokens.len() - 1,
            (None, Some(blank)) => find(blank).ok_or_else(|| unknown("blank", blank))?,
            (None, None) => pad_token.as_deref().into_iter().chain(BLANKS).find_map(find).ok_or_else(|| {
                BuildError::option("vocabulary", "which token is the blank is not known")
                    .with_hint("say `blank:`, often the first token, or `add_blank: first` if it is not listed")
            })?,
        };

        let delimiter = match &options.word_delimiter {
            Some(delimiter) if delimiter.is_empty() => None,
            Some(delimiter) => Some(find(delimiter).ok_or_else(|| unknown("word_delimiter", delimiter))?),
            None if word_delimiter.is_some() => word_delimiter.as_deref().and_then(find),
            None if find(" ").is_some() => None,
            None if find(DELIMITER).is_some() && ["{", "}"].into_iter().any(|token| find(token).is_some()) => {
                let why = "`|` may be a character of the text, or what becomes a space";
                return Err(BuildError::option("word_delimiter", why)
                    .with_hint("say `word_delimiter: \"\"` if it is a character, else `word_delimiter: \"|\"`"));
            }
            None => find(DELIMITER),
        };
        if let Some(delimiter) = delimiter {
            " ".clone_into(&mut tokens[delimiter]);
        }

        let longest = tokens.iter().map(String::len).max().unwrap_or(0);
        let mut signature = Signature::unary(
            Port {
                description: format!("[frames, {0}] or [batch, frames, {0}]", tokens.len()),
                ..Port::new("scores", Kind::Tensor(TensorKind::of_elements(ElementSet::floats())))
            },
            if options.symbols {
                let description = "the text with its symbols, or a list of them".into();
                Port { description, ..Port::new("text", Kind::Json) }
            } else {
                Port { description: "the text, or a list of texts".into(), ..Port::new("text", Kind::Any) }
            },
        );

        if options.score {
            let description = "the mean score of its tokens, or a list of them".into();
            signature.outputs.push(Port { description, ..Port::new("score", Kind::Json) });
        }

        let mut details = json!({"tokens": tokens.len(), "blank": blank, "lowercase": options.lowercase});
        if options.symbols {
            details["symbols"] = true.into();
        }
        Ok(BuiltinStep::new(signature, details, Self { options, tokens, blank, longest }))
    }

    fn check(&self, shape: &[Option<usize>]) -> Result<(), String> {
        let (&[frames, tokens] | &[_, frames, tokens]) = shape else {
            return Err(format!(
                "scores are [frames, tokens] or [batch, frames, tokens], but there are {} axes",
                shape.len()
            ));
        };
        let count = self.tokens.len();
        match tokens.filter(|tokens| *tokens != count) {
            Some(tokens) => Err(format!("the vocabulary has {count} tokens, but there are scores for {tokens}")),
            None if shape[0].unwrap_or(1).checked_mul(frames.unwrap_or(1)).is_none() => Err("it is too large".into()),
            None => Ok(()),
        }
    }

    /// The text of one recording, and the symbols of which it is made.
    fn text(&self, scores: &[f32], deadline: &Deadline) -> Result<Transcript, DeadlineExceeded> {
        let mut text = String::new();
        let mut symbols: Vec<Symbol> = Vec::new();
        let (mut sum, mut kept) = (0.0, 0_u32);
        let mut last = None;
        let count = self.tokens.len();
        let mut number = 0;
        for block in scores.chunks(rows_per_check(count) * count) {
            deadline.check_after(block.len())?;
            for frame in block.chunks_exact(count) {
                let best = first_largest(frame);
                let is_new = last.replace(best) != Some(best);
                if best != self.blank {
                    if is_new {
                        text.push_str(&self.tokens[best]);
                        sum += f64::from(frame[best]);
                        kept += 1;
                    }
                    match symbols.last_mut().filter(|_| !is_new) {
                        Some(symbol) => symbol.end = number + 1,
                        None if self.options.symbols => {
                            symbols.push(Symbol { token: best, start: number, end: number + 1, score: frame[best] });
                        }
                        None => {}
                    }
                }
                number += 1;
            }
        }
        let text = self.cased(if self.options.trim { text.trim() } else { &text });
        let score = if kept == 0 { 0.0 } else { sum / f64::from(kept) };
        Ok(Transcript { text, symbols, score: score as f32 })
    }

    fn cased(&self, text: &str) -> String {
        if self.options.lowercase { text.to_lowercase() } else { text.to_owned() }
    }

    /// The answer for one recording, and its score.
    fn answer(&self, scores: &[f32], deadline: &Deadline) -> Result<(Json, Json), DeadlineExceeded> {
        let Transcript { text, symbols, score } = self.text(scores, deadline)?;
        let score = float32_to_json(score);
        if !self.options.symbols {
            return Ok((text.into(), score));
        }
        let time = |frame: usize| match self.options.seconds_per_frame {
            Some(seconds) => json!(frame as f64 * seconds),
            None => frame.into(),
        };
        let symbol = |symbol: Symbol| {
            deadline.check_after(SYMBOL)?;
            let Symbol { token, start, end, score } = symbol;
            let token = self.cased(&self.tokens[token]);
            Ok(json!({"symbol": token, "start": time(start), "end": time(end), "score": float32_to_json(score)}))
        };
        let symbols = symbols.into_iter().map(symbol).collect::<Result<Vec<Json>, DeadlineExceeded>>()?;
        Ok((json!({"text": text, "symbols": symbols}), score))
    }
}

/// What one recording becomes.
#[derive(Debug, PartialEq)]
struct Transcript {
    text: String,
    symbols: Vec<Symbol>,
    /// the mean of the tokens' numbers
    score: f32,
}

/// A token of the text, in the frames from `start` to before `end`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Symbol {
    token: usize,
    start: usize,
    end: usize,
    /// its number in the first of these frames
    score: f32,
}

/// Bytes of a symbol in the answer, beside its text.
const SYMBOL: usize = 512;

/// As `numpy.argmax`: the first of equals, NaN before all.
fn first_largest(frame: &[f32]) -> usize {
    let mut best = 0;
    for (index, score) in frame.iter().enumerate() {
        if frame[best].is_nan() {
            break;
        }
        if *score > frame[best] || score.is_nan() {
            best = index;
        }
    }
    best
}

/// A vocabulary, and what stands beside it.
#[derive(Debug, Default)]
struct VocabularyFile {
    tokens: Vec<String>,
    pad_token: Option<String>,
    word_delimiter: Option<String>,
}

/// The tokens of a file, in their order.
fn read(path: &str, site: &OptionOrigin<'_>) -> Result<VocabularyFile, BuildError> {
    let refuse = |why: String| BuildError::option("vocabulary", why);
    let bytes = site.read(Path::new(path), MAX_VOCABULARY_FILE).map_err(|error| refuse(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| refuse(format!("`{path}` is not UTF-8 text")))?;
    let text = text.trim_start_matches('\u{feff}');
    if !text.trim_start().starts_with('{') {
        let tokens = text.trim_end_matches(['\r', '\n']).lines().map(str::to_owned).collect();
        return Ok(VocabularyFile { tokens, ..VocabularyFile::default() });
    }
    let mut numbers: BTreeMap<String, usize> =
        serde_json::from_str(text).map_err(|error| refuse(format!("`{path}` is not a vocabulary: {error}")))?;
    let beside = |name: &str| match site.read(&Path::new(path).with_file_name(name), MAX_VOCABULARY_FILE) {
        Ok(bytes) => {
            let json = serde_json::from_slice(&bytes);
            json.map_err(|error| refuse(format!("`{name}` beside `{path}` is not JSON: {error}")))
        }
        Err(FileError::NotFound { .. } | FileError::NotAFile(_)) => Ok(Json::Null),
        Err(error) => Err(refuse(error.to_string())),
    };
    // Tokens that were added to the model after its vocabulary: `{"<s>": 32}`, or `{"32": {"content": "<s>"}}`.
    let added = beside("added_tokens.json")?;
    let added = added.as_object().into_iter().flatten().map(|(token, number)| (Some(token.as_str()), number.as_u64()));
    let config = beside("tokenizer_config.json")?;
    let declared = config["added_tokens_decoder"].as_object().into_iter().flatten();
    let declared = declared.map(|(number, token)| (token["content"].as_str(), number.parse().ok()));
    for (token, number) in added.chain(declared) {
        if let (Some(token), Some(number)) = (token, number.and_then(|number| usize::try_from(number).ok())) {
            numbers.entry(token.to_owned()).or_insert(number);
        }
    }
    let named = |name: &str| config[name].as_str().or_else(|| config[name]["content"].as_str()).map(str::to_owned);
    let mut tokens = vec![None; numbers.len()];
    for (token, number) in numbers {
        let place = tokens.get_mut(number).filter(|place| place.is_none());
        let place = place.ok_or_else(|| refuse(format!("`{path}`: the numbers of the tokens are not 0, 1, 2 …")))?;
        *place = Some(token);
    }
    Ok(VocabularyFile {
        tokens: tokens.into_iter().flatten().collect(),
        pad_token: named("pad_token"),
        word_delimiter: named("word_delimiter_token"),
    })
}

impl Operation for Decode {
    fn infer_tensor(&self, given: &TensorKind, outputs: &mut Vec<Kind>) -> Result<(), String> {
        let Some(shape) = &given.shape else { return Ok(()) };
        let sizes: Vec<_> = shape.iter().map(ports::fixed).collect();
        self.check(&sizes)?;
        outputs[0] = match shape.as_slice() {
            _ if self.options.symbols => Kind::Json,
            [_, _] | [Dim::Fixed(1), ..] => Kind::Text,
            [Dim::Fixed(_), ..] => Kind::Json,
            _ => Kind::Any,
        };
        Ok(())
    }

    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        let Some(tensor) = ports::given_tensor(inputs) else { return 0 };
        let frames = tensor.len() / self.tokens.len();
        // A copy in float32, and a text that lower case may lengthen.
        let text = frames.saturating_mul(4 * self.longest);
        // A recording without frames is a text, too.
        let recordings = if tensor.rank() == 3 { tensor.shape()[0] } else { 1 };
        let texts = recordings.saturating_mul(10 * size_of::<Json>());
        let text = text.saturating_add(if self.options.symbols { frames.saturating_mul(SYMBOL) } else { 0 });
        tensor.len().saturating_mul(size_of::<f32>()).saturating_add(text).saturating_add(texts)
    }

    fn run(&self, mut inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        let tensor = inputs.tensor()?;
        let invalid = |why: String| StepFailure::InvalidInput(format!("ctc-greedy-decode: {why}"));
        if !tensor.element().is_float() {
            return Err(invalid(format!("it takes floats, but gets {}", tensor.element())));
        }
        let sizes: Vec<_> = tensor.shape().iter().copied().map(Some).collect();
        self.check(&sizes).map_err(invalid)?;
        let symbol = if self.options.symbols { SYMBOL / 8 } else { 0 };
        if (tensor.len() / self.tokens.len()).saturating_mul(self.longest + symbol) > MAX_TEXT {
            return Err(invalid("the text could take more than 64 MiB".into()));
        }
        let batch = if tensor.rank() == 3 { tensor.shape()[0] } else { 1 };
        let size = tensor.len() / batch.max(1);
        let tensor = tensor.cast_cancellable(ElementType::Float32, deadline)?;
        let scores = tensor.as_slice::<f32>().unwrap_or_default();
        let text = |number| self.answer(&scores[number * size..][..size], deadline);
        let (mut texts, mut scores): (Vec<_>, Vec<_>) =
            (0..batch).map(text).collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        let is_one = batch == 1;
        let text = match texts.pop_if(|_| is_one) {
            Some(Json::String(text)) => text.into(),
            Some(answer) => answer.into(),
            None => Json::Array(texts).into(),
        };
        let score = scores.pop_if(|_| is_one).unwrap_or_else(|| Json::Array(scores));
        Ok(if self.options.score { vec![text, score.into()] } else { vec![text] })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use gpux_core::{Context, ModelMetadata, ProjectFiles, Step, Tensor};

    const TOKENS: [&str; 4] = ["<pad>", "|", "a", "b"];

    fn step(options: serde_json::Value) -> Result<Box<dyn Step>, BuildError> {
        crate::reference::build(builtin(), options)
    }

    /// Scores whose best tokens are these.
    fn scores(tokens: &[usize]) -> Tensor {
        let frame =
            |token: &usize| (0..TOKENS.len()).map(|index| f32::from(u8::from(index == *token))).collect::<Vec<_>>();
        Tensor::new([tokens.len(), TOKENS.len()], tokens.iter().flat_map(frame).collect()).unwrap()
    }

    fn decode(tensor: Tensor) -> Result<Value, StepFailure> {
        let step = step(json!({ "vocabulary": TOKENS })).unwrap();
        Ok(step.run(vec![Some(tensor.into())], &mut Context::default())?.remove(0))
    }

    #[test]
    fn drops_repeats_and_blanks() {
        assert_eq!(decode(scores(&[1, 2, 2, 0, 2, 3, 3, 1, 1, 0, 1, 3, 0, 1])).unwrap(), "aab  b".into());
        assert_eq!(decode(scores(&[])).unwrap(), "".into());
        let batch = decode(scores(&[2, 3, 3, 0]).reshape([2, 2, 4]).unwrap()).unwrap();
        assert_eq!(batch, json!(["ab", "b"]).into());
        assert_eq!(decode(scores(&[2, 3]).reshape([1, 2, 4]).unwrap()).unwrap(), "ab".into());
        assert_eq!(decode(Tensor::zeros(ElementType::Float32, [0, 2, 4]).unwrap()).unwrap(), json!([]).into());
        assert_eq!(decode(Tensor::zeros(ElementType::Float16, [3, 4]).unwrap()).unwrap(), "".into());
    }

    #[test]
    fn stops_at_the_deadline() {
        let decode =
            Decode::new(ports::options(json!({ "vocabulary": TOKENS })).unwrap(), &OptionOrigin::Component).unwrap();
        let scores = vec![0.0; 2 << 20];
        assert_eq!(decode.operation.text(&scores, &Deadline::exceeded_after(1)), Err(DeadlineExceeded));
        assert_eq!(decode.operation.text(&scores, &Deadline::exceeded_after(9)).unwrap().text, "");
    }

    #[test]
    fn handles_empty_and_invalid_inputs() {
        let nan = Tensor::new([1, 4], vec![0.0, 1.0, f32::NAN, 2.0]).unwrap();
        assert_eq!(decode(nan).unwrap(), "a".into());
        for shape in [vec![4], vec![3, 5], vec![1, 1, 1, 4], vec![]] {
            let tensor = Tensor::zeros(ElementType::Float32, shape).unwrap();
            assert!(matches!(decode(tensor), Err(StepFailure::InvalidInput(_))));
        }
        assert!(decode(Tensor::zeros(ElementType::Int64, [1, 4]).unwrap()).is_err());
        let long = step(json!({"vocabulary": ["-", "x".repeat(1 << 20)]})).unwrap();
        let frames = Tensor::zeros(ElementType::Float32, [65, 2]).unwrap();
        let error = long.run(vec![Some(frames.into())], &mut Context::default()).unwrap_err();
        assert!(error.to_string().contains("64 MiB"));
    }

    #[test]
    fn reads_vocabularies_from_files() {
        let folder = tempfile::tempdir().unwrap();
        let files = ProjectFiles::new(folder.path(), false);
        let tokens = |text: &str| {
            std::fs::write(folder.path().join("vocab"), text).unwrap();
            read("vocab", &OptionOrigin::folder(&files)).map(|found| found.tokens)
        };
        assert_eq!(tokens("{\"b\": 1, \"<pad>\": 0}").unwrap(), ["<pad>", "b"]);
        assert_eq!(tokens("<blk>\r\n \r\na\n").unwrap(), ["<blk>", " ", "a"]);
        assert!(tokens("{\"b\": 1, \"a\": 1}").is_err());
        assert!(tokens("{\"b\": 5}").is_err());
        assert!(tokens("{\"b\": -1}").is_err());
        assert!(tokens("{").is_err());
        assert!(read("none", &OptionOrigin::folder(&files)).is_err());
    }

    /// As the vocabularies of fine-tuned XLSR models are.
    #[test]
    fn reads_the_files_beside_a_vocabulary() {
        let folder = tempfile::tempdir().unwrap();
        let files = ProjectFiles::new(folder.path(), false);
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let build = || {
            let options = ports::options(json!({"vocabulary": "./vocab.json"})).unwrap();
            Decode::new(options, &OptionOrigin::folder(&files)).map(|step| step.operation)
        };
        write("vocab.json", r#"{"a": 0, "b": 1, "|": 2, "[UNK]": 3, "[PAD]": 4}"#);
        write("added_tokens.json", r#"{"<s>": 5, "</s>": 6}"#);
        let step = build().unwrap();
        assert_eq!((step.tokens.len(), step.blank, step.tokens[2].as_str()), (7, 4, " "));
        write(
            "tokenizer_config.json",
            r#"{"pad_token": "<s>", "word_delimiter_token": {"content": "b"}, "added_tokens_decoder":
               {"4": {"content": "[PAD]"}, "7": {"content": "<x>"}}}"#,
        );
        let step = build().unwrap();
        assert_eq!((step.tokens.len(), step.blank, &step.tokens[1..3]), (8, 5, &[" ".to_owned(), "|".to_owned()][..]));
        write("added_tokens.json", "[");
        assert!(build().err().unwrap().message.contains("`added_tokens.json` beside `./vocab.json` is not JSON"));
    }

    #[test]
    fn a_bar_among_characters_is_no_delimiter() {
        let delimiter = |tokens: &[&str], options: serde_json::Value| {
            let mut all = options;
            all["vocabulary"] = json!(tokens);
            let step = Decode::new(ports::options(all).unwrap(), &OptionOrigin::Component)?;
            Ok::<_, BuildError>(step.operation.tokens.iter().position(|token| token == " "))
        };
        assert_eq!(delimiter(&["-", "|", "a"], json!({})).unwrap(), Some(1));
        assert_eq!(delimiter(&["-", "|", "a"], json!({"word_delimiter": ""})).unwrap(), None);
        assert_eq!(delimiter(&["-", "|", "a", " "], json!({})).unwrap(), Some(3));
        let uncertain = delimiter(&["-", "{", "|", "}"], json!({})).unwrap_err();
        assert!(uncertain.hint.unwrap().contains("word_delimiter: \"\""));
        assert_eq!(delimiter(&["-", "{", "|", "}"], json!({"word_delimiter": "|"})).unwrap(), Some(2));
    }

    /// As PaddleOCR's readers, whose characters stand in the metadata of the model.
    #[test]
    fn reads_a_vocabulary_from_metadata() {
        let files = ProjectFiles::new(".", false);
        let mut models = ModelMetadata::default();
        models.insert("reader", [("character".to_owned(), "a\n|\n\u{3000}".to_owned())].into(), BTreeSet::new());
        let origin = OptionOrigin::Pipeline { files: &files, models: &models };
        let options = json!({"vocabulary": {"model": "reader", "key": "character"}, "add_blank": "first",
            "append_space": true, "trim": false, "score": true});
        let step = crate::reference::build_at(builtin(), options, &origin).unwrap();
        let run = |frames: &[(usize, f32)]| {
            let scores =
                frames.iter().flat_map(|(best, score)| (0..5).map(|token| if token == *best { *score } else { 0.0 }));
            let tensor: Tensor = Tensor::new([1, frames.len(), 5], scores.collect()).unwrap();
            step.run(vec![Some(tensor.into())], &mut Context::default()).unwrap()
        };
        let line = run(&[(4, 0.5), (1, 1.0), (1, 0.1), (0, 0.9), (2, 0.75), (3, 0.75)]);
        assert_eq!(line, [" a|\u{3000}".into(), json!(0.75).into()]);
        assert_eq!(run(&[(0, 0.9)]), ["".into(), json!(0.0).into()]);
        let batch = Tensor::zeros(ElementType::Float32, [2, 1, 5]).unwrap();
        let batch = step.run(vec![Some(batch.into())], &mut Context::default()).unwrap();
        assert_eq!(batch, [json!(["", ""]).into(), json!([0.0, 0.0]).into()]);

        let last = json!({"vocabulary": ["a", "b"], "add_blank": "last", "symbols": true, "score": true});
        let last = crate::reference::build_at(builtin(), last, &origin).unwrap();
        let tensor = Tensor::new([2, 3], vec![0.0, 0.5, 0.0, 0.0, 0.0, 1.0_f32]).unwrap();
        let symbols = json!([{"symbol": "b", "start": 0, "end": 1, "score": 0.5}]);
        let expected = [json!({"text": "b", "symbols": symbols}).into(), json!(0.5).into()];
        assert_eq!(last.run(vec![Some(tensor.into())], &mut Context::default()).unwrap(), expected);

        let both = json!({"vocabulary": ["a", "b"], "add_blank": "last", "blank": "a"});
        assert!(step_error(both).contains("`blank` names another"));
        assert!(step_error(json!({"vocabulary": {"key": "character"}})).contains("a component may not read"));
    }

    fn step_error(options: serde_json::Value) -> String {
        step(options).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn gives_symbols_with_frames_and_scores() {
        let decode = |options: serde_json::Value| {
            let mut all = options;
            all["vocabulary"] = json!(TOKENS);
            all["symbols"] = true.into();
            let step = step(all).unwrap();
            step.run(vec![Some(scores(&[0, 2, 2, 0, 2, 1, 3]).into())], &mut Context::default()).unwrap().remove(0)
        };
        let symbol =
            |symbol: &str, start: f64, end: f64| json!({"symbol": symbol, "start": start, "end": end, "score": 1.0});
        // As `output_char_offsets` of transformers.
        let expected = json!({"text": "aa b", "symbols": [
            {"symbol": "a", "start": 1, "end": 3, "score": 1.0}, {"symbol": "a", "start": 4, "end": 5, "score": 1.0},
            {"symbol": " ", "start": 5, "end": 6, "score": 1.0}, {"symbol": "b", "start": 6, "end": 7, "score": 1.0},
        ]});
        assert_eq!(decode(json!({})), expected.into());
        let Value::Json(timed) = decode(json!({"seconds_per_frame": 0.5})) else { panic!("no JSON") };
        assert_eq!(timed["symbols"][3], symbol("b", 3.0, 3.5));
    }

    #[test]
    fn rejects_invalid_options_and_inputs() {
        for options in [
            json!({}),
            json!({"vocabulary": []}),
            json!({"vocabulary": ["a", "b"]}),
            json!({"vocabulary": ["a", "b"], "blank": "c"}),
            json!({"vocabulary": ["-", "b"], "word_delimiter": "c"}),
            json!({"vocabulary": "vocab.json"}),
        ] {
            assert!(step(options).is_err());
        }
        let step = step(json!({ "vocabulary": TOKENS })).unwrap();
        let infer = |dims: &[Dim]| step.infer(&[Some(Kind::Tensor(TensorKind::shaped(ElementType::Float32, dims)))]);
        assert_eq!(infer(&[Dim::Fixed(1), Dim::Dynamic, Dim::Fixed(4)]).unwrap(), [Kind::Text]);
        assert_eq!(infer(&[Dim::Dynamic, Dim::Dynamic, Dim::Fixed(4)]).unwrap(), [Kind::Any]);
        assert!(infer(&[Dim::Dynamic, Dim::Fixed(5)]).unwrap_err().to_string().contains("4 tokens"));
    }
}
