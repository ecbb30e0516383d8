//! Steps that work on text.

mod batch_padder;
mod charsmap_check;
mod chunk;
mod detokenize;
pub(crate) mod encoder;
mod join;
mod join_texts;
mod normalize_text;
pub(crate) mod offload;
mod prompts;
pub(crate) mod text_input;
mod tokenize;
pub(crate) mod tokenizer_file;
mod tokenizer_requests;
mod tokenizer_scan;
pub(crate) mod tokenizer_speed;
mod unigram_scores;

use gpux_core::Builtin;

/// The steps of this group, in the order in which a pipeline usually uses them.
pub(super) fn all() -> Vec<Builtin> {
    vec![
        normalize_text::builtin(),
        tokenize::builtin(),
        chunk::builtin(),
        join::builtin(),
        detokenize::builtin(),
        join_texts::builtin(),
    ]
}

#[cfg(test)]
mod reference_tests;
