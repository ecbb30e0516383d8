//! The one ONNX Runtime library and environment of this process.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ort::environment::Environment;

use crate::guard::{guard, shorten};
use crate::inference::library::LibraryError;

struct Loaded {
    path: PathBuf,
    environment: Environment,
}

/// Never dropped: sessions of any thread may outlive every other owner.
static LOADED: OnceLock<Loaded> = OnceLock::new();
static LOADING: Mutex<()> = Mutex::new(());

/// The environment of the library at `path`, loading it if none is loaded yet.
pub(super) fn environment(path: &Path) -> Result<&'static Environment, LibraryError> {
    let broken = |reason: String| LibraryError::Broken { path: path.to_owned(), reason: shorten(&reason) };
    let path = path.canonicalize().map_err(|error| broken(error.to_string()))?;
    let _one_at_a_time = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(loaded) = LOADED.get() {
        if loaded.path == path {
            return Ok(&loaded.environment);
        }
        return Err(LibraryError::Another { loaded: loaded.path.clone(), asked: path });
    }
    let environment = guard(|| load(&path)).map_err(broken)??;
    Ok(&LOADED.get_or_init(|| Loaded { path, environment }).environment)
}

/// The library that is loaded.
pub(super) fn loaded() -> Option<PathBuf> {
    LOADED.get().map(|loaded| loaded.path.clone())
}

fn load(path: &Path) -> Result<Environment, LibraryError> {
    let broken = |reason: String| LibraryError::Broken { path: path.to_owned(), reason: shorten(&reason) };
    let builder = ort::init_from(path).map_err(|error| match error {
        ort::LoadDynamicError::Dlopen { error, .. } => broken(error.to_string()),
        ort::LoadDynamicError::MissingApi { .. } => broken("it does not export `OrtGetApiBase`".to_owned()),
        ort::LoadDynamicError::InvalidVersionString => broken("it does not tell its version".to_owned()),
        ort::LoadDynamicError::BadVersion { version_str, .. } => {
            LibraryError::TooOld { path: path.to_owned(), found: version_str }
        }
    })?;
    // Errors reach us as values; what the library would print beside them is noise.
    let environment = builder
        .with_name("gpux")
        .with_telemetry(false)
        .with_logger(Arc::new(|_, _, _, _, _| {}))
        .build()
        .map_err(|error| broken(error.to_string()))?;
    environment.set_log_level(ort::logging::LogLevel::Fatal);
    Ok(environment)
}
