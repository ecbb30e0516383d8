//! A request, the batch that it runs in, and what its thread does next.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::super::sessions::{Elsewhere, GRACE, ModelInputs, Unavailable, Worked};
use super::rules::{Key, Like};
use gpux_core::Tensor;

/// A request's thread learns here what became of it.
pub(super) struct Request {
    pub(super) inputs: ModelInputs,
    pub(super) rows: usize,
    pub(super) deadline: Option<Instant>,
    pub(super) key: Key,
    /// of a text that may be padded
    pub(super) length: Option<usize>,
    /// how large one more of that length would make each row
    pub(super) bytes_a_token: usize,
    pub(super) priority: i32,
    /// its shares of the runs that were made for it, in nanoseconds
    time: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

pub(super) enum State {
    /// in the queue
    Waiting,
    /// in the queue; its thread is to run for it and for others
    Called,
    /// in the queue; its thread does so
    Leading,
    /// taken by a leader that puts a batch together
    Taken,
    /// part of a batch that runs, or is about to
    Running(Arc<Batch>),
    /// its thread is to run it by itself
    Alone,
    Answered(Result<Vec<Tensor>, Unavailable>),
    Over,
}

/// What a request's thread is to do next.
pub(super) enum Turn {
    Answered(Result<Vec<Tensor>, Unavailable>),
    Alone,
    Lead,
    /// its deadline passed in the queue
    Late,
    /// its deadline passed while it ran
    LeftBehind(Arc<Batch>),
}

impl Request {
    pub(super) fn new(inputs: ModelInputs, like: Like, deadline: Option<Instant>, priority: i32) -> Self {
        let (state, changed) = (Mutex::new(State::Waiting), Condvar::new());
        let Like { key, rows, length, bytes_a_token } = like;
        let time = AtomicU64::new(0);
        Self { inputs, rows, deadline, key, length, bytes_a_token, priority, time, state, changed }
    }

    /// Its share of a run was so long.
    pub(super) fn worked(&self, share: Duration) {
        self.time.fetch_add(u64::try_from(share.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// How long was worked for it.
    pub(super) fn time(&self) -> Duration {
        Duration::from_nanos(self.time.load(Ordering::Relaxed))
    }

    /// Whether it waits, and leads nobody.
    pub(super) fn is_idle(&self) -> bool {
        matches!(*self.state(), State::Waiting)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, to: State) {
        *self.state() = to;
        self.changed.notify_one();
    }

    pub(super) fn joins(&self, batch: &Arc<Batch>) {
        self.set(State::Running(batch.clone()));
    }

    pub(super) fn answer(&self, result: Result<Vec<Tensor>, Unavailable>) {
        self.set(State::Answered(result));
    }

    pub(super) fn run_alone(&self) {
        self.set(State::Alone);
    }

    /// Waits for something to do.
    pub(super) fn turn(&self) -> Turn {
        let mut state = self.state();
        loop {
            // Whoever began to run gets some time beyond the deadline, since most runs stop then.
            let running = matches!(*state, State::Running(_));
            match std::mem::replace(&mut *state, State::Over) {
                State::Answered(result) => return Turn::Answered(result),
                State::Alone => return Turn::Alone,
                State::Called => {
                    *state = State::Leading;
                    return Turn::Lead;
                }
                State::Over => return Turn::Answered(Err(Unavailable::Timeout)),
                State::Taken => {
                    *state = State::Taken;
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                    continue;
                }
                before => *state = before,
            }
            let until = self.deadline.map(|deadline| if running { patience(deadline) } else { deadline });
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            state = match (left, &*state) {
                (Some(Duration::ZERO), State::Running(batch)) => return Turn::LeftBehind(batch.clone()),
                (Some(Duration::ZERO), _) => return Turn::Late,
                (Some(left), _) => self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
                (None, _) => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

/// Requests that run together.
pub(super) struct Batch {
    pub(super) requests: Vec<Arc<Request>>,
    pub(super) worked: Arc<Worked>,
    /// those whose threads still wait
    pub(super) waiting: AtomicUsize,
    /// whether the next in the queue has had its turn
    pub(super) passed_on: AtomicBool,
    pub(super) elsewhere: Mutex<Option<Elsewhere>>,
}

impl Batch {
    pub(super) fn of(requests: Vec<Arc<Request>>) -> Arc<Self> {
        Arc::new(Self {
            waiting: AtomicUsize::new(requests.len()),
            requests,
            worked: Arc::default(),
            passed_on: AtomicBool::new(false),
            elsewhere: Mutex::default(),
        })
    }

    /// What each of its requests has had of its run so far.
    pub(super) fn share(&self) -> Duration {
        self.worked.so_far() / u32::try_from(self.requests.len()).unwrap_or(u32::MAX).max(1)
    }
}

/// When a thread stops waiting for a run that began before its deadline.
fn patience(deadline: Instant) -> Instant {
    deadline + GRACE
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    fn request(length: usize, priority: i32, deadline: Option<Instant>) -> Arc<Request> {
        let like = Like { key: Key::default(), rows: 1, length: Some(length), bytes_a_token: 16 };
        Arc::new(Request::new(ModelInputs::new(), like, deadline, priority))
    }

    /// One whose deadline is over, and the time that a run may take beyond it.
    pub(in super::super) fn late(length: usize) -> Arc<Request> {
        request(length, 0, Instant::now().checked_sub(Duration::from_secs(1)))
    }

    /// One row of so many tokens.
    pub(in super::super) fn text(length: usize) -> Arc<Request> {
        request(length, 0, None)
    }

    /// The same with a greater priority.
    pub(in super::super) fn urgent(length: usize) -> Arc<Request> {
        request(length, 1, None)
    }
}
