//! A detector's outputs → candidates, in the order of the anchors.

use std::ops::Range;

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

/// The numbers of one picture's anchors.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnchorTable<'a> {
    pub(super) data: &'a [f32],
    pub(super) anchors: usize,
    /// how many numbers an anchor has
    pub(super) columns: usize,
    /// whether the numbers of an anchor lie in a column of the tensor
    pub(super) is_transposed: bool,
}

/// How far rounding may take scores out of 0 to 1.
const ROUNDING: f32 = 0.05;

impl AnchorTable<'_> {
    /// A number of an anchor.
    pub(super) fn number(&self, anchor: usize, column: usize) -> Option<f32> {
        let index = if self.is_transposed { column * self.anchors + anchor } else { anchor * self.columns + column };
        self.data.get(index).copied()
    }

    /// Some numbers of an anchor.
    pub(super) fn numbers(&self, anchor: usize, columns: Range<usize>) -> Vec<f32> {
        columns.filter_map(|column| self.number(anchor, column)).collect()
    }

    /// The first four numbers of an anchor.
    pub(super) fn centre_and_size(&self, anchor: usize) -> [f32; 4] {
        <[f32; 4]>::try_from(self.numbers(anchor, 0..4)).unwrap_or([f32::NAN; 4])
    }

    /// A number in these columns that is no probability.
    pub(super) fn implausible_score(&self, columns: Range<usize>) -> Option<f32> {
        if self.is_transposed {
            return implausible(self.data.get(columns.start * self.anchors..columns.end * self.anchors)?);
        }
        self.data.chunks_exact(self.columns).find_map(|row| implausible(row.get(columns.clone())?))
    }

    /// A number in this column that is not whole.
    pub(super) fn fractional(&self, column: usize) -> Option<f32> {
        (0..self.anchors).filter_map(|anchor| self.number(anchor, column)).find(|number| number.fract() != 0.0)
    }
}

fn implausible(scores: &[f32]) -> Option<f32> {
    let is_outside = |score: &f32| *score < -ROUNDING || *score > 1.0 + ROUNDING;
    // Counting all is faster than looking for one that hardly ever is there.
    let outside = scores.iter().filter(|score| is_outside(score)).count();
    if outside == 0 { None } else { scores.iter().copied().find(is_outside) }
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
    pub(super) fn columns(self, rows: &[f32], anchors: usize, classes: usize) -> Vec<Candidate> {
        let (boxes, scores) = rows.split_at(4 * anchors);
        let scores = &scores[..classes * anchors];
        let best = best_of_columns(scores, anchors);
        let mut found = Vec::new();
        for anchor in (0..anchors).filter(|anchor| best[*anchor] > self.score_threshold) {
            let corners = self.format.corners([0, 1, 2, 3].map(|number| boxes[number * anchors + anchor]));
            let scores = scores.iter().skip(anchor).step_by(anchors).copied();
            self.anchor(anchor, corners, scores, &mut found);
        }
        found
    }

    /// `[anchors, 4 + classes]`, with `columns` in all.
    pub(super) fn rows(self, rows: &[f32], columns: usize, classes: usize) -> Vec<Candidate> {
        let mut found = Vec::new();
        for (anchor, row) in rows.chunks_exact(columns).enumerate() {
            let corners = self.format.corners([row[0], row[1], row[2], row[3]]);
            self.anchor(anchor, corners, row[4..4 + classes].iter().copied(), &mut found);
        }
        found
    }

    /// YOLOv5's `[anchors, 5 + classes]`: box, whether there is an object, a score for each class given that.
    pub(super) fn rows_with_objectness(self, rows: &[f32], columns: usize, classes: usize) -> Vec<Candidate> {
        let mut found = Vec::new();
        for (anchor, row) in rows.chunks_exact(columns).enumerate().filter(|(_, row)| row[4] > self.score_threshold) {
            let corners = self.format.corners([row[0], row[1], row[2], row[3]]);
            self.anchor(anchor, corners, row[5..5 + classes].iter().map(|score| score * row[4]), &mut found);
        }
        found
    }

    /// `[boxes, 6]`: box, score, class. Fails where a class is no whole number.
    pub(super) fn end_to_end(self, rows: &[f32], columns: usize) -> Result<Vec<Candidate>, String> {
        let above = rows.chunks_exact(columns).enumerate().filter(|(_, row)| row[4] > self.score_threshold);
        let candidate = |(anchor, row): (usize, &[f32])| {
            let (score, class) = (row[4], row[5]);
            if class.fract() != 0.0 {
                return Err(format!(
                    "a class is a whole number, but that of box {anchor} is {class}; is `layout` right?"
                ));
            }
            let corners = self.format.corners([row[0], row[1], row[2], row[3]]);
            Ok(Candidate { anchor, corners, score, class: class as i64 })
        };
        above.map(candidate).collect()
    }

    /// Boxes `[anchors, 4]`, and `[anchors, classes]` scores.
    pub(super) fn separate(self, boxes: &[f32], scores: &[f32], classes: usize) -> Vec<Candidate> {
        let mut found = Vec::new();
        for (anchor, (corners, scores)) in boxes.chunks_exact(4).zip(scores.chunks_exact(classes)).enumerate() {
            let corners = self.format.corners([corners[0], corners[1], corners[2], corners[3]]);
            self.anchor(anchor, corners, scores.iter().copied(), &mut found);
        }
        found
    }

    /// Boxes `[anchors, 4]` with a score and a class each.
    pub(super) fn classified(self, boxes: &[f32], scores: &[f32], classes: &[i64]) -> Vec<Candidate> {
        let each = boxes.chunks_exact(4).zip(scores).zip(classes).enumerate();
        let above = each.filter(|(_, ((_, score), _))| **score > self.score_threshold);
        above
            .map(|(anchor, ((corners, score), class))| Candidate {
                anchor,
                corners: self.format.corners([corners[0], corners[1], corners[2], corners[3]]),
                score: *score,
                class: *class,
            })
            .collect()
    }

    fn anchor(
        self,
        anchor: usize,
        corners: [f32; 4],
        scores: impl Iterator<Item = f32> + Clone,
        found: &mut Vec<Candidate>,
    ) {
        let (class, best) = best(scores.clone());
        if best > self.score_threshold {
            if self.multi_label {
                let above = (0_i64..).zip(scores).filter(|(_, score)| *score > self.score_threshold);
                found.extend(above.map(|(class, score)| Candidate { anchor, corners, score, class }));
            } else {
                found.push(Candidate { anchor, corners, score: best, class });
            }
        }
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
