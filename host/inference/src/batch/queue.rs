//! Requests that wait for a session, and whose turn it is.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::company::company;
use super::request::{Request, State};

/// What a request is told as it enters.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Lead,
    Wait,
}

/// Those that wait, in the order in which they came.
pub(super) struct Queue {
    inner: Mutex<Inner>,
    /// somebody came while a leader gathers
    came: Condvar,
}

struct Inner {
    waiting: Vec<Arc<Request>>,
    /// those that run, or are called to lead
    leading: usize,
    /// leaders that wait for company
    gathering: usize,
    /// rows of the last run: whoever had no company does not make the next wait for any
    company: usize,
}

impl Default for Queue {
    fn default() -> Self {
        let inner = Inner { waiting: Vec::new(), leading: 0, gathering: 0, company: usize::MAX };
        Self { inner: Mutex::new(inner), came: Condvar::new() }
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn len(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Puts a request into the queue. Its thread leads if fewer than `open` do and nobody comes
    /// before it.
    pub(super) fn enter(&self, request: &Arc<Request>, open: usize) -> Asked {
        let mut inner = self.lock();
        inner.waiting.push(request.clone());
        if inner.gathering > 0 {
            self.came.notify_all();
        }
        inner.call(open);
        let mut state = request.state();
        if matches!(*state, State::Called) {
            *state = State::Leading;
            return Asked::Lead;
        }
        Asked::Wait
    }

    /// Takes the leader and its [`company`]. Waits for more of them for `delay`, though not beyond the
    /// leader's deadline, not after there are as many as ran last time, not while others wait that
    /// could have the session instead, and not at all if the last to run was alone.
    pub(super) fn take(
        &self,
        leader: &Arc<Request>,
        most: usize,
        delay: Duration,
        start: Option<usize>,
    ) -> Vec<Arc<Request>> {
        let mut inner = self.lock();
        let mut taken = company(&inner.waiting, leader, most, start);
        if !delay.is_zero() && inner.company > 1 {
            let enough = most.min(inner.company);
            let until = Instant::now() + delay;
            let until = leader.deadline.map_or(until, |deadline| deadline.min(until));
            inner.gathering += 1;
            while rows(&taken) < enough && inner.idle().count() < taken.len() {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                inner = self.came.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
                taken = company(&inner.waiting, leader, most, start);
            }
            inner.gathering -= 1;
        }
        for request in taken.iter().filter(|request| !Arc::ptr_eq(request, leader)) {
            *request.state() = State::Taken;
        }
        inner.waiting.retain(|request| !taken.iter().any(|other| Arc::ptr_eq(other, request)));
        inner.company = rows(&taken);
        taken
    }

    /// Takes back a request whose deadline has passed; `false` if it is not in the queue any more.
    /// One that was just called to lead passes its turn on.
    pub(super) fn leave(&self, request: &Arc<Request>, open: usize) -> bool {
        let mut inner = self.lock();
        let Some(place) = inner.waiting.iter().position(|other| Arc::ptr_eq(other, request)) else { return false };
        inner.waiting.remove(place);
        if matches!(*request.state(), State::Called) {
            inner.leading -= 1;
            inner.call(open);
        }
        true
    }

    /// A run has ended: the most urgent are called to lead, as long as fewer than `open` do.
    pub(super) fn pass_on(&self, open: usize) {
        let mut inner = self.lock();
        inner.leading -= 1;
        inner.call(open);
    }
}

impl Inner {
    fn idle(&self) -> impl Iterator<Item = &Arc<Request>> {
        self.waiting.iter().filter(|request| request.is_idle())
    }

    fn call(&mut self, open: usize) {
        while self.leading < open {
            // Of equals, `min_by_key` finds the first.
            let Some(next) = self.idle().min_by_key(|request| std::cmp::Reverse(request.priority)).cloned() else {
                return;
            };
            next.set(State::Called);
            self.leading += 1;
        }
    }
}

fn rows(requests: &[Arc<Request>]) -> usize {
    requests.iter().map(|request| request.rows).sum()
}

#[cfg(test)]
mod tests {
    use super::super::BatchOptions;
    use super::super::request::testing::{late, text};
    use super::super::request::{Batch, Turn};
    use super::*;

    #[test]
    fn whoever_is_taken_waits_for_its_batch_though_it_is_late() {
        let queue = Queue::default();
        let [first, second] = [text(10), late(10)];
        assert_eq!((queue.enter(&first, 1), queue.enter(&second, 1)), (Asked::Lead, Asked::Wait));
        let taken = queue.take(&first, 8, BatchOptions::default().max_delay, None);
        let batch = Batch::of(taken);
        std::thread::scope(|scope| {
            let turn = scope.spawn(|| second.turn());
            std::thread::sleep(Duration::from_millis(5));
            assert!(!turn.is_finished(), "the leader puts the batch together");
            second.joins(&batch);
            assert!(matches!(turn.join().unwrap(), Turn::LeftBehind(_)));
        });
    }

    #[test]
    fn nobody_waits_for_company_while_others_wait() {
        let queue = Queue::default();
        let [first, alike, second, other] = [text(10), text(10), text(100), text(10)];
        assert_eq!((queue.enter(&first, 1), queue.enter(&alike, 1)), (Asked::Lead, Asked::Wait));
        let long = Duration::from_mins(10);
        assert_eq!(queue.take(&first, 8, Duration::ZERO, None).len(), 2, "company is to be expected");
        assert_eq!((queue.enter(&second, 1), queue.enter(&other, 1)), (Asked::Wait, Asked::Wait));
        queue.pass_on(1);
        assert!(!second.is_idle(), "it is to lead");
        assert_eq!(queue.take(&second, 8, long, None).len(), 1);
        assert_eq!(queue.len(), 1);
    }
}
