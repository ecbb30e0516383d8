//! Ctrl-C: the current item is finished if that is quick, and finished results are kept.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gpux_core::process_exit::exit;

/// The time for finishing an item after an interrupt.
const GRACE_PERIOD: Duration = Duration::from_secs(2);

/// Signals that follow each other so fast are one.
const TWICE: Duration = Duration::from_millis(400);

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// Items under way.
static RUNNING_ITEMS: AtomicUsize = AtomicUsize::new(0);

/// Installs the handler and returns the flag that ctrl-C or SIGTERM sets. Between items the
/// program ends immediately; a running item has [`GRACE_PERIOD`]; a second ctrl-C ends it immediately.
pub(super) fn install_handler() -> &'static AtomicBool {
    // A second call finds the handler in place; a system without signals goes without.
    let mut last = None::<Instant>;
    let _ = ctrlc::set_handler(move || {
        let now = Instant::now();
        // Ctrl-C comes from the terminal, and again from the parent that guards this process.
        if last.replace(now).is_some_and(|last| now.duration_since(last) < TWICE) {
            return;
        }
        if INTERRUPTED.swap(true, Ordering::SeqCst) || RUNNING_ITEMS.load(Ordering::SeqCst) == 0 {
            exit(130);
        }
        // Without a thread there is no grace.
        let grace = std::thread::Builder::new().spawn(|| {
            std::thread::sleep(GRACE_PERIOD);
            exit(130);
        });
        if grace.is_err() {
            exit(130);
        }
    });
    &INTERRUPTED
}

/// Runs `work` as something that may be finished after ctrl-C.
pub(super) fn with_grace_period<T>(work: impl FnOnce() -> T) -> T {
    RUNNING_ITEMS.fetch_add(1, Ordering::SeqCst);
    let done = work();
    RUNNING_ITEMS.fetch_sub(1, Ordering::SeqCst);
    done
}

/// Whether somebody asked to stop.
pub(super) fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}
