//! How many texts of a list run at once.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::engine::scheduler::Rejection;
use crate::{LoadedPipeline, ServeError};

/// How many begin where the pipeline is known to answer a batch of most models in time, and where it is not.
const FIRST: usize = 32;
const FIRST_UNKNOWN: usize = 8;
/// How often a text is tried that others of its list kept from its result.
const TRIES: usize = 4;

/// The texts of a list that run. Each has its own deadline, which it must not miss since it waits for the others: more of
/// them run while they end in a quarter of their time, fewer once one takes half of it.
#[derive(Debug)]
pub(super) struct ListPace {
    /// of a text
    timeout: Duration,
    state: Mutex<State>,
    end: Notify,
}

#[derive(Debug, Default)]
struct State {
    running: usize,
    most: usize,
    /// how often one began
    begun: usize,
}

/// A text that runs.
pub(super) struct RunningText<'a> {
    pace: &'a ListPace,
    since: Instant,
    /// how many might run when it began
    most: usize,
    /// whether others ran then
    has_others: bool,
    /// how many had begun, with it
    number: usize,
}

impl ListPace {
    pub(super) fn new(loaded: &LoadedPipeline, timeout: Duration) -> Self {
        let is_quick = loaded.lane().time_of(FIRST).is_some_and(|time| time <= timeout / 4);
        let most = if is_quick { FIRST } else { FIRST_UNKNOWN };
        Self { timeout, state: Mutex::new(State { most, ..State::default() }), end: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a text, once there is room for it. One that has no others to wait for begins: only other requests can be in
    /// its way.
    pub(super) async fn begin(&self, loaded: &LoadedPipeline) -> RunningText<'_> {
        loop {
            let mut end = std::pin::pin!(self.end.notified());
            end.as_mut().enable();
            if let Some(running) = self.try_begin(loaded) {
                return running;
            }
            end.await;
        }
    }

    fn try_begin(&self, loaded: &LoadedPipeline) -> Option<RunningText<'_>> {
        let mut state = self.state();
        let has_others = state.running > 0;
        if has_others && (state.running >= state.most || !loaded.lane().has_room(self.timeout / 2)) {
            return None;
        }
        state.running += 1;
        state.begun += 1;
        Some(RunningText { pace: self, since: Instant::now(), most: state.most, has_others, number: state.begun })
    }
}

impl RunningText<'_> {
    /// Whether the text may be tried again after this error, its `tries`th: others of its list ran beside it.
    pub(super) fn may_repeat(&self, error: &ServeError, tries: usize) -> bool {
        let is_crowded = error.is_timeout()
            || matches!(error, ServeError::Overload(Rejection::Full { .. } | Rejection::Late { .. }));
        is_crowded && tries < TRIES && (self.has_others || self.pace.state().begun > self.number)
    }
}

impl Drop for RunningText<'_> {
    fn drop(&mut self) {
        let (took, timeout) = (self.since.elapsed(), self.pace.timeout);
        let mut state = self.pace.state();
        state.running -= 1;
        if took <= timeout / 4 {
            state.most += 1;
        } else if took > timeout / 2 {
            // Those that began with it say the same.
            state.most = state.most.min((self.most / 2).max(1));
        }
        drop(state);
        self.pace.end.notify_waiters();
    }
}
