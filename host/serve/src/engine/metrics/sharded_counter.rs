//! Counters in shards, each for a few threads, so that cores do not contend for a cache line.

use std::cell::Cell;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;

/// The most shards. The metrics of a pipeline of three steps then take some 34 KiB on a machine with many cores (8.5
/// KiB with two).
const MOST: usize = 16;

/// The number of shards, a power of two: twice the number of cores, so that concurrent writers rarely share one.
static PARTS: LazyLock<usize> = LazyLock::new(|| {
    let cores = available_parallelism().map_or(1, usize::from);
    if cores == 1 { 1 } else { (2 * cores).next_power_of_two().min(MOST) }
});

/// A value in shards. A thread writes to one of them; a reader sums all.
#[derive(Debug)]
pub(crate) struct ShardedCounter<T>(Box<[Line<T>]>);

/// A shard in its own cache lines: of 64 bytes, which processors fetch in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line<T>(T);

impl<T: Default> Default for ShardedCounter<T> {
    fn default() -> Self {
        Self((0..*PARTS).map(|_| Line::default()).collect())
    }
}

impl<T> ShardedCounter<T> {
    /// The shard of the calling thread.
    pub(crate) fn shard(&self) -> &T {
        &self.0[number() & (self.0.len() - 1)].0
    }

    /// All shards.
    pub(crate) fn shards(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|Line(part)| part)
    }
}

/// The calling thread's number, in the order of first calls.
fn number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
    }
    NUMBER.get().unwrap_or_else(|| {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        NUMBER.set(Some(number));
        number
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn sums_all_shards() {
        let spread = ShardedCounter::<AtomicU64>::default();
        std::thread::scope(|scope| {
            for _ in 0..40 {
                scope.spawn(|| spread.shard().fetch_add(1, Ordering::Relaxed));
            }
        });
        assert_eq!(spread.shards().map(|part| part.load(Ordering::Relaxed)).sum::<u64>(), 40);
    }

    #[test]
    fn threads_keep_their_shard() {
        let spread = ShardedCounter::<AtomicU64>::default();
        let mine = std::ptr::from_ref(spread.shard());
        assert_eq!(mine, std::ptr::from_ref(spread.shard()));
        assert!(spread.0.len().is_power_of_two() && size_of::<Line<AtomicU64>>() == 128);
    }
}
