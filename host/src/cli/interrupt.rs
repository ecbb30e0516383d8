//! Ctrl-C: the first stops the work between items, the second stops the program.

use std::sync::atomic::{AtomicBool, Ordering};

static STOPPED: AtomicBool = AtomicBool::new(false);

/// The flag that ctrl-C (or a polite kill) sets; it is watched from now on.
pub(super) fn watch() -> &'static AtomicBool {
    // A second call finds the handler in place; a system without signals goes without.
    let _ = ctrlc::set_handler(|| {
        if STOPPED.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    });
    &STOPPED
}

/// Whether somebody asked to stop.
pub(super) fn stopped() -> bool {
    STOPPED.load(Ordering::Relaxed)
}
