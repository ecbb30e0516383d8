//! Validates new models in a child process: a model that crashes an engine must not crash the
//! server.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Embedded;
use super::batch::{BatchOptions, BatchVerdict};
use super::engine::Engine;
use super::error::ModelLoadError;
use super::graph::{InputSpec, ModelInfo, OnnxType};
use super::hardware::Hardware;
use super::library::{LibraryFile, LibraryOrigin};
use super::model_file::ModelFile;
use super::onnxruntime::OnnxRuntime;
use super::providers::ProviderOptions;
use super::providers::{ExecutionProvider, ProviderChoice, ProviderLibrary};
use super::step::{InputShapes, ModelOptions, ModelStep};
use super::trial_context::{Trial, absolute, candidate_providers, memory_limit};
use gpux_core::authenticated_file;
use gpux_core::child_process;
use gpux_core::files::digest;
use gpux_core::{
    CacheFolder, Context, Dim, ElementType, Kind, Port, Precision, Step as _, StepFailure, SyntheticInputs, TensorKind,
    Value,
};

/// Loading and one run of a large model on a slow disk fit; a model that takes longer is refused.
const TIMEOUT: Duration = Duration::from_mins(2);
/// So do some dozens of runs that try whether requests may share them.
const SHARING_TIMEOUT: Duration = Duration::from_mins(10);
/// TensorRT builds its engines within this, once.
const BUILD_TIMEOUT: Duration = Duration::from_mins(30);
/// How long runs are timed.
const MEASURING: Duration = Duration::from_secs(1);
/// A model that ran so fast is run again, on two items.
const QUICK: Duration = Duration::from_secs(5);
/// The most elements that a trial input may have.
const INPUT_LIMIT: usize = 1 << 24;

/// The child's request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ValidationRequest {
    /// libraries of plug-ins; first, because reading them makes known the names that follow
    #[serde(default)]
    pub plugins: Vec<ProviderLibrary>,
    /// the model's file
    pub model: PathBuf,
    /// ONNX Runtime's library; `None` for the embedded engine
    pub library: Option<PathBuf>,
    /// the execution providers to try
    pub providers: ProviderChoice,
    /// the providers' options
    #[serde(default)]
    pub options: ProviderOptions,
    /// what float32 operators are computed in
    #[serde(default)]
    pub precision: Precision,
    /// the most memory that the child may take, in bytes; `None` where it cannot be bounded
    pub memory: Option<u64>,
    /// whether to time runs, too
    #[serde(default)]
    pub measure: bool,
    /// the shapes of inputs, where they are known
    #[serde(default)]
    pub shapes: InputShapes,
    /// how requests are to share runs, which is tried, too
    #[serde(default)]
    pub batch: BatchOptions,
    /// the sessions that serve requests: one, or by load
    #[serde(default)]
    pub instances: Option<usize>,
    /// their own threads
    #[serde(default)]
    pub threads: Option<usize>,
    /// how long it may take
    #[serde(default = "default_timeout")]
    pub timeout: Duration,
}

const fn default_timeout() -> Duration {
    TIMEOUT
}

/// The child's result.
#[derive(Debug, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
enum Verdict {
    Sound {
        /// the outputs whose shape is not the declared one, in words
        misdeclared: Vec<String>,
        /// whether requests may share runs, if that was asked
        batch: Option<BatchVerdict>,
    },
    /// the middle of the times of its runs, in seconds
    Timed {
        seconds: f64,
    },
    NeedsOnnxRuntime {
        feature: String,
    },
    BeyondEmbedded {
        reason: String,
    },
    CustomOperator {
        operator: String,
    },
    Lacking {
        reason: String,
    },
    Invalid {
        reason: String,
    },
    Refused {
        reason: String,
    },
}

/// What a trial has found out about a sound model.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct TrialReport {
    /// the time of a run, if that was asked for and zeros can be run
    #[serde(skip)]
    pub(super) time: Option<Duration>,
    /// the outputs whose shape is not the declared one, in words
    pub misdeclared: Vec<String>,
    /// whether requests may share runs, if that was asked
    pub batch: Option<BatchVerdict>,
}

/// Loads the model and runs it once on zeros. A failed run is no fault of the model: zeros may
/// be values that it refuses. What counts is that the process lives, within its memory.
pub(super) fn validate(request: &ValidationRequest) -> Result<TrialReport, ModelLoadError> {
    let file = Arc::new(ModelFile::open(&request.model)?);
    let engine: Arc<dyn Engine> = match &request.library {
        None => Arc::new(Embedded),
        Some(path) => {
            Arc::new(OnnxRuntime::load_with(&LibraryFile::at(path, LibraryOrigin::Option), &request.plugins).map_err(
                |error| ModelLoadError::Validation { path: request.model.clone(), reason: error.to_string() },
            )?)
        }
    };

    let options = ModelOptions {
        providers: request.providers.clone(),
        strict: request.measure,
        provider_options: request.options.clone(),
        precision: request.precision,
        instances: request.instances,
        threads: request.threads,
        ..ModelOptions::default()
    };

    let step = ModelStep::load(engine, file, &options)?;
    let mut report = TrialReport::default();
    let mut is_supported = false;

    for left_out in [false, true] {
        for inputs in trial_inputs_of(step.file().info(), &request.shapes, left_out) {
            let begun = Instant::now();
            let outcome = step.run(inputs.clone(), &mut Context::default());
            is_supported |= !matches!(outcome, Err(StepFailure::Unsupported(_)));

            if request.measure && outcome.is_ok() {
                report.time = Some(median_run_time(&step, &inputs));
                return Ok(report);
            }
            if let Ok(outputs) = &outcome
                && report.misdeclared.is_empty()
            {
                let two = if begun.elapsed() < QUICK { misdeclared_outputs_of_two(&step) } else { Vec::new() };
                report.misdeclared = if two.is_empty() { misdeclared_outputs(&step, outputs) } else { two };
            }

            let Err(failure) = outcome else { break };
            if let Some(limit) = request.memory
                && ran_out_of_memory(&failure.to_string(), limit)
            {
                let reason = format!("its trial run took more than the {} MiB of memory that it may take", limit >> 20);
                return Err(ModelLoadError::Validation { path: request.model.clone(), reason });
            }
        }
    }

    if !is_supported {
        step.check_supported()?;
    }
    report.batch = step.examine_batching(&request.batch);
    Ok(report)
}

/// The outputs of a run whose shape is not the declared one. Exporters of trees declare such: `[1]` or `[N]` for `[N, 1]`.
fn misdeclared_outputs(step: &ModelStep, outputs: &[Value]) -> Vec<String> {
    let ports = step.signature().outputs.iter().zip(outputs);
    let wrong = ports.filter_map(|(port, value)| {
        let given = value.kind();
        let because = port.kind.accepts(&given).err()?.because?;
        Some(format!("its output `{}` is declared as {}, but {because}", port.name, port.kind))
    });
    wrong.collect()
}

/// The same of a run on two items. It is made only where it can find something: where the number of items is open in an
/// input and fixed in an output.
fn misdeclared_outputs_of_two(step: &ModelStep) -> Vec<String> {
    fn is_fixed(kind: &Kind) -> Option<bool> {
        let Kind::Tensor(TensorKind { shape: Some(shape), .. }) = kind else { return None };
        Some(matches!(shape.first()?, Dim::Fixed(_)))
    }
    let signature = step.signature();
    if signature.outputs.iter().all(|port| is_fixed(&port.kind) != Some(true)) {
        return Vec::new();
    }
    let two = |port: &Port| {
        let Kind::Tensor(kind) = &port.kind else { return None };
        (is_fixed(&port.kind) == Some(false)).then(|| SyntheticInputs::zeros(2, TRIAL_SIZES[0]).shape(kind))
    };
    let shapes: InputShapes = signature.inputs.iter().map(two).collect();
    let inputs = trial_inputs_of(step.file().info(), &shapes, false).into_iter().next();
    let inputs = inputs.filter(|_| shapes.iter().any(Option::is_some));
    let outputs = inputs.and_then(|inputs| step.run(inputs, &mut Context::default()).ok());
    outputs.map(|outputs| misdeclared_outputs(step, &outputs)).unwrap_or_default()
}

/// The middle of the times of some runs, after some that are not counted.
fn median_run_time(step: &ModelStep, inputs: &[Option<Value>]) -> Duration {
    let run = || {
        let inputs = inputs.to_vec();
        let start = Instant::now();
        let _ = step.run(inputs, &mut Context::default());
        start.elapsed()
    };
    let warm = Instant::now();
    // Kernels are compiled, tuned and fetched in the first runs.
    for _ in 0..3 {
        run();
    }
    let each = warm.elapsed() / 3;
    let fit = MEASURING.as_nanos() / each.as_nanos().max(1);
    let mut times: Vec<_> = (0..fit.clamp(5, 200)).map(|_| run()).collect();
    times.sort_unstable();
    times[times.len() / 2]
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

/// Sizes of open dimensions beyond the first, which counts the items: most models take the first. Few enough elements
/// that a run of them which takes all memory is the model's fault.
const TRIAL_SIZES: [usize; 2] = [8, 1];

/// The inputs of a trial, until one runs.
pub(super) type TrialInputs = Vec<Vec<Option<Value>>>;

/// Zeros for every input; empty sequences and maps. None that would be too much. Optional values are given too, or
/// `left_out` where there are any.
pub(super) fn trial_inputs(info: &ModelInfo, left_out: bool) -> TrialInputs {
    trial_inputs_of(info, &[], left_out)
}

/// The same with these `shapes`, for inputs that have one and can take it.
fn trial_inputs_of(info: &ModelInfo, shapes: &[Option<Vec<usize>>], left_out: bool) -> TrialInputs {
    TRIAL_SIZES.iter().filter_map(|open| trial_inputs_sized(info, shapes, left_out, *open)).collect()
}

fn trial_inputs_sized(
    info: &ModelInfo,
    shapes: &[Option<Vec<usize>>],
    left_out: bool,
    open: usize,
) -> Option<Vec<Option<Value>>> {
    fn zero_value(kind: &OnnxType, shape: Option<&[usize]>, open: usize) -> Option<Value> {
        match kind {
            OnnxType::Tensor { kind, .. } => zeros(kind, shape, open),
            OnnxType::Sequence(_) => Some(Value::from(json!([]))),
            OnnxType::Map { .. } => Some(Value::from(json!({}))),
            OnnxType::Optional(inner) => zero_value(inner, shape, open),
        }
    }
    let optional = |input: &InputSpec| !input.required && matches!(input.value, Some(OnnxType::Optional(_)));
    if left_out && !info.inputs.iter().any(optional) {
        return None;
    }
    let input = |(index, input): (usize, &InputSpec)| {
        let shape = shapes.get(index).and_then(Option::as_deref);
        // Inputs of a sample are given even if they are optional.
        let given = input.required || optional(input) && !left_out || shape.is_some();
        if given { zero_value(input.value.as_ref()?, shape, open).map(Some) } else { Some(None) }
    };
    info.inputs.iter().enumerate().map(input).collect()
}

fn zeros(kind: &TensorKind, shape: Option<&[usize]>, open: usize) -> Option<Value> {
    let maker = SyntheticInputs::zeros(1, open);
    let shape = shape.map_or_else(|| maker.shape(kind), <[usize]>::to_vec);
    if gpux_core::element_count(&shape)? > INPUT_LIMIT {
        return None;
    }
    maker.tensor_of_shape(kind.element().unwrap_or(ElementType::Float32), shape).map(Value::Tensor)
}

/// Serves `gpux __vet-model REQUEST`: one line of JSON. Bounds the memory of the whole
/// process, so nothing else may be done in it.
pub fn validation_child(request: &str) -> String {
    let verdict = match serde_json::from_str::<ValidationRequest>(request) {
        Err(error) => Verdict::Refused { reason: error.to_string() },
        Ok(request) => {
            child_process::limit_cpu_time(request.timeout);
            child_process::limit_memory(request.memory);
            verdict(&request)
        }
    };
    serde_json::to_string(&verdict).unwrap_or_default()
}

fn verdict(request: &ValidationRequest) -> Verdict {
    match validate(request) {
        Ok(TrialReport { time: None, misdeclared, batch }) => Verdict::Sound { misdeclared, batch },
        Ok(TrialReport { time: Some(time), .. }) => Verdict::Timed { seconds: time.as_secs_f64() },
        Err(ModelLoadError::NeedsOnnxRuntime { feature, .. }) => Verdict::NeedsOnnxRuntime { feature },
        Err(ModelLoadError::BeyondEmbedded { reason, .. }) => Verdict::BeyondEmbedded { reason },
        Err(ModelLoadError::CustomOperator { operator, .. }) => Verdict::CustomOperator { operator },
        Err(ModelLoadError::Lacking { reason, .. }) => Verdict::Lacking { reason },
        Err(ModelLoadError::Invalid { reason, .. }) => Verdict::Invalid { reason },
        Err(ModelLoadError::Engine { reason, .. } | ModelLoadError::Validation { reason, .. }) => {
            Verdict::Refused { reason }
        }
        Err(other) => Verdict::Refused { reason: other.to_string() },
    }
}

/// Makes sure that the model has been tried on this engine, by digest: from the cache's memory,
/// else in a child. Without the `gpux` program, nothing is tried: the caller's own
/// process loads the model with panics caught. Returns what the trial found out.
pub fn ensure_validated(trial: &Trial<'_>, options: &ModelOptions) -> Result<TrialReport, ModelLoadError> {
    let Some(gpux) = trial.program else { return Ok(TrialReport::default()) };
    let Trial { cache, file, engine, .. } = *trial;
    file.info().signature()?;
    let ModelOptions { providers, provider_options, precision, .. } = options;
    let sharing = if options.batch.is_off() {
        String::new()
    } else {
        let threads = (options.instances, options.session_threads(engine), engine.threads(None));
        format!(
            "{:?}\0{threads:?}\0{:?}",
            BatchOptions { tolerance: 0.0, ..options.batch.clone() },
            Hardware::detect().cpu
        )
    };
    let key = format!(
        "{}\0{}\0{providers:?}\0{provider_options:?}\0{precision}\0{}\0{sharing}",
        file.digest(),
        engine.identity(),
        env!("CARGO_PKG_VERSION")
    );
    let key = digest(key);
    let known = cache.and_then(|cache| authenticated_file::read(cache, CacheFolder::Verified, &key));
    if let Some(known) = known.and_then(|known| serde_json::from_slice(&known).ok()) {
        return Ok(known);
    }
    let report = ask_child(gpux, trial, options, None)?;
    // Not remembering costs the next start a trial, no more.
    let remembered = serde_json::to_vec(&report).unwrap_or_default();
    let _ = cache.map(|cache| authenticated_file::write(cache, CacheFolder::Verified, &key, &remembered));
    Ok(report)
}

/// Tries the model on one provider in a child process. Returns the time of a run, if it runs on zeros.
pub(super) fn measure(
    gpux: &Path,
    trial: &Trial<'_>,
    provider: ExecutionProvider,
    options: &ModelOptions,
    shapes: &[Option<Vec<usize>>],
) -> Result<Option<Duration>, ModelLoadError> {
    let options = ModelOptions { providers: ProviderChoice::These(vec![provider]), ..options.clone() };
    Ok(ask_child(gpux, trial, &options, Some(shapes))?.time)
}

fn ask_child(
    gpux: &Path,
    trial: &Trial<'_>,
    options: &ModelOptions,
    measured: Option<&[Option<Vec<usize>>]>,
) -> Result<TrialReport, ModelLoadError> {
    let Trial { file, engine, library, plugins, .. } = *trial;
    let candidate_providers = candidate_providers(&options.providers, engine.providers());

    // Where TensorRT may be tried, it builds an engine.
    let timeout = if candidate_providers.contains(&ExecutionProvider::TensorRt) {
        BUILD_TIMEOUT
    } else if measured.is_none() && !options.batch.is_off() {
        SHARING_TIMEOUT
    } else {
        TIMEOUT
    };

    let request = ValidationRequest {
        plugins: plugins.to_vec(),
        model: absolute(file.path()),
        library: library.map(absolute),
        providers: options.providers.clone(),
        options: options.provider_options.clone(),
        precision: options.precision,
        memory: memory_limit(trial, candidate_providers),
        measure: measured.is_some(),
        shapes: measured.unwrap_or_default().to_vec(),
        batch: if measured.is_some() { BatchOptions::default() } else { options.batch.clone() },
        // One session of each kind is tried, with the threads that each will have.
        instances: options.instances.map(|_| 1),
        threads: if options.batch.is_off() { None } else { options.session_threads(engine) },
        timeout,
    };

    let fault = |reason: String| ModelLoadError::Validation { path: file.path().to_owned(), reason };
    let text = serde_json::to_string(&request).map_err(|error| fault(error.to_string()))?;
    match child_process::run_json(gpux, &["__vet-model".as_ref(), text.as_ref()], request.timeout) {
        Ok(Verdict::Sound { misdeclared, batch }) => Ok(TrialReport { time: None, misdeclared, batch }),
        Ok(Verdict::Timed { seconds }) => {
            Ok(TrialReport { time: Duration::try_from_secs_f64(seconds).ok(), ..TrialReport::default() })
        }
        Ok(Verdict::NeedsOnnxRuntime { feature }) => {
            Err(ModelLoadError::NeedsOnnxRuntime { path: file.path().to_owned(), feature })
        }
        Ok(Verdict::BeyondEmbedded { reason }) => {
            Err(ModelLoadError::BeyondEmbedded { path: file.path().to_owned(), reason })
        }
        Ok(Verdict::CustomOperator { operator }) => {
            Err(ModelLoadError::CustomOperator { path: file.path().to_owned(), operator })
        }
        Ok(Verdict::Lacking { reason }) => {
            let engine = engine.name().to_owned();
            Err(ModelLoadError::Lacking { path: file.path().to_owned(), engine, reason })
        }
        Ok(Verdict::Invalid { reason }) => Err(ModelLoadError::Invalid { path: file.path().to_owned(), reason }),
        Ok(Verdict::Refused { reason }) => {
            let engine = engine.name().to_owned();
            Err(ModelLoadError::Engine { path: file.path().to_owned(), engine, reason })
        }
        Err(error) if error.is_environment() => {
            Err(ModelLoadError::CannotValidate { path: file.path().to_owned(), reason: error.to_string() })
        }
        Err(error) => Err(fault(format!("{error}; the model may be damaged or hostile"))),
    }
}

#[cfg(test)]
mod tests;
