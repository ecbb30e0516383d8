//! Overlapping loads of one file: a load that hangs must not overwrite the result of a later one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Numbers the loads of a file, and remembers the newest that was committed.
#[derive(Debug, Default)]
pub(crate) struct LoadGeneration {
    started: AtomicU64,
    committed: Mutex<Option<u64>>,
}

/// One load.
pub(crate) struct LoadAttempt<'a> {
    of: &'a LoadGeneration,
    number: u64,
}

impl LoadGeneration {
    pub(crate) fn begin(&self) -> LoadAttempt<'_> {
        LoadAttempt { of: self, number: self.started.fetch_add(1, Ordering::Relaxed) }
    }
}

impl LoadAttempt<'_> {
    /// Commits the result, unless a load that began later has committed already.
    pub(crate) fn commit(self, commit: impl FnOnce()) {
        let mut committed = self.of.committed.lock().unwrap_or_else(PoisonError::into_inner);
        if committed.is_none_or(|number| number < self.number) {
            *committed = Some(self.number);
            commit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_load_wins() {
        let (generation, mut now) = (LoadGeneration::default(), 0);
        let (first, second, third) = (generation.begin(), generation.begin(), generation.begin());
        second.commit(|| now = 2);
        first.commit(|| now = 1);
        assert_eq!(now, 2);
        third.commit(|| now = 3);
        assert_eq!(now, 3);
    }
}
