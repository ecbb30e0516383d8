//! The requests of one pipeline: its queue, and its use of worker time.

use std::time::{Duration, Instant};

use super::admission::{LaneOptions, Load, Rejection};
use super::client::Client;
use super::queue::{Queue, QueuePosition, Waiting};
use super::throughput::{Completion, Throughput};

/// A request that was started.
pub(super) struct Started {
    pub(super) position: QueuePosition,
    pub(super) request: Waiting,
    /// the amount that its client is charged until it completes
    pub(super) cost: Duration,
    /// the time that it must have left to be run, since others wait that have more
    pub(super) time_needed: Duration,
}

/// The longest wait that a rejection tells.
const LONGEST_WAIT: Duration = Duration::from_hours(1);

/// The charge for a request before the first has completed.
const UNKNOWN_COST: Duration = Duration::from_millis(1);

pub(super) struct LaneState {
    options: LaneOptions,
    waiting: Queue,
    /// requests that were started, waiting for others or not
    begun: usize,
    /// requests of those that are not waiting for others
    at_work: usize,
    /// short requests that its process runs, beside those
    short: usize,
    /// worker time that it has used
    used: Duration,
    throughput: Throughput,
}

impl LaneState {
    pub(super) fn new(options: LaneOptions) -> Self {
        let throughput = Throughput::default();
        Self { options, waiting: Queue::default(), begun: 0, at_work: 0, short: 0, used: Duration::ZERO, throughput }
    }

    pub(super) fn load(&self) -> Load {
        Load { waiting: self.waiting.len(), running: self.begun + self.short }
    }

    /// Rejects a request if the queue is full or its deadline is unlikely to be met. If it is to evict another request,
    /// returns the position of that one.
    pub(super) fn admit(
        &self,
        priority: i32,
        client: Client,
        deadline: Option<Instant>,
        now: Instant,
    ) -> Result<Option<QueuePosition>, Rejection> {
        let is_full = self.waiting.len() >= self.options.queue;
        let victim = if is_full { self.waiting.victim(priority, client) } else { None };
        if is_full && victim.is_none() {
            return Err(self.full());
        }
        let ahead = self.waiting.ahead(priority, client);
        // Those that started, too: most of them may wait for a batch.
        let until_done = self.throughput.until_done(ahead + self.begun);
        // One that has a thread to itself is admitted: the estimate may be out of date.
        let is_first = ahead == 0 && self.begun < self.options.workers;
        let left = deadline.map(|deadline| deadline.saturating_duration_since(now));
        match left {
            Some(left) if !is_first && until_done > left.mul_f32(MARGIN) => {
                Err(Rejection::Late { wait: until_done.min(LONGEST_WAIT) })
            }
            _ => Ok(victim),
        }
    }

    /// Whether a request would have room in the queue, and be done within this time.
    pub(super) fn has_room(&self, within: Duration) -> bool {
        let waiting = self.waiting.len();
        waiting < self.options.queue && self.throughput.until_done(waiting + self.begun) <= within
    }

    /// The expected time of so many requests, if any was answered.
    pub(super) fn time_of(&self, requests: usize) -> Option<Duration> {
        self.throughput.work().map(|_| self.throughput.until_done(requests.saturating_sub(1)))
    }

    /// The rejection of a request when the queue is full.
    pub(super) fn full(&self) -> Rejection {
        let waiting = self.waiting.len();
        Rejection::Full { waiting, retry_after: self.throughput.until_done(waiting + self.begun) }
    }

    pub(super) fn push(&mut self, request: Waiting, position: QueuePosition, now: Instant) {
        self.throughput.begin(now);
        self.waiting.push(position, request);
    }

    /// Removes a request from the queue, if it is still there.
    pub(super) fn remove(&mut self, position: QueuePosition) -> Option<Waiting> {
        self.waiting.remove(position)
    }

    pub(super) fn pop(&mut self) -> Option<Started> {
        let cost = self.throughput.work().unwrap_or(UNKNOWN_COST);
        let (position, request) = self.waiting.pop(cost)?;
        self.begun += 1;
        self.at_work += 1;
        let time_needed = if self.has_waiting() { self.throughput.longest_work() } else { Duration::ZERO };
        Some(Started { position, request, cost, time_needed })
    }

    pub(super) fn has_waiting(&self) -> bool {
        self.waiting.len() > 0
    }

    pub(super) fn has_work(&self) -> bool {
        self.has_waiting() || self.begun + self.short > 0
    }

    /// Whether another request may start while `running` requests run in all: a worker is free, or none works for this
    /// lane. A process gets twice as many, so that it has the next while the answers of others are read.
    pub(super) fn may_start(&self, running: usize, workers: usize) -> bool {
        let workers = if self.options.is_isolated { 2 * workers } else { workers };
        self.begun < self.options.concurrency && (running < workers || self.at_work == 0)
    }

    /// Counts a short request; `false` if the process has as many as it runs in [`SHORT`].
    pub(super) fn begin_short(&mut self, now: Instant) -> bool {
        let most = self.throughput.work().map_or(0, |work| SHORT.as_nanos() / work.as_nanos().max(1));
        let may_begin = (self.short as u128) < most.min(MOST_SHORT);
        if may_begin {
            self.throughput.begin(now);
            self.short += 1;
        }
        may_begin
    }

    /// Whether one short request is all that runs or waits, and such take less than `limit`.
    pub(super) fn is_alone(&self, limit: Duration) -> bool {
        self.short + self.begun + self.waiting.len() == 1 && self.throughput.work().is_some_and(|work| work < limit)
    }

    /// Records the end of a short request, if it was answered `after` this time.
    pub(super) fn end_short(&mut self, after: Option<Duration>, now: Instant) {
        self.short -= 1;
        let completion = after.map(|work_time| Completion { work_time, is_in_time: true });
        self.throughput.end(completion, now, self.has_work());
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

    /// Records the end of a request whose client was charged `cost`; `completion` if it ran.
    pub(super) fn done(
        &mut self,
        position: QueuePosition,
        cost: Duration,
        completion: Option<Completion>,
        now: Instant,
    ) {
        self.begun -= 1;
        self.at_work -= 1;
        let work_time = completion.map_or(Duration::ZERO, |completion| completion.work_time);
        self.waiting.settle(position, cost, work_time);
        self.used += work_time;
        self.throughput.end(completion, now, self.has_work());
    }
}

/// What short requests of a lane may take in all, by what its requests take now: so long may one of them be late for
/// another of higher priority.
const SHORT: Duration = Duration::from_millis(5);

/// The most short requests of a lane.
const MOST_SHORT: u128 = 64;

/// The share of its remaining time that a request may be expected to take: the throughput is an estimate.
const MARGIN: f32 = 0.9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_requests_run_beside_the_queue() {
        const LIMIT: Duration = Duration::from_millis(1);
        let mut lane = LaneState::new(LaneOptions { workers: 1, concurrency: 16, queue: 16, is_isolated: true });
        let now = Instant::now();
        assert!(!lane.begin_short(now), "how long requests take is not known");
        let begun = |lane: &mut LaneState| (0..100).take_while(|_| lane.begin_short(now)).count();
        for (work, most) in [(1000, 5), (20, 64), (4999, 1), (5001, 0)] {
            let work = Duration::from_micros(work);
            lane.short += 1;
            (0..200).for_each(|_| {
                lane.end_short(Some(work), now);
                lane.short += 1;
            });
            lane.end_short(None, now);
            assert_eq!(begun(&mut lane), most, "{work:?}");
            assert_eq!((lane.load().running, lane.has_work()), (most, most > 0));
            (0..most).for_each(|_| lane.end_short(None, now));
        }
        (0..200).for_each(|_| {
            lane.short += 1;
            lane.end_short(Some(LIMIT / 2), now);
        });
        assert!(lane.begin_short(now) && lane.is_alone(LIMIT) && !lane.is_alone(LIMIT / 3));
        assert!(lane.begin_short(now) && !lane.is_alone(LIMIT));
    }
}
