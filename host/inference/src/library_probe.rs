//! Probes a library in a child process: one process can load only one.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::engine::{Device, Engine as _};
use super::library::{LibraryError, LibraryFile, LibraryOrigin};
use super::onnxruntime::OnnxRuntime;
use super::providers::{ExecutionProvider, ProviderLibrary};
use gpux_core::child_process;

/// Loading a library with a GPU behind it can take seconds.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A library's version, providers and devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeReport {
    /// its version
    pub version: String,
    /// the execution providers it offers, best first
    pub providers: Vec<ExecutionProvider>,
    /// why the provider of a plug-in cannot be used, if so
    #[serde(default)]
    pub missing: Vec<String>,
    /// the devices it sees
    pub devices: Vec<Device>,
}

/// Loads the library into this process, registers these plug-ins with it, and asks it.
pub fn probe(library: &Path, plugins: &[ProviderLibrary]) -> Result<ProbeReport, LibraryError> {
    let engine = OnnxRuntime::load_with(&LibraryFile::at(library, LibraryOrigin::Option), plugins)?;
    let missing =
        plugins.iter().map(|plugin| plugin.provider).filter(|provider| !engine.providers().contains(provider));
    Ok(ProbeReport {
        version: engine.version().to_owned(),
        providers: engine.providers().to_vec(),
        missing: missing.map(|provider| engine.unavailable_reason(provider)).collect(),
        devices: engine.devices(),
    })
}

/// Serves `gpux __engine-probe LIBRARY PLUGINS`, the latter in JSON: one line of JSON.
pub fn probe_child(library: &Path, plugins: &str) -> String {
    child_process::limit_cpu_time(TIMEOUT);
    let answer: Result<ProbeReport, String> = serde_json::from_str::<Vec<ProviderLibrary>>(plugins)
        .map_err(|error| error.to_string())
        .and_then(|plugins| probe(library, &plugins).map_err(|error| error.to_string()));
    serde_json::to_string(&answer).unwrap_or_default()
}

/// Asks a library through a child: `gpux` is this program.
pub fn probe_in_child(gpux: &Path, library: &Path, plugins: &[ProviderLibrary]) -> Result<ProbeReport, LibraryError> {
    let fault = |reason: String| LibraryError::Probe { path: library.to_owned(), reason };
    let plugins = serde_json::to_string(plugins).map_err(|error| fault(error.to_string()))?;
    let arguments = ["__engine-probe".as_ref(), library.as_os_str(), plugins.as_ref()];
    let answer: Result<ProbeReport, String> =
        child_process::run_json(gpux, &arguments, TIMEOUT).map_err(|error| fault(error.to_string()))?;
    answer.map_err(fault)
}
