//! Ctrl-C during long work.
//!
//! Python handles signals on its main thread only, between two instructions. So work that may be long runs on
//! another thread, while the main thread waits and looks for signals.

use std::cell::Cell;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// Time between two looks for signals.
const INTERVAL: Duration = Duration::from_millis(50);

/// Runs `work` without the interpreter's lock. On the main thread a signal whose handler raises (ctrl-C) ends the
/// wait: `work` goes on, and its result is dropped.
pub(crate) fn run<T: Send + 'static>(py: Python<'_>, work: impl FnOnce() -> T + Send + 'static) -> PyResult<T> {
    if !is_main_thread(py)? {
        return Ok(py.detach(work));
    }
    let (sender, mut receiver) = mpsc::sync_channel(1);
    thread::Builder::new().name("gpux".to_owned()).spawn(move || {
        // Nobody waits after ctrl-C.
        let _ = sender.send(work());
    })?;
    loop {
        let (back, received) = py.detach(move || {
            let received = receiver.recv_timeout(INTERVAL);
            (receiver, received)
        });
        receiver = back;
        match received {
            Ok(result) => return Ok(result),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => return Err(PyRuntimeError::new_err("the work panicked")),
        }
    }
}

/// Whether this is Python's main thread.
pub(crate) fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    thread_local! {
        static KNOWN: Cell<Option<bool>> = const { Cell::new(None) };
    }
    if let Some(known) = KNOWN.get() {
        return Ok(known);
    }
    let threading = py.import("threading")?;
    let is_main = threading.call_method0("current_thread")?.is(&threading.call_method0("main_thread")?);
    KNOWN.set(Some(is_main));
    Ok(is_main)
}
