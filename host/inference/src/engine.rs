//! The interface of inference engines.

use std::path::PathBuf;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use gpux_core::{HostOrDevice, Memory, Precision, Tensor};

use super::error::ModelLoadError;
use super::hardware::Hardware;
use super::install;
use super::library::LibraryBuild;
use super::model_file::ModelFile;
use super::providers::{ExecutionProvider, ProviderOptions};
use super::value::OnnxValue;

/// How one session is made.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// where the model runs; operators that it lacks run on the CPU
    pub provider: ExecutionProvider,
    /// threads of its own that one operator may use, including the calling one; `None` for the pool that
    /// all such sessions share ([`Engine::threads`])
    pub threads: Option<usize>,
    /// the provider's options
    pub provider_options: ProviderOptions,
    /// what float32 operators are computed in: `exact`, `bf16` or `fp16`
    pub precision: Precision,
    /// where the optimized graph is read from, or put
    pub optimized: Option<Optimized>,
}

/// Whether a model's optimized graph is read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Optimized {
    /// it was kept in this file, and need not be made again
    Read(PathBuf),
    /// it is to be kept in this file, with its weights beside it
    Write {
        /// the file
        graph: PathBuf,
        /// whether weights are also kept in the order of ONNX Runtime's kernels
        prepacked: bool,
    },
}

impl SessionOptions {
    /// The CPU with default options.
    pub fn cpu() -> Self {
        Self {
            provider: ExecutionProvider::Cpu,
            threads: None,
            provider_options: ProviderOptions::default(),
            precision: Precision::Exact,
            optimized: None,
        }
    }
}

/// A device that a provider of the library has found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// the provider, under the library's own name
    pub provider: String,
    /// the device's vendor
    pub vendor: String,
    /// `CPU`, `GPU` or `NPU`
    pub kind: String,
    /// the device's number
    pub id: u32,
}

/// An inference engine.
pub trait Engine: Send + Sync {
    /// Its name and version, for people: `ONNX Runtime 1.32.0`, `embedded (tract 0.23)`.
    fn name(&self) -> &str;

    /// The engine's part of the key of cached results: name, version,
    /// and for a library its path, size, date and providers.
    fn identity(&self) -> &str;

    /// The execution providers it offers, best first.
    fn providers(&self) -> &[ExecutionProvider];

    /// Whether the first run of each new shape of inputs is much slower than the next.
    fn plans_each_shape(&self) -> bool {
        false
    }

    /// Why it does not offer `provider`, and a remedy.
    fn unavailable_reason(&self, provider: ExecutionProvider) -> String {
        not_offered(self.name(), provider)
    }

    /// Threads that one operator can use, including the calling one, in a session with
    /// `own` threads; `None`: in a session on the shared pool.
    fn threads(&self, _own: Option<usize>) -> usize {
        1
    }

    /// Whether only one thread of the process may use sessions with these options at a time.
    fn is_exclusive(&self, _options: &SessionOptions) -> bool {
        false
    }

    /// The devices that its providers have found.
    fn devices(&self) -> Vec<Device> {
        Vec::new()
    }

    /// Makes a session. Called again whenever one must be replaced.
    fn load(&self, file: &ModelFile, options: &SessionOptions) -> Result<Box<dyn Session>, ModelLoadError>;
}

/// The fault of an engine that has no `provider`.
pub(super) fn not_offered(engine: &str, provider: ExecutionProvider) -> String {
    if let ExecutionProvider::Plugin(_) = provider {
        return format!("{engine} has no plug-in of this name; `--provider-library {provider}=PATH` names its library");
    }
    if let Some(reason) = Hardware::detect().unavailable_reason(provider) {
        return format!("{engine} does not offer it, and {reason}");
    }
    let build = LibraryBuild::with(provider);
    let help = if install::has_build(build) {
        format!("`gpux engine install {build}` brings a library that does")
    } else {
        format!("there is no ready-made library that does for {} on {}", std::env::consts::OS, std::env::consts::ARCH)
    };
    format!("{engine} does not offer it; {help}")
}

/// A loaded model, used by one run at a time.
pub trait Session: Send {
    /// Runs the model. Each input is given with its index among the model's inputs, in ascending
    /// order; those left out have defaults. The result has every output, in the model's order.
    ///
    /// ONNX Runtime stops a run within some milliseconds of `deadline`, between two operators: one
    /// operator that is at work is never cut short. The embedded engine cannot be stopped: there
    /// `deadline` has no effect, and the run goes on to its end.
    fn run(&mut self, inputs: &[(usize, &Tensor)], deadline: Option<Instant>) -> Result<Vec<Tensor>, RunFailure>;

    /// [`Self::run`] for models with other values than plain tensors. An optional input may be given as [`OnnxValue::None`] or left out.
    fn run_values(
        &mut self,
        _inputs: &[(usize, &OnnxValue)],
        _deadline: Option<Instant>,
    ) -> Result<Vec<OnnxValue>, RunFailure> {
        Err(RunFailure::NeedsOnnxRuntime { feature: "sequences, maps and optional values".to_owned() })
    }

    /// The device's memory in which tensors can stay between this and other sessions; `None` for the
    /// host's alone.
    fn memory(&self) -> Option<&Memory> {
        None
    }

    /// [`Self::run`] with tensors in [`Self::memory`] among the inputs; outputs whose number is true in
    /// `stay` are left there.
    fn run_placed(
        &mut self,
        _inputs: &[(usize, &HostOrDevice<Tensor>)],
        _stay: &[bool],
        _deadline: Option<Instant>,
    ) -> Result<Vec<HostOrDevice<Tensor>>, RunFailure> {
        Err(RunFailure::Failed("it has no memory of a device".to_owned()))
    }
}

/// Why a run gave no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunFailure {
    /// the engine refused the values or could not compute; the session is fine
    #[error("{0}")]
    Failed(String),
    /// the deadline passed and the run was stopped; the session is fine
    #[error("the model was stopped: its deadline passed")]
    Timeout,
    /// the session is broken and must be replaced
    #[error("{0}")]
    Broken(String),
    /// the embedded engine met something it has not
    #[error("the embedded engine has no {feature}")]
    NeedsOnnxRuntime {
        /// the operator or feature
        feature: String,
    },
    /// the embedded engine finds no way to run these shapes
    #[error("the embedded engine cannot run inputs of these shapes ({reason})")]
    BeyondEmbedded {
        /// the operator and the node if they are known, and the cause
        reason: String,
    },
}

impl RunFailure {
    /// Whether ONNX Runtime may give a result.
    pub const fn is_unsupported(&self) -> bool {
        matches!(self, Self::NeedsOnnxRuntime { .. } | Self::BeyondEmbedded { .. })
    }
}
