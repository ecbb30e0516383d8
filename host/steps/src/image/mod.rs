//! Steps that work on images: height × width × channels.

mod affine;
mod center_crop;
mod color;
mod crop;
mod decode;
mod decode_image;
mod detections;
mod dims;
mod draw_boxes;
mod drawing;
mod encode_image;
mod find_boxes;
mod flip;
mod geometry;
mod image_step;
mod letterbox;
mod mask;
mod min_max;
mod normalize;
mod pad;
mod point_fit;
mod points;
mod premultiply;
mod preview;
mod remap;
mod resample;
mod resize;
mod rotate;
mod to_tensor;
mod warp;
mod window;

pub use preview::preview;

use gpux_core::Builtin;

/// The steps of this group, in the order in which a pipeline usually uses them.
pub(super) fn all() -> Vec<Builtin> {
    vec![
        decode_image::builtin(),
        resize::builtin(),
        letterbox::builtin(),
        center_crop::builtin(),
        crop::builtin(),
        pad::builtin(),
        flip::builtin(),
        rotate::builtin(),
        warp::builtin(),
        color::builtin(),
        normalize::builtin(),
        to_tensor::builtin(),
        find_boxes::builtin(),
        draw_boxes::builtin(),
        mask::builtin(),
        encode_image::builtin(),
    ]
}

#[cfg(test)]
mod reference_tests;
