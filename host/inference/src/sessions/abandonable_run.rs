//! Offloads runs to threads that their caller can abandon.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use super::checkout::{SessionRunError, Shared, Work};
use super::slot::{SessionSlot, ThreadMode};
use gpux_core::threads;

impl Shared {
    /// Runs `work` on another thread, and passes the result to `then` there.
    pub(super) fn offload<T: 'static>(
        self: &Arc<Self>,
        slot: SessionSlot,
        bytes: usize,
        deadline: Option<Instant>,
        work: impl Work<T>,
        then: impl FnOnce(Result<T, SessionRunError>) + Send + 'static,
    ) -> OffloadedRun {
        let (mode, index, state) = (slot.mode, slot.index, Arc::new(RunState::new(self.exclusive)));
        let mut slot_return = SlotReturn { shared: self.clone(), state: Arc::clone(&state), slot };
        let job = move || {
            let shared = slot_return.shared.clone();
            let state = slot_return.state.clone();
            let result = shared.run(&mut slot_return.slot, bytes, deadline, || state.begin(), work);
            drop(slot_return);
            then(result);
            ControlFlow::Continue(())
        };
        if let Err(job) = threads::start(Box::new(job)) {
            // No thread can be started: run here.
            let _ = job();
        }
        OffloadedRun { shared: self.clone(), state, mode, index }
    }
}

/// A run on another thread, in progress or ended.
pub(crate) struct OffloadedRun {
    shared: Arc<Shared>,
    state: Arc<RunState>,
    mode: ThreadMode,
    index: usize,
}

impl OffloadedRun {
    /// Replaces the session of an overdue run by an empty slot, so that the next request loads another.
    /// Returns `false` if as many are retired as the set has sessions, if the run has ended, or if it
    /// waits for the device's lock, which times out by itself.
    pub(crate) fn retire(&self) -> bool {
        let max_concurrency = self.shared.pool.max_concurrency();
        let one_more = |retired: usize| (retired < max_concurrency).then_some(retired + 1);
        if self.shared.retired.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).is_err() {
            return false;
        }
        let replaced = self.state.replace();
        if replaced {
            self.shared.pool.give_back(SessionSlot::empty(self.mode, self.index));
        } else {
            self.shared.retired.fetch_sub(1, Ordering::AcqRel);
        }
        replaced
    }
}

/// Returns its slot when dropped, unless the session was retired meanwhile.
struct SlotReturn {
    shared: Arc<Shared>,
    state: Arc<RunState>,
    slot: SessionSlot,
}

impl Drop for SlotReturn {
    fn drop(&mut self) {
        let slot = self.slot.take();
        if self.state.end() {
            self.shared.pool.give_back(slot);
        } else {
            self.shared.pool.restore(slot);
            self.shared.retired.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// The state of an offloaded run.
struct RunState(AtomicU8);

impl RunState {
    const WAITING: u8 = 0;
    const RUNNING: u8 = 1;
    const ENDED: u8 = 2;
    const REPLACED: u8 = 3;

    /// The state before the run; `waits` for the device's lock or not.
    const fn new(waits: bool) -> Self {
        Self(AtomicU8::new(if waits { Self::WAITING } else { Self::RUNNING }))
    }

    /// The run holds the device's lock.
    fn begin(&self) {
        let _ = self.0.compare_exchange(Self::WAITING, Self::RUNNING, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Marks the session as replaced; `false` if the run has ended.
    fn replace(&self) -> bool {
        self.0.compare_exchange(Self::RUNNING, Self::REPLACED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Marks the run as ended; `false` if its session was replaced.
    fn end(&self) -> bool {
        let ended = |state| (state != Self::REPLACED).then_some(Self::ENDED);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, ended).is_ok()
    }
}
