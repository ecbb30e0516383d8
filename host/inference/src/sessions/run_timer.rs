//! Measures a run's time on a session, without waiting for a session or for the device's lock.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::checkout::Work;
use super::slot::ThreadMode;
use crate::engine::Session;

/// The time of one run, readable meanwhile and afterwards.
#[derive(Debug, Default)]
pub(crate) struct RunTimer {
    started: OnceLock<Instant>,
    duration: OnceLock<Duration>,
    mode: OnceLock<ThreadMode>,
}

impl RunTimer {
    /// The time so far, or in all; zero before it begins.
    pub(crate) fn elapsed(&self) -> Duration {
        let going_on = || self.started.get().map_or(Duration::ZERO, Instant::elapsed);
        self.duration.get().copied().unwrap_or_else(going_on)
    }

    /// Notes the mode of the session.
    pub(super) fn set_mode(&self, mode: ThreadMode) {
        let _ = self.mode.set(mode);
    }

    /// Whether the session is single-threaded.
    pub(crate) fn is_single_threaded(&self) -> bool {
        self.mode.get() == Some(&ThreadMode::SingleThreaded)
    }

    /// Wraps `work` with this timer.
    pub(super) fn timing<T>(self: Arc<Self>, work: impl Work<T>) -> impl Work<T> {
        move |session: &mut dyn Session| {
            let _timed = TimerGuard::begin(&self);
            work(session)
        }
    }
}

/// Stops the timer when dropped.
struct TimerGuard<'a>(&'a RunTimer);

impl<'a> TimerGuard<'a> {
    fn begin(timer: &'a RunTimer) -> Self {
        let _ = timer.started.set(Instant::now());
        Self(timer)
    }
}

impl Drop for TimerGuard<'_> {
    fn drop(&mut self) {
        let _ = self.0.duration.set(self.0.elapsed());
    }
}
