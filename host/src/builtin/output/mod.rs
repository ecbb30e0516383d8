//! Steps that turn what a model gives into what a caller wants.

mod cls_pool;
mod cosine;
mod l2_normalize;
mod label_names;
mod labels;
mod mean_pool;
mod ner_aggregate;
mod qa_span;
mod softmax;
mod spans;
mod tokens;
mod top_k;

use crate::pipeline::Builtin;

/// The steps of this group, in the order in which a pipeline usually uses them.
pub(super) fn all() -> Vec<Builtin> {
    vec![
        softmax::builtin(),
        top_k::builtin(),
        labels::builtin(),
        mean_pool::builtin(),
        cls_pool::builtin(),
        l2_normalize::builtin(),
        cosine::builtin(),
        qa_span::builtin(),
        ner_aggregate::builtin(),
    ]
}

#[cfg(test)]
mod reference;
