//! Sessions that are being made on other threads, and the end of the process: its exit handlers take
//! a native library down, and one that is at work then crashes.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The longest that anybody waits for a session that is being made.
const PATIENCE: Duration = Duration::from_secs(10);

static MAKING: Mutex<Making> = Mutex::new(Making { count: 0, ended: false });
static CHANGED: Condvar = Condvar::new();

struct Making {
    count: usize,
    ended: bool,
}

fn making() -> MutexGuard<'static, Making> {
    MAKING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A session that is being made.
pub(super) struct Maker(());

impl Maker {
    /// `None` when the process is about to end.
    pub(super) fn begin() -> Option<Self> {
        let mut making = making();
        (!making.ended).then(|| {
            making.count += 1;
            Self(())
        })
    }
}

impl Drop for Maker {
    fn drop(&mut self) {
        making().count -= 1;
        CHANGED.notify_all();
    }
}

/// Waits for those that are being made.
pub(super) fn wait() {
    let waited = CHANGED.wait_timeout_while(making(), PATIENCE, |making| making.count > 0);
    drop(waited.unwrap_or_else(PoisonError::into_inner));
}

/// The process is about to end: waits for the sessions that are being made on other threads, and
/// lets none begin. To be called before exit handlers run.
pub fn end() {
    making().ended = true;
    wait();
}
