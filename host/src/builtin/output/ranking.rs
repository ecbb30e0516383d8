//! Scores in their order and with their names: what the steps that list the best share.

use std::cmp::Ordering;

use half::{bf16, f16};
use serde_json::{Value as Json, json};

use super::label_names::Labels;
use crate::pipeline::{BuildError, Site, Tensor, TensorElement, to_json};

/// Most bytes that one answer may take in memory, over all rows.
pub(super) const MAX_ANSWER: usize = 1 << 29;

/// What an entry takes in memory, beside its label: an object of three fields.
const ENTRY: usize = 512;

/// What the scores are of, where a step has the option `labels`.
pub(super) struct Names {
    labels: Option<Vec<String>>,
    /// bytes of the longest label
    longest: usize,
}

impl Names {
    pub(super) fn read(labels: Option<&Labels>, site: &Site<'_>) -> Result<Self, BuildError> {
        let labels = labels.map(|labels| labels.read(site)).transpose()?;
        let longest = labels.iter().flatten().map(String::len).max().unwrap_or(0);
        Ok(Self { labels, longest })
    }

    /// How many labels there are, if there are any.
    pub(super) fn count(&self) -> Option<usize> {
        self.labels.as_ref().map(Vec::len)
    }

    /// `{label, index, score}`
    pub(super) fn entry(&self, index: usize, score: &impl Score) -> Json {
        match &self.labels {
            Some(labels) => json!({"label": labels.get(index), "index": index, "score": score.json()}),
            None => json!({"index": index, "score": score.json()}),
        }
    }

    /// Bytes that an answer of so many entries takes.
    pub(super) const fn answer(&self, entries: usize) -> usize {
        entries.saturating_mul(ENTRY + self.longest)
    }
}

/// The indices of the `k` highest scores, best first.
pub(super) fn best<T: Score>(row: &[T], k: usize) -> Vec<usize> {
    let better = |a: &usize, b: &usize| {
        let (left, right) = (&row[*a], &row[*b]);
        // Only NaN does not compare.
        let nan_last = || left.is_nan().cmp(&right.is_nan());
        right.partial_cmp(left).unwrap_or_else(nan_last).then(a.cmp(b))
    };
    if k == 1 {
        let first = (0..row.len()).reduce(|a, b| if better(&b, &a) == Ordering::Less { b } else { a });
        return first.into_iter().collect();
    }
    let mut order: Vec<usize> = (0..row.len()).collect();
    if k < order.len() {
        order.select_nth_unstable_by(k, better);
        order.truncate(k);
    }
    order.sort_unstable_by(better);
    order
}

/// A number that is compared and shown as what it is.
pub(super) trait Score: PartialOrd + TensorElement {
    /// As every other number is written: shortest digits, `"NaN"` and `"Infinity"` as text.
    fn json(&self) -> Json {
        to_json(&Tensor::scalar(self.clone()).into())
    }
    fn is_nan(&self) -> bool {
        self.partial_cmp(self).is_none()
    }
}

macro_rules! scores {
    ($($type:ty),+) => {$(impl Score for $type {})+};
}
scores!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64, f16, bf16);
