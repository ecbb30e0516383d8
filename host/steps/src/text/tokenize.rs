//! `tokenize`: text → the numbers that a language model takes.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokenizers::{Encoding, TruncationDirection, TruncationStrategy};

use super::batch_padder::{BatchPadder, ExtraOutputs, Padding, PaddingOptions, inferred_batch, outputs, with_batch};
use super::encoder::{self, Encoder, RequestLimits, TruncationRule};
use super::prompts::{Prompts, PromptsOption};
use super::text_input;
use super::tokenizer_file::{self, TokenizerFile};
use super::tokenizer_requests;
use crate::deadline::Deadline;
use crate::operation::{BuiltinStep, Inputs, Operation};
use crate::ports;
use gpux_core::{
    BuildError, Builtin, Group, Kind, Mismatch, Port, Signature, Step, StepFailure, TextCounts, TextOptions, TextSide,
    Value,
};

/// Options of `tokenize`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
struct Options {
    /// A `tokenizer.json`: its path, or a model's name, looked up as `./NAME/tokenizer.json`, in the local
    /// Hugging Face cache, and last, with a warning, as `./tokenizer.json`. Required.
    tokenizer: String,
    /// Most tokens of one text (or pair), special ones included, 1 to 1048576. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_048_576))]
    max_length: Option<usize>,
    /// Whether a longer text is cut at `max_length`, and which of a pair: `longest_first` (as `true`:
    /// the longer one), `only_first` or `only_second`. Default: true where `max_length` is given, else
    /// false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    truncation: Option<Truncation>,
    /// The end that is cut off: `left` or `right`. Default: what the tokenizer's file says, else `right`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    truncation_side: Option<TextSide>,
    /// Whether shorter texts are filled up: `none`, `longest` (default: to the longest of the batch)
    /// or `max_length`.
    #[serde(default)]
    padding: Padding,
    /// The end that is filled up: `left` or `right`. Default: what the tokenizer's file says, else `right`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    padding_side: Option<TextSide>,
    /// Round the padded length up to a multiple of this many tokens, 1 to 1048576. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_048_576))]
    pad_to_multiple_of: Option<usize>,
    /// The token that fills up, such as `[PAD]`. Default: what `tokenizer_config.json` or `special_tokens_map.json`
    /// beside the tokenizer's file says, else that file, else its token named `[PAD]`, `<pad>`, `<|padding|>` or `<|endoftext|>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pad_token: Option<String>,
    /// Whether the tokens that mark start, end and separation are added. Default: true.
    #[serde(default = "crate::ports::default_true")]
    add_special_tokens: bool,
    /// What stands before and behind each `text`, by names that a request can choose from: a text for what stands
    /// before, or `{prefix, suffix}`; or the path of a `config_sentence_transformers.json`, which has them. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prompts: Option<PromptsOption>,
    /// The name of the prompt for requests that choose none. Default: what the file of `prompts` says, else no prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prompt: Option<String>,
    /// Whether to give `offsets` too, batch × length × 2: the first character of each token in its text,
    /// and one past its last, counted in Unicode characters as Python does. Default: false.
    #[serde(default)]
    offsets: bool,
    /// Whether to give `special_tokens_mask` too: 1 for a special token and for padding. Default: false.
    #[serde(default)]
    special_tokens_mask: bool,
    /// Whether to give `sequence_ids` too: 0 for the first text, 1 for its pair, -1 for what is neither.
    /// Default: false.
    #[serde(default)]
    sequence_ids: bool,
    /// Whether to give `word_ids` too: which word of its text a token belongs to, -1 for none. Default:
    /// false.
    #[serde(default)]
    word_ids: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum Truncation {
    Whether(bool),
    TruncationChoice(TruncationChoice),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum TruncationChoice {
    LongestFirst,
    OnlyFirst,
    OnlySecond,
}

impl Options {
    /// Which text is cut, if any.
    fn strategy(&self) -> Option<TruncationStrategy> {
        match self.truncation.unwrap_or(Truncation::Whether(self.max_length.is_some())) {
            Truncation::Whether(false) => None,
            Truncation::Whether(true) | Truncation::TruncationChoice(TruncationChoice::LongestFirst) => {
                Some(TruncationStrategy::LongestFirst)
            }
            Truncation::TruncationChoice(TruncationChoice::OnlyFirst) => Some(TruncationStrategy::OnlyFirst),
            Truncation::TruncationChoice(TruncationChoice::OnlySecond) => Some(TruncationStrategy::OnlySecond),
        }
    }

    fn extras(&self) -> ExtraOutputs {
        ExtraOutputs {
            offsets: self.offsets,
            special_tokens_mask: self.special_tokens_mask,
            sequence_ids: self.sequence_ids,
            word_ids: self.word_ids,
        }
    }

    fn padding_options(&self) -> PaddingOptions<'_> {
        PaddingOptions {
            padding: self.padding,
            max_length: self.max_length,
            multiple: self.pad_to_multiple_of,
            token: self.pad_token.as_deref(),
            side: self.padding_side,
        }
    }

    fn check(&self) -> Result<(), BuildError> {
        let needs_length = |option: &str| {
            let message = format!("`{option}` needs to know the `max_length`");
            Err(BuildError::option(option, message).with_hint("add `max_length: 128`, for example"))
        };
        match self.max_length {
            None if self.strategy().is_some() => needs_length("truncation"),
            None if self.padding == Padding::MaxLength => needs_length("padding"),
            _ => Ok(()),
        }
    }
}

/// Splits text into tokens as a Hugging Face `tokenizer.json` says, into int64 tensors of batch ×
/// length named `input_ids`, `attention_mask` and `token_type_ids`; a model's inputs of these names
/// read them.
///
/// Takes a text, a JSON list of texts or a string tensor of one axis; with a second port, `pair`,
/// pairs of them; one text beside a list of texts is paired with each. The third port, `text_options`, takes a JSON
/// object with what one request wants: `prompt`, `truncation_side`, and the most tokens of each text,
/// `max_text_tokens` and `max_pair_tokens`, special ones not counted. Follows the Python package `tokenizers` exactly: it is the same code. Truncation
/// and padding are those of the options, never those that the file switches on; the file still says
/// from which side, and with which token, unless the options do.
struct Tokenize {
    options: Options,
    encoder: Encoder,
    padder: BatchPadder,
    prompts: Arc<Prompts>,
    /// the number of its outputs
    outputs: usize,
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
            let prompts = Prompts::new(options.prompts.as_ref(), options.prompt.as_deref(), site)?;
            Ok(Box::new(Tokenize::new(options, &file, prompts)?))
        },
    }
}

pub(super) const fn direction(side: TextSide) -> TruncationDirection {
    match side {
        TextSide::Left => TruncationDirection::Left,
        TextSide::Right => TruncationDirection::Right,
    }
}

impl Tokenize {
    fn new(options: Options, file: &TokenizerFile, prompts: Prompts) -> Result<BuiltinStep<Self>, BuildError> {
        options.check()?;
        let tokenizer = encoder::read(file)?;
        let padder = BatchPadder::new(&options.padding_options(), &tokenizer, file)?;
        let cut = options.strategy().zip(options.max_length).map(|(strategy, max_length)| TruncationRule {
            max_length,
            side: options.truncation_side.map(direction),
            strategy,
            stride: None,
        });
        let extras = options.extras();
        let encoder = Encoder::new(tokenizer, file, options.add_special_tokens, cut, extras.needs_offsets())?;
        let signature = Signature {
            inputs: vec![
                text_input::port("text", "a text, or a list of texts"),
                Port { optional: true, ..text_input::port("pair", "the second text of each pair, or one for all") },
                Port { optional: true, ..text_input::port(TextOptions::NAME, "what this request wants of its texts") },
            ],
            outputs: outputs(&padder.fixed_length(cut.is_some()), extras),
        };
        let (mut details, outputs) = (encoder.details(&options), signature.outputs.len());
        if options.prompts.is_some() {
            details["prompts"] = json!(prompts);
        }
        let prompts = Arc::new(prompts);
        Ok(BuiltinStep::new(signature, details, Self { options, encoder, padder, prompts, outputs }))
    }
}

impl Operation for Tokenize {
    fn infer(&self, signature: &Signature, inputs: &[Option<Kind>]) -> Result<Vec<Kind>, Mismatch> {
        let batch = inferred_batch(&signature.inputs, texts_of(inputs))?;
        Ok(with_batch(&signature.outputs, &batch))
    }

    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        let inputs = texts_of(inputs);
        let most = self.options.strategy().and(self.options.max_length);
        let answer = self.padder.output_bytes(inputs, most, self.outputs + 1);
        let rows = inputs.iter().flatten().map(|value| text_input::count_and_bytes(value).0).max().unwrap_or(0);
        let prompts = self.prompts.longest().saturating_mul(rows);
        Encoder::buffers(text_input::paired_bytes(inputs).saturating_add(prompts)).saturating_add(answer)
    }

    fn tokenizer(&self) -> Option<Arc<dyn Step>> {
        Some(tokenizer_requests::step(&self.encoder, &self.prompts))
    }

    fn run(&self, inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        self.run_noting(inputs, deadline, &mut TextCounts::default())
    }

    fn run_noting(
        &self,
        mut inputs: Inputs<'_>,
        deadline: &Deadline,
        texts: &mut TextCounts,
    ) -> Result<Vec<Value>, StepFailure> {
        let mut given = self.encoder.read_input(&mut inputs)?;
        let wanted = inputs.optional().map_or_else(|| Ok(TextOptions::default()), text_options)?;
        self.prompts.apply(wanted.prompt.as_deref(), &mut given.texts)?;
        text_input::check_size(given.texts.iter().chain(given.pairs.iter().flatten()))?;
        let limits = RequestLimits {
            side: wanted.truncation_side.map(direction),
            text: wanted.max_text_tokens,
            pair: wanted.max_pair_tokens,
        };
        let encodings = self.encoder.encode_within(given, limits, deadline, Encoding::len)?;
        texts.add(TextCounts {
            truncated: encodings.iter().filter(|encoding| !encoding.get_overflowing().is_empty()).count() as u32,
            tokens: encodings.iter().map(|encoding| encoding.len() as u64).sum(),
        });
        self.padder.tensors(&encodings.iter().collect::<Vec<_>>(), self.options.extras(), deadline)
    }
}

/// The inputs that are texts.
fn texts_of<T>(inputs: &[T]) -> &[T] {
    inputs.get(..2).unwrap_or(inputs)
}

fn text_options(value: Value) -> Result<TextOptions, StepFailure> {
    let Value::Json(json) = value else {
        let message = format!("`{}` takes a JSON object, but gets {}", TextOptions::NAME, value.kind());
        return Err(StepFailure::InvalidInput(message));
    };
    let wrong = |error| StepFailure::InvalidInput(format!("`{}`: {error}", TextOptions::NAME));
    TextOptions::deserialize(&*json).map_err(wrong)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests;
