//! Limits the number of connections; evicts idle ones for new ones.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::connection_memory::{ConnectionMemory, MemoryShare, is_crowded};
use super::slow_client::Activity;
use crate::engine::metrics::{EvictionReason, Metrics};
use crate::settings::Settings;

/// Interval at which a waiting connection looks for an idle one to evict.
pub(super) const EVICTION_INTERVAL: Duration = Duration::from_millis(20);

/// How old a connection without a complete first head is before it may be evicted: the head, or a TLS handshake, may
/// be on its way.
const MIN_AGE: Duration = Duration::from_secs(1);

/// How long a connection is idle after an answer before it may be evicted: clients that are alive send again within
/// this time, or can do without the connection.
const MIN_IDLE_TIME: Duration = Duration::from_secs(5);

/// The fraction (1/256) of the open connections that one eviction closes: to scan all of them for each new connection
/// would take longer than to serve it.
const EVICTED_FRACTION: usize = 256;

/// Seconds between two lines of the log about the limit.
const LOG_INTERVAL: u64 = 60;

/// The connections of all listeners. Above 90 % of the limit, each answer closes its connection. At the limit,
/// connections without a complete first head are evicted, then those idle for longest. An attacker who opens
/// connections and sends nothing locks nobody out.
pub(crate) struct ConnectionLimit {
    permits: Arc<Semaphore>,
    most: usize,
    /// permits for large HTTP/2 windows
    windows: Arc<Semaphore>,
    memory: Arc<ConnectionMemory>,
    graces: Graces,
    connections: Mutex<Connections>,
    metrics: Arc<Metrics>,
    start: Instant,
    /// when the log was last told, in seconds after `start` plus one
    logged: AtomicU64,
}

/// How long connections are spared.
#[derive(Clone, Copy, Debug)]
struct Graces {
    age: Duration,
    idle: Duration,
}

#[derive(Default)]
struct Connections {
    last: u64,
    by_number: HashMap<u64, Arc<Eviction>>,
}

/// The eviction request to one connection.
struct Eviction {
    activity: Arc<Activity>,
    memory: Arc<MemoryShare>,
    asked: AtomicBool,
    notify: Notify,
}

/// A connection's entry in [`ConnectionLimit`], until it is dropped.
pub(super) struct ConnectionSlot {
    limit: Arc<ConnectionLimit>,
    number: u64,
    eviction: Arc<Eviction>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl ConnectionLimit {
    /// Takes the limits from the settings.
    pub(crate) fn new(settings: &Settings, metrics: &Arc<Metrics>) -> Self {
        let semaphore = |permits: usize| Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)));
        Self {
            permits: semaphore(settings.max_connections),
            most: settings.max_connections,
            windows: semaphore(settings.large_windows),
            memory: Arc::new(ConnectionMemory::new(settings)),
            graces: Graces { age: MIN_AGE, idle: MIN_IDLE_TIME },
            connections: Mutex::default(),
            metrics: metrics.clone(),
            start: Instant::now(),
            logged: AtomicU64::new(0),
        }
    }

    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a permit; evicts idle connections meanwhile.
    pub(super) async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        loop {
            if let Ok(permit) = self.permits.clone().try_acquire_owned() {
                return Some(permit);
            }
            self.log("new connections wait: as many as allowed are open");
            self.evict(|_| true);
            let next = tokio::time::timeout(EVICTION_INTERVAL, self.permits.clone().acquire_owned());
            if let Ok(permit) = next.await {
                return permit.ok();
            }
        }
    }

    /// Registers a connection. Without a permit, the connection exceeds the limit but is served.
    pub(super) fn slot(
        self: &Arc<Self>,
        activity: Arc<Activity>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> ConnectionSlot {
        let memory = Arc::new(MemoryShare::new(self.memory.clone()));
        let eviction = Arc::new(Eviction { activity, memory, asked: AtomicBool::new(false), notify: Notify::new() });
        let mut connections = self.connections();
        connections.last += 1;
        let number = connections.last;
        connections.by_number.insert(number, eviction.clone());
        drop(connections);
        ConnectionSlot { limit: self.clone(), number, eviction, _permit: permit }
    }

    /// A permit for large windows, if one is left.
    pub(super) fn large_window_permit(&self) -> Option<OwnedSemaphorePermit> {
        self.windows.clone().try_acquire_owned().ok()
    }

    /// Evicts HTTP/2 connections for one that waits.
    pub(super) fn evict_http2(&self) {
        self.log("HTTP/2 connections wait: as many as there is memory for are open");
        self.evict(MemoryShare::is_http2);
    }

    /// Asks some connections to close that are idle: those without a request first, then those idle for longest.
    fn evict(&self, is_wanted: impl Fn(&MemoryShare) -> bool) {
        let connections = self.connections();
        let many = connections.by_number.len().div_ceil(EVICTED_FRACTION);
        let candidate = |eviction: &Arc<Eviction>| {
            let is_new = !eviction.asked.load(Ordering::Relaxed) && is_wanted(&eviction.memory);
            let order = eviction.activity.eviction_order(self.graces.age, self.graces.idle);
            order.filter(|_| is_new).map(|order| (order, eviction.clone()))
        };
        let mut idle: Vec<_> = connections.by_number.values().filter_map(candidate).collect();
        drop(connections);
        if idle.len() > many {
            idle.select_nth_unstable_by_key(many, |(order, _)| *order);
            idle.truncate(many);
        }
        for (_, eviction) in idle {
            eviction.asked.store(true, Ordering::Relaxed);
            eviction.notify.notify_one();
        }
    }

    /// Counts and logs a connection that closes for others.
    pub(super) fn count(&self, reason: EvictionReason) {
        self.metrics.count_eviction(reason);
        self.log(match reason {
            EvictionReason::Crowded => "answers ask clients to close their connections: few more may open",
            EvictionReason::NoRequest | EvictionReason::Idle => "idle connections are closed for new ones",
        });
    }

    /// Writes a line to the log, unless there was one a short time ago.
    fn log(&self, message: &str) {
        let (now, last) = (self.start.elapsed().as_secs() + 1, self.logged.load(Ordering::Relaxed));
        let is_due = last == 0 || now >= last + LOG_INTERVAL;
        if is_due && self.logged.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            let (open, most) = (self.metrics.connections(), self.most);
            tracing::warn!(target: "gpux", open, most, "{message} (`--max-connections`, `--memory`)");
        }
    }
}

impl ConnectionSlot {
    /// Waits until the connection is evicted while it is idle.
    pub(super) async fn evicted(&self) -> EvictionReason {
        loop {
            self.eviction.notify.notified().await;
            // The connection reads once more: a request may have arrived.
            tokio::task::yield_now().await;
            if self.activity().is_idle() {
                let has_begun = self.activity().has_begun();
                return if has_begun { EvictionReason::Idle } else { EvictionReason::NoRequest };
            }
            self.eviction.asked.store(false, Ordering::Relaxed);
        }
    }

    pub(super) fn activity(&self) -> &Arc<Activity> {
        &self.eviction.activity
    }

    pub(super) fn memory(&self) -> &Arc<MemoryShare> {
        &self.eviction.memory
    }

    /// Decides whether the connection closes after an answer.
    pub(super) fn departure(&self) -> Arc<Departure> {
        Arc::new(Departure { limit: self.limit.clone(), memory: self.memory().clone() })
    }
}

/// Tells clients to open another connection while the server is near a limit.
pub(super) struct Departure {
    limit: Arc<ConnectionLimit>,
    memory: Arc<MemoryShare>,
}

impl Departure {
    /// Whether the connection is to close after the answer that is about to be sent; counts it once.
    pub(super) fn is_due(&self) -> bool {
        let is_due = is_crowded(&self.limit.permits, self.limit.most) || self.memory.is_crowded();
        if is_due && self.memory.leave() {
            self.limit.count(EvictionReason::Crowded);
        }
        is_due
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.limit.connections().by_number.remove(&self.number);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt as _;

    use super::*;

    fn limit(max_connections: usize, graces: Graces) -> Arc<ConnectionLimit> {
        let settings = Settings { max_connections, ..Settings::default() };
        Arc::new(ConnectionLimit { graces, ..ConnectionLimit::new(&settings, &Arc::new(Metrics::new())) })
    }

    const AT_ONCE: Graces = Graces { age: Duration::ZERO, idle: Duration::ZERO };
    const NEVER: Duration = Duration::from_hours(1);

    async fn slot(limit: &Arc<ConnectionLimit>) -> (ConnectionSlot, Arc<Activity>) {
        let activity = Arc::new(Activity::new(Duration::ZERO, Duration::ZERO));
        (limit.slot(activity.clone(), limit.permit().await), activity)
    }

    fn is_evicted(slot: &ConnectionSlot) -> bool {
        let mut evicted = pin!(slot.evicted());
        // The first poll yields once it is notified.
        (0..2).any(|_| evicted.as_mut().now_or_never().is_some())
    }

    #[tokio::test]
    async fn evicts_the_longest_idle_connection() {
        let limit = limit(3, AT_ONCE);
        let (first, activity) = slot(&limit).await;
        let busy = activity.begin();
        let (second, _) = slot(&limit).await;
        std::thread::sleep(Duration::from_millis(5));
        let (third, _) = slot(&limit).await;
        let mut waiting = Box::pin(limit.permit());
        assert!(waiting.as_mut().now_or_never().is_none());
        assert!(!is_evicted(&first), "a request is under way");
        assert!(!is_evicted(&third), "another is idle for longer");
        assert!(is_evicted(&second));
        drop(second);
        assert!(waiting.await.is_some());
        drop(busy);
    }

    #[tokio::test]
    async fn evicts_connections_without_a_request_first() {
        let limit = limit(2, AT_ONCE);
        let (answered, activity) = slot(&limit).await;
        drop(activity.begin());
        std::thread::sleep(Duration::from_millis(5));
        let (silent, _) = slot(&limit).await;
        assert!(limit.permit().now_or_never().is_none());
        assert!(!is_evicted(&answered));
        assert_eq!(silent.evicted().await, EvictionReason::NoRequest);
        assert!(limit.permit().now_or_never().is_none());
        assert_eq!(answered.evicted().await, EvictionReason::Idle);
    }

    #[tokio::test]
    async fn connection_has_time_for_its_first_request() {
        let limit = limit(1, Graces { age: NEVER, idle: Duration::ZERO });
        let (first, _) = slot(&limit).await;
        assert!(limit.permit().now_or_never().is_none());
        assert!(!is_evicted(&first));
    }

    #[tokio::test]
    async fn answered_connection_has_time_for_its_next_request() {
        let limit = limit(1, Graces { age: Duration::ZERO, idle: NEVER });
        let (first, activity) = slot(&limit).await;
        drop(activity.begin());
        assert!(limit.permit().now_or_never().is_none());
        assert!(!is_evicted(&first));
    }

    #[tokio::test]
    async fn reused_connection_is_not_evicted() {
        let limit = limit(1, AT_ONCE);
        let (first, activity) = slot(&limit).await;
        let mut waiting = Box::pin(limit.permit());
        assert!(waiting.as_mut().now_or_never().is_none());
        let busy = activity.begin();
        assert!(!is_evicted(&first), "a request came first");
        drop(busy);
        let ended = async {
            first.evicted().await;
            drop(first);
        };
        let (permit, ()) = tokio::join!(waiting, ended);
        assert!(permit.is_some());
    }

    #[tokio::test]
    async fn answers_close_connections_above_nine_tenths() {
        let limit = limit(20, AT_ONCE);
        let mut slots = Vec::new();
        let mut due = Vec::new();
        for _ in 0..20 {
            let (next, _) = slot(&limit).await;
            due.push(next.departure().is_due());
            slots.push(next);
        }
        assert_eq!(due.iter().position(|is_due| *is_due), Some(18));
        assert!(slots[0].departure().is_due() && slots[0].departure().is_due());
        assert_eq!(limit.metrics.evictions(EvictionReason::Crowded), 3);
    }
}
