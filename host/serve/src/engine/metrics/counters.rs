//! Sums of counters whose sources come and go with reloads. A sum never decreases.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use gpux_inference::BatchSizes;

/// A source of counts by key.
pub(crate) trait CountSource {
    /// the label of a count
    type Key: Ord + Clone;

    /// The current counts.
    fn counts(&self) -> BTreeMap<Self::Key, u64>;
}

impl CountSource for BatchSizes {
    type Key = usize;

    fn counts(&self) -> BTreeMap<usize, u64> {
        self.by_rows()
    }
}

/// The sum of several sources, some of which may be closed.
pub(crate) struct Counters<C: CountSource>(Mutex<Sources<C>>);

struct Sources<C: CountSource> {
    /// counts of closed sources
    closed: BTreeMap<C::Key, u64>,
    open: Vec<Source<C>>,
}

struct Source<C: CountSource> {
    counts: Arc<C>,
    /// the counts at the time of `add`, which are excluded
    before: BTreeMap<C::Key, u64>,
}

impl<C: CountSource> fmt::Debug for Counters<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counters")
    }
}

impl<C: CountSource> Default for Counters<C> {
    fn default() -> Self {
        Self(Mutex::new(Sources { closed: BTreeMap::new(), open: Vec::new() }))
    }
}

impl<C: CountSource> Counters<C> {
    /// Adds a source, which counts from now on.
    pub(crate) fn add(&self, counts: Arc<C>) {
        let mut sources = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sources.close();
        let before = counts.counts();
        sources.open.push(Source { counts, before });
    }

    /// The sum.
    pub(crate) fn counts(&self) -> BTreeMap<C::Key, u64> {
        let mut sources = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sources.close();
        let mut sum = sources.closed.clone();
        sources.open.iter().for_each(|source| source.add_to(&mut sum));
        sum
    }
}

impl<C: CountSource> Sources<C> {
    /// Closes sources without other owners: keeps only their counts.
    fn close(&mut self) {
        let closed = &mut self.closed;
        self.open.retain_mut(|source| {
            let gone = Arc::get_mut(&mut source.counts).is_some();
            if gone {
                source.add_to(closed);
            }
            !gone
        });
    }
}

impl<C: CountSource> Source<C> {
    fn add_to(&self, sum: &mut BTreeMap<C::Key, u64>) {
        for (key, count) in self.counts.counts() {
            let new = count.saturating_sub(self.before.get(&key).copied().unwrap_or(0));
            if new > 0 {
                *sum.entry(key).or_default() += new;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    impl CountSource for AtomicU64 {
        type Key = ();

        fn counts(&self) -> BTreeMap<(), u64> {
            BTreeMap::from([((), self.load(Ordering::Relaxed))])
        }
    }

    #[test]
    fn keeps_counts_of_dropped_sources() {
        let ledger = Counters::default();
        let [first, second] = [3, 0].map(|count| Arc::new(AtomicU64::new(count)));
        ledger.add(first.clone());
        first.fetch_add(5, Ordering::Relaxed);
        assert_eq!(ledger.counts(), BTreeMap::from([((), 5)]), "what was before does not count");
        ledger.add(second.clone());
        second.fetch_add(2, Ordering::Relaxed);
        first.fetch_add(1, Ordering::Relaxed);
        drop(first);
        assert_eq!(ledger.counts(), BTreeMap::from([((), 8)]));
        drop(second);
        assert_eq!([ledger.counts(), ledger.counts()], [(); 2].map(|()| BTreeMap::from([((), 8)])));
    }
}
