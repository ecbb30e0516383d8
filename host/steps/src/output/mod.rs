//! Steps that turn model outputs into results.

mod argmax;
mod cls_pool;
mod cosine;
mod ctc_greedy_decode;
mod exponential;
mod json_template;
mod l2_normalize;
mod label_names;
mod labels;
mod mean_pool;
mod ner_aggregate;
mod nms;
mod pool;
mod qa_span;
mod ranking;
mod sigmoid;
mod softmax;
mod threshold;
mod token_spans;
mod token_vectors;
mod top_k;

use gpux_core::Builtin;

/// The steps of this group, in the order in which a pipeline usually uses them.
pub(super) fn all() -> Vec<Builtin> {
    vec![
        softmax::builtin(),
        sigmoid::builtin(),
        argmax::builtin(),
        top_k::builtin(),
        threshold::builtin(),
        nms::builtin(),
        ctc_greedy_decode::builtin(),
        json_template::builtin(),
        labels::builtin(),
        mean_pool::builtin(),
        cls_pool::builtin(),
        pool::builtin(),
        l2_normalize::builtin(),
        cosine::builtin(),
        qa_span::builtin(),
        ner_aggregate::builtin(),
    ]
}

#[cfg(test)]
mod reference_tests;
#[cfg(test)]
mod reference_text_tests;
