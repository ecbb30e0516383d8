//! Maps of the plane, and the way from a tensor's pixels back to those of the source image.
//!
//! Coordinates are those of [`Geometry`](gpux_core::Geometry): the pixel in column 0 reaches from 0 to 1, its centre
//! lies at 0.5, and an image's right edge is its width.

use gpux_core::{Metadata, Transform};

/// Coordinates beyond this are none of an image. It bounds what a point near a map's horizon becomes.
const FARTHEST: f64 = 1e7;

/// A projective map of the plane: with `[x', y', w] = matrix × [x, y, 1]`, a point becomes `x' / w, y' / w`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Homography(pub(crate) Transform);

impl Homography {
    /// `x' = a·x + b·y + c`, `y' = d·x + e·y + f`.
    pub(crate) const fn affine(rows: [f64; 6]) -> Self {
        Self([rows[0], rows[1], rows[2], rows[3], rows[4], rows[5], 0.0, 0.0, 1.0])
    }

    pub(crate) const fn translation([x, y]: [f64; 2]) -> Self {
        Self::affine([1.0, 0.0, x, 0.0, 1.0, y])
    }

    /// This map, of coordinates that count from the centre of the first pixel, as OpenCV's do, in those that count
    /// from its edge.
    pub(crate) fn with_pixel_edges(self) -> Self {
        Self::translation([0.5; 2]).after(self).after(Self::translation([-0.5; 2]))
    }

    /// The way back from [`with_pixel_edges`](Self::with_pixel_edges).
    pub(crate) fn with_pixel_centers(self) -> Self {
        Self::translation([-0.5; 2]).after(self).after(Self::translation([0.5; 2]))
    }

    /// First `first`, then this map.
    pub(crate) fn after(self, first: Self) -> Self {
        let (a, b) = (self.0, first.0);
        let entry = |at: usize| (0..3).map(|k| a[at / 3 * 3 + k] * b[k * 3 + at % 3]).sum();
        Self(std::array::from_fn(entry))
    }

    /// The same map with a last entry of 1, which OpenCV writes; none where an entry is no number.
    pub(crate) fn normalized(self) -> Option<Self> {
        let map = Self(self.0.map(|entry| entry / self.0[8]));
        map.0.iter().all(|entry| entry.is_finite()).then_some(map)
    }

    /// The map back; none for a map onto a line or a point.
    pub(crate) fn inverse(self) -> Option<Self> {
        // The determinant of what is left without a row and a column, with the sign that belongs to it.
        let cofactor = |row: usize, column: usize| {
            let at = |down: usize, right: usize| self.0[(row + down) % 3 * 3 + (column + right) % 3];
            at(1, 1) * at(2, 2) - at(1, 2) * at(2, 1)
        };
        let adjugate: Transform = std::array::from_fn(|at| cofactor(at % 3, at / 3));
        let determinant = (0..3).map(|column| self.0[column] * adjugate[column * 3]).sum::<f64>();
        let inverse = adjugate.map(|entry| entry / determinant);
        inverse.iter().all(|entry| entry.is_finite()).then_some(Self(inverse))
    }

    /// The point that `point` becomes. A result that is no number, or far away, is made one that is near enough to be
    /// computed with.
    pub(crate) fn apply(&self, [x, y]: [f64; 2]) -> [f64; 2] {
        let row = |at: usize| self.0[at] * x + self.0[at + 1] * y + self.0[at + 2];
        let w = row(6);
        [row(0) / w, row(3) / w].map(|number| if number.is_nan() { 0.0 } else { number.clamp(-FARTHEST, FARTHEST) })
    }

    /// Left, top, right and bottom of the upright box around what a box becomes.
    pub(crate) fn enclosing_box(&self, [left, top, right, bottom]: [f64; 4]) -> [f64; 4] {
        let corners = [[left, top], [right, top], [right, bottom], [left, bottom]].map(|corner| self.apply(corner));
        let around = [f64::MAX, f64::MAX, f64::MIN, f64::MIN];
        corners.iter().fold(around, |[left, top, right, bottom], [x, y]| {
            [left.min(*x), top.min(*y), right.max(*x), bottom.max(*y)]
        })
    }

    /// From the pixels of a tensor to those of its source image; none where the tensor is not known to come from
    /// another image.
    pub(crate) fn to_source(metadata: &Metadata) -> Option<Self> {
        metadata.transform.map(Self).or_else(|| {
            let at = metadata.geometry?;
            let [scale_x, scale_y] = [at.scale_x, at.scale_y].map(f64::from);
            let offset = [-f64::from(at.offset_x) / scale_x, -f64::from(at.offset_y) / scale_y];
            Some(Self::affine([1.0 / scale_x, 0.0, offset[0], 0.0, 1.0 / scale_y, offset[1]]))
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use gpux_core::Geometry;

    const TILTED: Homography = Homography([1.5, -0.5, 3.0, 0.25, 2.0, -7.0, 0.001, -0.002, 1.0]);

    fn assert_near(ours: [f64; 2], expected: [f64; 2]) {
        let far = (ours[0] - expected[0]).abs().max((ours[1] - expected[1]).abs());
        assert!(far < 1e-9, "{ours:?} is not {expected:?}");
    }

    #[test]
    fn inverts_and_composes() {
        let back = TILTED.inverse().unwrap();
        assert_near(back.apply(TILTED.apply([12.0, -5.0])), [12.0, -5.0]);
        assert_near(back.after(TILTED).apply([12.0, -5.0]), [12.0, -5.0]);
        let centred = TILTED.apply([11.5, -5.5]).map(|number| number + 0.5);
        assert_near(TILTED.with_pixel_edges().apply([12.0, -5.0]), centred);
        assert_eq!(Homography([0.0; 9]).inverse(), None);
        assert_eq!(Homography::affine([1.0, 2.0, 0.0, 2.0, 4.0, 0.0]).inverse(), None);
    }

    #[test]
    fn follows_the_geometry() {
        let geometry = Geometry {
            source_width: 40,
            source_height: 20,
            scale_x: -2.0,
            scale_y: 0.5,
            offset_x: 80.0,
            offset_y: 16.0,
        };
        let metadata = Metadata { geometry: Some(geometry), ..Metadata::default() };
        let back = Homography::to_source(&metadata).unwrap();
        assert_near(back.apply([80.0, 16.0]), [0.0, 0.0]);
        let [left, top, right, bottom] = back.enclosing_box([0.0, 16.0, 80.0, 26.0]);
        assert_near([left, top], [0.0, 0.0]);
        assert_near([right, bottom], [40.0, 20.0]);
        assert_eq!(Homography::to_source(&Metadata::default()), None);
    }

    #[test]
    fn stays_finite_at_the_horizon() {
        assert_near(Homography([0.0; 9]).apply([1.0, 1.0]), [0.0, 0.0]);
        let horizon = Homography([1.0, 0.0, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0, 0.0]);
        assert_near(horizon.apply([1.0, 1.0]), [FARTHEST, -FARTHEST]);
        assert_near(Homography([f64::NAN; 9]).apply([1.0, 1.0]), [0.0, 0.0]);
    }
}
