//! A detector's outputs → candidates, in the order of the anchors.

use super::suppress::Candidate;

/// The meaning of a box's four numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(super) enum BoxFormat {
    /// centre, width, height
    Cxcywh,
    /// left, top, width, height
    Xywh,
    /// two corners
    Xyxy,
}

impl BoxFormat {
    fn corners(self, [a, b, c, d]: [f32; 4]) -> [f32; 4] {
        match self {
            Self::Cxcywh => [a - c / 2.0, b - d / 2.0, a + c / 2.0, b + d / 2.0],
            Self::Xywh => [a, b, a + c, b + d],
            Self::Xyxy => [a, b, c, d],
        }
    }
}

/// Which candidates are read.
#[derive(Clone, Copy, Debug)]
pub(super) struct CandidateReader {
    pub(super) format: BoxFormat,
    pub(super) score_threshold: f32,
    /// whether an anchor can be several classes at a time
    pub(super) multi_label: bool,
}

impl CandidateReader {
    /// YOLOv8's `[4 + classes, anchors]`: a row for each number of the boxes, then for each class.
    pub(super) fn columns(self, rows: &[f32], anchors: usize) -> Vec<Candidate> {
        let (boxes, scores) = rows.split_at(4 * anchors);
        let best = best_of_columns(scores, anchors);
        let mut found = Vec::new();
        for anchor in (0..anchors).filter(|anchor| best[*anchor] > self.score_threshold) {
            let corners = self.format.corners([0, 1, 2, 3].map(|number| boxes[number * anchors + anchor]));
            let scores = scores.iter().skip(anchor).step_by(anchors).copied();
            self.anchor(corners, scores, &mut found);
        }
        found
    }

    /// YOLOv5's `[anchors, 5 + classes]`: box, whether there is an object, a score for each class given that.
    pub(super) fn rows(self, rows: &[f32], width: usize) -> Vec<Candidate> {
        let mut found = Vec::new();
        for row in rows.chunks_exact(width).filter(|row| row[4] > self.score_threshold) {
            let corners = self.format.corners([row[0], row[1], row[2], row[3]]);
            self.anchor(corners, row[5..].iter().map(|score| score * row[4]), &mut found);
        }
        found
    }

    /// Boxes `[anchors, 4]`, and `[anchors, classes]` scores.
    pub(super) fn separate(self, boxes: &[f32], scores: &[f32], classes: usize) -> Vec<Candidate> {
        let mut found = Vec::new();
        for (corners, scores) in boxes.chunks_exact(4).zip(scores.chunks_exact(classes)) {
            let corners = self.format.corners([corners[0], corners[1], corners[2], corners[3]]);
            self.anchor(corners, scores.iter().copied(), &mut found);
        }
        found
    }

    /// Boxes `[anchors, 4]` with a score and a class each.
    pub(super) fn classified(self, boxes: &[f32], scores: &[f32], classes: &[i64]) -> Vec<Candidate> {
        let each = boxes.chunks_exact(4).zip(scores).zip(classes);
        let above = each.filter(|((_, score), _)| **score > self.score_threshold);
        above
            .map(|((corners, score), class)| Candidate {
                corners: self.format.corners([corners[0], corners[1], corners[2], corners[3]]),
                score: *score,
                class: *class,
            })
            .collect()
    }

    fn anchor(self, corners: [f32; 4], scores: impl Iterator<Item = f32> + Clone, found: &mut Vec<Candidate>) {
        let (class, best) = best(scores.clone());
        if best > self.score_threshold {
            if self.multi_label {
                self.each_class(corners, scores, found);
            } else {
                found.push(Candidate { corners, score: best, class });
            }
        }
    }

    fn each_class(self, corners: [f32; 4], scores: impl Iterator<Item = f32>, found: &mut Vec<Candidate>) {
        let above = (0_i64..).zip(scores).filter(|(_, score)| *score > self.score_threshold);
        found.extend(above.map(|(class, score)| Candidate { corners, score, class }));
    }
}

/// Whether `score` takes the place of `best`. The first of equals stays; NaN wins for good, as `torch.max` has it,
/// and passes no threshold then.
fn beats(score: f32, best: f32) -> bool {
    score > best || score.is_nan()
}

fn best(scores: impl Iterator<Item = f32>) -> (i64, f32) {
    let better = |best: (i64, f32), other: (i64, f32)| if beats(other.1, best.1) { other } else { best };
    (0_i64..).zip(scores).reduce(better).unwrap_or((0, f32::NAN))
}

/// The best score of each anchor, row after row so that memory is read in its order.
fn best_of_columns(scores: &[f32], anchors: usize) -> Vec<f32> {
    let (first, rest) = scores.split_at(anchors);
    let mut best = first.to_vec();
    for row in rest.chunks_exact(anchors.max(1)) {
        for (score, best) in row.iter().zip(&mut best) {
            // As `beats`, in a form that compilers make vectors of.
            let stays = (*best >= *score) | best.is_nan();
            *best = if stays { *best } else { *score };
        }
    }
    best
}
