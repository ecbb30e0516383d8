//! Steps that work on images: height × width × channels.

mod area;
mod decode;
mod decode_image;
mod dims;
mod normalize;
mod resize;

use crate::pipeline::Builtin;

/// The steps of this group, in the order in which a pipeline usually uses them.
pub(super) fn all() -> Vec<Builtin> {
    vec![decode_image::builtin(), resize::builtin(), normalize::builtin()]
}

#[cfg(test)]
mod reference;
