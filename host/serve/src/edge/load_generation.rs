//! Readings of one file that may overlap: one that hangs must not undo what came after it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// How often somebody began to read a file, and which of those readings holds.
#[derive(Debug, Default)]
pub(crate) struct Readings {
    begun: AtomicU64,
    holds: Mutex<Option<u64>>,
}

/// One of them.
pub(crate) struct Reading<'a> {
    of: &'a Readings,
    number: u64,
}

impl Readings {
    pub(crate) fn begin(&self) -> Reading<'_> {
        Reading { of: self, number: self.begun.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Reading<'_> {
    /// Puts what was read in its place, unless a reading that began later has done so.
    pub(crate) fn put(self, put: impl FnOnce()) {
        let mut holds = self.of.holds.lock().unwrap_or_else(PoisonError::into_inner);
        if holds.is_none_or(|number| number < self.number) {
            *holds = Some(self.number);
            put();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_began_later_holds() {
        let (readings, mut now) = (Readings::default(), 0);
        let (first, second, third) = (readings.begin(), readings.begin(), readings.begin());
        second.put(|| now = 2);
        first.put(|| now = 1);
        assert_eq!(now, 2);
        third.put(|| now = 3);
        assert_eq!(now, 3);
    }
}
