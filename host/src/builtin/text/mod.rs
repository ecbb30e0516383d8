//! Steps that work on text.

mod batch;
mod encoder;
mod growth;
mod texts;
mod tokenize;
mod tokenizer_file;

use crate::pipeline::Builtin;

/// The steps of this group, in the order in which a pipeline usually uses them.
pub(super) fn all() -> Vec<Builtin> {
    vec![tokenize::builtin()]
}

#[cfg(test)]
mod reference;
