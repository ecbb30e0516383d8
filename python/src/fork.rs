//! Processes that were forked while pipelines were loaded.
//!
//! The threads of ONNX Runtime and of the sandbox do not exist in the child, and locks that they held are never
//! released: a call there could wait for ever.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

static LOADED: AtomicBool = AtomicBool::new(false);
static FORKED: AtomicBool = AtomicBool::new(false);

/// Called by `os.register_at_fork`.
#[pyfunction]
pub(crate) fn after_fork_in_child() {
    if LOADED.load(Ordering::Relaxed) {
        FORKED.store(true, Ordering::Relaxed);
    }
}

/// An error in a process that was forked after a pipeline had been loaded.
pub(crate) fn check() -> PyResult<()> {
    if FORKED.load(Ordering::Relaxed) {
        return Err(PyRuntimeError::new_err(
            "this process was forked after gpux had loaded a pipeline, so its threads are gone; load pipelines in the \
             child only, or start it by multiprocessing.get_context(\"spawn\")",
        ));
    }
    Ok(())
}

/// Notes that this process is about to have threads, unless it can have none.
pub(crate) fn before_load() -> PyResult<()> {
    check()?;
    LOADED.store(true, Ordering::Relaxed);
    Ok(())
}
