//! How many texts of a list run at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::LoadedPipeline;

/// How many run at once before it is known how long they take: a batch of most models.
const FIRST: usize = 32;

/// The texts of a list that run. Each has its own deadline, so none begins that would wait too long behind the others.
#[derive(Debug, Default)]
pub(super) struct ListPace {
    running: AtomicUsize,
    ended: AtomicUsize,
    end: Notify,
}

/// A text that runs.
pub(super) struct Turn<'a>(&'a ListPace);

impl ListPace {
    /// Waits for the end of others until the pipeline would answer this one in half of its time. One that has no others
    /// to wait for begins: only other requests can be in its way.
    pub(super) async fn turn(&self, loaded: &LoadedPipeline, timeout: Duration) -> Turn<'_> {
        loop {
            let mut end = std::pin::pin!(self.end.notified());
            end.as_mut().enable();
            let running = self.running.load(Ordering::Relaxed);
            let most = FIRST.saturating_add(self.ended.load(Ordering::Relaxed));
            if running == 0 || running < most && loaded.lane().has_room(timeout / 2) {
                self.running.fetch_add(1, Ordering::Relaxed);
                return Turn(self);
            }
            end.await;
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
        self.0.ended.fetch_add(1, Ordering::Relaxed);
        self.0.end.notify_waiters();
    }
}
