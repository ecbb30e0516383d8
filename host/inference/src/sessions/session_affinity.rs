//! Free sessions with thread affinity: a thread first takes the session that it used last, whose data
//! is still in the core's cache.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_queue::ArrayQueue;

use super::slot::SessionSlot;

thread_local! {
    /// The slot that the thread used last, in any pool of several.
    static LAST: Cell<usize> = const { Cell::new(0) };
    /// The slot that [`with_preferred_session`] asks for.
    static PREFERRED: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Runs `work` with session number `preferred` of each model where that is free. Warm-up reaches all
/// sessions this way.
pub fn with_preferred_session<T>(preferred: usize, work: impl FnOnce() -> T) -> T {
    PREFERRED.set(Some(preferred));
    let result = work();
    PREFERRED.set(None);
    result
}

/// A slot for each session. Taking and returning are lock-free.
pub(super) struct AffinityPool(Box<[AffinitySlot]>);

struct AffinitySlot {
    slot: ArrayQueue<SessionSlot>,
    /// whether the slot has no session yet
    is_unloaded: AtomicBool,
}

impl AffinityPool {
    /// A pool of this many slots (at least one), all empty.
    pub(super) fn new(slots: usize) -> Self {
        let place = |_| AffinitySlot { slot: ArrayQueue::new(1), is_unloaded: AtomicBool::new(false) };
        Self((0..slots.max(1)).map(place).collect())
    }

    /// The number of slots.
    pub(super) fn capacity(&self) -> usize {
        self.0.len()
    }

    /// The number of free sessions.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|place| place.slot.len()).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|place| place.slot.is_empty())
    }

    /// Takes the session that the thread used last, else another, else an empty slot.
    pub(super) fn pop(&self) -> Option<SessionSlot> {
        let loaded =
            |place: &AffinitySlot| if place.is_unloaded.load(Ordering::Relaxed) { None } else { place.slot.pop() };
        self.find(loaded).or_else(|| self.find(|place| place.slot.pop()))
    }

    fn find(&self, take: impl Fn(&AffinitySlot) -> Option<SessionSlot>) -> Option<SessionSlot> {
        let (count, preferred) = (self.0.len(), PREFERRED.get());
        let first = preferred.unwrap_or_else(|| LAST.get()) % count;
        (first..count).chain(0..first).find_map(|index| {
            let slot = take(&self.0[index])?;
            if count > 1 && preferred.is_none() {
                LAST.set(index);
            }
            Some(slot)
        })
    }

    /// Takes the slot with this index, if it is free.
    pub(super) fn pop_at(&self, index: usize) -> Option<SessionSlot> {
        self.0.get(index)?.slot.pop()
    }

    /// Returns a slot.
    pub(super) fn push(&self, slot: SessionSlot) {
        if let Some(place) = self.0.get(slot.index) {
            place.is_unloaded.store(slot.session.is_none(), Ordering::Relaxed);
            let _ = place.slot.push(slot);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::Barrier;

    use super::super::slot::ThreadMode;
    use super::*;

    /// A pool with this many empty slots.
    fn pool(slots: usize) -> AffinityPool {
        let pool = AffinityPool::new(slots);
        (0..slots).for_each(|index| pool.push(SessionSlot::empty(ThreadMode::MultiThreaded, index)));
        pool
    }

    #[test]
    fn takes_every_slot() {
        let pool = pool(3);
        assert_eq!((pool.len(), pool.capacity(), pool.is_empty()), (3, 3, false));
        let mut taken: Vec<_> = std::iter::from_fn(|| pool.pop()).map(|slot| slot.index).collect();
        taken.sort_unstable();
        assert_eq!((taken, pool.len(), pool.is_empty()), (vec![0, 1, 2], 0, true));
        pool.push(SessionSlot::empty(ThreadMode::MultiThreaded, 1));
        assert!(pool.pop_at(0).is_none() && pool.pop_at(1).is_some() && pool.pop_at(1).is_none());
    }

    #[test]
    fn threads_keep_their_sessions() {
        let (pool, both) = (pool(2), Barrier::new(2));
        let each = || {
            both.wait();
            let had = pool.pop().unwrap();
            both.wait();
            let index = had.index;
            pool.push(had);
            both.wait();
            for _ in 0..1000 {
                // Each has its own, which the other does not look for.
                let next = pool.pop().unwrap();
                assert_eq!(next.index, index);
                pool.push(next);
            }
            index
        };
        std::thread::scope(|scope| {
            let [one, other] = [scope.spawn(each), scope.spawn(each)].map(|thread| thread.join().unwrap());
            assert_ne!(one, other);
        });
    }

    #[test]
    fn takes_preferred_sessions() {
        let pools = [2, 3, 1].map(pool);
        let taken = |pool: &AffinityPool| {
            let slot = pool.pop().unwrap();
            let index = slot.index;
            pool.push(slot);
            index
        };
        let turns: Vec<_> =
            (0..3).map(|preferred| with_preferred_session(preferred, || pools.each_ref().map(taken))).collect();
        assert_eq!(turns, [[0, 0, 0], [1, 1, 0], [0, 2, 0]]);
        assert_eq!([taken(&pools[1]), taken(&pools[1])], [0, 0], "what was taken in turn is nobody's last");
    }
}
