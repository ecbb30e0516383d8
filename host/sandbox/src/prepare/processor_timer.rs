//! Processor time that preparing a component takes beside the guest's own.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpux_core::child_process;

/// The processor time of the host's work on a component: compiling, parsing,
/// and taking the snapshot. The guest's own work has other limits, and does not count.
#[derive(Default)]
pub(crate) struct ProcessorTimer(Mutex<TimerState>);

#[derive(Default)]
struct TimerState {
    before: Duration,
    /// the processor's time when the work that goes on began
    since: Option<Duration>,
}

impl ProcessorTimer {
    /// Does work that counts. What counts is not nested.
    pub(super) fn measure<T>(&self, work: impl FnOnce() -> T) -> T {
        self.state().since = Some(child_process::processor_time());
        let done = work();
        let mut state = self.state();
        let now = child_process::processor_time();
        if let Some(since) = state.since.take() {
            state.before += now.saturating_sub(since);
        }
        done
    }

    pub(super) fn elapsed(&self) -> Duration {
        let state = self.state();
        state.before + state.since.map_or(Duration::ZERO, |since| child_process::processor_time().saturating_sub(since))
    }

    fn state(&self) -> MutexGuard<'_, TimerState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
