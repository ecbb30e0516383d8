//! gpux's errors as Python exceptions.

use gpux::error::LoadError;
use gpux::{GpuxError, ValidationError};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyModule;

use crate::json;

/// The module with the exception classes, each named after an error's kind.
static EXCEPTIONS: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

/// The exception that stands for `error`: of the class that its kind names.
pub(crate) fn exception(py: Python<'_>, error: &GpuxError) -> PyErr {
    make(py, error).unwrap_or_else(|_| PyRuntimeError::new_err(error.to_string()))
}

/// A `ValidationError` about the input `name`.
pub(crate) fn invalid_input(py: Python<'_>, name: &str, message: impl std::fmt::Display) -> PyErr {
    exception(py, &ValidationError::input(name, message).into())
}

/// A `ConfigurationError` about an argument.
pub(crate) fn invalid_argument(py: Python<'_>, message: &str) -> PyErr {
    let class = EXCEPTIONS
        .get_or_try_init(py, || exceptions(py))
        .and_then(|module| module.bind(py).getattr("ConfigurationError"));
    class.and_then(|class| class.call1((message,))).map_or_else(|error| error, PyErr::from_value)
}

fn make(py: Python<'_>, error: &GpuxError) -> PyResult<PyErr> {
    let module = EXCEPTIONS.get_or_try_init(py, || exceptions(py))?;
    let details = json::to_python(py, &error.to_json()["details"])?;
    let message = match error {
        GpuxError::Configuration(LoadError::Invalid(mistakes)) => mistakes.render().trim_end().to_owned(),
        other => other.to_string(),
    };
    let class = module.bind(py).getattr(error.kind())?;
    Ok(PyErr::from_value(class.call1((message, details))?))
}

fn exceptions(py: Python<'_>) -> PyResult<Py<PyModule>> {
    Ok(py.import("gpux.errors")?.unbind())
}
