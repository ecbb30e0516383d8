//! Non-maximum suppression: plain Rust that knows nothing of gpux.

use std::cmp::Ordering;

/// Left, top, right, bottom.
pub type Rect = [f32; 4];

/// A box with the score of one class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Detection {
    /// Which of the boxes.
    pub index: usize,
    /// Which class; 0 where scores have none.
    pub class: usize,
    /// Its score, finite.
    pub score: f32,
}

/// Best score first; equals by box, then by class, so that results do not depend on the sort.
pub fn best_first(a: &Detection, b: &Detection) -> Ordering {
    b.score.total_cmp(&a.score).then(a.index.cmp(&b.index)).then(a.class.cmp(&b.class))
}

/// Whether a rectangle can be a detection: finite numbers, and its sides the right way round.
pub fn is_box(rect: &Rect) -> bool {
    rect.iter().all(|side| side.is_finite()) && rect[0] <= rect[2] && rect[1] <= rect[3]
}

/// Keeps up to `limit` of the `candidates`, best first: each that overlaps no better one that was
/// kept by more than `iou`. With `per_class`, only boxes of the same class are in each other's way.
///
/// Every candidate's index must be one of `boxes`, and its rectangle a box.
pub fn suppress(
    boxes: &[Rect],
    mut candidates: Vec<Detection>,
    iou: f32,
    per_class: bool,
    limit: usize,
) -> Vec<Detection> {
    candidates.sort_unstable_by(best_first);
    let mut kept: Vec<Detection> = Vec::new();
    for candidate in candidates {
        if kept.len() == limit {
            break;
        }
        let rect = &boxes[candidate.index];
        let hidden = kept
            .iter()
            .any(|better| (!per_class || better.class == candidate.class) && overlap(rect, &boxes[better.index]) > iou);
        if !hidden {
            kept.push(candidate);
        }
    }
    kept
}

/// Intersection over union, from 0 to 1; 0 for two boxes without area.
pub fn overlap(a: &Rect, b: &Rect) -> f32 {
    let width = (a[2].min(b[2]) - a[0].max(b[0])).max(0.0);
    let height = (a[3].min(b[3]) - a[1].max(b[1])).max(0.0);
    let shared = width * height;
    let union = area(a) + area(b) - shared;
    // Sides near the largest float overflow to infinity, and infinity by infinity is not a number.
    let overlap = shared / union;
    if overlap.is_finite() { overlap } else { 0.0 }
}

fn area(rect: &Rect) -> f32 {
    (rect[2] - rect[0]) * (rect[3] - rect[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detections(scores: &[f32]) -> Vec<Detection> {
        scores.iter().enumerate().map(|(index, score)| Detection { index, class: 0, score: *score }).collect()
    }

    fn kept(boxes: &[Rect], scores: &[f32], iou: f32) -> Vec<usize> {
        suppress(boxes, detections(scores), iou, true, 100).iter().map(|detection| detection.index).collect()
    }

    #[test]
    fn the_best_of_overlapping_boxes_stays() {
        let boxes = [[0.0, 0.0, 10.0, 10.0], [1.0, 0.0, 11.0, 10.0], [20.0, 0.0, 30.0, 10.0]];
        assert_eq!(kept(&boxes, &[0.5, 0.9, 0.1], 0.5), [1, 2]);
        // 9 of 11 columns are shared: the threshold itself does not suppress.
        assert_eq!(kept(&boxes, &[0.5, 0.9, 0.1], 9.0 / 11.0), [1, 0, 2]);
    }

    #[test]
    fn a_suppressed_box_suppresses_nothing() {
        let boxes = [[0.0, 0.0, 10.0, 10.0], [4.0, 0.0, 14.0, 10.0], [8.0, 0.0, 18.0, 10.0]];
        assert_eq!(kept(&boxes, &[0.9, 0.8, 0.7], 0.4), [0, 2]);
    }

    #[test]
    fn classes_are_apart_only_where_they_are_asked_to_be() {
        let boxes = [[0.0, 0.0, 10.0, 10.0]; 2];
        let mut candidates = detections(&[0.9, 0.8]);
        candidates[1].class = 3;
        assert_eq!(suppress(&boxes, candidates.clone(), 0.5, true, 10).len(), 2);
        assert_eq!(suppress(&boxes, candidates.clone(), 0.5, false, 10).len(), 1);
        assert_eq!(suppress(&boxes, candidates, 0.5, true, 1).len(), 1);
    }

    #[test]
    fn boxes_without_area_and_huge_ones_do_no_harm() {
        let point = [5.0, 5.0, 5.0, 5.0];
        assert!(overlap(&point, &point).abs() < f32::EPSILON);
        let huge = [-f32::MAX, -f32::MAX, f32::MAX, f32::MAX];
        assert!(overlap(&huge, &huge).abs() < f32::EPSILON);
        assert_eq!(kept(&[point, huge, point], &[0.9, 0.8, 0.7], 0.0), [0, 1, 2]);
        assert!(!is_box(&[0.0, 0.0, f32::NAN, 1.0]) && !is_box(&[f32::NEG_INFINITY, 0.0, 1.0, 1.0]));
        assert!(!is_box(&[2.0, 0.0, 1.0, 1.0]) && is_box(&point));
    }
}
