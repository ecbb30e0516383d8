//! The waiting requests of a lane: by priority, then in fair shares of the clients, then by age.
//!
//! Shares follow start-time fair queueing: of the waiting clients, the one with the least used time is served next. A
//! client that arrives or returns has no claim on time that it did not use.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::admission::Job;
use super::client::Client;

/// The most clients without requests whose used time is remembered; beyond that, all of them are forgotten.
const REMEMBERED: usize = 1024;

/// A request in the queue.
pub(super) struct Waiting {
    pub(super) job: Job,
    pub(super) deadline: Option<Instant>,
    pub(super) cancelled: Arc<AtomicBool>,
}

/// A request's position in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueuePosition {
    pub(super) priority: i32,
    pub(super) client: Client,
    /// increases with each submission
    pub(super) number: u64,
}

#[derive(Default)]
pub(super) struct Queue {
    levels: BTreeMap<Reverse<i32>, Level>,
    len: usize,
}

/// The requests of one priority.
#[derive(Default)]
struct Level {
    clients: BTreeMap<Client, Backlog>,
    /// used time of the client that was served last
    clock: Duration,
    len: usize,
}

/// The requests of one client.
struct Backlog {
    waiting: BTreeMap<u64, Waiting>,
    /// worker time that the client has used
    used: Duration,
}

impl Queue {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) fn push(&mut self, position: QueuePosition, request: Waiting) {
        let level = self.levels.entry(Reverse(position.priority)).or_default();
        if level.clients.len() > REMEMBERED {
            level.clients.retain(|_, backlog| !backlog.waiting.is_empty());
        }
        let backlog = level.clients.entry(position.client);
        let backlog = backlog.or_insert(Backlog { waiting: BTreeMap::new(), used: level.clock });
        if backlog.waiting.is_empty() {
            backlog.used = backlog.used.max(level.clock);
        }
        backlog.waiting.insert(position.number, request);
        level.len += 1;
        self.len += 1;
    }

    /// Removes the next request. Its client is charged `cost` until [`Self::settle`] corrects it.
    pub(super) fn pop(&mut self, cost: Duration) -> Option<(QueuePosition, Waiting)> {
        let (Reverse(priority), level) = self.levels.iter_mut().find(|(_, level)| level.len > 0)?;
        let first = |(client, backlog): (&Client, &Backlog)| {
            let (number, _) = backlog.waiting.first_key_value()?;
            Some((backlog.used, *number, *client))
        };
        let (used, number, client) = level.clients.iter().filter_map(first).min()?;
        level.clock = used;
        if let Some(backlog) = level.clients.get_mut(&client) {
            backlog.used += cost;
        }
        let position = QueuePosition { priority: *priority, client, number };
        self.remove(position).map(|request| (position, request))
    }

    /// Removes a request, if it is still queued.
    pub(super) fn remove(&mut self, position: QueuePosition) -> Option<Waiting> {
        let level = self.levels.get_mut(&Reverse(position.priority))?;
        let request = level.clients.get_mut(&position.client)?.waiting.remove(&position.number)?;
        level.len -= 1;
        self.len -= 1;
        Some(request)
    }

    /// Replaces the charge `cost` of a request by its actual `time`.
    pub(super) fn settle(&mut self, position: QueuePosition, cost: Duration, time: Duration) {
        let level = self.levels.get_mut(&Reverse(position.priority));
        if let Some(backlog) = level.and_then(|level| level.clients.get_mut(&position.client)) {
            backlog.used = (backlog.used + time).saturating_sub(cost);
        }
    }

    /// The number of requests that run before a new one of the client: all of higher priority, its own, and those of
    /// other clients within their shares.
    pub(super) fn ahead(&self, priority: i32, client: Client) -> usize {
        let higher: usize = self.levels.range(..Reverse(priority)).map(|(_, level)| level.len).sum();
        let Some(level) = self.levels.get(&Reverse(priority)) else { return higher };
        let own = level.waits(client);
        let others = level.clients.iter().filter(|(other, _)| **other != client);
        higher + own + others.map(|(_, backlog)| backlog.waiting.len().min(own + 1)).sum::<usize>()
    }

    /// The request to evict for a new one of the client when the queue is full. It is the latest request of the client
    /// with the most requests in the lowest priority. `None` unless that priority is lower than the new one, or equal
    /// while that client has over one request more than `client`.
    pub(super) fn victim(&self, priority: i32, client: Client) -> Option<QueuePosition> {
        let (Reverse(lowest), level) = self.levels.iter().rev().find(|(_, level)| level.len > 0)?;
        let (longest, backlog) = level.clients.iter().max_by_key(|(_, backlog)| backlog.waiting.len())?;
        let gives_way = *lowest < priority || *lowest == priority && backlog.waiting.len() > level.waits(client) + 1;
        let (number, _) = backlog.waiting.last_key_value().filter(|_| gives_way)?;
        Some(QueuePosition { priority: *lowest, client: *longest, number: *number })
    }
}

impl Level {
    /// The number of the client's requests that wait.
    fn waits(&self, client: Client) -> usize {
        self.clients.get(&client).map_or(0, |backlog| backlog.waiting.len())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use super::super::admission::JobOutcome;
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    fn request() -> Waiting {
        Waiting { job: Box::new(|_| JobOutcome::Answered), deadline: None, cancelled: Arc::default() }
    }

    /// A queue of these requests (priority, client), in this order.
    fn queue(requests: impl IntoIterator<Item = (i32, usize)>) -> Queue {
        let mut queue = Queue::default();
        for (number, (priority, client)) in requests.into_iter().enumerate() {
            queue.push(QueuePosition { priority, client: Client::Key(client), number: number as u64 }, request());
        }
        queue
    }

    fn clients(queue: &mut Queue) -> Vec<usize> {
        let popped = std::iter::from_fn(|| queue.pop(MILLISECOND));
        let client = |(position, _): (QueuePosition, Waiting)| match position.client {
            Client::Key(client) => client,
            _ => unreachable!("all have keys"),
        };
        popped.map(client).collect()
    }

    #[test]
    fn shares_a_priority_between_clients() {
        let mut queue = queue([(0, 1), (0, 1), (0, 1), (0, 2), (0, 3), (0, 3), (1, 1), (1, 1), (-1, 4)]);
        assert_eq!(clients(&mut queue), [1, 1, 1, 2, 3, 1, 3, 1, 4]);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn shares_time_rather_than_requests() {
        let mut queue = queue((0..1000).map(|number| (0, number % 2)));
        let mut times = HashMap::new();
        // Requests of client 0 take ten times their initial charge.
        for _ in 0..220 {
            let (position, _) = queue.pop(MILLISECOND).unwrap();
            let time = MILLISECOND * if position.client == Client::Key(0) { 10 } else { 1 };
            queue.settle(position, MILLISECOND, time);
            *times.entry(position.number % 2).or_insert(Duration::ZERO) += time;
        }
        assert!(times[&0].abs_diff(times[&1]) <= 10 * MILLISECOND, "{times:?}");
    }

    #[test]
    fn returning_client_has_no_credit() {
        let mut queue = queue((0..100).map(|_| (0, 1)));
        queue.push(QueuePosition { priority: 0, client: Client::Key(2), number: 100 }, request());
        for _ in 0..50 {
            queue.pop(MILLISECOND).unwrap();
        }
        for number in 200..210 {
            queue.push(QueuePosition { priority: 0, client: Client::Key(2), number }, request());
        }
        let next: Vec<_> = clients(&mut queue).into_iter().take(8).collect();
        assert_eq!(next.iter().filter(|client| **client == 2).count(), 4, "{next:?}");
    }

    #[test]
    fn counts_only_requests_ahead() {
        let queue = queue([(1, 1), (0, 1), (0, 1), (0, 1), (0, 2), (-1, 1)]);
        let ahead = |priority, client| queue.ahead(priority, Client::Key(client));
        assert_eq!((ahead(2, 1), ahead(1, 1), ahead(1, 3)), (0, 1, 1));
        // One of higher priority, then one of each other client for each of its own.
        assert_eq!((ahead(0, 3), ahead(0, 2), ahead(0, 1)), (3, 4, 5));
        assert_eq!((ahead(-1, 3), ahead(-2, 1)), (6, 6));
    }

    #[test]
    fn evicts_from_the_longest_backlog() {
        let queue = queue([(1, 9), (1, 9), (1, 9), (0, 1), (0, 2), (0, 2), (0, 2)]);
        let victim = |priority, client| queue.victim(priority, Client::Key(client)).map(|position| position.number);
        assert_eq!((victim(1, 9), victim(0, 1), victim(0, 3)), (Some(6), Some(6), Some(6)));
        assert_eq!((victim(0, 2), victim(-1, 3)), (None, None));
        assert_eq!(Queue::default().victim(0, Client::Unknown), None);
    }

    #[test]
    fn forgets_idle_clients() {
        let mut queue = Queue::default();
        for number in 0..4 * REMEMBERED {
            queue.push(QueuePosition { priority: 0, client: Client::Key(number), number: number as u64 }, request());
            queue.pop(MILLISECOND).unwrap();
        }
        assert!(queue.levels[&Reverse(0)].clients.len() <= REMEMBERED + 1);
    }
}
