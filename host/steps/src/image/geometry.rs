//! The position of the source image, after a step has moved or scaled it.

use super::dims::ImageDims;
use gpux_core::{Geometry, Metadata};

/// A change of coordinates: `x_new = x × scale + offset`, horizontally and vertically.
#[derive(Clone, Copy, Debug)]
pub(super) struct CoordinateChange {
    pub(super) scale: [f32; 2],
    pub(super) offset: [f32; 2],
}

impl CoordinateChange {
    pub(super) const fn translation(offset: [f32; 2]) -> Self {
        Self { scale: [1.0, 1.0], offset }
    }

    pub(super) const fn scaling(scale: [f32; 2]) -> Self {
        Self { scale, offset: [0.0, 0.0] }
    }

    /// From the coordinates of `dims` to those of `target`, which is the same picture.
    pub(super) fn between(dims: ImageDims, target: ImageDims) -> Self {
        Self::scaling([target.width as f32 / dims.width as f32, target.height as f32 / dims.height as f32])
    }
}

/// The metadata of an image that was of size `dims`, after `change`. Without a geometry, the image
/// as it was is the source.
pub(super) fn update_geometry(metadata: Metadata, dims: ImageDims, change: CoordinateChange) -> Metadata {
    let before = metadata.geometry.unwrap_or(Geometry {
        source_width: dims.width as u32,
        source_height: dims.height as u32,
        scale_x: 1.0,
        scale_y: 1.0,
        offset_x: 0.0,
        offset_y: 0.0,
    });
    let geometry = Geometry {
        scale_x: before.scale_x * change.scale[0],
        scale_y: before.scale_y * change.scale[1],
        offset_x: before.offset_x * change.scale[0] + change.offset[0],
        offset_y: before.offset_y * change.scale[1] + change.offset[1],
        ..before
    };
    Metadata { geometry: Some(geometry), ..metadata }
}
