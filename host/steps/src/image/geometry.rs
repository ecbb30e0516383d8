//! The position of the source image, after a step has moved or scaled it.

use super::dims::ImageDims;
use crate::homography::Homography;
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
/// as it was is the source. An image with a transform keeps that instead.
pub(super) fn update_geometry(metadata: Metadata, dims: ImageDims, change: CoordinateChange) -> Metadata {
    if metadata.transform.is_some() {
        let [x, y] = change.scale.map(|scale| 1.0 / f64::from(scale));
        let [left, top] = change.offset.map(f64::from);
        return update_transform(metadata, Homography::affine([x, 0.0, -left * x, 0.0, y, -top * y]));
    }
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

/// The metadata of an image that another one became, where `back` takes its coordinates to those of that other one:
/// for changes that a geometry cannot hold, since the axes do not stay the axes.
pub(super) fn update_transform(metadata: Metadata, back: Homography) -> Metadata {
    let before = Homography::to_source(&metadata);
    let transform = before.map_or(back, |before| before.after(back));
    Metadata { geometry: None, transform: Some(transform.0), ..metadata }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn transforms_follow_scales_and_offsets() {
        let dims = ImageDims { height: 20, width: 40, channels: 3 };
        let turned = update_transform(Metadata::default(), Homography::affine([0.0, 1.0, 0.0, -1.0, 0.0, 20.0]));
        let change = CoordinateChange { scale: [2.0, 0.5], offset: [6.0, 3.0] };
        let scaled = update_geometry(turned, dims, change);
        assert_eq!(scaled.geometry, None);
        let back = Homography::to_source(&scaled).unwrap();
        // (4, 10) in the turned image, which was (10, 16).
        let [x, y] = back.apply([14.0, 8.0]);
        assert!((x - 10.0).abs() < 1e-9 && (y - 16.0).abs() < 1e-9);
    }
}
