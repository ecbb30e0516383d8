//! Runs on threads that their caller may leave behind.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use super::shared::{Shared, Unavailable, Work};
use super::slot::{Slot, Width};
use gpux_core::threads;

impl Shared {
    /// Works on the session on another thread, and hands what comes of it to `then` there.
    pub(super) fn run_elsewhere<T: 'static>(
        self: &Arc<Self>,
        slot: Slot,
        bytes: usize,
        deadline: Option<Instant>,
        work: impl Work<T>,
        then: impl FnOnce(Result<T, Unavailable>) + Send + 'static,
    ) -> Elsewhere {
        let (width, place, stay) = (slot.width, slot.place, Arc::new(Stay::new(self.alone)));
        let mut leave = Leave { shared: self.clone(), stay: Arc::clone(&stay), slot };
        let job = move || {
            let shared = leave.shared.clone();
            let stay = leave.stay.clone();
            let result = shared.run(&mut leave.slot, bytes, deadline, || stay.begin(), work);
            drop(leave);
            then(result);
            ControlFlow::Continue(())
        };
        if let Err(job) = threads::start(Box::new(job)) {
            // Late is better than never.
            let _ = job();
        }
        Elsewhere { shared: self.clone(), stay, width, place }
    }
}

/// A run that goes on, or has gone on, on another thread.
pub(crate) struct Elsewhere {
    shared: Arc<Shared>,
    stay: Arc<Stay>,
    width: Width,
    place: usize,
}

impl Elsewhere {
    /// Puts an empty slot in the place of a session that is still at work, so that the next request
    /// makes another. Not more of them than the set has sessions: beyond that, after the end of the
    /// run, and where the run only waits for its turn, which it gives up by itself, this is `false`.
    pub(crate) fn retire(&self) -> bool {
        let most = self.shared.places.most();
        let one_more = |retired: usize| (retired < most).then_some(retired + 1);
        if self.shared.retired.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).is_err() {
            return false;
        }
        let replaced = self.stay.replace();
        if replaced {
            self.shared.places.give_back(Slot::empty(self.width, self.place));
        } else {
            self.shared.retired.fetch_sub(1, Ordering::AcqRel);
        }
        replaced
    }
}

/// Gives its slot back however the run ends, whose place may be taken meanwhile.
struct Leave {
    shared: Arc<Shared>,
    stay: Arc<Stay>,
    slot: Slot,
}

impl Drop for Leave {
    fn drop(&mut self) {
        let slot = self.slot.take();
        if self.stay.end() {
            self.shared.places.give_back(slot);
        } else {
            self.shared.places.fill(slot);
            self.shared.retired.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Whether a run on another thread still has its place in the set.
struct Stay(AtomicU8);

impl Stay {
    const WAITING: u8 = 0;
    const RUNNING: u8 = 1;
    const ENDED: u8 = 2;
    const REPLACED: u8 = 3;

    /// Of a run that waits for its turn first, or of one that begins at once.
    const fn new(waits: bool) -> Self {
        Self(AtomicU8::new(if waits { Self::WAITING } else { Self::RUNNING }))
    }

    /// It has its turn.
    fn begin(&self) {
        let _ = self.0.compare_exchange(Self::WAITING, Self::RUNNING, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Gives its place to another; `false` if it has ended.
    fn replace(&self) -> bool {
        self.0.compare_exchange(Self::RUNNING, Self::REPLACED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Ends it; `false` if its place is taken.
    fn end(&self) -> bool {
        let ended = |state| (state != Self::REPLACED).then_some(Self::ENDED);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, ended).is_ok()
    }
}
