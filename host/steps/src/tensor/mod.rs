//! Steps that reshape and combine tensors.

mod axes_option;
mod cast;
mod clip;
mod concat;
mod element;
mod expand;
mod joining;
mod log;
mod max;
mod mean;
mod one_hot;
mod pad_tensor;
mod parse_number;
mod reduction;
mod reshape;
mod scale;
mod shape;
mod slice;
mod slice_notation;
mod split;
mod squeeze;
mod stack;
mod standardize;
mod sum;
mod text;
mod transpose;

use gpux_core::Builtin;

/// The steps of this group, in the order in which a pipeline usually uses them.
pub(super) fn all() -> Vec<Builtin> {
    vec![
        cast::builtin(),
        scale::builtin(),
        clip::builtin(),
        log::builtin(),
        standardize::builtin(),
        max::builtin(),
        mean::builtin(),
        sum::builtin(),
        reshape::builtin(),
        transpose::builtin(),
        squeeze::builtin(),
        expand::builtin(),
        slice::builtin(),
        pad_tensor::builtin(),
        split::builtin(),
        concat::builtin(),
        stack::builtin(),
        one_hot::builtin(),
    ]
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod reference_tests;
