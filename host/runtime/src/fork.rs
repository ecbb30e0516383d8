//! What a process does before copies of it load pipelines.

use std::path::{Path, PathBuf};

use super::engine::engine_search;
use super::load_options::{EngineChoice, LoadOptions};
use super::models::provider_choice;
use super::source::{Definition, check_step};
use crate::GpuxError;
use crate::error::ReportedError;
use crate::{ErrorCategory, builtins};
use gpux_config::Variables;
use gpux_inference::{Hardware, LibraryFile, LibraryOrigin, OnnxRuntime};

/// A pipeline that is read once, so that copies find the schemas of gpux.yml compiled.
const SAMPLE: &str =
    "name: sample\nversion: 1.0.0\ninputs: { x: { type: float32, shape: [3] } }\npipeline: [softmax]\n";

/// The engine library that the pipeline will load, if it loads one. Loading reports what is wrong.
pub fn engine_library(definition: &Definition, load_options: &LoadOptions) -> Option<PathBuf> {
    let models = &definition.spec().models;
    if models.is_empty() || load_options.engine.choice == EngineChoice::Embedded {
        return None;
    }
    let choices: Vec<_> = models.iter().filter_map(|model| provider_choice(model, load_options).ok()).collect();
    engine_search(load_options, &choices).choose().ok()?.found?.path.canonicalize().ok()
}

/// Makes what every pipeline uses, with this engine library, and starts no thread. Copies of the process call
/// [`start_engine_threads`] before they load a pipeline.
///
/// # Errors
///
/// The library cannot be loaded.
pub fn prepare_for_fork(library: Option<&Path>) -> Result<(), GpuxError> {
    let variables = Variables::new([], |_| None);
    let _ = gpux_config::parse("sample", SAMPLE, &variables, &check_step);
    let _ = (builtins(), Hardware::detect());
    if let Some(library) = library {
        OnnxRuntime::load_for_fork(&LibraryFile::at(library, LibraryOrigin::Option))?;
    }
    Ok(())
}

/// Starts the threads that [`prepare_for_fork`] left.
///
/// # Errors
///
/// The system starts no more threads.
pub fn start_engine_threads() -> Result<(), GpuxError> {
    OnnxRuntime::start_threads().map_err(|error| {
        let message =
            format!("the engine's threads cannot be started: {error}; raise the limit of processes (`ulimit -u`)");
        ReportedError::new(ErrorCategory::Environment, message).into()
    })
}
