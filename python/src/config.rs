//! Files that are explained without being run.

use std::path::PathBuf;

use gpux::{ConfigParser, GpuxError, ModelInspector};
use pyo3::prelude::*;

use crate::errors::exception;
use crate::json;

/// A gpux.yml that was read and checked.
#[pyclass(frozen, module = "gpux._gpux")]
pub(crate) struct Config(ConfigParser);

#[pymethods]
impl Config {
    /// Reads the file at `path`.
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let parsed = py.detach(|| ConfigParser::parse_file(path));
        parsed.map(Self).map_err(|error| exception(py, &GpuxError::from(error)))
    }

    /// Everything in the file, defaults and shorthands written out.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, &self.0.to_dict())
    }

    /// The (first) model's file, if it is there.
    fn model_path(&self, project: PathBuf) -> Option<PathBuf> {
        self.0.model_path(project)
    }

    /// Writes a gpux.yml that says the same to `path`.
    fn save(&self, path: PathBuf) -> PyResult<()> {
        Ok(self.0.save(path)?)
    }
}

/// What the ONNX model at `path` takes and gives, as a dict.
#[pyfunction]
pub(crate) fn inspect_model(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyAny>> {
    let inspected = py.detach(|| ModelInspector::inspect(&path));
    let info = inspected.map_err(|error| exception(py, &GpuxError::from(error)))?;
    json::to_python(py, &info.to_dict())
}
