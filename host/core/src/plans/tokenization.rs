//! What a server asks of a pipeline's tokenizer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An end of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum TextSide {
    /// its beginning
    Left,
    /// its end
    Right,
}

/// What one request says about how its texts become tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct TextOptions {
    /// the name of the prompt
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// the end that is cut off
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncation_side: Option<TextSide>,
    /// the most tokens of `text`, special ones not counted
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_text_tokens: Option<usize>,
    /// the most tokens of `pair`, special ones not counted
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_pair_tokens: Option<usize>,
}

impl TextOptions {
    /// The name of the value that has them, and of the port of `tokenize` that reads it.
    pub const NAME: &'static str = "text_options";
}

/// Work of a tokenizer by itself.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenizerRequest {
    /// the tokens of a text, none cut off: a list of objects with `id`, `text`, `special`, `start` and `stop`
    Tokenize {
        /// the text
        text: String,
        /// whether the tokens that mark start, end and separation are added
        add_special_tokens: bool,
        /// the name of the prompt
        prompt: Option<String>,
    },
    /// the text of tokens
    Decode {
        /// their numbers
        ids: Vec<u32>,
        /// whether those that mark something are left out
        skip_special_tokens: bool,
    },
    /// the text of tokens; fails unless the tokenizer makes the same ones of it again
    Restore {
        /// their numbers
        ids: Vec<u32>,
    },
}

impl TokenizerRequest {
    /// The name of the branch that answers it, and of its input.
    pub const NAME: &'static str = "@tokenizer";
}
