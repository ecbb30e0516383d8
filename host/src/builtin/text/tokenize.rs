//! `tokenize`: text → the numbers that a language model takes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokenizers::{
    Encoding, PaddingDirection, PostProcessor as _, PostProcessorWrapper, Tokenizer, TruncationDirection,
    TruncationParams, TruncationStrategy,
};

use super::growth::growth;
use super::tokenizer_file;
use crate::builtin::ports;
use crate::pipeline::{
    BuildError, Builtin, Context, Dim, ElementType, Group, Kind, Mismatch, Port, Signature, Step, StepFailure, Tensor,
    TensorData, TensorKind, Value,
};

/// Most tokens that `max_length` may ask for.
const MAX_LENGTH: usize = 1 << 20;

/// Most tokens of one answer, over the whole batch, padding included.
const MAX_TOKENS: usize = 16 << 20;

/// Most text that is taken at once, in bytes.
const MAX_TEXT: usize = 64 << 20;

/// Most text that a tokenizer's normalizer may make of it, in bytes.
const MAX_NORMALIZED: usize = 1 << 30;

/// What tokenizers call their padding, where their file does not say how to pad.
const PAD_TOKENS: [&str; 4] = ["[PAD]", "<pad>", "<|padding|>", "<|endoftext|>"];

/// Options of `tokenize`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Options {
    /// A `tokenizer.json`: its path, or a model's name, looked up as `./tokenizer.json`,
    /// `./NAME/tokenizer.json` and in the local Hugging Face cache. Required.
    tokenizer: String,
    /// Most tokens of one text (or pair), special ones included, 1 to 1048576. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_048_576))]
    max_length: Option<usize>,
    /// Whether a longer text is cut at `max_length`, of a pair the longer one first. Default: true
    /// where `max_length` is given, else false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    truncation: Option<bool>,
    /// Whether shorter texts are filled up: `none`, `longest` (default: to the longest of the batch)
    /// or `max_length`.
    #[serde(default)]
    padding: Padding,
    /// Round the padded length up to a multiple of this many tokens, 1 to 1048576. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_048_576))]
    pad_to_multiple_of: Option<usize>,
    /// The token that fills up, such as `[PAD]`. Default: what the tokenizer's file says, else its
    /// token named `[PAD]`, `<pad>`, `<|padding|>` or `<|endoftext|>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pad_token: Option<String>,
    /// Whether the tokens that mark start, end and separation are added. Default: true.
    #[serde(default = "yes")]
    add_special_tokens: bool,
}

const fn yes() -> bool {
    true
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Padding {
    None,
    #[default]
    Longest,
    MaxLength,
}

/// Splits text into tokens as a Hugging Face `tokenizer.json` says, into int64 tensors of batch ×
/// length named `input_ids`, `attention_mask` and `token_type_ids`.
///
/// Takes a text, a JSON list of texts or a string tensor of one axis; with a second port, `pair`,
/// pairs of them. Follows the Python package `tokenizers` exactly: it is the same code. Truncation
/// and padding are those of the options, never those that the file switches on; the file still says
/// from which side, and with which token.
struct Tokenize {
    options: Options,
    tokenizer: Tokenizer,
    /// the same without truncation and special tokens, made when the first pair has to be cut
    bare: OnceLock<Tokenizer>,
    file: String,
    /// how many times longer the tokenizer's normalizer can make a text
    growth: usize,
    truncates: bool,
    fill: Fill,
    signature: Signature,
}

/// How a short text is filled up.
struct Fill {
    /// the token's number; `None` if the tokenizer has none
    id: Option<u32>,
    type_id: u32,
    left: bool,
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "tokenize",
        summary: "Turns text into a language model's token numbers",
        group: Group::Text,
        follows: "Hugging Face tokenizers: Tokenizer.encode",
        example: "tokenize: { tokenizer: ./tokenizer.json, max_length: 128 }",
        schema: || schemars::schema_for!(Options),
        build: |options, site| {
            let options: Options = ports::options(options)?;
            let file = tokenizer_file::find(&options.tokenizer, site)?;
            Ok(Box::new(Tokenize::new(options, &file.path.display().to_string(), &file.bytes)?))
        },
    }
}

/// Runs code of the tokenizers crate, whose asserts and subtractions a hostile file or text can trip.
fn guarded<T>(run: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err("the tokenizer gave up".to_owned()),
    }
}

impl Tokenize {
    fn new(options: Options, file: &str, bytes: &[u8]) -> Result<Self, BuildError> {
        for (name, value) in [("max_length", options.max_length), ("pad_to_multiple_of", options.pad_to_multiple_of)] {
            if let Some(value) = value.filter(|value| !(1..=MAX_LENGTH).contains(value)) {
                return Err(BuildError::option(name, format!("`{name}` is {value}, not 1 to {MAX_LENGTH}")));
            }
        }
        let needs_length = |option: &str| {
            let message = format!("`{option}` needs to know the `max_length`");
            BuildError::option(option, message).with_hint("add `max_length: 128`, for example")
        };
        let truncates = options.truncation.unwrap_or(options.max_length.is_some());
        if truncates && options.max_length.is_none() {
            return Err(needs_length("truncation"));
        }
        if options.padding == Padding::MaxLength && options.max_length.is_none() {
            return Err(needs_length("padding"));
        }
        let unusable = |why: String| BuildError::option("tokenizer", format!("`{file}` is no usable tokenizer: {why}"));
        let mut tokenizer = guarded(|| Tokenizer::from_bytes(bytes)).map_err(unusable)?;
        let padding = fill(&options, &tokenizer)?;
        tokenizer.with_padding(None);
        guarded(|| truncate(&mut tokenizer, options.max_length.filter(|_| truncates))).map_err(unusable)?;
        let signature = signature(&options, truncates);
        let step = Self {
            options,
            tokenizer,
            bare: OnceLock::new(),
            file: file.to_owned(),
            growth: growth(bytes),
            truncates,
            fill: padding,
            signature,
        };
        step.check_room(false).map_err(|message| BuildError::option("max_length", message))?;
        Ok(step)
    }

    /// How many special tokens are added to a text or a pair.
    fn special_tokens(&self, pair: bool) -> usize {
        let added = || self.tokenizer.get_post_processor().map_or(0, |processor| processor.added_tokens(pair));
        if self.options.add_special_tokens { added() } else { 0 }
    }

    fn check_room(&self, pair: bool) -> Result<(), String> {
        let special = self.special_tokens(pair);
        match self.options.max_length {
            Some(length) if self.truncates && length < special => {
                Err(format!("`max_length` is {length}, but the special tokens alone are {special}"))
            }
            _ => Ok(()),
        }
    }

    fn encode(&self, texts: Vec<String>, pairs: Option<Vec<String>>) -> Result<Vec<Encoding>, StepFailure> {
        let mut pairs = pairs.map(Vec::into_iter);
        let mut tokens = 0;
        let encode = |text: String| {
            let special = self.options.add_special_tokens;
            let encoded = guarded(|| match pairs.as_mut().and_then(Iterator::next) {
                None => self.tokenizer.encode_fast(text, special),
                Some(pair) if self.truncates => self.encode_cut_pair(text, pair),
                Some(pair) => self.tokenizer.encode_fast((text, pair), special),
            });
            let encoding =
                encoded.map_err(|why| StepFailure::InvalidInput(format!("the text cannot be tokenized: {why}")))?;
            tokens += encoding.len();
            if tokens > MAX_TOKENS { Err(too_many()) } else { Ok(encoding) }
        };
        texts.into_iter().map(encode).collect()
    }

    /// Encodes a pair and cuts it. The crate (0.23.2) stops at `max_length` tokens of each text before
    /// it decides how much of each to keep, which then comes out differently than in Python.
    fn encode_cut_pair(&self, text: String, pair: String) -> tokenizers::Result<Encoding> {
        let bare = self.bare.get_or_init(|| {
            let mut bare = self.tokenizer.clone();
            bare.with_post_processor(None::<PostProcessorWrapper>);
            if let Some(truncation) = bare.get_truncation_mut() {
                truncation.max_length = usize::MAX;
            }
            bare
        });
        let first = bare.encode_fast(text, false)?;
        let mut second = bare.encode_fast(pair, false)?;
        second.set_type_ids(vec![1; second.len()]);
        self.tokenizer.post_process(first, Some(second), self.options.add_special_tokens)
    }

    /// The length that every row of the answer gets.
    fn padded_length(&self, encodings: &[Encoding]) -> Result<usize, StepFailure> {
        let lengths = || encodings.iter().map(Encoding::len);
        let longest = lengths().max().unwrap_or(0);
        let wanted = match self.options.padding {
            Padding::None => {
                if lengths().min() != lengths().max() {
                    let message = "the texts of the batch have different numbers of tokens; set `padding: longest`";
                    return Err(StepFailure::InvalidInput(message.into()));
                }
                return Ok(longest);
            }
            Padding::Longest => longest,
            Padding::MaxLength => longest.max(self.options.max_length.unwrap_or(0)),
        };
        Ok(wanted.next_multiple_of(self.options.pad_to_multiple_of.unwrap_or(1)))
    }

    fn tensors(&self, encodings: &[Encoding]) -> Result<Vec<Value>, StepFailure> {
        let length = self.padded_length(encodings)?;
        let pads = encodings.iter().any(|encoding| encoding.len() < length);
        let pad_id = match self.fill.id {
            Some(id) => id,
            None if pads => return Err(StepFailure::Failed(no_pad_token(&self.file))),
            None => 0,
        };
        if encodings.len().saturating_mul(length) > MAX_TOKENS {
            return Err(too_many());
        }
        let tensor = |values: fn(&Encoding) -> &[u32], pad: u32| -> Result<Value, StepFailure> {
            let mut data = Vec::with_capacity(encodings.len() * length);
            for encoding in encodings {
                let padding = std::iter::repeat_n(i64::from(pad), length - encoding.len());
                let values = values(encoding).iter().copied().map(i64::from);
                if self.fill.left { data.extend(padding.chain(values)) } else { data.extend(values.chain(padding)) }
            }
            Ok(Tensor::new([encodings.len(), length], data)?.into())
        };
        Ok(vec![
            tensor(Encoding::get_ids, pad_id)?,
            tensor(Encoding::get_attention_mask, 0)?,
            tensor(Encoding::get_type_ids, self.fill.type_id)?,
        ])
    }
}

impl Step for Tokenize {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn infer(&self, inputs: &[Option<Kind>]) -> Result<Vec<Kind>, Mismatch> {
        let mut batch = Dim::Dynamic;
        for (port, given) in self.signature.inputs.iter().zip(inputs) {
            match given {
                Some(Kind::Text) => batch = Dim::Fixed(1),
                Some(Kind::Tensor(tensor)) => {
                    let texts = Kind::Tensor(texts_kind());
                    texts.accepts(&Kind::Tensor(tensor.clone()))?;
                    batch = tensor.shape.as_ref().and_then(|shape| shape.first()).cloned().unwrap_or(Dim::Dynamic);
                }
                Some(given @ Kind::Bytes) => {
                    let because = Some(format!("`{}` takes text or a list of texts", port.name));
                    return Err(Mismatch { expected: Kind::Text, given: given.clone(), because });
                }
                Some(Kind::Json | Kind::Any) | None => {}
            }
        }
        let with_batch = |port: &Port| match &port.kind {
            Kind::Tensor(TensorKind { elements, shape: Some(shape), .. }) => {
                Kind::Tensor(TensorKind::shaped(*elements, [vec![batch.clone()], shape[1..].to_vec()].concat()))
            }
            other => other.clone(),
        };
        Ok(self.signature.outputs.iter().map(with_batch).collect())
    }

    fn run(&self, inputs: Vec<Option<Value>>, _: &mut Context) -> Result<Vec<Value>, StepFailure> {
        let mut inputs = inputs.into_iter();
        let texts = texts(ports::first(inputs.by_ref().take(1).collect(), "text")?, "text")?;
        let pairs = inputs.next().flatten().map(|pairs| self::texts(pairs, "pair")).transpose()?;
        if let Some(pairs) = &pairs {
            if pairs.len() != texts.len() {
                let message = format!("`text` holds {} texts, but `pair` {}", texts.len(), pairs.len());
                return Err(StepFailure::InvalidInput(message));
            }
            self.check_room(true).map_err(StepFailure::InvalidInput)?;
        }
        let bytes: usize = texts.iter().chain(pairs.iter().flatten()).map(String::len).sum();
        if bytes <= MAX_TEXT && bytes.saturating_mul(self.growth) > MAX_NORMALIZED {
            return Err(StepFailure::Failed(format!(
                "the tokenizer may make {} times as much of a text before it cuts it up, which is too much for {bytes} \
                 bytes; send less at once, or use another tokenizer",
                self.growth
            )));
        }
        if bytes > MAX_TEXT {
            let message = format!("the text is {bytes} bytes; at most {MAX_TEXT} are tokenized at once");
            return Err(StepFailure::InvalidInput(message));
        }
        self.tensors(&self.encode(texts, pairs)?)
    }

    fn details(&self) -> serde_json::Value {
        let mut details = serde_json::to_value(&self.options).unwrap_or_default();
        details["file"] = json!(self.file);
        details["vocabulary"] = json!(self.tokenizer.get_vocab_size(true));
        details
    }
}

fn too_many() -> StepFailure {
    StepFailure::InvalidInput(format!("the text has over {MAX_TOKENS} tokens; set `max_length` or send less at once"))
}

fn no_pad_token(file: &str) -> String {
    format!("texts must be filled up, but `{file}` names no padding token; set `pad_token`")
}

fn texts_kind() -> TensorKind {
    TensorKind::shaped(ElementType::String, [Dim::Dynamic])
}

/// The texts that a value holds.
fn texts(value: Value, port: &str) -> Result<Vec<String>, StepFailure> {
    let refuse = |what: &dyn std::fmt::Display| {
        Err(StepFailure::InvalidInput(format!("`{port}` takes text or a list of texts, but gets {what}")))
    };
    let texts = match value {
        Value::Text(text) => vec![text.to_string()],
        Value::Json(json) => match json.as_ref() {
            serde_json::Value::String(text) => vec![text.clone()],
            serde_json::Value::Array(items) => {
                let text = |item: &serde_json::Value| item.as_str().map(str::to_owned);
                match items.iter().map(text).collect::<Option<Vec<_>>>() {
                    Some(texts) => texts,
                    None => return refuse(&"a list with something else in it"),
                }
            }
            serde_json::Value::Object(_) => return refuse(&"a JSON object"),
            _ => return refuse(&"other JSON"),
        },
        Value::Tensor(tensor) => match (tensor.data(), tensor.rank()) {
            (TensorData::String(texts), 0 | 1) => texts.to_vec(),
            _ => return refuse(&Kind::Tensor(TensorKind::of(&tensor))),
        },
        Value::Bytes(_) => return refuse(&"bytes"),
    };
    if texts.is_empty() { refuse(&"an empty list") } else { Ok(texts) }
}

fn signature(options: &Options, truncates: bool) -> Signature {
    let round = |length: usize| length.next_multiple_of(options.pad_to_multiple_of.unwrap_or(1));
    let length = match options.max_length {
        Some(length) if truncates && options.padding == Padding::MaxLength => Dim::Fixed(round(length)),
        _ => Dim::Dynamic,
    };
    let output = |name: &str, description: &str| {
        let kind = TensorKind::shaped(ElementType::Int64, [Dim::Dynamic, length.clone()]);
        Port { description: description.into(), ..Port::new(name, Kind::Tensor(kind)) }
    };
    Signature {
        inputs: vec![
            Port { description: "a text, or a list of texts".into(), ..Port::new("text", Kind::Any) },
            Port { description: "the second text of each pair".into(), ..Port::optional("pair", Kind::Any) },
        ],
        outputs: vec![
            output("input_ids", "the number of each token"),
            output("attention_mask", "1 for a token, 0 for padding"),
            output("token_type_ids", "0 for the first text, 1 for its pair"),
        ],
    }
}

fn truncate(tokenizer: &mut Tokenizer, max_length: Option<usize>) -> tokenizers::Result<()> {
    let direction = tokenizer.get_truncation().map_or(TruncationDirection::Right, |file| file.direction);
    let params = max_length.map(|max_length| TruncationParams {
        direction,
        max_length,
        strategy: TruncationStrategy::LongestFirst,
        stride: 0,
    });
    // Set in two steps, since setting it whole subtracts the special tokens even where none are added.
    tokenizer.with_truncation(params.clone().map(|params| TruncationParams { max_length: usize::MAX, ..params }))?;
    if let (Some(set), Some(params)) = (tokenizer.get_truncation_mut(), params) {
        *set = params;
    }
    Ok(())
}

fn fill(options: &Options, tokenizer: &Tokenizer) -> Result<Fill, BuildError> {
    let file = tokenizer.get_padding();
    let id = match &options.pad_token {
        Some(token) => {
            let id = tokenizer.token_to_id(token);
            Some(id.ok_or_else(|| BuildError::option("pad_token", format!("the tokenizer has no token `{token}`")))?)
        }
        None => {
            file.map(|file| file.pad_id).or_else(|| PAD_TOKENS.iter().find_map(|token| tokenizer.token_to_id(token)))
        }
    };
    if id.is_none() && options.padding == Padding::MaxLength {
        return Err(BuildError::option("padding", "the tokenizer names no padding token").with_hint("set `pad_token`"));
    }
    Ok(Fill {
        id,
        type_id: file.map_or(0, |file| file.pad_type_id),
        left: file.is_some_and(|file| matches!(file.direction, PaddingDirection::Left)),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;
    use crate::builtin::reference;

    fn build(name: &str, options: serde_json::Value) -> Result<Tokenize, BuildError> {
        let mut options = options;
        options["tokenizer"] = json!(name);
        Tokenize::new(ports::options(options)?, name, &reference::read(&format!("tokenize/{name}.json")))
    }

    fn run(step: &Tokenize, inputs: Vec<Value>) -> Result<Vec<Vec<i64>>, StepFailure> {
        let outputs = step.run(inputs.into_iter().map(Some).collect(), &mut Context::default())?;
        Ok(outputs.iter().map(|value| value.as_tensor().unwrap().as_slice::<i64>().unwrap().to_vec()).collect())
    }

    #[test]
    fn every_form_of_text_is_taken() {
        let step = build("wordpiece", json!({})).unwrap();
        let text = run(&step, vec!["the fox".into()]).unwrap();
        let strings = Tensor::new([1], vec!["the fox".to_owned()]).unwrap();
        for value in [json!("the fox").into(), json!(["the fox"]).into(), Value::Tensor(strings)] {
            assert_eq!(run(&step, vec![value]).unwrap(), text);
        }
        for value in [
            json!([]).into(),
            json!(["a", 1]).into(),
            json!({"text": "a"}).into(),
            json!(null).into(),
            vec![1_u8].into(),
            Value::Tensor(Tensor::new([1], vec![1_i64]).unwrap()),
            Value::Tensor(Tensor::new([0], Vec::<String>::new()).unwrap()),
        ] {
            let error = run(&step, vec![value]).unwrap_err();
            assert!(error.to_string().contains("takes text or a list of texts"), "{error}");
        }
        let error = run(&step, vec![json!(["a", "b"]).into(), json!(["c"]).into()]).unwrap_err();
        assert!(error.to_string().contains("`text` holds 2 texts, but `pair` 1"), "{error}");
        assert!(run(&step, vec![]).is_err());
    }

    #[test]
    fn the_plan_knows_batch_and_length() {
        let infer = |options, kind| {
            build("wordpiece", options).unwrap().infer(&[Some(kind), None]).map(|kinds| kinds[0].to_string())
        };
        assert_eq!(infer(json!({}), Kind::Text).unwrap(), "tensor int64[1, ?]");
        assert_eq!(infer(json!({"max_length": 10}), Kind::Json).unwrap(), "tensor int64[?, ?]");
        let padded = json!({"max_length": 10, "padding": "max_length", "pad_to_multiple_of": 8});
        assert_eq!(infer(padded, Kind::Text).unwrap(), "tensor int64[1, 16]");
        let strings = |dim| Kind::Tensor(TensorKind::shaped(ElementType::String, [dim]));
        assert_eq!(infer(json!({}), strings(Dim::Fixed(3))).unwrap(), "tensor int64[3, ?]");
        assert!(infer(json!({}), Kind::Bytes).is_err());
        assert!(infer(json!({}), Kind::Tensor(TensorKind::of_elements(ElementType::Int64))).is_err());
    }

    #[test]
    fn options_that_cannot_work_are_refused() {
        for (options, option) in [
            (json!({"max_length": 0}), "max_length"),
            (json!({"max_length": 1}), "max_length"),
            (json!({"max_length": 1_u64 << 40}), "max_length"),
            (json!({"truncation": true}), "truncation"),
            (json!({"padding": "max_length"}), "padding"),
            (json!({"pad_to_multiple_of": 0}), "pad_to_multiple_of"),
            (json!({"pad_token": "[NONE]"}), "pad_token"),
        ] {
            assert_eq!(build("wordpiece", options.clone()).err().unwrap().option, [option], "{options}");
        }
        assert!(build("wordpiece", json!({"max_length": 1, "add_special_tokens": false})).is_ok());
        assert!(build("wordpiece", json!({"max_length": 1, "truncation": false})).is_ok());
    }

    #[test]
    fn a_batch_of_unlike_lengths_needs_padding() {
        let batch = || vec![json!(["a", "a much longer text"]).into()];
        let error = run(&build("wordpiece", json!({"padding": "none"})).unwrap(), batch()).unwrap_err();
        assert!(error.to_string().contains("set `padding: longest`"), "{error}");
        let short = build("wordpiece", json!({"max_length": 2})).unwrap();
        assert_eq!(run(&short, batch()).unwrap()[0], [2, 3, 2, 3], "only [CLS] and [SEP] fit");
        let error = run(&short, vec!["a".into(), "b".into()]).unwrap_err();
        assert!(error.to_string().contains("special tokens alone are 3"), "{error}");
        let left = build("bpe", json!({"max_length": 3, "padding": "max_length"})).unwrap();
        assert_eq!(run(&left, vec!["a".into()]).unwrap()[1], [0, 0, 1], "the file says: from the left");
    }

    #[test]
    fn too_much_text_is_refused() {
        let step = build("wordpiece", json!({"max_length": MAX_LENGTH, "padding": "max_length"})).unwrap();
        let error = run(&step, vec![json!(vec![""; 17]).into()]).unwrap_err();
        assert!(error.to_string().contains("tokens"), "{error}");
        let error = run(&step, vec!["a".repeat(MAX_TEXT + 1).into()]).unwrap_err();
        assert!(error.to_string().contains("bytes"), "{error}");
    }

    #[test]
    fn hostile_files_and_texts_do_no_harm() {
        let options = || Options { max_length: None, ..ports::options(json!({"tokenizer": "t"})).unwrap() };
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        for bytes in [&b""[..], b"{}", b"null", &[0xff, 0xfe], deep.as_bytes(), b"{\"model\": {\"type\": \"BPE\"}}"] {
            assert!(Tokenize::new(options(), "t.json", bytes).is_err());
        }
        let mut random = reference::random();
        for name in ["wordpiece", "bpe", "unigram"] {
            let whole = reference::read(&format!("tokenize/{name}.json"));
            for length in (0..whole.len() - 1).step_by(1501) {
                assert!(Tokenize::new(options(), "t.json", &whole[..length]).is_err());
            }
            for _ in 0..100 {
                let mut bytes = whole.clone();
                for _ in 0..=random(4) {
                    let at = random(bytes.len());
                    bytes[at] = b"0195,:{}[]\"-e\\ aZ"[random(17)];
                }
                if let Ok(step) = Tokenize::new(options(), "t.json", &bytes) {
                    let text: String = (0..40).filter_map(|_| char::from_u32(random(0x3000) as u32)).collect();
                    let _ = run(&step, vec![text.as_str().into(), "pair".into()]);
                }
            }
        }
    }
}
