//! How a pipeline is loaded, from keyword arguments.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use gpux::internal::{TimeSpan, WasmLimits};
use gpux::{AllowedGrants, CacheDir, EngineChoice, LoadOptions, ProviderLibrary, Runtime, RuntimeBuilder};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{exception, invalid_argument};
use crate::json::{self, SpecialFloats};

/// The keyword arguments of `gpux._gpux.Runtime`.
#[derive(FromPyObject)]
#[expect(clippy::struct_field_names, reason = "the names of the arguments")]
#[pyo3(from_item_all)]
pub(crate) struct Options<'py> {
    provider: Option<String>,
    provider_libraries: Vec<String>,
    provider_options: Option<Bound<'py, PyDict>>,
    precision: Option<String>,
    strict: bool,
    engine: String,
    engine_library: Option<PathBuf>,
    threads: Option<u32>,
    timeout: Option<Timeout>,
    gpu_memory: Option<String>,
    batch_size: Option<u32>,
    allow: Vec<String>,
    allow_outside: bool,
    env: Vec<String>,
    limits: Option<Bound<'py, PyDict>>,
    cache: Option<PathBuf>,
    program: Option<PathBuf>,
    python_packages: Vec<PathBuf>,
}

/// Seconds, or as gpux.yml writes it: `500ms`, `30s`.
#[derive(FromPyObject)]
enum Timeout {
    Seconds(f64),
    Text(String),
}

impl Timeout {
    fn duration(&self) -> Result<Duration, String> {
        let duration = match self {
            Self::Seconds(seconds) => Duration::try_from_secs_f64(*seconds).map_err(|error| error.to_string())?,
            Self::Text(text) => text.parse::<TimeSpan>().map_err(|error| error.to_string())?.0,
        };
        if duration.is_zero() { Err("it must be above 0".to_owned()) } else { Ok(duration) }
    }
}

impl Options<'_> {
    /// The builder of a runtime with these options.
    pub(crate) fn builder(self, py: Python<'_>) -> PyResult<RuntimeBuilder> {
        let mut builder = Runtime::builder();
        if let Some(timeout) = &self.timeout {
            builder = builder.timeout(timeout.duration().map_err(|error| invalid(py, "timeout", error))?);
        }
        if let Some(memory) = &self.gpu_memory {
            builder = builder.gpu_memory(memory.parse().map_err(|error| invalid(py, "gpu_memory", error))?);
        }
        if let Some(rows) = self.batch_size {
            let rows = NonZeroU32::new(rows).ok_or_else(|| invalid(py, "batch_size", "write a number above 0"))?;
            builder = builder.batch_size(rows);
        }
        let options = self.load_options(py)?;
        Ok(builder.options(|all| *all = options))
    }

    /// What is not about one pipeline alone.
    pub(crate) fn load_options(self, py: Python<'_>) -> PyResult<LoadOptions> {
        let mut options = LoadOptions::default();
        options.program = self.program;
        options.engine.choice = match self.engine.as_str() {
            "auto" => EngineChoice::Auto,
            "onnxruntime" => EngineChoice::OnnxRuntime,
            "embedded" => EngineChoice::Embedded,
            other => {
                let message = format!("`{other}` is none; write auto, onnxruntime or embedded");
                return Err(invalid(py, "engine", message));
            }
        };
        options.engine.library = self.engine_library;
        options.engine.python_packages = self.python_packages;
        if let Some(threads) = self.threads {
            let threads = NonZeroU32::new(threads).ok_or_else(|| invalid(py, "threads", "write a number above 0"))?;
            options.engine.threads = Some(threads);
        }
        for library in self.provider_libraries {
            let library: ProviderLibrary = library.parse().map_err(|error| invalid(py, "provider_libraries", error))?;
            options.engine.provider_libraries.push(library);
        }
        options.providers.names = self.provider;
        options.providers.strict = self.strict;
        if let Some(precision) = self.precision {
            let precision = precision.parse().map_err(|error| invalid(py, "precision", error))?;
            options.providers.precision = Some(precision);
        }
        for (name, value) in self.provider_options.into_iter().flatten() {
            let value = json::from_python(&value, SpecialFloats::Refused)?.unwrap_or_default();
            options.providers.options.push((name.extract()?, value));
        }
        options.policy.outside_files = self.allow_outside;
        options.policy.env = self.env;
        for grant in self.allow {
            let grants: AllowedGrants = grant.parse().map_err(|error| invalid(py, "allow", error))?;
            options.policy.grants.extend(grants);
        }
        let limit = |(name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| PyResult::Ok(format!("{name}: {value}"));
        let limits = self.limits.into_iter().flatten().map(limit).collect::<PyResult<Vec<_>>>()?;
        if !limits.is_empty() {
            let limits = WasmLimits::parse("limits", &limits.join("\n"));
            options.policy.set_ceiling(&limits.map_err(|error| exception(py, &error.into()))?);
        }
        if let Some(cache) = self.cache {
            options.cache = Some(CacheDir::at(cache));
        }
        Ok(options)
    }
}

fn invalid(py: Python<'_>, argument: &str, error: impl std::fmt::Display) -> PyErr {
    invalid_argument(py, &format!("{argument}: {error}"))
}
