//! Requests that wait for a session, and whose turn it is.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::super::sessions::{ModelInputs, Unavailable};
use super::rules::Key;
use super::{Batch, patience};
use crate::pipeline::Tensor;

/// A request's thread learns here what became of it.
pub(super) struct Request {
    pub(super) inputs: ModelInputs,
    pub(super) rows: usize,
    pub(super) deadline: Option<Instant>,
    key: Key,
    priority: i32,
    state: Mutex<State>,
    changed: Condvar,
}

enum State {
    /// in the queue
    Waiting,
    /// in the queue; its thread is to run for it and for others
    Called,
    /// in the queue; its thread does so
    Leading,
    /// taken by a batch that runs, or is about to
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

/// What a request is told as it enters.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Lead,
    Wait,
}

impl Request {
    pub(super) fn new(inputs: ModelInputs, key: Key, rows: usize, deadline: Option<Instant>, priority: i32) -> Self {
        let (state, changed) = (Mutex::new(State::Waiting), Condvar::new());
        Self { inputs, rows, deadline, key, priority, state, changed }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, to: State) {
        *self.state() = to;
        self.changed.notify_one();
    }

    pub(super) fn joins(&self, batch: &Arc<Batch>) {
        *self.state() = State::Running(batch.clone());
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

/// Those that wait, in the order in which they came.
pub(super) struct Queue {
    inner: Mutex<Inner>,
    /// somebody came while a leader gathers
    came: Condvar,
}

struct Inner {
    waiting: Vec<Arc<Request>>,
    /// how many more may run at once
    free: usize,
    /// leaders that wait for company
    gathering: usize,
    /// rows of the last run: whoever had no company does not make the next wait for any
    company: usize,
}

impl Queue {
    /// A queue before so many sessions.
    pub(super) fn new(sessions: usize) -> Self {
        let inner = Inner { waiting: Vec::new(), free: sessions, gathering: 0, company: usize::MAX };
        Self { inner: Mutex::new(inner), came: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn len(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Puts a request into the queue. If a session is free, its thread leads.
    pub(super) fn enter(&self, request: &Arc<Request>) -> Asked {
        let mut inner = self.lock();
        inner.waiting.push(request.clone());
        if inner.gathering > 0 {
            self.came.notify_all();
        }
        match inner.free.checked_sub(1) {
            Some(free) => {
                inner.free = free;
                *request.state() = State::Leading;
                Asked::Lead
            }
            None => Asked::Wait,
        }
    }

    /// Takes the leader and those that are like it: the most urgent, up to `most` rows. Waits for
    /// more of them for `delay`, though not beyond the leader's deadline, not after there are as many
    /// as ran last time, and not at all if the last to run was alone.
    pub(super) fn take(&self, leader: &Arc<Request>, most: usize, delay: Duration) -> Vec<Arc<Request>> {
        let mut inner = self.lock();
        if !delay.is_zero() && inner.company > 1 {
            let enough = most.min(inner.company);
            let until = Instant::now() + delay;
            let until = leader.deadline.map_or(until, |deadline| deadline.min(until));
            inner.gathering += 1;
            while inner.rows_like(leader) < enough {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                inner = self.came.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
            }
            inner.gathering -= 1;
        }
        let taken = inner.take(leader, most);
        inner.company = taken.iter().map(|request| request.rows).sum();
        taken
    }

    /// Takes back a request whose deadline has passed; `false` if it is not in the queue any more.
    /// One that was just called to lead passes its turn on.
    pub(super) fn leave(&self, request: &Arc<Request>) -> bool {
        let mut inner = self.lock();
        let Some(place) = inner.waiting.iter().position(|other| Arc::ptr_eq(other, request)) else { return false };
        inner.waiting.remove(place);
        if matches!(*request.state(), State::Called) {
            inner.call_next();
        }
        true
    }

    /// A session is free: the most urgent is called to lead.
    pub(super) fn pass_on(&self) {
        self.lock().call_next();
    }
}

impl Inner {
    fn rows_like(&self, leader: &Request) -> usize {
        self.waiting.iter().filter(|request| request.key == leader.key).map(|request| request.rows).sum()
    }

    fn take(&mut self, leader: &Arc<Request>, most: usize) -> Vec<Arc<Request>> {
        let mut mates: Vec<_> = self.waiting.iter().filter(|other| other.key == leader.key).cloned().collect();
        // The leader first, and for the rest the order is that of the queue where it is not priority.
        mates.sort_by_key(|mate| (!Arc::ptr_eq(mate, leader), std::cmp::Reverse(mate.priority)));
        let mut rows = 0;
        mates.retain(|mate| {
            // Another leader has a session of its own.
            let other_leader = !Arc::ptr_eq(mate, leader) && !matches!(*mate.state(), State::Waiting);
            let fits = rows + mate.rows <= most && !other_leader;
            rows += if fits { mate.rows } else { 0 };
            fits
        });
        self.waiting.retain(|request| !mates.iter().any(|mate| Arc::ptr_eq(mate, request)));
        mates
    }

    fn call_next(&mut self) {
        let idle = self.waiting.iter().filter(|request| matches!(*request.state(), State::Waiting));
        // Of equals, `min_by_key` finds the first.
        let next = idle.min_by_key(|request| std::cmp::Reverse(request.priority)).cloned();
        match next {
            Some(next) => next.set(State::Called),
            None => self.free += 1,
        }
    }
}
