//! Scheduler: bounded queues in front of as many worker threads as there are cores.
//!
//! Each pipeline has a lane. The lane that has used the least worker time runs next. A lane that runs nothing may
//! always run one request, even when all workers are busy: neither a flood nor a slow pipeline starves another. Within
//! a lane the highest priority comes first, and its clients have equal shares ([`queue`]). A request that is unlikely
//! to meet its deadline is rejected at admission, by the lane's recent throughput ([`throughput`]). If the queue is full, a new request may evict another.

mod admission;
mod client;
mod lane;
mod queue;
mod throughput;

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub(crate) use admission::{Job, JobOutcome, LaneOptions};
pub use admission::{Load, Rejection};
pub(crate) use client::{Client, network};
use lane::{LaneState, Started};
pub(crate) use queue::QueuePosition;
use queue::Waiting;
use throughput::Completion;

use gpux_core::WaitObserver;
use gpux_core::threads;

/// Idle time after which a thread beyond the workers ends.
const IDLE: Duration = Duration::from_secs(5);

/// Runs requests on worker threads.
#[derive(Clone)]
pub(crate) struct Scheduler {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// notified when a request can start
    work: Condvar,
}

struct State {
    lanes: BTreeMap<u64, LaneState>,
    next_lane: u64,
    next_job: u64,
    /// used time of the lane that was served last
    clock: Duration,
    /// threads that run plans concurrently
    workers: usize,
    /// running requests, except those that only wait for others
    running: usize,
    idle: usize,
    threads: usize,
}

/// The requests of one pipeline.
pub(crate) struct Lane {
    id: u64,
    shared: Arc<Shared>,
}

impl Scheduler {
    /// A scheduler with this many workers (at least one); threads start on demand.
    pub(crate) fn new(workers: usize) -> Self {
        let state = State {
            lanes: BTreeMap::new(),
            next_lane: 0,
            next_job: 0,
            clock: Duration::ZERO,
            workers: workers.max(1),
            running: 0,
            idle: 0,
            threads: 0,
        };
        Self { shared: Arc::new(Shared { state: Mutex::new(state), work: Condvar::new() }) }
    }

    /// Starts all workers, which never end: they remain available even if the system later refuses new threads.
    pub(crate) fn start_workers(&self) -> io::Result<()> {
        let mut state = self.shared.lock();
        while state.threads < state.workers {
            self.shared.start_thread()?;
            state.threads += 1;
        }
        Ok(())
    }

    /// A new lane.
    pub(crate) fn lane(&self, options: LaneOptions) -> Lane {
        let mut state = self.shared.lock();
        let id = state.next_lane;
        state.next_lane += 1;
        state.lanes.insert(id, LaneState::new(options));
        Lane { id, shared: self.shared.clone() }
    }
}

impl Lane {
    /// Queues a request, or rejects it at once. `job` is dropped without running if `cancelled` is set, or if the time
    /// until the deadline is too short for its execution. If another request evicts it, `job` is called with the rejection. Within a lane,
    /// the greatest `priority` runs first, then the client with the least used time, then the oldest request.
    pub(crate) fn submit(
        &self,
        deadline: Option<Instant>,
        priority: i32,
        client: Client,
        cancelled: Arc<AtomicBool>,
        job: Job,
    ) -> Result<QueuePosition, Rejection> {
        let mut state = self.shared.lock();
        let State { lanes, next_job, clock, .. } = &mut *state;
        let Some(lane) = lanes.get_mut(&self.id) else { return Err(Rejection::Closing) };
        let now = Instant::now();
        let victim = lane.admit(priority, client, deadline, now)?;
        let rejection = lane.full();
        let evicted = victim.and_then(|victim| lane.remove(victim));
        // A new lane, or one that was empty, has no claim on time that it did not use.
        if !lane.has_work() {
            lane.catch_up(*clock);
        }
        *next_job += 1;
        let position = QueuePosition { priority, client, number: *next_job };
        lane.push(Waiting { job, deadline, cancelled }, position, now);
        self.shared.wake(state);
        if let Some(evicted) = evicted {
            let _ = (evicted.job)(Err(rejection));
        }
        Ok(position)
    }

    /// Removes a request whose client has gone: its place in the queue is for others.
    pub(crate) fn cancel(&self, position: QueuePosition) {
        let waiting = self.shared.lock().lanes.get_mut(&self.id).and_then(|lane| lane.remove(position));
        // Dropping jobs wakes their callers: not under the lock.
        drop(waiting);
    }

    /// Fails if such a request would be rejected now.
    pub(crate) fn check(&self, deadline: Option<Instant>, priority: i32, client: Client) -> Result<(), Rejection> {
        let state = self.shared.lock();
        let lane = state.lanes.get(&self.id).ok_or(Rejection::Closing)?;
        lane.admit(priority, client, deadline, Instant::now()).map(drop)
    }

    /// Whether a request would have room in the queue, and be done within this time.
    pub(crate) fn has_room(&self, within: Duration) -> bool {
        self.shared.lock().lanes.get(&self.id).is_none_or(|lane| lane.has_room(within))
    }

    /// The expected time of so many requests, if any was answered.
    pub(crate) fn time_of(&self, requests: usize) -> Option<Duration> {
        self.shared.lock().lanes.get(&self.id)?.time_of(requests)
    }

    /// Lets a short request run in the pipeline's process, without a thread and beside the queue, as long as those that
    /// do take little time together.
    pub(crate) fn begin_short(&self) -> Option<ShortRequest> {
        let now = Instant::now();
        let may_begin = self.shared.lock().lanes.get_mut(&self.id)?.begin_short(now);
        may_begin.then(|| ShortRequest { shared: self.shared.clone(), lane: self.id, begun: now, after: None })
    }

    /// Waiting and running requests.
    pub(crate) fn load(&self) -> Load {
        self.shared.lock().lanes.get(&self.id).map_or_else(Load::default, LaneState::load)
    }
}

impl Drop for Lane {
    /// Rejects the requests that wait in the lane.
    fn drop(&mut self) {
        let lane = self.shared.lock().lanes.remove(&self.id);
        // Dropping jobs wakes their callers: not under the lock.
        drop(lane);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets another thread start the next request, if one can start.
    fn wake(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        if !state.has_next() {
            return;
        }
        if state.idle > 0 {
            drop(state);
            self.work.notify_one();
        } else {
            state.threads += 1;
            drop(state);
            if self.start_thread().is_err() {
                // Existing threads take the waiting requests.
                self.lock().threads -= 1;
            }
        }
    }

    fn start_thread(self: &Arc<Self>) -> io::Result<()> {
        let shared = self.clone();
        threads::spawn("gpux-worker", move || shared.work())
    }

    /// The loop of a worker thread.
    fn work(self: Arc<Self>) {
        let mut state = self.lock();
        loop {
            let Some((lane, Started { position, request, cost, time_needed })) = state.next() else {
                state.idle += 1;
                let (woken, timeout) = self.work.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
                state = woken;
                state.idle -= 1;
                if timeout.timed_out() && state.threads > state.workers && !state.has_next() {
                    state.threads -= 1;
                    return;
                }
                continue;
            };
            // Another thread may start the request after this one.
            self.wake(state);
            let now = Instant::now();
            let left = request.deadline.map(|deadline| deadline.saturating_duration_since(now));
            let is_late = left.is_some_and(|left| left.is_zero() || left < time_needed);
            let slot = Arc::new(WorkerSlot { shared: self.clone(), lane, paused: Mutex::default() });
            let completion = if is_late || request.cancelled.load(Ordering::Relaxed) {
                drop(request);
                None
            } else {
                let deadline = request.deadline;
                let outcome = (request.job)(Ok(slot.clone()));
                let ended = Instant::now();
                let is_in_time = outcome == JobOutcome::Answered && deadline.is_none_or(|deadline| ended <= deadline);
                Some(Completion { work_time: slot.work_time(ended - now), is_in_time })
            };
            state = self.lock();
            state.done(lane, position, cost, completion);
        }
    }
}

impl State {
    fn candidates(&self) -> impl Iterator<Item = (&u64, &LaneState)> {
        self.lanes.iter().filter(|(_, lane)| lane.has_waiting() && lane.may_start(self.running, self.workers))
    }

    fn has_next(&self) -> bool {
        self.candidates().next().is_some()
    }

    /// The next request, of the lane that has used the least time.
    fn next(&mut self) -> Option<(u64, Started)> {
        let least = self.candidates().min_by_key(|(_, lane)| lane.used())?;
        let (id, used) = (*least.0, least.1.used());
        let started = self.lanes.get_mut(&id)?.pop()?;
        self.clock = used;
        self.running += 1;
        Some((id, started))
    }

    fn done(&mut self, lane: u64, position: QueuePosition, cost: Duration, completion: Option<Completion>) {
        self.running -= 1;
        if let Some(lane) = self.lanes.get_mut(&lane) {
            lane.done(position, cost, completion, Instant::now());
        }
    }
}

/// A short request that runs in the process of its pipeline, until this is dropped.
pub(crate) struct ShortRequest {
    shared: Arc<Shared>,
    lane: u64,
    begun: Instant,
    after: Option<Duration>,
}

impl ShortRequest {
    /// Whether it is the only short request of its lane, whose requests take less than `limit`.
    pub(crate) fn is_alone(&self, limit: Duration) -> bool {
        self.shared.lock().lanes.get(&self.lane).is_some_and(|lane| lane.is_alone(limit))
    }

    /// It was answered.
    pub(crate) fn end(mut self) {
        self.after = Some(self.begun.elapsed());
    }
}

impl Drop for ShortRequest {
    fn drop(&mut self) {
        if let Some(lane) = self.shared.lock().lanes.get_mut(&self.lane) {
            lane.end_short(self.after, Instant::now());
        }
    }
}

/// The worker slot of a running request. While the request waits for others, another request may use the slot.
pub(crate) struct WorkerSlot {
    shared: Arc<Shared>,
    lane: u64,
    paused: Mutex<PauseTimes>,
}

/// The pauses of a request, summed up.
#[derive(Default)]
struct PauseTimes {
    since: Option<Instant>,
    /// how long the slot was free for others
    released: Duration,
    /// the time that others worked for this request meanwhile
    delegated_work: Duration,
}

impl PauseTimes {
    fn end(&mut self, delegated_work: Duration) {
        self.released += self.since.take().map_or(Duration::ZERO, |since| since.elapsed());
        self.delegated_work += delegated_work;
    }
}

impl WorkerSlot {
    /// The work done for this request, in its own slot and by others, of `whole` in all.
    fn work_time(&self, whole: Duration) -> Duration {
        let PauseTimes { released, delegated_work, .. } = &*self.pauses();
        whole.saturating_sub(*released) + *delegated_work
    }

    fn pauses(&self) -> MutexGuard<'_, PauseTimes> {
        self.paused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WaitObserver for WorkerSlot {
    fn begin(&self) {
        self.pauses().since = Some(Instant::now());
        let mut state = self.shared.lock();
        state.running -= 1;
        if let Some(lane) = state.lanes.get_mut(&self.lane) {
            lane.pause();
        }
        self.shared.wake(state);
    }

    fn end(&self, delegated_work: Duration) {
        self.pauses().end(delegated_work);
        // The request resumes at once, even if the workers are then exceeded by one: running requests should finish.
        let mut state = self.shared.lock();
        state.running += 1;
        if let Some(lane) = state.lanes.get_mut(&self.lane) {
            lane.resume();
        }
    }
}

#[cfg(test)]
mod tests;
