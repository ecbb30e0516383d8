//! The threads of the engine in a worker, which a template leaves.

use std::io::{self, Write as _};
use std::sync::Once;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use gpux::internal::start_engine_threads;
use gpux_core::threads;

/// A load that takes longer has the engine's threads.
const LONG_LOAD: Duration = Duration::from_millis(250);

/// Starts them if loading takes long; returns what is dropped at its end. Each looks for work for 60 ms from its start,
/// several times what a small pipeline takes to load, so that the threads of a pipeline that is not used are not started.
/// Until they are, runs use one thread.
pub(crate) fn start_if_long() -> io::Result<Sender<()>> {
    let (is_loading, loaded) = channel();
    threads::spawn("gpux-long-load", move || {
        if loaded.recv_timeout(LONG_LOAD) == Err(RecvTimeoutError::Timeout) {
            require();
        }
    })?;
    Ok(is_loading)
}

/// Starts the engine's threads, once. Ends the process without them, since runs may wait for them forever.
pub(crate) fn require() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        if let Err(error) = start_engine_threads() {
            // The server tells the last words of a worker.
            let _ = writeln!(io::stderr(), "{error}");
            std::process::abort();
        }
    });
}
