//! Deadlines: a thread that ticks, and the time that each sandbox has left.
//!
//! Guest code: a tick, then `check`. A native call: `admit` before, `end()` as its deadline, `check` after. A model:
//! the request's deadline only, then `uncount`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use wasmtime::Engine;

use super::failure::StopReason;
use super::limits::exceeded;
use gpux_core::{CancelFlag, StepFailure};

/// Time between two ticks: how long past its deadline a guest can run, give or take the scheduler.
const TICK: Duration = Duration::from_millis(1);
/// Ticks without any guest after which the ticking pauses: an idle server uses no CPU, a busy one
/// never pays for waking the thread.
const IDLE_TICKS_BEFORE_PAUSE: u32 = 500;

/// Moves an engine's epoch on while guests run.
pub(super) struct EpochTicker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    running: AtomicUsize,
    asleep: AtomicBool,
    stop: AtomicBool,
}

impl EpochTicker {
    pub(super) fn start(engine: Engine) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let thread = std::thread::Builder::new().name("gpux-ticker".to_owned()).stack_size(64 << 10).spawn({
            let shared = shared.clone();
            move || tick(&engine, &shared)
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    #[cfg(test)]
    pub(super) fn is_asleep(&self) -> bool {
        self.shared.asleep.load(Ordering::SeqCst)
    }

    /// Keeps the ticks coming until the guard is dropped.
    pub(super) fn guard(&self) -> TickerGuard<'_> {
        self.shared.running.fetch_add(1, Ordering::SeqCst);
        if self.shared.asleep.load(Ordering::SeqCst)
            && let Some(thread) = &self.thread
        {
            thread.thread().unpark();
        }
        TickerGuard(&self.shared)
    }
}

fn tick(engine: &Engine, shared: &Shared) {
    let mut idle = 0;
    while !shared.stop.load(Ordering::SeqCst) {
        if shared.running.load(Ordering::SeqCst) > 0 {
            idle = 0;
        } else {
            idle += 1;
        }
        if idle < IDLE_TICKS_BEFORE_PAUSE {
            std::thread::park_timeout(TICK);
            engine.increment_epoch();
            continue;
        }
        // A thread that starts a guest either sees `asleep` and wakes this thread, or was seen here.
        shared.asleep.store(true, Ordering::SeqCst);
        if shared.running.load(Ordering::SeqCst) == 0 && !shared.stop.load(Ordering::SeqCst) {
            std::thread::park();
        }
        shared.asleep.store(false, Ordering::SeqCst);
        idle = 0;
    }
}

impl Drop for EpochTicker {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // The thread cannot panic, and nothing could be done about it here.
            let _ = thread.join();
        }
    }
}

/// A guest is running.
pub(super) struct TickerGuard<'a>(&'a Shared);

impl Drop for TickerGuard<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Estimated time of a native call for each byte it reads or writes, as far as sizes are
/// known beforehand. The size of a decoded picture is not: decode-image itself bounds it for
/// components.
const NANOSECONDS_PER_BYTE: u64 = 2;

/// The time that one sandbox has.
///
/// A tick only triggers a look at the clock. Counting ticks would be inaccurate under load.
pub(super) struct TimeBudget {
    name: &'static str,
    limit: Duration,
    end: Instant,
    request: Option<Instant>,
    cancelled: Option<Arc<dyn CancelFlag>>,
}

impl TimeBudget {
    /// `limit` from now on, called `name` in gpux.yml; never past `request`, the deadline of the
    /// whole request.
    pub(super) fn start(name: &'static str, limit: Duration, request: Option<Instant>) -> Self {
        let now = Instant::now();
        // A limit that the clock cannot represent is none.
        let end = now.checked_add(limit).unwrap_or_else(|| now + Duration::from_hours(24 * 365));
        Self { name, limit, end, request, cancelled: None }
    }

    /// The same, over as well once `cancelled` says so.
    pub(super) fn with(self, cancelled: Option<Arc<dyn CancelFlag>>) -> Self {
        Self { cancelled, ..self }
    }

    /// Stops the guest if its time is over, or its request was cancelled.
    pub(super) fn check(&self) -> Result<(), StopReason> {
        self.check_at(Instant::now())
    }

    fn check_at(&self, now: Instant) -> Result<(), StopReason> {
        if self.cancelled.as_ref().is_some_and(|flag| flag.is_cancelled()) {
            return Err(StopReason(StepFailure::Cancelled));
        }
        if self.request.is_some_and(|request| now >= request) {
            return Err(StopReason(StepFailure::Timeout));
        }
        if now >= self.end {
            return Err(StopReason::limit(exceeded(self.name, format!("{:?}", self.limit))));
        }
        Ok(())
    }

    /// Stops the guest if a native call over `bytes` would probably not be done in time: no tick
    /// can interrupt it once it runs.
    pub(super) fn admit(&self, bytes: usize) -> Result<(), StopReason> {
        let cost = Duration::from_nanos((bytes as u64).saturating_mul(NANOSECONDS_PER_BYTE));
        let done = Instant::now().checked_add(cost);
        done.map_or_else(
            || Err(StopReason::limit(exceeded(self.name, format!("{:?}", self.limit)))),
            |done| self.check_at(done),
        )
    }

    /// Extends `end` by the time a model took, since `begin`. The request's deadline does not move.
    pub(super) fn uncount(&mut self, begin: Instant) {
        self.end = self.end.checked_add(begin.elapsed()).unwrap_or(self.end);
    }

    /// When the guest and the native steps it calls must be done.
    pub(super) fn end(&self) -> Instant {
        self.request.map_or(self.end, |request| request.min(self.end))
    }

    /// When the whole request must be done.
    pub(super) fn request(&self) -> Option<Instant> {
        self.request
    }

    /// Tells whether the request was cancelled.
    pub(super) fn cancelled(&self) -> Option<Arc<dyn CancelFlag>> {
        self.cancelled.clone()
    }

    /// Lets go of the request, which is over.
    pub(super) fn forget_request(&mut self) {
        self.cancelled = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(stop: Result<(), StopReason>) -> Option<String> {
        match stop {
            Err(StopReason(StepFailure::Limit(limit))) => Some(limit.limit.into_owned()),
            Err(StopReason(StepFailure::Timeout)) => Some("request".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn model_time_does_not_count_against_the_step() {
        let begin = Instant::now();
        let mut budget = TimeBudget::start("time", Duration::ZERO, None);
        assert_eq!(limit(budget.check()).as_deref(), Some("time"));
        budget.uncount(begin.checked_sub(Duration::from_mins(1)).unwrap_or(begin));
        budget.request = Some(Instant::now());
        assert_eq!(limit(budget.check()).as_deref(), Some("request"));
    }

    #[test]
    fn rejects_native_calls_that_exceed_the_deadline() {
        let budget = TimeBudget::start("time", Duration::from_secs(1), None);
        assert_eq!(limit(budget.admit(1 << 20)), None);
        assert_eq!(limit(budget.admit(1 << 40)).as_deref(), Some("time"));
        assert_eq!(limit(budget.admit(usize::MAX)).as_deref(), Some("time"));
    }

    #[test]
    fn accepts_unbounded_time_limits() {
        assert_eq!(limit(TimeBudget::start("time", Duration::MAX, None).check()), None);
    }
}
