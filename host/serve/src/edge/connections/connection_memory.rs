//! Memory that a connection may take beyond [`IDLE_COST`]: HTTP/2's state, long heads, streams at the same time.
//!
//! An HTTP/1 connection reads at most [`READ`] bytes at once, so that its buffer stays small; bodies have a budget of
//! their own. A head that is longer waits for a buffer. HTTP/2 connections beyond their number wait before their first
//! request; those without memory for more streams serve few at a time.
//!
//! Tests: `bounds_memory_of_unread_connections`, `bounds_memory_of_http1_connections`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{AcquireError, Notify, OwnedSemaphorePermit, Semaphore};

use crate::settings::{BUFFER_COST, STREAMS_COST, Settings};

#[cfg(doc)]
use crate::settings::IDLE_COST;

/// The most bytes of one read without a buffer: fewer than hyper's first buffer, which grows after a read that fills it.
pub(super) const READ: usize = (8 << 10) - 1;

/// Streams that an HTTP/2 connection serves at the same time without [`STREAMS_COST`].
const LANES: usize = 2;

/// The memory of all connections.
#[derive(Debug)]
pub(super) struct ConnectionMemory {
    /// HTTP/2 connections
    http2: Pool,
    /// KiB for buffers and streams
    extra: Pool,
}

/// Permits, and how many there are in all.
#[derive(Debug)]
struct Pool {
    permits: Arc<Semaphore>,
    all: usize,
}

impl Pool {
    fn new(all: usize) -> Self {
        let all = all.clamp(1, u32::MAX as usize >> 3);
        Self { permits: Arc::new(Semaphore::new(all)), all }
    }

    /// Permits, or all there are where that is less.
    fn many(&self, permits: usize) -> u32 {
        permits.min(self.all) as u32
    }

    /// Whether more than 90 % of it are taken.
    fn is_crowded(&self) -> bool {
        is_crowded(&self.permits, self.all)
    }
}

/// Whether more than 90 % of the permits are taken.
pub(super) fn is_crowded(permits: &Semaphore, all: usize) -> bool {
    permits.available_permits() < all.div_ceil(10)
}

impl ConnectionMemory {
    pub(super) fn new(settings: &Settings) -> Self {
        Self { http2: Pool::new(settings.http2_connections), extra: Pool::new(settings.connection_buffers >> 10) }
    }
}

/// What one connection has of it.
#[derive(Debug)]
pub(super) struct MemoryShare {
    all: Arc<ConnectionMemory>,
    is_http2: AtomicBool,
    has_buffer: AtomicBool,
    /// whether it waits until another HTTP/2 connection closes
    is_waiting: AtomicBool,
    /// whether its client is to be told that it closes
    is_leaving: AtomicBool,
    /// for the task of the connection: one of the last two has changed
    changed: Notify,
    lanes: Arc<Semaphore>,
    /// memory for further streams, until the last of them ends
    streams: Mutex<Weak<OwnedSemaphorePermit>>,
}

/// A stream's permit to be served.
#[derive(Debug)]
pub(super) enum StreamPermit {
    Lane { _permit: Option<OwnedSemaphorePermit> },
    Shared { _permit: Arc<OwnedSemaphorePermit> },
}

/// The permits of a connection's transport.
#[derive(Debug, Default)]
pub(super) struct TransportPermits {
    http2: Option<OwnedSemaphorePermit>,
    buffer: Option<OwnedSemaphorePermit>,
}

/// What a connection needs to read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemoryDemand {
    Nothing,
    Http2,
    Buffer,
}

impl TransportPermits {
    pub(super) const fn has(&self, need: MemoryDemand) -> bool {
        match need {
            MemoryDemand::Nothing => true,
            MemoryDemand::Http2 => self.http2.is_some(),
            MemoryDemand::Buffer => self.buffer.is_some(),
        }
    }

    /// Whether reads may be of any size.
    pub(super) const fn allows_long_reads(&self) -> bool {
        self.http2.is_some() || self.buffer.is_some()
    }

    /// Takes a buffer for a long body, while half of them are free: it only saves calls to the system.
    pub(super) fn try_buffer(&mut self, share: &MemoryShare) {
        let pool = &share.all.extra;
        if pool.permits.available_permits() > pool.all / 2 {
            let permit = pool.permits.clone().try_acquire_many_owned(pool.many(BUFFER_COST >> 10));
            self.put(MemoryDemand::Buffer, permit.ok(), share);
        }
    }

    /// Stores what [`MemoryShare::wait`] came to.
    pub(super) fn put(&mut self, need: MemoryDemand, permit: Option<OwnedSemaphorePermit>, share: &MemoryShare) {
        let (place, is_held) = match need {
            MemoryDemand::Nothing => return,
            MemoryDemand::Http2 => (&mut self.http2, &share.is_http2),
            MemoryDemand::Buffer => (&mut self.buffer, &share.has_buffer),
        };
        is_held.store(permit.is_some(), Ordering::Relaxed);
        *place = permit;
        share.is_waiting.store(false, Ordering::Relaxed);
    }
}

impl MemoryShare {
    pub(super) fn new(all: Arc<ConnectionMemory>) -> Self {
        Self {
            all,
            is_http2: AtomicBool::new(false),
            has_buffer: AtomicBool::new(false),
            is_waiting: AtomicBool::new(false),
            is_leaving: AtomicBool::new(false),
            changed: Notify::new(),
            lanes: Arc::new(Semaphore::new(LANES)),
            streams: Mutex::default(),
        }
    }

    /// The future that gets what is needed.
    pub(super) fn wait(
        &self,
        need: MemoryDemand,
    ) -> impl Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send + use<> {
        let (pool, permits) = match need {
            MemoryDemand::Buffer => (&self.all.extra, self.all.extra.many(BUFFER_COST >> 10)),
            MemoryDemand::Http2 | MemoryDemand::Nothing => (&self.all.http2, 1),
        };
        pool.permits.clone().acquire_many_owned(permits)
    }

    /// Notes that the connection waits for what it needs.
    pub(super) fn note_waiting(&self, need: MemoryDemand) {
        if need == MemoryDemand::Http2 && !self.is_waiting.swap(true, Ordering::Relaxed) {
            self.changed.notify_one();
        }
    }

    /// A permit for a stream of a connection with small windows: without memory, few are served at a time.
    pub(super) async fn stream_permit(&self) -> StreamPermit {
        if let Ok(permit) = self.lanes.clone().try_acquire_owned() {
            return StreamPermit::Lane { _permit: Some(permit) };
        }
        if let Some(permit) = self.shared_streams() {
            return StreamPermit::Shared { _permit: permit };
        }
        StreamPermit::Lane { _permit: self.lanes.clone().acquire_owned().await.ok() }
    }

    fn shared_streams(&self) -> Option<Arc<OwnedSemaphorePermit>> {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let permit = streams.upgrade().or_else(|| {
            let pool = &self.all.extra;
            pool.permits.clone().try_acquire_many_owned(pool.many(STREAMS_COST >> 10)).ok().map(Arc::new)
        })?;
        *streams = Arc::downgrade(&permit);
        Some(permit)
    }

    /// Whether more than 90 % of something that it holds are taken.
    pub(super) fn is_crowded(&self) -> bool {
        self.is_http2() && self.all.http2.is_crowded()
            || self.has_buffer.load(Ordering::Relaxed) && self.all.extra.is_crowded()
    }

    /// Asks the task of the connection to send GOAWAY; whether it was not asked before.
    pub(super) fn leave(&self) -> bool {
        let is_new = !self.is_leaving.swap(true, Ordering::Relaxed);
        self.changed.notify_one();
        is_new
    }

    /// Waits until [`is_leaving`](Self::is_leaving) or [`is_waiting`](Self::is_waiting) has changed.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Relaxed)
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::Relaxed)
    }

    /// Whether it is one of the HTTP/2 connections that have a permit.
    pub(super) fn is_http2(&self) -> bool {
        self.is_http2.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn memory(extra: usize) -> Arc<ConnectionMemory> {
        let settings = Settings { http2_connections: 1, connection_buffers: extra, ..Settings::default() };
        Arc::new(ConnectionMemory::new(&settings))
    }

    #[tokio::test]
    async fn few_streams_without_memory_and_many_with_it() {
        for (extra, most) in [(STREAMS_COST, 16), (0, LANES)] {
            let all = memory(extra);
            // What is left of it is less than streams cost.
            let _other = (extra == 0).then(|| all.extra.permits.clone().try_acquire_owned().unwrap());
            let share = MemoryShare::new(all.clone());
            let permits: Vec<_> = (0..16).map_while(|_| share.stream_permit().now_or_never()).collect();
            assert_eq!(permits.len(), most);
            let mut next = Box::pin(share.stream_permit());
            assert_eq!(next.as_mut().now_or_never().is_some(), most == 16);
            drop(permits);
            if most == LANES {
                assert!(next.now_or_never().is_some(), "its turn comes");
            }
            assert_eq!(all.extra.permits.available_permits(), all.extra.all - usize::from(extra == 0));
        }
    }

    #[tokio::test]
    async fn long_bodies_leave_buffers_for_heads() {
        let all = memory(4 * BUFFER_COST);
        let share = MemoryShare::new(all.clone());
        let mut permits: Vec<_> = (0..4).map(|_| TransportPermits::default()).collect();
        for permits in &mut permits {
            permits.try_buffer(&share);
        }
        assert_eq!(permits.iter().filter(|permits| permits.allows_long_reads()).count(), 2);
        let heads: Vec<_> = (0..3).map(|_| share.wait(MemoryDemand::Buffer).now_or_never()).collect();
        assert_eq!(heads.iter().filter(|head| head.is_some()).count(), 2);
        assert!(share.is_crowded());
        drop(heads);
        assert!(!share.is_crowded());
    }
}
