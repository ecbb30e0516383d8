//! Steps that turn what a model gives into what a caller wants.

mod argmax;
mod ctc_greedy_decode;
mod json_template;
mod label_names;
mod nms;
mod sigmoid;
mod softmax;
mod threshold;
mod top_k;

use crate::pipeline::Builtin;

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
    ]
}

#[cfg(test)]
mod reference;
