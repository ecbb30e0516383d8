//! `precision="auto"`: chooses by measurement.

use std::path::PathBuf;

use pyo3::prelude::*;

use crate::errors::exception;
use crate::options::Options;
use crate::{interrupt, json};

/// Measures the pipeline or the model at `path` for the models whose precision is `auto`; what was measured as a dict,
/// `None` where there is no such model.
#[pyfunction]
pub(crate) fn choose_precision<'py>(
    py: Python<'py>,
    path: PathBuf,
    samples: Vec<String>,
    options: Options<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let builder = options.builder(py)?;
    let report = interrupt::run(py, move || builder.choose_precision(path, &samples))?;
    let report = report.map_err(|error| exception(py, &error))?;
    json::to_python(py, &serde_json::to_value(report).unwrap_or_default())
}
