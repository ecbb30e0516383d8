//! The native part of the Python package `gpux`: a thin layer over the crate of the same name.
//!
//! Python objects become values in [`inputs`], values become Python objects in [`outputs`]; [`runtime`] loads and
//! runs between the two without the interpreter's lock.

mod array;
mod config;
mod errors;
mod fork;
mod images;
mod inputs;
mod interrupt;
mod json;
mod options;
mod outputs;
mod precision;
mod providers;
mod run_queue;
mod runtime;

use pyo3::prelude::*;

/// The native part of gpux.
#[pymodule(gil_used = false)]
fn _gpux(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<runtime::Runtime>()?;
    module.add_class::<runtime::Port>()?;
    module.add_class::<runtime::Cancellation>()?;
    module.add_class::<config::Config>()?;
    module.add_function(wrap_pyfunction!(config::inspect_model, module)?)?;
    module.add_function(wrap_pyfunction!(precision::choose_precision, module)?)?;
    module.add_function(wrap_pyfunction!(providers::provider_names, module)?)?;
    module.add_function(wrap_pyfunction!(providers::best_provider, module)?)?;
    module.add_function(wrap_pyfunction!(providers::provider_info, module)?)?;
    module.add_function(wrap_pyfunction!(fork::after_fork_in_child, module)?)?;
    Ok(())
}
