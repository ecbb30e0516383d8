//! The map of the plane that takes some points to others.

use crate::homography::Homography;

/// A point: x, then y.
pub(super) type Point = [f64; 2];

/// The perspective that takes four points to four others, as `cv2.getPerspectiveTransform` finds it; none where three
/// of either lie on a line.
pub(super) fn perspective(from: &[Point; 4], to: &[Point; 4]) -> Option<Homography> {
    square_to(to)?.after(square_to(from)?.inverse()?).normalized()
}

/// The perspective from the corners of the unit square to four points (Heckbert, Fundamentals of Texture Mapping and
/// Image Warping, 1989).
fn square_to([p0, p1, p2, p3]: &[Point; 4]) -> Option<Homography> {
    let difference = |a: &Point, b: &Point| [a[0] - b[0], a[1] - b[1]];
    let cross = |a: Point, b: Point| a[0] * b[1] - a[1] * b[0];
    let (one, other) = (difference(p1, p2), difference(p3, p2));
    let rest = [p0[0] - p1[0] + p2[0] - p3[0], p0[1] - p1[1] + p2[1] - p3[1]];
    let area = cross(one, other);
    let tilt = [cross(rest, other) / area, cross(one, rest) / area];
    let column = |tilt: f64, to: &Point| [0, 1].map(|axis| to[axis] - p0[axis] + tilt * to[axis]);
    let (right, down) = (column(tilt[0], p1), column(tilt[1], p3));
    let map = Homography([right[0], down[0], p0[0], right[1], down[1], p0[1], tilt[0], tilt[1], 1.0]);
    map.0.iter().all(|entry| entry.is_finite()).then_some(map)
}

/// The affine map that takes three points to three others, as `cv2.getAffineTransform` finds it; none where they lie
/// on a line.
pub(super) fn affine(from: &[Point; 3], to: &[Point; 3]) -> Option<Homography> {
    let triangle = |[p0, p1, p2]: &[Point; 3]| {
        Homography::affine([p1[0] - p0[0], p2[0] - p0[0], p0[0], p1[1] - p0[1], p2[1] - p0[1], p0[1]])
    };
    triangle(to).after(triangle(from).inverse()?).normalized()
}

/// The rotation, scale and translation that takes points nearest to others, by the sum of their squared distances
/// (Umeyama 1991; scikit-image's `SimilarityTransform`, `cv2.estimateAffinePartial2D` without outliers); none where
/// all points are the same.
pub(super) fn similarity(from: &[Point], to: &[Point]) -> Option<Homography> {
    let count = from.len() as f64;
    let mean = |points: &[Point]| [0, 1].map(|axis| points.iter().map(|point| point[axis]).sum::<f64>() / count);
    let (centre, target) = (mean(from), mean(to));
    // A rotation and scale is a factor of complex numbers: the least squares are those of a line.
    let (mut cos, mut sin, mut spread) = (0.0, 0.0, 0.0);
    for (from, to) in from.iter().zip(to) {
        let [x, y] = [from[0] - centre[0], from[1] - centre[1]];
        let [u, v] = [to[0] - target[0], to[1] - target[1]];
        cos += x * u + y * v;
        sin += x * v - y * u;
        spread += x * x + y * y;
    }
    let [cos, sin] = [cos / spread, sin / spread];
    let turned = [cos * centre[0] - sin * centre[1], sin * centre[0] + cos * centre[1]];
    Homography::affine([cos, -sin, target[0] - turned[0], sin, cos, target[1] - turned[1]]).normalized()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    const FROM: [Point; 4] = [[10.0, 5.0], [70.0, 12.0], [66.0, 50.0], [8.0, 44.0]];
    const TO: [Point; 4] = [[0.0, 0.0], [64.0, 0.0], [64.0, 40.0], [0.0, 40.0]];

    fn assert_maps(map: Option<Homography>, from: &[Point], to: &[Point]) {
        for (from, to) in from.iter().zip(to) {
            let ours = map.unwrap().apply(*from);
            assert!((ours[0] - to[0]).abs().max((ours[1] - to[1]).abs()) < 1e-9, "{ours:?} is not {to:?}");
        }
    }

    #[test]
    fn maps_points_to_points() {
        assert_maps(perspective(&FROM, &TO), &FROM, &TO);
        assert_maps(perspective(&TO, &FROM), &TO, &FROM);
        let (from, to) = ([FROM[0], FROM[1], FROM[2]], [TO[0], TO[1], TO[2]]);
        assert_maps(affine(&from, &to), &from, &to);
        let turn = Homography::affine([0.0, -2.0, 5.0, 2.0, 0.0, -3.0]);
        let turned = FROM.map(|point| turn.apply(point));
        assert_maps(similarity(&FROM, &turned), &FROM, &turned);
    }

    #[test]
    fn rejects_points_on_a_line() {
        let line = [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0], [3.0, 3.0]];
        assert_eq!(perspective(&line, &TO), None);
        assert_eq!(perspective(&[[0.0, 0.0], [1.0, 1.0], [2.0, 2.0], [0.0, 3.0]], &TO), None);
        assert_eq!(affine(&[line[0], line[1], line[2]], &[TO[0], TO[1], TO[2]]), None);
        assert_eq!(similarity(&[[1.0, 1.0]; 3], &TO[..3]), None);
    }
}
