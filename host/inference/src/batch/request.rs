//! A request, the batch that it runs in, and what its thread does next.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::super::sessions::{GRACE, ModelInputs, OffloadedRun, RunTimer, SessionRunError, bytes};
use super::rules::{BatchKey, RequestProfile};
use gpux_core::Tensor;

/// A request, shared by its thread and its batch's leader.
pub(super) struct Request {
    pub(super) inputs: ModelInputs,
    pub(super) rows: usize,
    pub(super) deadline: Option<Instant>,
    pub(super) key: BatchKey,
    /// bytes of each row
    pub(super) row_bytes: usize,
    /// the length of a text that may be padded
    pub(super) length: Option<usize>,
    /// bytes that one more token adds to each row
    pub(super) bytes_per_token: usize,
    pub(super) priority: i32,
    /// its shares of the runs that were made for it, in nanoseconds
    time: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

pub(super) enum State {
    /// in the queue
    Waiting,
    /// in the queue; its thread is to lead a batch
    Called,
    /// in the queue; its thread leads a batch
    Leading,
    /// selected for a batch that is being concatenated
    Taken,
    /// part of a batch that runs, or is about to
    Running(Arc<Batch>),
    /// its thread is to run it individually
    RunAlone,
    Answered(Result<Vec<Tensor>, SessionRunError>),
    Done,
}

/// The next action of a request's thread.
pub(super) enum NextAction {
    Answered(Result<Vec<Tensor>, SessionRunError>),
    RunAlone,
    Lead,
    /// its deadline passed in the queue
    TimedOut,
    /// its deadline passed while it ran
    Abandoned(Arc<Batch>),
}

impl Request {
    pub(super) fn new(inputs: ModelInputs, profile: RequestProfile, deadline: Option<Instant>, priority: i32) -> Self {
        let (state, changed) = (Mutex::new(State::Waiting), Condvar::new());
        let RequestProfile { key, rows, length, bytes_per_token } = profile;
        let time = AtomicU64::new(0);
        let row_bytes = bytes(&inputs) / rows.max(1);
        Self { inputs, rows, deadline, key, row_bytes, length, bytes_per_token, priority, time, state, changed }
    }

    /// Adds its share of a run.
    pub(super) fn add_time(&self, share: Duration) {
        self.time.fetch_add(u64::try_from(share.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The time of its shares.
    pub(super) fn time(&self) -> Duration {
        Duration::from_nanos(self.time.load(Ordering::Relaxed))
    }

    /// Whether it waits and is no leader.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(*self.state(), State::Waiting)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, to: State) {
        *self.state() = to;
        self.changed.notify_one();
    }

    pub(super) fn set_running(&self, batch: &Arc<Batch>) {
        self.set(State::Running(batch.clone()));
    }

    pub(super) fn answer(&self, result: Result<Vec<Tensor>, SessionRunError>) {
        self.set(State::Answered(result));
    }

    pub(super) fn set_alone(&self) {
        self.set(State::RunAlone);
    }

    /// Waits for the next action.
    pub(super) fn next_action(&self) -> NextAction {
        let mut state = self.state();
        loop {
            // A running request gets a grace period, since most runs are terminated in it.
            let running = matches!(*state, State::Running(_));
            match std::mem::replace(&mut *state, State::Done) {
                State::Answered(result) => return NextAction::Answered(result),
                State::RunAlone => return NextAction::RunAlone,
                State::Called => {
                    *state = State::Leading;
                    return NextAction::Lead;
                }
                State::Done => return NextAction::Answered(Err(SessionRunError::Timeout)),
                State::Taken => {
                    *state = State::Taken;
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                    continue;
                }
                before => *state = before,
            }
            let until = self.deadline.map(|deadline| if running { grace_end(deadline) } else { deadline });
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            state = match (left, &*state) {
                (Some(Duration::ZERO), State::Running(batch)) => return NextAction::Abandoned(batch.clone()),
                (Some(Duration::ZERO), _) => return NextAction::TimedOut,
                (Some(left), _) => self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
                (None, _) => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

/// Requests that run together.
pub(super) struct Batch {
    pub(super) requests: Vec<Arc<Request>>,
    pub(super) timer: Arc<RunTimer>,
    /// those whose threads still wait
    pub(super) waiting: AtomicUsize,
    /// whether the next in the queue has had its turn
    pub(super) is_finished: AtomicBool,
    pub(super) offloaded: Mutex<Option<OffloadedRun>>,
}

impl Batch {
    pub(super) fn new(requests: Vec<Arc<Request>>) -> Arc<Self> {
        Arc::new(Self {
            waiting: AtomicUsize::new(requests.len()),
            requests,
            timer: Arc::default(),
            is_finished: AtomicBool::new(false),
            offloaded: Mutex::default(),
        })
    }

    /// Each request's share of the run's time so far.
    pub(super) fn share(&self) -> Duration {
        self.timer.elapsed() / u32::try_from(self.requests.len()).unwrap_or(u32::MAX).max(1)
    }
}

/// When a thread stops waiting for a run that began before its deadline.
fn grace_end(deadline: Instant) -> Instant {
    deadline + GRACE
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    fn request(length: usize, priority: i32, deadline: Option<Instant>) -> Arc<Request> {
        let profile = RequestProfile { key: BatchKey::default(), rows: 1, length: Some(length), bytes_per_token: 16 };
        Arc::new(Request::new(ModelInputs::new(), profile, deadline, priority))
    }

    pub(in super::super) fn until_deadline(length: usize, deadline: Instant) -> Arc<Request> {
        request(length, 0, Some(deadline))
    }

    /// One whose deadline is over, and the time that a run may take beyond it.
    pub(in super::super) fn late(length: usize) -> Arc<Request> {
        request(length, 0, Instant::now().checked_sub(Duration::from_secs(1)))
    }

    /// A row of `length` tokens.
    pub(in super::super) fn text(length: usize) -> Arc<Request> {
        request(length, 0, None)
    }

    /// The same with a greater priority.
    pub(in super::super) fn urgent(length: usize) -> Arc<Request> {
        request(length, 1, None)
    }
}
