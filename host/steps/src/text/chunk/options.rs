//! Options of `chunk`, and the port that both of its forms have.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text::batch_padder::{ExtraOutputs, Padding};
use gpux_core::{BuildError, Dim, ElementType, Kind, Port, TensorKind, TextSide};

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
    pub(super) tokenizer: Option<String>,
    /// Which of a pair is cut into windows, each with the whole other beside it: `pair` (default, the
    /// second: a long document after a question) or `text`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cut: Option<CutText>,
    /// Whether the last window is filled up: `none`, `longest` (default: to the longest of the batch) or
    /// `max_length`.
    #[serde(default)]
    pub(super) padding: Padding,
    /// The end that is filled up: `left` or `right`. Default: what the tokenizer's file says, else `right`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) padding_side: Option<TextSide>,
    /// The token that fills up, such as `[PAD]`. Default: as for `tokenize`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) pad_token: Option<String>,
    /// The number that fills up, where there is no tokenizer. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) pad_id: Option<u32>,
    /// Whether the tokens that mark start, end and separation are added to each window. Default: true.
    #[serde(default = "crate::ports::default_true")]
    pub(super) add_special_tokens: bool,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(super) enum CutText {
    Text,
    Pair,
}

impl Options {
    pub(super) fn extras(&self) -> ExtraOutputs {
        ExtraOutputs {
            offsets: self.offsets,
            special_tokens_mask: self.special_tokens_mask,
            sequence_ids: self.sequence_ids,
            word_ids: self.word_ids,
        }
    }

    pub(super) fn check(&self) -> Result<(), BuildError> {
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

/// The port that says which text of the batch each window is from.
pub(super) fn window_of() -> Port {
    let kind = Kind::Tensor(TensorKind::shaped(ElementType::Int64, [Dim::Dynamic]));
    Port { description: "which text each window is from, from 0".into(), ..Port::new("window_of", kind) }
}
