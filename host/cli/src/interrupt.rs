//! Ctrl-C: what is under way is finished if that takes a moment, and what is done is kept.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use gpux_core::process_exit::exit;

/// The time for finishing an item after an interrupt.
const GRACE: Duration = Duration::from_secs(2);

static STOPPED: AtomicBool = AtomicBool::new(false);
/// Items under way.
static BUSY: AtomicUsize = AtomicUsize::new(0);

/// The flag that ctrl-C (or a polite kill) sets; it is watched from now on. Between items the
/// program ends at once; an item under way has [`GRACE`]; a second ctrl-C ends it without.
pub(super) fn watch() -> &'static AtomicBool {
    // A second call finds the handler in place; a system without signals goes without.
    let _ = ctrlc::set_handler(|| {
        if STOPPED.swap(true, Ordering::SeqCst) || BUSY.load(Ordering::SeqCst) == 0 {
            exit(130);
        }
        // Without a thread there is no grace.
        let grace = std::thread::Builder::new().spawn(|| {
            std::thread::sleep(GRACE);
            exit(130);
        });
        if grace.is_err() {
            exit(130);
        }
    });
    &STOPPED
}

/// Runs `work` as something that may be finished after ctrl-C.
pub(super) fn with_grace_period<T>(work: impl FnOnce() -> T) -> T {
    BUSY.fetch_add(1, Ordering::SeqCst);
    let done = work();
    BUSY.fetch_sub(1, Ordering::SeqCst);
    done
}

/// Whether somebody asked to stop.
pub(super) fn is_stopped() -> bool {
    STOPPED.load(Ordering::SeqCst)
}
