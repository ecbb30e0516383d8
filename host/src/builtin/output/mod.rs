//! Steps that turn what a model gives into what a caller wants.

mod softmax;
mod top_k;

use crate::pipeline::Builtin;

/// The steps of this group, in the order in which a pipeline usually uses them.
pub(super) fn all() -> Vec<Builtin> {
    vec![softmax::builtin(), top_k::builtin()]
}

#[cfg(test)]
mod reference;
