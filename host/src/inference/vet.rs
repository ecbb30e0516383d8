//! The trial of a model nobody has loaded yet, in a child process: what brings an engine down
//! must not bring down the process that serves.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Embedded;
use super::engine::Engine;
use super::error::ModelLoadError;
use super::graph::{InputSpec, ModelInfo, OnnxType};
use super::library::{Found, Origin};
use super::model_file::ModelFile;
use super::onnxruntime::OnnxRuntime;
use super::providers::{ExecutionProvider, ProviderChoice};
use super::step::{ModelOptions, ModelStep};
use crate::child::{self, ChildFault};
use crate::config::CacheDir;
use crate::files::digest;
use crate::pipeline::{Context, Dim, ElementType, Step as _, Tensor, TensorKind, Value};

/// Loading and one run of a large model on a slow disk fit; a model that takes longer is refused.
const TIMEOUT: Duration = Duration::from_mins(2);
/// Memory for an engine itself, in bytes; a model may take eight times its size on top.
const MEMORY: u64 = 2 << 30;
/// The most elements that a trial input may have.
const INPUT_LIMIT: usize = 1 << 24;

/// What the child is to try.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VetRequest {
    /// the model's file
    pub model: PathBuf,
    /// ONNX Runtime's library; `None` for the embedded engine
    pub library: Option<PathBuf>,
    /// the execution providers to try
    pub providers: ProviderChoice,
    /// the most memory that the child may take, in bytes; `None` where it cannot be bounded
    pub memory: Option<u64>,
}

/// What the child found.
#[derive(Debug, Serialize, Deserialize)]
enum Verdict {
    Sound,
    NeedsOnnxRuntime { feature: String },
    BeyondEmbedded { reason: String },
    Invalid { reason: String },
    Refused { reason: String },
}

/// Loads the model and runs it once on zeros. A failed run is no fault of the model: zeros may
/// be values that it refuses. What counts is that the process lives, within its memory.
pub fn vet(request: &VetRequest) -> Result<(), ModelLoadError> {
    let file = Arc::new(ModelFile::open(&request.model)?);
    let engine: Arc<dyn Engine> = match &request.library {
        None => Arc::new(Embedded),
        Some(path) => Arc::new(
            OnnxRuntime::load(&Found::at(path, Origin::Option))
                .map_err(|error| ModelLoadError::Vetting { path: request.model.clone(), reason: error.to_string() })?,
        ),
    };
    let options = ModelOptions { providers: request.providers.clone(), ..ModelOptions::default() };
    let step = ModelStep::load(engine, file, &options)?;
    for left_out in [false, true] {
        let Some(inputs) = trial_inputs(step.file().info(), left_out) else { continue };
        let outcome = step.run(inputs, &mut Context::default());
        if let (Err(failure), Some(limit)) = (outcome, request.memory)
            && ran_out_of_memory(&failure.to_string(), limit)
        {
            let reason = format!("its trial run took more than the {} MiB of memory that it may take", limit >> 20);
            return Err(ModelLoadError::Vetting { path: request.model.clone(), reason });
        }
    }
    Ok(())
}

/// Whether a failed run came close to the bound of the process's memory, or asked for so much at
/// once that it never came close: that shows only in the words of ONNX Runtime.
fn ran_out_of_memory(failure: &str, limit: u64) -> bool {
    let refused = ["bad_alloc", "Failed to allocate memory"].iter().any(|words| failure.contains(words));
    refused || peak_memory().is_some_and(|peak| peak >= limit / 10 * 9)
}

/// The most memory that this process has had, in bytes, where the system says.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

/// Zeros for every input, open dimensions being 1; empty sequences and maps. `None` when that would
/// be too much. Optional values are given too, or `left_out` where there are any.
fn trial_inputs(info: &ModelInfo, left_out: bool) -> Option<Vec<Option<Value>>> {
    fn nothing(kind: &OnnxType) -> Option<Value> {
        match kind {
            OnnxType::Tensor { kind, .. } => zeros(kind),
            OnnxType::Sequence(_) => Some(Value::from(json!([]))),
            OnnxType::Map { .. } => Some(Value::from(json!({}))),
            OnnxType::Optional(inner) => nothing(inner),
        }
    }
    let optional = |input: &InputSpec| !input.required && matches!(input.value, Some(OnnxType::Optional(_)));
    if left_out && !info.inputs.iter().any(optional) {
        return None;
    }
    let input = |input: &InputSpec| {
        let given = input.required || optional(input) && !left_out;
        if given { nothing(input.value.as_ref()?).map(Some) } else { Some(None) }
    };
    info.inputs.iter().map(input).collect()
}

fn zeros(kind: &TensorKind) -> Option<Value> {
    let size = |dim: &Dim| if let Dim::Fixed(size) = dim { *size } else { 1 };
    let shape: Vec<_> = kind.shape.as_ref().map(|dims| dims.iter().map(size).collect()).unwrap_or_default();
    if crate::pipeline::element_count(&shape)? > INPUT_LIMIT {
        return None;
    }
    Tensor::zeros(kind.element().unwrap_or(ElementType::Float32), shape).ok().map(Value::Tensor)
}

/// What `gpux __vet-model REQUEST` does and prints, on one line. Bounds the memory of the whole
/// process, so nothing else may be done in it.
pub fn vet_answer(request: &str) -> String {
    let verdict = match serde_json::from_str::<VetRequest>(request) {
        Err(error) => Verdict::Refused { reason: error.to_string() },
        Ok(request) => {
            child::bound_processor_time(TIMEOUT);
            child::bound_memory(request.memory);
            match vet(&request) {
                Ok(()) => Verdict::Sound,
                Err(ModelLoadError::NeedsOnnxRuntime { feature, .. }) => Verdict::NeedsOnnxRuntime { feature },
                Err(ModelLoadError::BeyondEmbedded { reason, .. }) => Verdict::BeyondEmbedded { reason },
                Err(ModelLoadError::Invalid { reason, .. }) => Verdict::Invalid { reason },
                Err(ModelLoadError::Engine { reason, .. } | ModelLoadError::Vetting { reason, .. }) => {
                    Verdict::Refused { reason }
                }
                Err(other) => Verdict::Refused { reason: other.to_string() },
            }
        }
    };
    serde_json::to_string(&verdict).unwrap_or_default()
}

/// Makes sure that the model has been tried on this engine, by digest: from the cache's memory,
/// else in a child (`gpux` is this program). Without `gpux`, nothing is tried: the caller's own
/// process loads the model with panics caught.
pub fn ensure_vetted(
    gpux: Option<&Path>,
    cache: Option<&CacheDir>,
    file: &ModelFile,
    engine: &dyn Engine,
    library: Option<&Path>,
    providers: &ProviderChoice,
) -> Result<(), ModelLoadError> {
    let Some(gpux) = gpux else { return Ok(()) };
    file.info().signature()?;
    let key = format!("{}\0{}\0{providers:?}\0{}", file.digest(), engine.identity(), env!("CARGO_PKG_VERSION"));
    let key = digest(key);
    let marker = cache.and_then(|cache| cache.folder("verified").ok()).map(|folder| folder.join(key));
    if marker.as_ref().is_some_and(|marker| marker.exists()) {
        return Ok(());
    }
    // Drivers of GPUs reserve memory far beyond what they use.
    let on_cpu = engine.providers() == [ExecutionProvider::Cpu];
    let request = VetRequest {
        model: absolute(file.path()),
        library: library.map(absolute),
        providers: providers.clone(),
        memory: on_cpu.then(|| MEMORY + 8 * file.info().size_bytes),
    };
    let fault = |reason: String| ModelLoadError::Vetting { path: file.path().to_owned(), reason };
    let text = serde_json::to_string(&request).map_err(|error| fault(error.to_string()))?;
    match child::ask(gpux, &["__vet-model".as_ref(), text.as_ref()], TIMEOUT) {
        Ok(Verdict::Sound) => {
            // Not remembering costs the next start a trial, no more.
            let _ = marker.map(|marker| std::fs::write(marker, ""));
            Ok(())
        }
        Ok(Verdict::NeedsOnnxRuntime { feature }) => {
            Err(ModelLoadError::NeedsOnnxRuntime { path: file.path().to_owned(), feature })
        }
        Ok(Verdict::BeyondEmbedded { reason }) => {
            Err(ModelLoadError::BeyondEmbedded { path: file.path().to_owned(), reason })
        }
        Ok(Verdict::Invalid { reason }) => Err(ModelLoadError::Invalid { path: file.path().to_owned(), reason }),
        Ok(Verdict::Refused { reason }) => {
            let engine = engine.name().to_owned();
            Err(ModelLoadError::Engine { path: file.path().to_owned(), engine, reason })
        }
        Err(ChildFault::Start(error)) => Err(fault(format!("that process could not be started: {error}"))),
        Err(error) => Err(fault(format!("{error}; the model may be damaged or hostile"))),
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests;
