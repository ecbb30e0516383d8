//! From the coordinates of a model to those of the picture that came in.

use crate::homography::Homography;
use gpux_core::{Geometry, Layout, Tensor};

/// Maps boxes from the model's coordinates to the source image.
pub(super) struct BoxMapping {
    /// the size of the picture that fractions are of, width first
    size: Option<[f32; 2]>,
    geometry: Option<Geometry>,
    /// in place of a geometry, where the picture was rotated or warped
    transform: Option<Homography>,
}

impl BoxMapping {
    pub(super) fn new(image: Option<&Tensor>, relative: bool) -> Result<Self, String> {
        let transform = image.and_then(|image| image.metadata.transform).map(Homography);
        let geometry = image.and_then(|image| image.metadata.geometry).filter(|_| transform.is_none());
        if !relative {
            return Ok(Self { size: None, geometry, transform });
        }
        let size = image.and_then(|image| match (image.metadata.layout, image.shape()) {
            (Some(Layout::Hwc), [.., height, width, _]) => Some([*width as f32, *height as f32]),
            (Some(Layout::Chw), [.., _, height, width]) => Some([*width as f32, *height as f32]),
            _ => None,
        });
        let size = size.ok_or("`image` is not known to be a picture, so that its size is not known")?;
        Ok(Self { size: Some(size), geometry, transform })
    }

    /// In pixels of the picture that the model saw.
    pub(super) fn pixels(&self, corners: [f32; 4]) -> [f32; 4] {
        let Some([width, height]) = self.size else { return corners };
        let [left, top, right, bottom] = corners;
        [left * width, top * height, right * width, bottom * height]
    }

    /// A point in pixels of the picture that the model saw.
    pub(super) fn point_pixels(&self, [x, y]: [f32; 2]) -> [f32; 2] {
        let Some([width, height]) = self.size else { return [x, y] };
        [x * width, y * height]
    }

    /// In pixels of the picture that came in, and within it; of a picture that was rotated or warped, the upright box
    /// around what the box is there, which may lie outside.
    pub(super) fn to_source(&self, [left, top, right, bottom]: [f32; 4]) -> [f32; 4] {
        if let Some(transform) = self.transform {
            let corners = [left, top, right, bottom].map(f64::from);
            return transform.enclosing_box(corners).map(|number| number as f32);
        }
        let Some(at) = self.geometry else { return [left, top, right, bottom] };
        let ([left, top], [right, bottom]) = (self.point_to_source([left, top]), self.point_to_source([right, bottom]));
        // In a mirrored picture left and right are swapped.
        let (left, right) = if at.scale_x < 0.0 { (right, left) } else { (left, right) };
        let (top, bottom) = if at.scale_y < 0.0 { (bottom, top) } else { (top, bottom) };
        [left, top, right, bottom]
    }

    /// A point in pixels of the picture that came in, and within it, unless that was rotated or warped.
    pub(super) fn point_to_source(&self, point: [f32; 2]) -> [f32; 2] {
        let Some(at) = self.geometry else { return self.point_around_source(point) };
        let [x, y] = self.point_around_source(point);
        [x.clamp(0.0, at.source_width as f32), y.clamp(0.0, at.source_height as f32)]
    }

    /// A point in pixels of the picture that came in; it may lie outside.
    pub(super) fn point_around_source(&self, [x, y]: [f32; 2]) -> [f32; 2] {
        if let Some(transform) = self.transform {
            return transform.apply([x, y].map(f64::from)).map(|number| number as f32);
        }
        let Some(at) = self.geometry else { return [x, y] };
        [(x - at.offset_x) / at.scale_x, (y - at.offset_y) / at.scale_y]
    }
}
