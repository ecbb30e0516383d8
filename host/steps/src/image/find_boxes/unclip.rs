//! A quadrilateral made larger all around: the offset of the Clipper library with round corners
//! (`ClipperOffset` of Clipper 6, which pyclipper wraps).

use super::rectangle::OutlinePoint;

/// How far an arc's chords may lie from it, in pixels.
const ARC_TOLERANCE: f64 = 0.25;

/// The outline at `distance` around the corners, whose fractions are cut off as pyclipper does; none where they span no
/// area.
pub(super) fn offset(corners: [[f32; 2]; 4], distance: f64) -> Option<Vec<OutlinePoint>> {
    let mut whole = corners.map(|corner| corner.map(|number| number as i64)).to_vec();
    whole.dedup();
    let first = whole[0];
    whole.pop_if(|last| *last == first);
    let mut points: Vec<[f64; 2]> = whole.iter().map(|point| point.map(|number| number as f64)).collect();
    let area = signed_area(&points);
    if points.len() < 3 || area == 0.0 {
        return None;
    }
    if area < 0.0 {
        points.reverse();
    }

    let tolerance = ARC_TOLERANCE.min(distance * ARC_TOLERANCE);
    let steps = (std::f64::consts::PI / (1.0 - tolerance / distance).acos()).min(distance * std::f64::consts::PI);
    let (sin, cos) = (std::f64::consts::TAU / steps).sin_cos();
    let steps_per_radian = steps / std::f64::consts::TAU;

    let count = points.len();
    let normal = |at: usize| {
        let ([x0, y0], [x1, y1]) = (points[at], points[(at + 1) % count]);
        let length = (x1 - x0).hypot(y1 - y0);
        [(y1 - y0) / length, (x0 - x1) / length]
    };
    let mut outline = Vec::new();
    for (at, corner) in points.iter().enumerate() {
        let mut push = |[x, y]: [f64; 2]| {
            let [x, y] = [corner[0] + x * distance, corner[1] + y * distance].map(|number| number.round() as i64);
            outline.push(OutlinePoint { x, y, index: outline.len() });
        };
        let (before, after) = (normal((at + count - 1) % count), normal(at));
        let sine = before[0] * after[1] - after[0] * before[1];
        let cosine = before[0] * after[0] + before[1] * after[1];
        if (sine * distance).abs() < 1.0 && cosine > 0.0 {
            push(before);
            continue;
        }
        if sine * distance < 0.0 {
            [before, [0.0, 0.0], after].into_iter().for_each(push);
            continue;
        }
        let turns = (steps_per_radian * sine.clamp(-1.0, 1.0).atan2(cosine).abs()).round().max(1.0) as usize;
        let mut arm = before;
        for _ in 0..turns {
            push(arm);
            arm = [arm[0] * cos - sin * arm[1], arm[0] * sin + arm[1] * cos];
        }
        push(after);
    }
    Some(outline)
}

fn signed_area(points: &[[f64; 2]]) -> f64 {
    let next = points.iter().cycle().skip(1);
    points.iter().zip(next).map(|([x0, y0], [x1, y1])| x0 * y1 - x1 * y0).sum::<f64>() / 2.0
}

/// How far a quadrilateral is made larger: its area by its circumference, times `ratio`.
pub(super) fn distance(corners: [[f32; 2]; 4], ratio: f64) -> f64 {
    let corners = corners.map(|corner| corner.map(f64::from));
    let edge = |at: usize| (corners[at][0] - corners[(at + 1) % 4][0]).hypot(corners[at][1] - corners[(at + 1) % 4][1]);
    signed_area(&corners).abs() * ratio / (0..4).map(edge).sum::<f64>()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn follows_clipper() {
        // pyclipper 1.4.0.
        let mut theirs = [
            [40, -3],
            [44, -2],
            [46, 1],
            [46, 4],
            [45, 13],
            [44, 16],
            [41, 18],
            [39, 18],
            [-1, 16],
            [-5, 15],
            [-7, 12],
            [-7, 9],
            [-6, -1],
            [-5, -4],
            [-2, -6],
            [0, -6],
        ];
        let ours = offset([[0.0, 0.0], [40.9, 3.2], [39.5, 12.9], [-1.0, 10.0]], 6.3).unwrap();
        let mut ours: Vec<_> = ours.iter().map(|point| [point.x, point.y]).collect();
        ours.sort_unstable();
        theirs.sort_unstable();
        assert_eq!(ours, theirs);
        assert!(offset([[0.0, 0.0], [0.5, 0.0], [0.9, 0.9], [0.0, 0.4]], 2.0).is_none());
        assert!(offset([[0.0, 0.0], [5.0, 5.0], [9.0, 9.0], [0.0, 0.0]], 2.0).is_none());
    }
}
