//! The queue of requests that wait for a session.

use std::cmp::Reverse;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::BatchOptions;
use super::batch_costs::BatchCosts;
use super::batch_selection::{BatchTiming, is_full, select_batch};
use super::request::{Request, State};
use crate::sessions::SessionRunError;

/// The role of a new request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum QueueRole {
    Lead,
    Wait,
}

/// The waiting requests, in the order of arrival.
pub(super) struct Queue {
    inner: Mutex<Inner>,
    /// signals an arrival to waiting leaders
    arrived: Condvar,
    /// what runs of the model cost
    pub(super) costs: BatchCosts,
}

struct Inner {
    waiting: Vec<Arc<Request>>,
    /// running batches, and leaders that are called
    leading: usize,
    /// leaders that wait for more requests
    leaders_waiting: usize,
    /// rows of the last run: after a run of one request, leaders do not wait
    previous_rows: usize,
}

impl Default for Queue {
    fn default() -> Self {
        let inner = Inner { waiting: Vec::new(), leading: 0, leaders_waiting: 0, previous_rows: usize::MAX };
        Self { inner: Mutex::new(inner), arrived: Condvar::new(), costs: BatchCosts::default() }
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn len(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Adds a request. It leads if fewer than `open` batches run and no other request comes first.
    pub(super) fn enter(&self, request: &Arc<Request>, open: usize) -> QueueRole {
        let mut inner = self.lock();
        inner.waiting.push(request.clone());
        if inner.leaders_waiting > 0 {
            self.arrived.notify_all();
        }
        inner.call(open, &self.timing(None));
        let mut state = request.state();
        if matches!(*state, State::Called) {
            *state = State::Leading;
            return QueueRole::Lead;
        }
        QueueRole::Wait
    }

    fn timing(&self, start: Option<usize>) -> BatchTiming<'_> {
        BatchTiming { now: Instant::now(), costs: &self.costs, start }
    }

    /// Takes the leader's batch ([`select_batch`]). Waits up to the `max_delay` for more requests: not so long
    /// that the leader would be late, not once the batch is full or as large as the previous one, not while other requests
    /// could use the session, and not at all if the previous batch had one row.
    pub(super) fn take(
        &self,
        leader: &Arc<Request>,
        options: &BatchOptions,
        start: Option<usize>,
    ) -> Vec<Arc<Request>> {
        let mut inner = self.lock();
        let mut taken = select_batch(&inner.waiting, leader, options, &self.timing(start));
        let delay = options.max_delay;
        if !delay.is_zero() && inner.previous_rows > 1 {
            let enough = options.max_size.min(inner.previous_rows);
            let until = Instant::now() + delay;
            let run = self.costs.longest(leader.rows, leader.row_bytes).unwrap_or_default();
            let start_by = leader.deadline.map(|deadline| deadline.checked_sub(run).unwrap_or(deadline));
            let until = start_by.map_or(until, |start_by| start_by.min(until));
            inner.leaders_waiting += 1;
            while rows(&taken) < enough && !is_full(&taken, options) && inner.idle().count() < taken.len() {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                inner = self.arrived.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
                taken = select_batch(&inner.waiting, leader, options, &self.timing(start));
            }
            inner.leaders_waiting -= 1;
        }
        for request in taken.iter().filter(|request| !Arc::ptr_eq(request, leader)) {
            *request.state() = State::Taken;
        }
        inner.waiting.retain(|request| !taken.iter().any(|other| Arc::ptr_eq(other, request)));
        inner.previous_rows = rows(&taken);
        taken
    }

    /// Removes a request whose deadline has passed; `false` if it is not in the queue any more.
    /// A leader that was just called hands over to the next.
    pub(super) fn remove(&self, request: &Arc<Request>, open: usize) -> bool {
        let mut inner = self.lock();
        let Some(place) = inner.waiting.iter().position(|other| Arc::ptr_eq(other, request)) else { return false };
        inner.waiting.remove(place);
        if matches!(*request.state(), State::Called) {
            inner.leading -= 1;
            inner.call(open, &self.timing(None));
        }
        true
    }

    /// Ends a run. Calls the most urgent requests to lead while fewer than `open` batches run.
    pub(super) fn finish_run(&self, open: usize) {
        let mut inner = self.lock();
        inner.leading -= 1;
        inner.call(open, &self.timing(None));
    }
}

impl Inner {
    fn idle(&self) -> impl Iterator<Item = &Arc<Request>> {
        self.waiting.iter().filter(|request| request.is_waiting())
    }

    /// Calls requests to lead, the most urgent first, while fewer than `open` batches run.
    fn call(&mut self, open: usize, timing: &BatchTiming<'_>) {
        while self.leading < open {
            let Some(next) = self.next_leader(timing) else { return };
            next.set(State::Called);
            self.leading += 1;
        }
    }

    /// The most urgent request. Those before it that would be late even if they ran now, alone, are answered so. If all
    /// would be late, the one with the most time left may try: the estimate may be out of date.
    fn next_leader(&mut self, timing: &BatchTiming<'_>) -> Option<Arc<Request>> {
        let mut late: Vec<Arc<Request>> = Vec::new();
        let is_any = |requests: &[Arc<Request>], request: &Arc<Request>| {
            requests.iter().any(|other| Arc::ptr_eq(other, request))
        };
        let next = loop {
            // Of equals, `min_by_key` finds the first.
            let others = self.idle().filter(|request| !is_any(&late, request));
            match others.min_by_key(|request| Reverse(request.priority)) {
                Some(next) if timing.can_answer(next) => break Some(next.clone()),
                Some(next) => late.push(next.clone()),
                None => {
                    let tries = (0..late.len()).max_by_key(|index| late[*index].deadline);
                    break tries.map(|tries| late.swap_remove(tries));
                }
            }
        };
        self.waiting.retain(|request| !is_any(&late, request));
        for request in late {
            request.answer(Err(SessionRunError::Timeout));
        }
        next
    }
}

fn rows(requests: &[Arc<Request>]) -> usize {
    requests.iter().map(|request| request.rows).sum()
}

#[cfg(test)]
mod tests {
    use super::super::request::testing::{late, text, until_deadline};
    use super::super::request::{Batch, NextAction};
    use super::*;
    use std::time::Duration;

    fn up_to(max_size: usize, max_delay: Duration) -> BatchOptions {
        BatchOptions { max_size, max_delay, ..BatchOptions::default() }
    }

    #[test]
    fn selected_requests_wait_for_their_batch_after_the_deadline() {
        let queue = Queue::default();
        let [first, second] = [text(10), late(10)];
        assert_eq!((queue.enter(&first, 1), queue.enter(&second, 1)), (QueueRole::Lead, QueueRole::Wait));
        let taken = queue.take(&first, &up_to(8, Duration::ZERO), None);
        let batch = Batch::new(taken);
        std::thread::scope(|scope| {
            let turn = scope.spawn(|| second.next_action());
            std::thread::sleep(Duration::from_millis(5));
            assert!(!turn.is_finished(), "the leader puts the batch together");
            second.set_running(&batch);
            assert!(matches!(turn.join().unwrap(), NextAction::Abandoned(_)));
        });
    }

    #[test]
    fn late_requests_make_way_for_others() {
        let (now, costs) = (Instant::now(), BatchCosts::default());
        (0..50).for_each(|_| costs.record(false, 1, 1, Duration::from_millis(10), true));
        let timing = BatchTiming { now, costs: &costs, start: None };
        let until = |milliseconds| until_deadline(10, now + Duration::from_millis(milliseconds));
        let is_late = |request: &Request| matches!(*request.state(), State::Answered(Err(SessionRunError::Timeout)));
        let mut inner = Queue::default().inner.into_inner().unwrap_or_else(PoisonError::into_inner);
        let [first, second, third, last] = [until(5), until(9), until(11), until(100)];
        inner.waiting.extend([&first, &second, &third, &last].map(Arc::clone));
        inner.call(1, &timing);
        assert!(is_late(&first) && is_late(&second));
        assert!(matches!(*third.state(), State::Called) && last.is_waiting());
        assert_eq!(inner.waiting.len(), 2);
        // All would be late: one of them tries.
        let [first, second] = [until(5), until(9)];
        inner.waiting = vec![first.clone(), second.clone()];
        inner.call(2, &timing);
        assert!(is_late(&first) && matches!(*second.state(), State::Called));
    }

    #[test]
    fn does_not_delay_while_requests_wait() {
        let queue = Queue::default();
        let [first, compatible, second, other] = [text(10), text(10), text(100), text(10)];
        assert_eq!((queue.enter(&first, 1), queue.enter(&compatible, 1)), (QueueRole::Lead, QueueRole::Wait));
        let long = Duration::from_mins(10);
        assert_eq!(queue.take(&first, &up_to(8, Duration::ZERO), None).len(), 2, "more requests are expected");
        assert_eq!((queue.enter(&second, 1), queue.enter(&other, 1)), (QueueRole::Wait, QueueRole::Wait));
        queue.finish_run(1);
        assert!(!second.is_waiting(), "it is to lead");
        assert_eq!(queue.take(&second, &up_to(8, long), None).len(), 1);
        assert_eq!(queue.len(), 1);
    }
}
