//! Limits the number of connections; evicts idle ones for new ones.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::slow_client::Activity;
use crate::settings::Settings;

/// Interval at which a waiting connection looks for an idle one to evict.
const EVICTION_INTERVAL: Duration = Duration::from_millis(20);

/// Minimum idle time before eviction: the client may have sent a request that was not read yet.
const MIN_IDLE_TIME: Duration = Duration::from_millis(250);

/// The fraction (1/64) of the open connections that one eviction closes: to scan all of them for each new connection
/// would take longer than to serve it.
const EVICTED_FRACTION: usize = 64;

/// The connections of all listeners. At the limit, the connections that have been idle for longest are evicted. An
/// attacker who opens connections and sends nothing locks nobody out.
pub(crate) struct ConnectionLimit {
    permits: Arc<Semaphore>,
    /// permits for large HTTP/2 windows
    windows: Arc<Semaphore>,
    grace: Duration,
    connections: Mutex<Connections>,
}

#[derive(Default)]
struct Connections {
    last: u64,
    by_number: HashMap<u64, Arc<Eviction>>,
}

/// The eviction request to one connection.
struct Eviction {
    activity: Arc<Activity>,
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
    pub(crate) fn new(settings: &Settings) -> Self {
        let semaphore = |permits: usize| Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)));
        Self {
            permits: semaphore(settings.max_connections),
            windows: semaphore(settings.large_windows),
            grace: MIN_IDLE_TIME,
            connections: Mutex::default(),
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
            self.evict();
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
        let eviction = Arc::new(Eviction { activity, asked: AtomicBool::new(false), notify: Notify::new() });
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

    /// Asks the connections that have been idle for longest to close.
    fn evict(&self) {
        let connections = self.connections();
        let many = connections.by_number.len().div_ceil(EVICTED_FRACTION);
        let is_candidate = |eviction: &&Arc<Eviction>| {
            !eviction.asked.load(Ordering::Relaxed)
                && eviction.activity.is_idle()
                && eviction.activity.last().elapsed() >= self.grace
        };
        let mut idle: Vec<_> = connections.by_number.values().filter(is_candidate).cloned().collect();
        drop(connections);
        if idle.len() > many {
            idle.select_nth_unstable_by_key(many, |eviction| eviction.activity.last());
            idle.truncate(many);
        }
        for eviction in idle {
            eviction.asked.store(true, Ordering::Relaxed);
            eviction.notify.notify_one();
        }
    }
}

impl ConnectionSlot {
    /// Waits until the connection is evicted while it is idle.
    pub(super) async fn evicted(&self) {
        loop {
            self.eviction.notify.notified().await;
            if self.eviction.activity.is_idle() {
                return;
            }
            self.eviction.asked.store(false, Ordering::Relaxed);
        }
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
    use futures_util::FutureExt as _;

    use super::*;

    fn limit(max_connections: usize) -> Arc<ConnectionLimit> {
        let settings = Settings { max_connections, ..Settings::default() };
        Arc::new(ConnectionLimit { grace: Duration::ZERO, ..ConnectionLimit::new(&settings) })
    }

    async fn slot(limit: &Arc<ConnectionLimit>) -> (ConnectionSlot, Arc<Activity>) {
        let activity = Arc::new(Activity::new(Duration::ZERO, Duration::ZERO));
        (limit.slot(activity.clone(), limit.permit().await), activity)
    }

    #[tokio::test]
    async fn evicts_the_longest_idle_connection() {
        let limit = limit(3);
        let (first, activity) = slot(&limit).await;
        let busy = activity.begin();
        let (second, _) = slot(&limit).await;
        std::thread::sleep(Duration::from_millis(5));
        let (third, _) = slot(&limit).await;
        let mut waiting = Box::pin(limit.permit());
        assert!(waiting.as_mut().now_or_never().is_none());
        assert!(first.evicted().now_or_never().is_none(), "a request is under way");
        assert!(third.evicted().now_or_never().is_none(), "another is idle for longer");
        assert!(second.evicted().now_or_never().is_some());
        drop(second);
        assert!(waiting.await.is_some());
        drop(busy);
    }

    #[tokio::test]
    async fn connection_has_time_for_its_first_request() {
        let limit = Arc::new(ConnectionLimit::new(&Settings { max_connections: 1, ..Settings::default() }));
        let (first, _) = slot(&limit).await;
        assert!(limit.permit().now_or_never().is_none());
        assert!(first.evicted().now_or_never().is_none());
    }

    #[tokio::test]
    async fn reused_connection_is_not_evicted() {
        let limit = limit(1);
        let (first, activity) = slot(&limit).await;
        let mut waiting = Box::pin(limit.permit());
        assert!(waiting.as_mut().now_or_never().is_none());
        let busy = activity.begin();
        assert!(first.evicted().now_or_never().is_none(), "a request came first");
        drop(busy);
        let ended = async {
            first.evicted().await;
            drop(first);
        };
        let (permit, ()) = tokio::join!(waiting, ended);
        assert!(permit.is_some());
    }
}
