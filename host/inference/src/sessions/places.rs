//! The sessions of a set: which of them a run gets, and who waits for one.
//!
//! A wide session spreads each operator over the threads that models share, which answers one caller
//! soonest. Once there are callers for most of the cores, every core has enough to do without that,
//! and handing parts around only costs: then each run has a narrow session, which knows no thread
//! but the caller's.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

use super::shelf::Shelf;
use super::slot::{Slot, Width};
use crate::engine::Session;

pub(super) struct Places {
    wide: Shelf,
    narrow: Option<Narrow>,
    waiting: AtomicUsize,
    gate: Mutex<()>,
    freed: Condvar,
}

/// Narrow sessions, made while there are callers for them.
struct Narrow {
    free: Shelf,
    /// those that are there, in use or not
    made: AtomicUsize,
    /// as many as the machine has cores, until one could not be made
    most: AtomicUsize,
    being_made: AtomicBool,
    /// callers that run or wait
    inside: AtomicUsize,
    /// runs for which a crowd that is no more still counts as one
    lingering: AtomicUsize,
}

/// Runs for which a crowd lingers. Between two runs callers have other things to do, so that now and
/// then only one of many is inside; a wide run would then be in the way of those that come next.
const LINGERS: usize = 16;

impl Narrow {
    fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    fn all_made(&self) -> bool {
        self.made.load(Ordering::Acquire) >= self.most()
    }

    /// Whether there are callers for more than half of the cores, or were of late. With fewer, a wide
    /// session does more, though its threads lose some time with each other.
    fn is_crowded(&self) -> bool {
        let (inside, most) = (self.inside.load(Ordering::Relaxed), self.most());
        most > 0 && (inside > 1 && inside * 2 > most || self.lingering.load(Ordering::Relaxed) > 0)
    }

    /// A caller comes.
    fn enter(&self) {
        let inside = self.inside.fetch_add(1, Ordering::Relaxed) + 1;
        if inside > 1 && inside * 2 > self.most() {
            self.lingering.store(LINGERS, Ordering::Relaxed);
        } else if self.lingering.load(Ordering::Relaxed) > 0 {
            let one_less = |left: usize| Some(left.saturating_sub(1));
            let _ = self.lingering.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        }
    }
}

impl Places {
    /// Room for so many wide sessions, and for up to `narrow` others.
    pub(super) fn new(wide: usize, narrow: usize) -> Self {
        let narrow = (narrow > 0).then(|| Narrow {
            free: Shelf::new(narrow),
            made: AtomicUsize::new(0),
            most: AtomicUsize::new(narrow),
            being_made: AtomicBool::new(false),
            inside: AtomicUsize::new(0),
            lingering: AtomicUsize::new(0),
        });
        let wide = Shelf::new(wide);
        Self { wide, narrow, waiting: AtomicUsize::new(0), gate: Mutex::new(()), freed: Condvar::new() }
    }

    /// How many runs can go on at once, when there are callers for all.
    pub(super) fn most(&self) -> usize {
        self.narrow.as_ref().map_or(0, Narrow::most).max(self.wide.capacity())
    }

    /// How many runs are best begun at once now.
    pub(super) fn open(&self) -> usize {
        match &self.narrow {
            Some(narrow) if narrow.is_crowded() => narrow.most(),
            _ => self.wide.capacity(),
        }
    }

    /// Wide sessions, whatever the load.
    pub(super) fn wide(&self) -> usize {
        self.wide.capacity()
    }

    /// All sessions that there are.
    pub(super) fn count(&self) -> usize {
        self.wide() + self.narrow.as_ref().map_or(0, |narrow| narrow.made.load(Ordering::Relaxed))
    }

    /// Counts a caller until it has its result.
    pub(super) fn enter(&self) -> Inside<'_> {
        if let Some(narrow) = &self.narrow {
            narrow.enter();
        }
        Inside(self)
    }

    /// A free session: a narrow one in a crowd, and for `short` runs if there is one.
    pub(super) fn pop(&self, short: bool) -> Option<Slot> {
        let Some(narrow) = &self.narrow else { return self.wide.pop() };
        let crowded = narrow.is_crowded();
        if !crowded && !short {
            return self.wide.pop();
        }
        match narrow.free.pop() {
            // Beside as many as there are cores, a wide one would only be in the way.
            None if crowded && narrow.all_made() => None,
            None => self.wide.pop(),
            slot => slot,
        }
    }

    /// Whether whoever asks finds a session now.
    pub(super) fn is_free(&self) -> bool {
        let Some(narrow) = &self.narrow else { return !self.wide.is_empty() };
        if !narrow.is_crowded() {
            return !self.wide.is_empty();
        }
        !narrow.free.is_empty() || !narrow.all_made() && !self.wide.is_empty()
    }

    /// The same as [`Self::pop`], when one is free. `None` if that is not before the deadline.
    #[cold]
    pub(super) fn wait(&self, short: bool, deadline: Option<Instant>) -> Option<Slot> {
        let mut gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        // Whoever gives a session back after this fence sees that somebody waits.
        fence(Ordering::SeqCst);
        let found = loop {
            if let Some(slot) = self.pop(short) {
                break Some(slot);
            }
            gate = match deadline {
                None => self.freed.wait(gate).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break None;
                    }
                    self.freed.wait_timeout(gate, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        found
    }

    pub(super) fn give_back(&self, slot: Slot) {
        self.of(slot.width).push(slot);
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let _gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
            // Not everybody takes a session of this width.
            self.freed.notify_all();
        }
    }

    /// Puts a session back in its place, for which another is to be made, or drops it where there is one by now.
    pub(super) fn fill(&self, mut slot: Slot) {
        if slot.session.is_some()
            && let Some(mut other) = self.of(slot.width).pop_at(slot.place)
        {
            if other.session.is_none() {
                std::mem::swap(&mut slot, &mut other);
            }
            self.give_back(other);
        }
    }

    /// Whether whoever asks is to make a narrow session now: there is a crowd, or `short` runs, and
    /// none free. It is told what came of it by [`Self::made`].
    pub(super) fn asks_for_narrow(&self, short: bool) -> bool {
        let Some(narrow) = &self.narrow else { return false };
        let wanted = !narrow.all_made()
            && narrow.free.is_empty()
            && (narrow.is_crowded() || short && narrow.made.load(Ordering::Relaxed) == 0);
        wanted && !narrow.being_made.swap(true, Ordering::AcqRel)
    }

    /// Whether a narrow session is being made.
    pub(super) fn is_making(&self) -> bool {
        self.narrow.as_ref().is_some_and(|narrow| narrow.being_made.load(Ordering::Acquire))
    }

    /// A narrow session was made, or can never be.
    pub(super) fn made(&self, session: Option<Box<dyn Session>>) {
        let Some(narrow) = &self.narrow else { return };
        // One is made at a time, so this is its place.
        let place = narrow.made.load(Ordering::Acquire);
        match &session {
            Some(_) => narrow.made.store(place + 1, Ordering::Release),
            None => narrow.most.store(place, Ordering::Release),
        }
        narrow.being_made.store(false, Ordering::Release);
        if session.is_some() {
            self.give_back(Slot { width: Width::Narrow, place, session });
        }
    }

    fn of(&self, width: Width) -> &Shelf {
        match (&self.narrow, width) {
            (Some(narrow), Width::Narrow) => &narrow.free,
            _ => &self.wide,
        }
    }

    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        self.wide.len() + self.narrow.as_ref().map_or(0, |narrow| narrow.free.len())
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }
}

/// A caller that runs or waits.
pub(crate) struct Inside<'a>(&'a Places);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        if let Some(narrow) = &self.0.narrow {
            narrow.inside.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
