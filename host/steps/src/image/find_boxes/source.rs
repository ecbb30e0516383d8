//! From the pixels of a map to those of the picture that came in.

use crate::homography::Homography;
use gpux_core::{Layout, Tensor};

/// The position of a map in the source image.
pub(super) struct BoxPlacement {
    /// width and height of the map
    map: [f32; 2],
    mapping: Mapping,
}

/// From the map to the source.
enum Mapping {
    /// The map covers the whole source, of this width and height.
    Whole([f32; 2]),
    /// From the map's pixels to the source's, with its width and height if they are known.
    Matrix(Homography, Option<[f32; 2]>),
}

impl BoxPlacement {
    /// For a map, height first, and the picture that the model saw; without one, the map is the source.
    pub(super) fn new([height, width]: [usize; 2], image: Option<&Tensor>) -> Result<Self, String> {
        let map = [width as f32, height as f32];
        let Some(image) = image else { return Ok(Self { map, mapping: Mapping::Whole(map) }) };
        let image_size = width_height(image)?;
        let geometry = image.metadata.geometry.filter(|_| image.metadata.transform.is_none());
        let whole = match geometry {
            _ if image.metadata.transform.is_some() => None,
            None => Some(image_size),
            Some(at) => {
                let source = [at.source_width as f32, at.source_height as f32];
                let covered = [at.scale_x * source[0], at.scale_y * source[1]];
                let is_all = covered.iter().zip(image_size).all(|(covered, side)| (covered - side).abs() < 0.01);
                let is_at_start = at.offset_x.abs().max(at.offset_y.abs()) < 0.01;
                (is_all && is_at_start).then_some(source)
            }
        };
        if let Some(whole) = whole {
            return Ok(Self { map, mapping: Mapping::Whole(whole) });
        }
        let [x, y] = [0, 1].map(|axis| f64::from(image_size[axis]) / f64::from(map[axis].max(1.0)));
        let back = Homography::to_source(&image.metadata).ok_or("`image` has no way back to its source")?;
        let map_to_source = back.after(Homography::affine([x, 0.0, 0.0, 0.0, y, 0.0]));
        let source = geometry.map(|at| [at.source_width as f32, at.source_height as f32]);
        Ok(Self { map, mapping: Mapping::Matrix(map_to_source, source) })
    }

    /// For a map, height first, of the whole of `image`, whose own pixels are wanted.
    pub(super) fn in_image([height, width]: [usize; 2], image: &Tensor) -> Result<Self, String> {
        Ok(Self { map: [width as f32, height as f32], mapping: Mapping::Whole(width_height(image)?) })
    }

    /// Corners in whole pixels of the source, from the top left clockwise, and within it as far as its size is known.
    pub(super) fn place(&self, corners: [[f32; 2]; 4]) -> [[f32; 2]; 4] {
        let (corners, size) = match &self.mapping {
            Mapping::Whole(size) => {
                let place = |[x, y]: [f32; 2]| [x / self.map[0] * size[0], y / self.map[1] * size[1]];
                (corners.map(place), Some(*size))
            }
            Mapping::Matrix(map, size) => {
                (corners.map(|corner| map.apply(corner.map(f64::from)).map(|number| number as f32)), *size)
            }
        };
        // Without the sign of a zero.
        let whole = corners.map(|corner| corner.map(|number| number.round_ties_even() + 0.0));
        let Some([width, height]) = size else { return clockwise(whole) };
        let within = |[x, y]: [f32; 2], most: [f32; 2]| [x.clamp(0.0, most[0]), y.clamp(0.0, most[1])];
        // In order first, then off the last column and row, as RapidOCR does.
        let corners = clockwise(whole.map(|corner| within(corner, [width, height])));
        corners.map(|corner| within(corner, [(width - 1.0).max(0.0), (height - 1.0).max(0.0)]))
    }
}

fn width_height(image: &Tensor) -> Result<[f32; 2], String> {
    let size = match (image.metadata.layout, image.shape()) {
        (Some(Layout::Hwc), [.., height, width, _]) => [*width, *height],
        (Some(Layout::Chw), [.., _, height, width]) => [*width, *height],
        _ => return Err("`image` is not known to be a picture, so that its size is not known".into()),
    };
    Ok(size.map(|side| side as f32))
}

/// Corners in an image, in its source, and up to its edges as far as its size is known.
pub(super) fn to_source(corners: [[f32; 2]; 4], image: &Tensor) -> [[f32; 2]; 4] {
    let Some(back) = Homography::to_source(&image.metadata) else { return corners };
    let size = image.metadata.geometry.filter(|_| image.metadata.transform.is_none());
    corners.map(|corner| {
        let [x, y] = back.apply(corner.map(f64::from)).map(|number| number as f32);
        match size {
            // Without the sign of a zero.
            Some(at) => [x.clamp(0.0, at.source_width as f32) + 0.0, y.clamp(0.0, at.source_height as f32) + 0.0],
            None => [x, y],
        }
    })
}

/// The corners from the top left clockwise: the two that lie furthest left, the upper one first, and the two others, as
/// `order_points_clockwise` of PaddleOCR has them. Of two at the same height, which that takes as they come, the upper
/// one is that by which the edges do not cross.
fn clockwise(mut corners: [[f32; 2]; 4]) -> [[f32; 2]; 4] {
    corners.sort_by(|a, b| a[0].total_cmp(&b[0]));
    let by_height = |one: [f32; 2], other: [f32; 2]| if other[1] < one[1] { [other, one] } else { [one, other] };
    let [a, b, c, d] = corners;
    let ([top_left, bottom_left], [top_right, bottom_right]) = (by_height(a, b), by_height(c, d));
    let left = [[top_left, bottom_left], [bottom_left, top_left]];
    let right = [[top_right, bottom_right], [bottom_right, top_right]];
    let area = |corners: &[[f32; 2]; 4]| {
        let cross = |at: usize| corners[at][0] * corners[(at + 1) % 4][1] - corners[at][1] * corners[(at + 1) % 4][0];
        (0..4).map(cross).sum::<f32>().abs()
    };
    let mut best = [top_left, top_right, bottom_right, bottom_left];
    for left in &left[..if a[1].total_cmp(&b[1]).is_eq() { 2 } else { 1 }] {
        for right in &right[..if c[1].total_cmp(&d[1]).is_eq() { 2 } else { 1 }] {
            let other = [left[0], right[0], right[1], left[1]];
            best = if area(&other) > area(&best) { other } else { best };
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_corners_clockwise() {
        let square = [[9.0, 1.0], [1.0, 1.0], [1.0, 9.0], [9.0, 9.0]];
        assert_eq!(clockwise(square).map(|corner| corner.map(|x| x as i32)), [[1, 1], [9, 1], [9, 9], [1, 9]]);
        // Two corners at the lower edge, which RapidOCR 3.10 takes for the upper and the lower one.
        let cut_off = [[47.0, 27.0], [93.0, 64.0], [52.0, 64.0], [6.0, 33.0]];
        assert_eq!(clockwise(cut_off).map(|corner| corner[0] as i32), [47, 93, 52, 6]);
    }
}
