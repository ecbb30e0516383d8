//! What many threads write at once, in parts: no core waits for what another has just written.

use std::cell::Cell;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;

/// Parts at most, so that what is counted of a pipeline of three steps takes some 34 KiB on a machine of many cores
/// (8.5 KiB on one of two).
const MOST: usize = 16;

/// Twice as many as there are cores, as threads that write at once should not have the same one: a power of two.
static PARTS: LazyLock<usize> = LazyLock::new(|| {
    let cores = available_parallelism().map_or(1, usize::from);
    if cores == 1 { 1 } else { (2 * cores).next_power_of_two().min(MOST) }
});

/// A value in parts. Each thread writes to one of them; who reads, reads all.
#[derive(Debug)]
pub(crate) struct Spread<T>(Box<[Line<T>]>);

/// A part in lines of the cache of its own: of 64 bytes, which processors fetch in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line<T>(T);

impl<T: Default> Default for Spread<T> {
    fn default() -> Self {
        Self((0..*PARTS).map(|_| Line::default()).collect())
    }
}

impl<T> Spread<T> {
    /// The part of the calling thread.
    pub(crate) fn mine(&self) -> &T {
        &self.0[number() & (self.0.len() - 1)].0
    }

    /// All parts.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|Line(part)| part)
    }
}

/// The calling thread's number, in the order in which they first asked.
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
    fn what_threads_write_is_all_there() {
        let spread = Spread::<AtomicU64>::default();
        std::thread::scope(|scope| {
            for _ in 0..40 {
                scope.spawn(|| spread.mine().fetch_add(1, Ordering::Relaxed));
            }
        });
        assert_eq!(spread.parts().map(|part| part.load(Ordering::Relaxed)).sum::<u64>(), 40);
    }

    #[test]
    fn a_thread_keeps_to_its_part_and_parts_share_no_line() {
        let spread = Spread::<AtomicU64>::default();
        let mine = std::ptr::from_ref(spread.mine());
        assert_eq!(mine, std::ptr::from_ref(spread.mine()));
        assert!(spread.0.len().is_power_of_two() && size_of::<Line<AtomicU64>>() == 128);
    }
}
