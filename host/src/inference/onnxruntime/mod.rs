//! ONNX Runtime: whichever build of its library the operator has.

mod environment;
mod kinds;
mod providers;
mod session;
mod values;
mod watch;

use ort::environment::Environment;
use ort::logging::LogLevel;
use ort::session::Session as Native;

use super::engine::{Engine, Session, SessionOptions};
use super::error::ModelLoadError;
use super::library::{Device, Found, LibraryError};
use super::model_file::ModelFile;
use super::providers::ExecutionProvider;
use crate::guard::{guard, shorten};

/// ONNX Runtime, loaded.
#[derive(Debug)]
pub struct OnnxRuntime {
    environment: &'static Environment,
    name: String,
    identity: String,
    version: String,
    providers: Vec<ExecutionProvider>,
}

impl OnnxRuntime {
    /// Loads the library. A process holds one: loading the same again is free, loading another
    /// is an error.
    pub fn load(library: &Found) -> Result<Self, LibraryError> {
        let environment = environment::environment(&library.path)?;
        let version =
            build_version().or_else(|| library.version.clone()).unwrap_or_else(|| "of unknown version".into());
        let meta = library.path.metadata().ok();
        let modified = meta.as_ref().and_then(|meta| meta.modified().ok());
        // The library as it was loaded: links to it may lie elsewhere than the providers' libraries.
        let providers = providers::offered(&library.path.canonicalize().unwrap_or_else(|_| library.path.clone()));
        let identity = format!(
            "onnxruntime {version} {} {} {modified:?} {providers:?}",
            library.path.display(),
            meta.as_ref().map_or(0, std::fs::Metadata::len),
        );
        Ok(Self { environment, name: format!("ONNX Runtime {version}"), identity, version, providers })
    }

    /// The library's version, for example `1.31.1`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The process's environment, of which `ort` allows one: benchmarks make the bare sessions
    /// in it that gpux is compared with.
    #[doc(hidden)]
    pub fn environment(&self) -> &'static Environment {
        self.environment
    }

    /// Every device that a provider of the library has found.
    pub fn devices(&self) -> Vec<Device> {
        let device = |device: ort::device::Device<'_>| {
            let hardware = device.hardware_device();
            Device {
                provider: device.ep().unwrap_or("unknown").to_owned(),
                vendor: hardware.vendor().unwrap_or("unknown").to_owned(),
                kind: format!("{:?}", hardware.ty()),
                id: hardware.id(),
            }
        };
        self.environment.devices().map(device).collect()
    }
}

/// The version in the library's own account of its build (`git-branch=rel-1.31.1`).
fn build_version() -> Option<String> {
    let (_, rest) = ort::info().split_once("git-branch=rel-")?;
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    (end > 0).then(|| rest[..end].to_owned())
}

impl Engine for OnnxRuntime {
    fn name(&self) -> &str {
        &self.name
    }

    fn identity(&self) -> &str {
        &self.identity
    }

    fn providers(&self) -> &[ExecutionProvider] {
        &self.providers
    }

    fn load(&self, file: &ModelFile, options: &SessionOptions) -> Result<Box<dyn Session>, ModelLoadError> {
        let refused = |reason: String| ModelLoadError::Engine {
            path: file.path().to_owned(),
            engine: self.name.clone(),
            reason: shorten(&reason),
        };
        let native = guard(|| native(self.environment, file, options)).unwrap_or_else(Err).map_err(refused)?;
        let kinds = kinds::Kinds::new(self.environment, file).map_err(refused)?;
        session::OrtSession::new(native, file, kinds)
            .map(|session| Box::new(session) as Box<dyn Session>)
            .map_err(refused)
    }
}

fn native(environment: &Environment, file: &ModelFile, options: &SessionOptions) -> Result<Native, String> {
    let text = |error: ort::Error<ort::session::builder::SessionBuilder>| error.to_string();
    let mut builder = Native::builder(environment)
        .map_err(|error| error.to_string())?
        .with_log_level(LogLevel::Fatal)
        .map_err(text)?
        .with_execution_providers(providers::registrations(options.provider))
        .map_err(text)?;
    if let Some(threads) = options.threads {
        builder = builder.with_intra_threads(threads).map_err(text)?;
    }
    let changed = kinds::changed(file)?;
    let native = match changed.as_deref().or(file.whole()) {
        Some(bytes) => builder.commit_from_memory(bytes),
        None => builder.commit_from_file(file.path()),
    };
    native.map_err(|error| error.to_string())
}
