//! Sessions that are being made on other threads, and the end of a process that runs exit handlers:
//! they take a native library down, and one that is at work then crashes.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The longest that anybody waits for a session that is being made.
const PATIENCE: Duration = Duration::from_secs(10);

static MAKING: Mutex<usize> = Mutex::new(0);
static CHANGED: Condvar = Condvar::new();

fn making() -> MutexGuard<'static, usize> {
    MAKING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A session that is being made.
pub(super) struct Maker(());

impl Maker {
    pub(super) fn begin() -> Self {
        *making() += 1;
        Self(())
    }
}

impl Drop for Maker {
    fn drop(&mut self) {
        *making() -= 1;
        CHANGED.notify_all();
    }
}

/// Waits for those that are being made.
pub(super) fn wait() {
    let waited = CHANGED.wait_timeout_while(making(), PATIENCE, |making| *making > 0);
    drop(waited.unwrap_or_else(PoisonError::into_inner));
}
