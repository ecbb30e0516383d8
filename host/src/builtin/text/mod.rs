//! Steps that work on text.

pub(in crate::builtin) mod aside;
mod batch;
mod charsmap;
mod chunk;
pub(in crate::builtin) mod cost;
mod detokenize;
pub(in crate::builtin) mod encoder;
mod join;
mod normalize_text;
mod parts;
mod scores;
mod survey;
pub(in crate::builtin) mod texts;
mod tokenize;
pub(in crate::builtin) mod tokenizer_file;
mod windows;

use crate::pipeline::Builtin;

/// The steps of this group, in the order in which a pipeline usually uses them.
pub(super) fn all() -> Vec<Builtin> {
    vec![normalize_text::builtin(), tokenize::builtin(), chunk::builtin(), join::builtin(), detokenize::builtin()]
}

#[cfg(test)]
mod reference;
