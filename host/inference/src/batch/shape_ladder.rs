//! The few shapes that runs are rounded up to, for execution providers that compile for each shape.

use serde::{Deserialize, Serialize};

/// Lengths of texts and numbers of rows. Empty lists round nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShapeLadder {
    /// ascending
    lengths: Vec<usize>,
    /// ascending
    sizes: Vec<usize>,
}

impl ShapeLadder {
    /// Of lengths and sizes in any order.
    pub fn new(lengths: impl IntoIterator<Item = usize>, sizes: impl IntoIterator<Item = usize>) -> Self {
        let mut ladder = Self { lengths: lengths.into_iter().collect(), sizes: sizes.into_iter().collect() };
        for list in [&mut ladder.lengths, &mut ladder.sizes] {
            list.sort_unstable();
            list.dedup();
        }
        ladder
    }

    /// Whether it rounds nothing.
    pub(super) const fn is_empty(&self) -> bool {
        self.lengths.is_empty() && self.sizes.is_empty()
    }

    /// The lengths, ascending.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// The numbers of rows, ascending.
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// Whether it rounds lengths.
    pub(super) const fn has_lengths(&self) -> bool {
        !self.lengths.is_empty()
    }

    /// The length that texts are padded to; beyond the last it stays.
    pub(super) fn length(&self, longest: usize) -> usize {
        at_least(&self.lengths, longest)
    }

    /// The number of rows that a run is filled up to; beyond the last it stays.
    pub(super) fn size(&self, rows: usize) -> usize {
        at_least(&self.sizes, rows)
    }

    /// Whether a run of this shape was compiled when the model was loaded.
    pub(super) fn contains(&self, rows: usize, length: Option<usize>) -> bool {
        let contains = |list: &[usize], size| list.is_empty() || list.binary_search(&size).is_ok();
        contains(&self.sizes, rows) && length.is_none_or(|length| contains(&self.lengths, length))
    }

    /// All pairs of a number of rows and a length; `length` and one row where there is no list.
    pub(super) fn shapes(&self, length: usize) -> impl Iterator<Item = (usize, usize)> {
        let or = |list: &[usize], other| if list.is_empty() { vec![other] } else { list.to_vec() };
        let lengths = or(&self.lengths, length);
        or(&self.sizes, 1)
            .into_iter()
            .flat_map(move |rows| lengths.clone().into_iter().map(move |length| (rows, length)))
    }
}

/// The smallest of an ascending list that is enough, else the size itself.
fn at_least(list: &[usize], size: usize) -> usize {
    list.get(list.partition_point(|other| *other < size)).copied().unwrap_or(size)
}
