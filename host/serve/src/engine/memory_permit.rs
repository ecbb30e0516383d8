//! A part of a memory budget.

use tokio::sync::OwnedSemaphorePermit;

use super::tenant::Hold;

/// One permit of a budget's semaphore stands for this many bytes.
pub(crate) const GRAIN: usize = 1 << 10;

/// A part of the room, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    of_all: OwnedSemaphorePermit,
    of_key: Option<Hold>,
}

impl Share {
    pub(crate) const fn new(of_all: OwnedSemaphorePermit, of_key: Option<Hold>) -> Self {
        Self { of_all, of_key }
    }

    /// How many bytes it is for.
    pub(crate) fn bytes(&self) -> usize {
        self.of_all.num_permits() * GRAIN
    }

    /// Gives back what is more than so many bytes.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let over = self.of_all.num_permits().saturating_sub(bytes.div_ceil(GRAIN));
        drop(self.of_all.split(over));
        if let Some(hold) = &mut self.of_key {
            hold.shrink(over);
        }
    }

    /// Adds another one of the same request.
    pub(crate) fn merge(&mut self, more: Self) {
        self.of_all.merge(more.of_all);
        if let (Some(hold), Some(more)) = (&mut self.of_key, more.of_key) {
            hold.merge(more);
        }
    }
}
