//! Reports a guest's wait for a model to the pool that runs the guest.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::engine::{IdlePermit, SandboxEngine};
use gpux_core::WaitObserver;

/// Reports waits only while it holds an idle permit: the thread that takes over meanwhile may need a
/// sandbox, and must find a free slot. The permit stays until the request ends, because that thread goes
/// on working when the guest resumes.
pub(super) struct ModelWait {
    waits: Arc<dyn WaitObserver>,
    engine: Arc<SandboxEngine>,
    state: Mutex<WaitState>,
}

#[derive(Default)]
struct WaitState {
    permit: Option<IdlePermit>,
    /// whether the current wait was reported
    is_reported: bool,
}

impl ModelWait {
    pub(super) fn new(waits: Arc<dyn WaitObserver>, engine: Arc<SandboxEngine>) -> Self {
        Self { waits, engine, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, WaitState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WaitObserver for ModelWait {
    fn begin(&self) {
        let mut state = self.state();
        state.permit = state.permit.take().or_else(|| self.engine.idle_permit());
        state.is_reported = state.permit.is_some();
        if state.is_reported {
            drop(state);
            self.waits.begin();
        }
    }

    fn end(&self, for_it: Duration) {
        let was_reported = std::mem::take(&mut self.state().is_reported);
        if was_reported {
            self.waits.end(for_it);
        }
    }
}
