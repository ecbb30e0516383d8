//! The requests of one pipeline: those that wait, and how long they take.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::pace::Pace;
use super::{Job, LaneOptions, Load, Refusal};

/// A request's place in the queue: by priority, then age.
pub(in crate::serve) type Place = (Reverse<i32>, u64);

/// A request in the queue.
pub(super) struct Waiting {
    pub(super) job: Job,
    pub(super) deadline: Option<Instant>,
    pub(super) cancelled: Arc<AtomicBool>,
}

/// How long a request took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Time {
    /// from its beginning to its end
    pub(super) whole: Duration,
    /// of that, what was worked for it: not while it waited for others
    pub(super) at_work: Duration,
}

pub(super) struct LaneState {
    options: LaneOptions,
    waiting: BTreeMap<Place, Waiting>,
    /// those that have begun, waiting for others or not
    begun: usize,
    /// those of them that are at work
    at_work: usize,
    /// time of workers that it has had
    used: Duration,
    pace: Pace,
}

impl LaneState {
    pub(super) fn new(options: LaneOptions) -> Self {
        let pace = Pace::default();
        Self { options, waiting: BTreeMap::new(), begun: 0, at_work: 0, used: Duration::ZERO, pace }
    }

    pub(super) fn load(&self) -> Load {
        Load { waiting: self.waiting.len(), running: self.begun }
    }

    /// Refuses a request that has no room, or no time.
    pub(super) fn admit(&self, deadline: Option<Instant>, now: Instant) -> Result<(), Refusal> {
        let waiting = self.waiting.len();
        let wait = self.pace.wait(waiting);
        if waiting >= self.options.queue {
            return Err(Refusal::Full { waiting, retry_after: wait });
        }
        // Whoever finds nobody waiting may try: what is known of the pace may be out of date.
        let left = deadline.map(|deadline| deadline.saturating_duration_since(now));
        match left {
            Some(left) if waiting > 0 && self.pace.until_done(waiting) > left.mul_f32(MARGIN) => {
                Err(Refusal::Late { wait })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn push(&mut self, request: Waiting, priority: i32, number: u64) -> Place {
        let place = (Reverse(priority), number);
        self.waiting.insert(place, request);
        place
    }

    /// Takes a request out of the queue, if it is still there.
    pub(super) fn remove(&mut self, place: Place) -> Option<Waiting> {
        self.waiting.remove(&place)
    }

    pub(super) fn pop(&mut self) -> Option<Waiting> {
        let (_, waiting) = self.waiting.pop_first()?;
        self.begun += 1;
        self.at_work += 1;
        Some(waiting)
    }

    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn has_work(&self) -> bool {
        self.has_waiting() || self.begun > 0
    }

    /// Whether one more may begin: where a worker is free, or this lane has none.
    pub(super) fn may_start(&self, free: bool) -> bool {
        self.begun < self.options.concurrency && (free || self.at_work == 0)
    }

    pub(super) fn used(&self) -> Duration {
        self.used
    }

    pub(super) fn catch_up(&mut self, used: Duration) {
        self.used = self.used.max(used);
    }

    pub(super) fn pause(&mut self) {
        self.at_work -= 1;
    }

    pub(super) fn resume(&mut self) {
        self.at_work += 1;
    }

    /// One has ended; `time` if it ran.
    pub(super) fn done(&mut self, time: Option<Time>, now: Instant) {
        self.begun -= 1;
        self.at_work -= 1;
        if let Some(time) = time {
            self.used += time.at_work;
            self.pace.done(time.whole, now, self.has_work());
        }
    }
}

/// How much of its time a request may be expected to take: the pace is an estimate.
const MARGIN: f32 = 0.9;
