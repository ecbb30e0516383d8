//! Execution providers of this machine.

use gpux::error::ProviderError;
use gpux::{ExecutionProvider, ProviderManager};
use pyo3::prelude::*;

use crate::errors::exception;
use crate::options::Options;
use crate::{fork, interrupt, json};

/// The full names of the execution providers that the engine of this machine offers, best first.
#[pyfunction]
pub(crate) fn provider_names(py: Python<'_>, options: Options<'_>) -> PyResult<Vec<&'static str>> {
    manager(py, options).map(|manager| manager.available_providers())
}

/// The full name of the preferred provider if it is offered, else of the best one.
#[pyfunction]
pub(crate) fn best_provider(py: Python<'_>, options: Options<'_>, preferred: Option<&str>) -> PyResult<&'static str> {
    let best = manager(py, options)?.best_provider(preferred);
    best.map(ExecutionProvider::name).map_err(|error| exception(py, &error.into()))
}

/// What is known about a provider, by full or short name.
#[pyfunction]
pub(crate) fn provider_info<'py>(
    py: Python<'py>,
    options: Options<'py>,
    provider: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let provider = provider.parse().map_err(|error: ProviderError| exception(py, &error.into()))?;
    let info = manager(py, options)?.provider_info(provider);
    json::to_python(py, &serde_json::to_value(info).unwrap_or_default())
}

fn manager(py: Python<'_>, options: Options<'_>) -> PyResult<ProviderManager> {
    fork::before_load()?;
    let options = options.load_options(py)?;
    interrupt::run(py, move || options.provider_manager())?.map_err(|error| exception(py, &error))
}
