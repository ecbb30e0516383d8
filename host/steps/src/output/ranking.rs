//! Ranked scores with their labels: shared by the steps that list the best.

use std::cmp::Ordering;

use half::{bf16, f16};
use serde_json::{Value as Json, json};

use super::label_names::LabelSource;
use crate::deadline::{Deadline, DeadlineExceeded, ELEMENTS_PER_CHECK};
use gpux_core::{BuildError, OptionOrigin, Tensor, TensorElement, to_json};

/// Most bytes that one answer may take in memory, over all rows.
pub(super) const MAX_ANSWER: usize = 1 << 29;

/// Bytes of an entry, beside its label: an object of three fields.
const ENTRY: usize = 512;

/// The labels of scores, for steps with the option `labels`.
pub(super) struct RankedLabels {
    labels: Option<Vec<String>>,
    /// bytes of the longest label
    longest: usize,
}

impl RankedLabels {
    pub(super) fn read(labels: Option<&LabelSource>, site: &OptionOrigin<'_>) -> Result<Self, BuildError> {
        let labels = labels.map(|labels| labels.read(site)).transpose()?;
        let longest = labels.iter().flatten().map(String::len).max().unwrap_or(0);
        Ok(Self { labels, longest })
    }

    /// The labels; none without any.
    pub(super) fn names(&self) -> &[String] {
        self.labels.as_deref().unwrap_or_default()
    }

    /// The number of labels; `None` without labels.
    pub(super) fn count(&self) -> Option<usize> {
        self.labels.as_ref().map(Vec::len)
    }

    /// `{label, index, score}`
    fn entry(&self, index: usize, score: &impl Score) -> Json {
        match &self.labels {
            Some(labels) => json!({"label": labels.get(index), "index": index, "score": score.json()}),
            None => json!({"index": index, "score": score.json()}),
        }
    }

    /// An entry for each of these places: `of` tells its index and its score.
    pub(super) fn list<'s, S: Score + 's>(
        &self,
        places: Vec<usize>,
        deadline: &Deadline,
        of: impl Fn(usize) -> (usize, &'s S),
    ) -> Result<Json, DeadlineExceeded> {
        let mut list = Vec::with_capacity(places.len());
        for place in places {
            deadline.check_after(ENTRY)?;
            let (index, score) = of(place);
            list.push(self.entry(index, score));
        }
        Ok(Json::Array(list))
    }

    /// Bytes of an answer with this many entries.
    pub(super) const fn output_bytes(&self, entries: usize) -> usize {
        entries.saturating_mul(ENTRY + self.longest)
    }
}

/// The indices of the `k` highest scores, best first: of block after block, the best so far.
pub(super) fn best<T: Score>(row: &[T], k: usize, deadline: &Deadline) -> Result<Vec<usize>, DeadlineExceeded> {
    let better = |a: &usize, b: &usize| {
        let (left, right) = (&row[*a], &row[*b]);
        // Only NaN does not compare.
        let nan_last = || left.is_nan().cmp(&right.is_nan());
        right.partial_cmp(left).unwrap_or_else(nan_last).then(a.cmp(b))
    };
    let at_once = ELEMENTS_PER_CHECK.max(k);
    let (mut order, mut worst) = (Vec::new(), None);
    for start in (0..row.len()).step_by(at_once) {
        let block = start..row.len().min(start + at_once);
        deadline.check_after(block.len())?;
        match worst {
            None if k == 1 => {
                let first = block.reduce(|a, b| if better(&b, &a) == Ordering::Less { b } else { a });
                order.extend(first);
                worst = first;
                continue;
            }
            None => order.extend(block),
            Some(worst) => order.extend(block.filter(|index| better(index, &worst) == Ordering::Less)),
        }
        if order.len() > k {
            let (_, last, _) = order.select_nth_unstable_by(k.saturating_sub(1), better);
            worst = Some(*last);
            order.truncate(k);
        }
    }
    order.sort_unstable_by(better);
    Ok(order)
}

/// A number that is compared and shown in its own type.
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn blockwise_best_equals_sorted_best() {
        let length = 3 * ELEMENTS_PER_CHECK + 17;
        let mixed: Vec<f32> = (0..length).map(|index| (index * 7919 % 1009) as f32).collect();
        let rising: Vec<f32> = (0..length).map(|index| index as f32).collect();
        let mut odd = mixed.clone();
        (0..length).step_by(5).for_each(|index| odd[index] = f32::NAN);
        for row in [mixed, rising, odd, vec![1.0; length]] {
            let mut sorted: Vec<_> = (0..length).collect();
            sorted.sort_by(|a, b| row[*b].partial_cmp(&row[*a]).unwrap_or(row[*a].is_nan().cmp(&row[*b].is_nan())));
            for k in [1, 2, 1000, ELEMENTS_PER_CHECK, ELEMENTS_PER_CHECK + 1, length - 1, length, 2 * length] {
                assert_eq!(
                    best(&row, k, &Deadline::default()).unwrap(),
                    sorted[..k.min(length)],
                    "{k} of {:?}",
                    &row[..3]
                );
            }
        }
        assert_eq!(best::<f32>(&[], 0, &Deadline::default()), Ok(Vec::new()));
    }

    #[test]
    fn stops_at_the_deadline() {
        for k in [1, 5] {
            assert_eq!(best(&vec![0_u8; 2 << 20], k, &Deadline::exceeded_after(1)), Err(DeadlineExceeded));
        }
    }
}
