//! Greedy non-maximum suppression, with the arithmetic of torchvision's kernel.

use std::collections::BTreeMap;

use super::oriented::OrientedBox;
use crate::deadline::{Deadline, DeadlineExceeded};

/// A box that a model proposes: its anchor's number, corners, score, class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) anchor: usize,
    pub(super) corners: [f32; 4],
    pub(super) score: f32,
    pub(super) class: i64,
}

/// How boxes are suppressed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    /// without one, none is suppressed
    pub(super) iou_threshold: Option<f64>,
    /// whether boxes of one class suppress those of another
    pub(super) class_agnostic: bool,
    /// how many candidates are looked at, the best first
    pub(super) most_candidates: usize,
    /// how many are kept
    pub(super) most: usize,
}

/// How many times as long as an addition it takes to compare two boxes, and to put a candidate in its order, about.
const OVERLAP: usize = 16;
const ORDER: usize = 64;

/// The numbers of the candidates that stay, best first; equal scores in their order. A box goes if one that stays
/// overlaps it.
pub(super) fn keep(candidates: &[Candidate], rule: Rule, deadline: &Deadline) -> Result<Vec<usize>, DeadlineExceeded> {
    let area = |index: usize| BoxArea::new(candidates[index].corners);
    let overlap = |rival: &BoxArea, area: &BoxArea| rival.overlap(area);
    select(candidates, rule, deadline, Rivals::Kept, area, overlap)
}

/// The same for boxes with an angle. A box goes if any better one overlaps it, as in Ultralytics' `fast_nms`.
pub(super) fn keep_oriented(
    candidates: &[Candidate],
    boxes: &[OrientedBox],
    rule: Rule,
    deadline: &Deadline,
) -> Result<Vec<usize>, DeadlineExceeded> {
    select(candidates, rule, deadline, Rivals::All, |index| boxes[index], OrientedBox::overlap)
}

/// Which better boxes of its class a box is compared with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rivals {
    Kept,
    All,
}

fn select<R>(
    candidates: &[Candidate],
    rule: Rule,
    deadline: &Deadline,
    compared: Rivals,
    region: impl Fn(usize) -> R,
    overlap: impl Fn(&R, &R) -> f32,
) -> Result<Vec<usize>, DeadlineExceeded> {
    deadline.check_after(ORDER * candidates.len())?;
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    // None is NaN: those pass no threshold.
    let better = |a: &usize, b: &usize| candidates[*b].score.total_cmp(&candidates[*a].score).then(a.cmp(b));
    if order.len() > rule.most_candidates {
        order.select_nth_unstable_by(rule.most_candidates, better);
        order.truncate(rule.most_candidates);
    }
    order.sort_unstable_by(better);
    let Some(threshold) = rule.iou_threshold else {
        order.truncate(rule.most);
        return Ok(order);
    };
    let mut kept = Vec::new();
    let mut of_class = BTreeMap::<i64, Vec<R>>::new();
    for index in order {
        let class = candidates[index].class;
        let rivals = of_class.entry(if rule.class_agnostic { 0 } else { class }).or_default();
        deadline.check_after(ORDER + OVERLAP * rivals.len())?;
        let region = region(index);
        let is_suppressed = rivals.iter().any(|rival| f64::from(overlap(rival, &region)) > threshold);
        if !is_suppressed || compared == Rivals::All {
            rivals.push(region);
        }
        if is_suppressed {
            continue;
        }
        kept.push(index);
        if kept.len() == rule.most {
            break;
        }
    }
    Ok(kept)
}

/// Corners with the area between them, which may be negative or NaN.
struct BoxArea {
    corners: [f32; 4],
    size: f32,
}

impl BoxArea {
    fn new(corners: [f32; 4]) -> Self {
        let [left, top, right, bottom] = corners;
        Self { corners, size: (right - left) * (bottom - top) }
    }

    /// Intersection over union. NaN for two boxes without area, which so do not suppress each other.
    fn overlap(&self, other: &Self) -> f32 {
        let [left, top, right, bottom] = self.corners;
        let [other_left, other_top, other_right, other_bottom] = other.corners;
        let width = larger(0.0, smaller(right, other_right) - larger(left, other_left));
        let height = larger(0.0, smaller(bottom, other_bottom) - larger(top, other_top));
        let both = width * height;
        both / (self.size + other.size - both)
    }
}

/// C++'s `std::max`: the first, if one is NaN.
fn larger(one: f32, other: f32) -> f32 {
    if one < other { other } else { one }
}

/// C++'s `std::min`: the first, if one is NaN.
fn smaller(one: f32, other: f32) -> f32 {
    if other < one { other } else { one }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;

    const RULE: Rule = Rule { iou_threshold: Some(0.5), class_agnostic: false, most_candidates: 100, most: 100 };

    fn candidate(corners: [f32; 4], score: f32, class: i64) -> Candidate {
        Candidate { anchor: 0, corners, score, class }
    }

    #[test]
    fn keeps_the_best_of_many_boxes() {
        let heap = [
            candidate([0.0, 0.0, 10.0, 10.0], 0.5, 0),
            candidate([1.0, 0.0, 10.0, 10.0], 0.9, 0),
            candidate([0.0, 0.0, 10.0, 10.0], 0.7, 1),
            candidate([20.0, 0.0, 30.0, 10.0], 0.5, 0),
        ];
        assert_eq!(keep(&heap, RULE, &Deadline::default()).unwrap(), [1, 2, 3]);
        assert_eq!(keep(&heap, Rule { class_agnostic: true, ..RULE }, &Deadline::default()).unwrap(), [1, 3]);
        assert_eq!(keep(&heap, Rule { most: 1, ..RULE }, &Deadline::default()).unwrap(), [1]);
        assert_eq!(keep(&heap, Rule { most_candidates: 2, ..RULE }, &Deadline::default()).unwrap(), [1, 2]);
        assert_eq!(keep(&[], RULE, &Deadline::default()).unwrap(), [0_usize; 0]);
    }

    #[test]
    fn suppression_stops_at_the_deadline() {
        let apart: Vec<_> = (0..2000_u16).map(|at| candidate([f32::from(at); 4], 0.5, 0)).collect();
        let rule = Rule { most_candidates: 2000, most: 2000, ..RULE };
        assert_eq!(keep(&apart, rule, &Deadline::exceeded_after(20)), Err(DeadlineExceeded));
        assert_eq!(keep(&apart, rule, &Deadline::default()).unwrap().len(), 2000);
    }
}
