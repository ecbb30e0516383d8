//! `chunk`: what is too long for a model → overlapping windows of it, as a batch.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokenizers::{Encoding, TruncationStrategy};

use super::batch::{self, Extras, Fill, FillOptions, MAX_TOKENS, Padding, Side, outputs};
use super::encoder::{self, Cut, Encoder, MAX_LENGTH};
use super::texts;
use super::tokenizer_file::{self, TokenizerFile};
use super::windows::Windows;
use crate::pacing::Deadline;
use crate::ports;
use gpux_core::{
    BuildError, Builtin, Context, Dim, ElementType, Group, Kind, Mismatch, Port, Signature, Site, Step, StepFailure,
    Tensor, TensorKind, Value,
};

/// What the tokenizers crate holds for a token of a window at most, in bytes.
const PER_TOKEN: usize = 256;

/// Numbers that are given for each token at most: its own, two masks, two offsets and what it belongs to.
const TENSORS: usize = 8;

/// Options of `chunk`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub(super) struct Options {
    /// Most tokens of one window, special ones included, 1 to 1048576. Required.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub(super) max_length: usize,
    /// How many tokens a window shares with the one before, less than it has room for. Default: 0.
    #[serde(default)]
    #[schemars(range(max = 1_048_575))]
    pub(super) stride: usize,
    /// A `tokenizer.json`, as for `tokenize`: the step then takes text. Default: none, it takes a tensor
    /// of tokens (or of samples).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tokenizer: Option<String>,
    /// Which of a pair is cut into windows, each with the whole other beside it: `pair` (default, the
    /// second: a long document after a question) or `text`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cut: Option<Which>,
    /// Whether the last window is filled up: `none`, `longest` (default: to the longest of the batch) or
    /// `max_length`.
    #[serde(default)]
    pub(super) padding: Padding,
    /// The end that is filled up: `left` or `right`. Default: what the tokenizer's file says, else `right`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    padding_side: Option<Side>,
    /// The token that fills up, such as `[PAD]`. Default: as for `tokenize`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pad_token: Option<String>,
    /// The number that fills up, where there is no tokenizer. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) pad_id: Option<u32>,
    /// Whether the tokens that mark start, end and separation are added to each window. Default: true.
    #[serde(default = "yes")]
    add_special_tokens: bool,
    /// Whether to give `offsets` too, as `tokenize` does. Default: false.
    #[serde(default)]
    offsets: bool,
    /// Whether to give `special_tokens_mask` too. Default: false.
    #[serde(default)]
    special_tokens_mask: bool,
    /// Whether to give `sequence_ids` too. Default: false.
    #[serde(default)]
    sequence_ids: bool,
    /// Whether to give `word_ids` too. Default: false.
    #[serde(default)]
    word_ids: bool,
}

const fn yes() -> bool {
    true
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Which {
    Text,
    Pair,
}

impl Options {
    fn extras(&self) -> Extras {
        Extras {
            offsets: self.offsets,
            special_tokens_mask: self.special_tokens_mask,
            sequence_ids: self.sequence_ids,
            word_ids: self.word_ids,
        }
    }

    fn check(&self) -> Result<(), BuildError> {
        if !(1..=MAX_LENGTH).contains(&self.max_length) {
            let message = format!("`max_length` is {}, not 1 to {MAX_LENGTH}", self.max_length);
            return Err(BuildError::option("max_length", message));
        }
        if self.stride >= self.max_length {
            let message =
                format!("`stride` is {}, but a window of {} must begin somewhere else", self.stride, self.max_length);
            return Err(BuildError::option("stride", message).with_hint("windows share `stride` tokens: make it less"));
        }
        let text_only = [
            ("cut", self.cut.is_some()),
            ("padding_side", self.padding_side.is_some()),
            ("pad_token", self.pad_token.is_some()),
            ("add_special_tokens", !self.add_special_tokens),
            ("offsets", self.offsets),
            ("special_tokens_mask", self.special_tokens_mask),
            ("sequence_ids", self.sequence_ids),
            ("word_ids", self.word_ids),
        ];
        match (&self.tokenizer, self.pad_id) {
            (Some(_), Some(_)) => Err(BuildError::option("pad_id", "with a tokenizer, `pad_token` says what fills up")),
            (None, _) => match text_only.iter().find(|(_, set)| *set) {
                Some((name, _)) => {
                    let message = format!("`{name}` is for text, but without a tokenizer the step takes tokens");
                    Err(BuildError::option(name, message).with_hint("add `tokenizer: ./tokenizer.json`"))
                }
                None => Ok(()),
            },
            (Some(_), None) => Ok(()),
        }
    }
}

/// Cuts a long text (or the second of a pair) into windows of `max_length` tokens that share `stride`
/// of them, and gives what `tokenize` gives with a row for each window, and `window_of`: which text
/// of the batch each row is from. `join` puts the models' answers together again.
///
/// Follows transformers' tokenizers with `return_overflowing_tokens` and `stride`. Without a tokenizer
/// it takes a tensor of one axis (or 1 × length) and gives its windows as `input_ids`, by the rule of
/// `Encoding.truncate` of the package `tokenizers`.
struct Chunk {
    options: Options,
    encoder: Encoder,
    fill: Fill,
    signature: Signature,
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "chunk",
        summary: "Cuts long text or tokens into overlapping windows",
        group: Group::Text,
        follows: "transformers: tokenizer(…, stride=…, return_overflowing_tokens=True)",
        example: "chunk: { tokenizer: ./tokenizer.json, max_length: 384, stride: 128 }",
        schema: || schemars::schema_for!(Options),
        build,
    }
}

fn build(options: serde_json::Value, site: &Site<'_>) -> Result<Box<dyn Step>, BuildError> {
    let options: Options = ports::options(options)?;
    options.check()?;
    Ok(match &options.tokenizer {
        Some(name) => {
            let file = tokenizer_file::find(name, site)?;
            Box::new(Chunk::new(options, &file)?)
        }
        None => Box::new(Windows::new(options)),
    })
}

/// The port that says which text of the batch each window is from.
pub(super) fn window_of() -> Port {
    let kind = Kind::Tensor(TensorKind::shaped(ElementType::Int64, [Dim::Dynamic]));
    Port { description: "which text each window is from, from 0".into(), ..Port::new("window_of", kind) }
}

impl Chunk {
    fn new(options: Options, file: &TokenizerFile) -> Result<Self, BuildError> {
        let tokenizer = encoder::read(file)?;
        let fill = FillOptions {
            padding: options.padding,
            max_length: Some(options.max_length),
            multiple: None,
            token: options.pad_token.as_deref(),
            side: options.padding_side,
        };
        let fill = Fill::new(&fill, &tokenizer, file.path.display().to_string())?;
        let strategy = match options.cut {
            Some(Which::Text) => TruncationStrategy::OnlyFirst,
            Some(Which::Pair) | None => TruncationStrategy::OnlySecond,
        };
        let cut = Cut { max_length: options.max_length, side: None, strategy, stride: Some(options.stride) };
        let extras = options.extras();
        let encoder = Encoder::new(tokenizer, file, options.add_special_tokens, Some(cut), extras.need_places())?;
        let mut outputs = outputs(&fill.fixed_length(true), extras);
        outputs.push(window_of());
        let inputs = vec![
            texts::port("text", "a text, or a list of texts"),
            Port { optional: true, ..texts::port("pair", "the second text of each pair") },
        ];
        Ok(Self { options, encoder, fill, signature: Signature { inputs, outputs } })
    }
}

impl Step for Chunk {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn infer(&self, inputs: &[Option<Kind>]) -> Result<Vec<Kind>, Mismatch> {
        batch::known_batch(&self.signature.inputs, inputs)?;
        Ok(self.signature.outputs.iter().map(|port| port.kind.clone()).collect())
    }

    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        let bytes: usize = inputs.iter().flatten().map(Value::byte_len).sum();
        // A token is a byte at least, and is given as often as windows share it.
        let repeated = self.options.max_length.div_ceil((self.options.max_length - self.options.stride).max(1));
        let tokens = bytes.saturating_mul(repeated).min(MAX_TOKENS);
        let held = if repeated > 1 { PER_TOKEN } else { 0 };
        let answer = tokens.saturating_mul(TENSORS * size_of::<i64>() + held);
        let shortest = self.fill.answer(inputs, Some(self.options.max_length), TENSORS);
        self.encoder.buffers(bytes).saturating_add(answer).saturating_add(shortest)
    }

    fn run(&self, inputs: Vec<Option<Value>>, context: &mut Context) -> Result<Vec<Value>, StepFailure> {
        let given = self.encoder.given(inputs)?;
        let windows = |encoding: &Encoding| 1 + encoding.get_overflowing().len();
        let max_length = self.options.max_length;
        let size = move |encoding: &Encoding| windows(encoding).saturating_mul(max_length);
        let watch = &Deadline::from_context(context);
        let encodings = self.encoder.encode(given, watch, size)?;
        let window_of: Vec<i64> = (0_i64..)
            .zip(&encodings)
            .flat_map(|(text, encoding)| std::iter::repeat_n(text, windows(encoding)))
            .collect();
        let rows: Vec<_> =
            encodings.iter().flat_map(|encoding| std::iter::once(encoding).chain(encoding.get_overflowing())).collect();
        let mut values = self.fill.tensors(&rows, self.options.extras(), watch)?;
        values.push(Tensor::new([window_of.len()], window_of)?.into());
        Ok(values)
    }

    fn details(&self) -> serde_json::Value {
        self.encoder.details(&self.options)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::reference;

    const LONG: &str = "The quick brown fox jumps over the lazy dog, and every request gets its own sandbox.";

    fn chunk(options: serde_json::Value) -> Result<Box<dyn Step>, BuildError> {
        let mut options = options;
        options["tokenizer"] = json!("tokenize/wordpiece.json");
        let files =
            gpux_core::ProjectFiles::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/reference/builtin/"), false);
        build(options, &Site::Pipeline(&files))
    }

    #[test]
    fn windows_know_their_text() {
        let step = chunk(json!({"max_length": 12, "stride": 4})).unwrap();
        let values = reference::run(&*step, vec![json!([LONG, "a fox", LONG]).into()]);
        let window_of = values[3].as_tensor().unwrap();
        let each = window_of.len() / 2;
        assert!(each > 1);
        assert_eq!(window_of.as_slice::<i64>().unwrap()[each - 1..=each + 1], [0, 1, 2]);
        assert_eq!(values[0].as_tensor().unwrap().shape(), [window_of.len(), 12]);
    }

    #[test]
    fn truncation_of_the_file_is_ignored() {
        let mut file = reference::read_json("tokenize/wordpiece.json");
        file["truncation"] = json!({"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 2});
        let file = TokenizerFile { path: "t.json".into(), bytes: file.to_string().into_bytes() };
        let options = json!({"tokenizer": "t", "max_length": 12, "stride": 4});
        let limited = Chunk::new(ports::options(options.clone()).unwrap(), &file).unwrap();
        let text = json!([LONG.repeat(3), "a fox"]);
        let ours = reference::run(&limited, vec![text.clone().into()]);
        assert_eq!(ours, reference::run(&*chunk(options).unwrap(), vec![text.into()]));
    }

    #[test]
    fn a_pair_whose_other_text_fills_the_window_is_refused() {
        let step = chunk(json!({"max_length": 12, "stride": 2})).unwrap();
        let run = |text: &str, pair: &str| {
            step.run(vec![Some(text.into()), Some(pair.into())], &mut Context::default()).map_err(|why| why.to_string())
        };
        assert!(run("a fox", LONG).is_ok());
        assert!(run(LONG, LONG).unwrap_err().contains("leaves nothing of 12"));
        assert!(run(LONG, "a fox").unwrap_err().contains("leaves nothing of 12"));
    }

    #[test]
    fn options_that_cannot_work_are_refused() {
        for (options, option) in [
            (json!({"max_length": 0}), "max_length"),
            (json!({"max_length": 8, "stride": 8}), "stride"),
            (json!({"max_length": 8, "stride": 6}), "max_length"),
            (json!({"max_length": 8, "pad_id": 1}), "pad_id"),
        ] {
            assert_eq!(chunk(options.clone()).err().unwrap().option, [option], "{options}");
        }
        for option in ["cut", "pad_token"] {
            let error = build(json!({"max_length": 8, option: "text"}), &Site::Component).err().unwrap();
            assert_eq!(error.option, [option]);
        }
    }

    #[test]
    fn windows_that_cannot_be_made_are_the_requests_fault() {
        let run = |options, inputs: Vec<Value>| {
            let inputs = inputs.into_iter().map(Some).collect();
            chunk(options).unwrap().run(inputs, &mut Context::default())
        };
        for result in [
            run(json!({"max_length": 12}), vec![LONG.into(), LONG.into()]),
            run(json!({"max_length": 12, "stride": 8}), vec!["the fox".into(), LONG.into()]),
            run(json!({"max_length": 8192, "stride": 8189}), vec!["a ".repeat(20_000).into()]),
            run(json!({"max_length": 12}), vec![json!(["a", "b"]).into(), json!(["a"]).into()]),
            run(json!({"max_length": 12}), vec![json!([]).into()]),
            run(json!({"max_length": 12}), vec![]),
        ] {
            assert!(matches!(result, Err(StepFailure::InvalidInput(_))), "{result:?}");
        }
    }
}
