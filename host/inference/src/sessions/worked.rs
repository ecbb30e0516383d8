//! How long a session worked on a run: what comes before, waiting for a session or for a turn, is no
//! work for anybody.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::shared::Work;
use crate::engine::Session;

/// The time of one run, for whoever asks meanwhile or afterwards.
#[derive(Debug, Default)]
pub(crate) struct Worked {
    begun: OnceLock<Instant>,
    took: OnceLock<Duration>,
}

impl Worked {
    /// How long it has taken so far, or in all; nothing if it has not begun.
    pub(crate) fn so_far(&self) -> Duration {
        let going_on = || self.begun.get().map_or(Duration::ZERO, Instant::elapsed);
        self.took.get().copied().unwrap_or_else(going_on)
    }

    /// The same work, timed.
    pub(super) fn noting<T>(self: Arc<Self>, work: impl Work<T>) -> impl Work<T> {
        move |session: &mut dyn Session| {
            let _timed = Timed::begin(&self);
            work(session)
        }
    }
}

/// Ends the time however the run ends.
struct Timed<'a>(&'a Worked);

impl<'a> Timed<'a> {
    fn begin(worked: &'a Worked) -> Self {
        let _ = worked.begun.set(Instant::now());
        Self(worked)
    }
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        let _ = self.0.took.set(self.0.so_far());
    }
}
