//! `ctc-greedy-decode`: what an acoustic model gives → text.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::deadline::{Deadline, DeadlineExceeded, rows_per_check};
use crate::operation::{BuiltinStep, Inputs, Operation};
use crate::ports;
use gpux_core::{
    BuildError, Builtin, Dim, ElementSet, ElementType, Group, Kind, OptionOrigin, Port, Signature, StepFailure,
    TensorKind, Value,
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
struct Options {
    /// The tokens, in the order of the last axis: a list, or the path of a file: Hugging Face's `vocab.json`
    /// (`{"<pad>": 0, "|": 4, …}`), or text with one token a line. Required.
    vocabulary: Vocabulary,
    /// The token that stands for nothing, between tokens and in silence. Default: `<pad>`, else `<blk>`,
    /// `<blank>`, `[PAD]` or `-`, whichever the vocabulary has first in this order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    blank: Option<String>,
    /// The token that becomes a space. Default: `|`, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    word_delimiter: Option<String>,
    /// Whether the text becomes lower case. Default: false.
    #[serde(default)]
    lowercase: bool,
}

#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum Vocabulary {
    File(String),
    List(Vec<String>),
}

const BLANKS: [&str; 5] = ["<pad>", "<blk>", "<blank>", "[PAD]", "-"];
const DELIMITER: &str = "|";

/// Turns the scores of a model trained with connectionist temporal classification into text: the best token
/// of each frame, repeated ones once, blanks left out. `[frames, tokens]` gives a text, `[batch, frames, tokens]`
/// a text if the batch is one, else a JSON list of texts.
///
/// Follows `Wav2Vec2CTCTokenizer.decode` of transformers on `argmax` of the scores, without its cleaning up of
/// spaces before punctuation; so does torchaudio's `GreedyCTCDecoder`.
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
        let mut tokens = match &options.vocabulary {
            Vocabulary::List(tokens) => tokens.clone(),
            Vocabulary::File(path) => read(path, site)?,
        };
        if tokens.is_empty() || tokens.len() > MAX_TOKENS {
            let why = format!("there are {} tokens, but there must be 1 to {MAX_TOKENS}", tokens.len());
            return Err(BuildError::option("vocabulary", why));
        }
        let find = |token: &str| tokens.iter().position(|known| known == token);
        let unknown = |option: &str, token: &str| BuildError::option(option, format!("there is no token `{token}`"));
        let blank = match &options.blank {
            Some(blank) => find(blank).ok_or_else(|| unknown("blank", blank))?,
            None => BLANKS.iter().find_map(|blank| find(blank)).ok_or_else(|| {
                BuildError::option("vocabulary", "which token is the blank is not known")
                    .with_hint("say `blank:`, often the first token")
            })?,
        };
        let delimiter = match &options.word_delimiter {
            Some(delimiter) => Some(find(delimiter).ok_or_else(|| unknown("word_delimiter", delimiter))?),
            None => find(DELIMITER),
        };
        if let Some(delimiter) = delimiter {
            " ".clone_into(&mut tokens[delimiter]);
        }
        let longest = tokens.iter().map(String::len).max().unwrap_or(0);
        let signature = Signature::unary(
            Port {
                description: format!("[frames, {0}] or [batch, frames, {0}]", tokens.len()),
                ..Port::new("scores", Kind::Tensor(TensorKind::of_elements(ElementSet::floats())))
            },
            Port { description: "the text, or a list of texts".into(), ..Port::new("text", Kind::Any) },
        );
        let details = json!({"tokens": tokens.len(), "blank": blank, "lowercase": options.lowercase});
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

    /// The text of one recording.
    fn text(&self, scores: &[f32], deadline: &Deadline) -> Result<String, DeadlineExceeded> {
        let mut text = String::new();
        let mut last = None;
        let count = self.tokens.len();
        for block in scores.chunks(rows_per_check(count) * count) {
            deadline.check_after(block.len())?;
            for frame in block.chunks_exact(count) {
                let best = first_largest(frame);
                if last.replace(best) != Some(best) && best != self.blank {
                    text.push_str(&self.tokens[best]);
                }
            }
        }
        let text = text.trim();
        Ok(if self.options.lowercase { text.to_lowercase() } else { text.to_owned() })
    }
}

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

/// The tokens of a file, in their order.
fn read(path: &str, site: &OptionOrigin<'_>) -> Result<Vec<String>, BuildError> {
    let refuse = |why: String| BuildError::option("vocabulary", why);
    let bytes = site.read(Path::new(path), MAX_VOCABULARY_FILE).map_err(|error| refuse(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| refuse(format!("`{path}` is not UTF-8 text")))?;
    let text = text.trim_start_matches('\u{feff}');
    if !text.trim_start().starts_with('{') {
        return Ok(text.trim_end_matches(['\r', '\n']).lines().map(str::to_owned).collect());
    }
    let numbers: std::collections::BTreeMap<String, usize> =
        serde_json::from_str(text).map_err(|error| refuse(format!("`{path}` is not a vocabulary: {error}")))?;
    let mut tokens = vec![None; numbers.len()];
    for (token, number) in numbers {
        let place = tokens.get_mut(number).filter(|place| place.is_none());
        let place = place.ok_or_else(|| refuse(format!("`{path}`: the numbers of the tokens are not 0, 1, 2 …")))?;
        *place = Some(token);
    }
    Ok(tokens.into_iter().flatten().collect())
}

impl Operation for Decode {
    fn infer_tensor(&self, given: &TensorKind, outputs: &mut Vec<Kind>) -> Result<(), String> {
        let Some(shape) = &given.shape else { return Ok(()) };
        let sizes: Vec<_> = shape.iter().map(ports::fixed).collect();
        self.check(&sizes)?;
        outputs[0] = match shape.as_slice() {
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
        let texts = recordings.saturating_mul(4 * size_of::<serde_json::Value>());
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
        if (tensor.len() / self.tokens.len()).saturating_mul(self.longest) > MAX_TEXT {
            return Err(invalid("the text could take more than 64 MiB".into()));
        }
        let batch = if tensor.rank() == 3 { tensor.shape()[0] } else { 1 };
        let size = tensor.len() / batch.max(1);
        let tensor = tensor.cast_cancellable(ElementType::Float32, deadline)?;
        let scores = tensor.as_slice::<f32>().unwrap_or_default();
        let text = |number| self.text(&scores[number * size..][..size], deadline);
        let mut texts = (0..batch).map(text).collect::<Result<Vec<_>, _>>()?;
        let only = texts.pop_if(|_| batch == 1);
        Ok(vec![only.map_or_else(|| json!(texts).into(), Value::from)])
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;
    use gpux_core::{Context, ProjectFiles, Step, Tensor};

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
        assert_eq!(decode.operation.text(&scores, &Deadline::exceeded_after(9)).unwrap(), "");
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
            read("vocab", &OptionOrigin::Pipeline(&files))
        };
        assert_eq!(tokens("{\"b\": 1, \"<pad>\": 0}").unwrap(), ["<pad>", "b"]);
        assert_eq!(tokens("<blk>\r\n \r\na\n").unwrap(), ["<blk>", " ", "a"]);
        assert!(tokens("{\"b\": 1, \"a\": 1}").is_err());
        assert!(tokens("{\"b\": 5}").is_err());
        assert!(tokens("{\"b\": -1}").is_err());
        assert!(tokens("{").is_err());
        assert!(read("none", &OptionOrigin::Pipeline(&files)).is_err());
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
