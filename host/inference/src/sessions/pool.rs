//! The pool of a model's sessions.
//!
//! A multi-threaded session spreads each operator over the shared thread pool, which gives one caller
//! the lowest latency. Once callers occupy most cores, splitting operators only costs: each run then
//! has a single-threaded session.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

use super::session_affinity::AffinityPool;
use super::slot::{SessionSlot, ThreadMode};
use crate::engine::Session;

pub(super) struct SessionPool {
    multi_threaded: AffinityPool,
    single_threaded: Option<SingleThreaded>,
    waiting: AtomicUsize,
    lock: Mutex<()>,
    slot_freed: Condvar,
}

/// Single-threaded sessions, loaded on demand.
struct SingleThreaded {
    free: AffinityPool,
    /// sessions, in use or free
    loaded: AtomicUsize,
    /// the number of cores, until loading one fails
    max_concurrency: AtomicUsize,
    is_loading: AtomicBool,
    /// callers that run or wait
    callers: AtomicUsize,
    /// see [`CROWDED_RUNS`]
    crowded_runs_left: AtomicUsize,
}

/// Runs for which the pool stays crowded. Between two runs callers do other work, so that sometimes
/// only one of many is counted; a multi-threaded run would then delay the next ones.
const CROWDED_RUNS: usize = 16;

impl SingleThreaded {
    fn max_concurrency(&self) -> usize {
        self.max_concurrency.load(Ordering::Relaxed)
    }

    fn is_full(&self) -> bool {
        self.loaded.load(Ordering::Acquire) >= self.max_concurrency()
    }

    /// Whether callers occupy more than half of the cores, or did recently. With fewer, a
    /// multi-threaded session has the higher throughput.
    fn is_crowded(&self) -> bool {
        let (callers, max_concurrency) = (self.callers.load(Ordering::Relaxed), self.max_concurrency());
        max_concurrency > 0
            && (callers > 1 && callers * 2 > max_concurrency || self.crowded_runs_left.load(Ordering::Relaxed) > 0)
    }

    fn count_caller(&self) {
        let callers = self.callers.fetch_add(1, Ordering::Relaxed) + 1;
        if callers > 1 && callers * 2 > self.max_concurrency() {
            self.crowded_runs_left.store(CROWDED_RUNS, Ordering::Relaxed);
        } else if self.crowded_runs_left.load(Ordering::Relaxed) > 0 {
            let one_less = |left: usize| Some(left.saturating_sub(1));
            let _ = self.crowded_runs_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        }
    }
}

impl SessionPool {
    /// A pool of this many sessions, and up to `single_threaded` others.
    pub(super) fn new(multi_threaded: usize, single_threaded: usize) -> Self {
        let single_threaded = (single_threaded > 0).then(|| SingleThreaded {
            free: AffinityPool::new(single_threaded),
            loaded: AtomicUsize::new(0),
            max_concurrency: AtomicUsize::new(single_threaded),
            is_loading: AtomicBool::new(false),
            callers: AtomicUsize::new(0),
            crowded_runs_left: AtomicUsize::new(0),
        });
        let multi_threaded = AffinityPool::new(multi_threaded);
        Self {
            multi_threaded,
            single_threaded,
            waiting: AtomicUsize::new(0),
            lock: Mutex::new(()),
            slot_freed: Condvar::new(),
        }
    }

    /// The most runs at once.
    pub(super) fn max_concurrency(&self) -> usize {
        self.single_threaded.as_ref().map_or(0, SingleThreaded::max_concurrency).max(self.multi_threaded.capacity())
    }

    /// The number of runs to start at once under the current load.
    pub(super) fn target_concurrency(&self) -> usize {
        match &self.single_threaded {
            Some(single_threaded) if single_threaded.is_crowded() => single_threaded.max_concurrency(),
            _ => self.multi_threaded.capacity(),
        }
    }

    /// The number of multi-threaded sessions.
    pub(super) fn multi_threaded(&self) -> usize {
        self.multi_threaded.capacity()
    }

    /// The number of sessions.
    pub(super) fn count(&self) -> usize {
        self.multi_threaded()
            + self.single_threaded.as_ref().map_or(0, |single_threaded| single_threaded.loaded.load(Ordering::Relaxed))
    }

    /// Counts a caller until it has its result.
    pub(super) fn count_caller(&self) -> CallerGuard<'_> {
        if let Some(single_threaded) = &self.single_threaded {
            single_threaded.count_caller();
        }
        CallerGuard(self)
    }

    /// A free session: single-threaded if the pool is crowded, and for `short` runs if there is one.
    pub(super) fn pop(&self, short: bool) -> Option<SessionSlot> {
        let Some(single_threaded) = &self.single_threaded else { return self.multi_threaded.pop() };
        let crowded = single_threaded.is_crowded();
        if !crowded && !short {
            return self.multi_threaded.pop();
        }
        match single_threaded.free.pop() {
            // With a run on each core, a multi-threaded run would only delay the others.
            None if crowded && single_threaded.is_full() => None,
            None => self.multi_threaded.pop(),
            slot => slot,
        }
    }

    /// Waits until [`Self::pop`] finds a session; `None` at the deadline.
    #[cold]
    pub(super) fn wait(&self, short: bool, deadline: Option<Instant>) -> Option<SessionSlot> {
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        // A thread that returns a session after this fence sees `waiting`.
        fence(Ordering::SeqCst);
        let found = loop {
            if let Some(slot) = self.pop(short) {
                break Some(slot);
            }
            lock = match deadline {
                None => self.slot_freed.wait(lock).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break None;
                    }
                    self.slot_freed.wait_timeout(lock, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        found
    }

    /// A multi-threaded session, however crowded the pool is.
    pub(super) fn pop_multi_threaded(&self) -> Option<SessionSlot> {
        self.multi_threaded.pop()
    }

    /// Whether runs may have a single-threaded session.
    pub(super) const fn has_single_threaded(&self) -> bool {
        self.single_threaded.is_some()
    }

    pub(super) fn give_back(&self, slot: SessionSlot) {
        self.slots(slot.mode).push(slot);
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let _gate = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            // Not everybody takes a session of this width.
            self.slot_freed.notify_all();
        }
    }

    /// Returns a retired session to its slot, or drops it if another was loaded meanwhile.
    pub(super) fn restore(&self, mut slot: SessionSlot) {
        if slot.session.is_some()
            && let Some(mut other) = self.slots(slot.mode).pop_at(slot.index)
        {
            if other.session.is_none() {
                std::mem::swap(&mut slot, &mut other);
            }
            self.give_back(other);
        }
    }

    /// Whether the caller is to load a single-threaded session now: the pool is crowded or the run
    /// `short`, and none is free. The caller then reports by [`Self::loaded`].
    pub(super) fn claim_single_threaded_load(&self, short: bool) -> bool {
        let Some(single_threaded) = &self.single_threaded else { return false };
        let wanted = !single_threaded.is_full()
            && single_threaded.free.is_empty()
            && (single_threaded.is_crowded() || short && single_threaded.loaded.load(Ordering::Relaxed) == 0);
        wanted && !single_threaded.is_loading.swap(true, Ordering::AcqRel)
    }

    /// Whether a single-threaded session is being loaded.
    pub(super) fn is_loading_session(&self) -> bool {
        self.single_threaded.as_ref().is_some_and(|single_threaded| single_threaded.is_loading.load(Ordering::Acquire))
    }

    /// Adds a loaded single-threaded session; `None` if loading failed.
    pub(super) fn loaded(&self, session: Option<Box<dyn Session>>) {
        let Some(single_threaded) = &self.single_threaded else { return };
        // One is made at a time, so this is its place.
        let index = single_threaded.loaded.load(Ordering::Acquire);
        match &session {
            Some(_) => single_threaded.loaded.store(index + 1, Ordering::Release),
            None => single_threaded.max_concurrency.store(index, Ordering::Release),
        }
        single_threaded.is_loading.store(false, Ordering::Release);
        if session.is_some() {
            self.give_back(SessionSlot { mode: ThreadMode::SingleThreaded, index, session });
        }
    }

    fn slots(&self, mode: ThreadMode) -> &AffinityPool {
        match (&self.single_threaded, mode) {
            (Some(single_threaded), ThreadMode::SingleThreaded) => &single_threaded.free,
            _ => &self.multi_threaded,
        }
    }

    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        self.multi_threaded.len()
            + self.single_threaded.as_ref().map_or(0, |single_threaded| single_threaded.free.len())
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }
}

/// A caller that runs or waits.
pub(crate) struct CallerGuard<'a>(&'a SessionPool);

impl Drop for CallerGuard<'_> {
    fn drop(&mut self) {
        if let Some(single_threaded) = &self.0.single_threaded {
            single_threaded.callers.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
