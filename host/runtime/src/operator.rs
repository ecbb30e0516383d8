//! What the operator decides, and gpux.yml cannot.

use std::path::PathBuf;
use std::time::Duration;

use super::allow::Allow;
use super::limits;
use gpux_config::WasmLimits;
use gpux_core::CacheDir;
use gpux_inference::{ProviderLibrary, Shapes};
use gpux_sandbox::{Limits, Sandbox, SandboxError, SandboxOptions};

/// Which inference engine to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineChoice {
    /// ONNX Runtime where there is one, else the embedded engine
    #[default]
    Auto,
    /// ONNX Runtime, or an error
    OnnxRuntime,
    /// the embedded engine
    Embedded,
}

/// The operator's word: flags and environment. A gpux.yml asks; this decides.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a decision of the operator's, and stands alone")]
pub struct Operator {
    /// the engine; default: the best there is
    pub engine: EngineChoice,
    /// ONNX Runtime's library, before any other
    pub engine_library: Option<PathBuf>,
    /// the execution provider, in place of the pipeline's
    pub provider: Option<String>,
    /// libraries of further execution providers
    pub provider_libraries: Vec<ProviderLibrary>,
    /// options of execution providers, in place of the pipeline's
    pub provider_options: Vec<(String, serde_json::Value)>,
    /// whether to measure which provider is the fastest, even where that is known
    pub measure: bool,
    /// whether a provider that is passed over is an error
    pub strict: bool,
    /// whether gpux.yml may name files outside its folder
    pub allow_outside: bool,
    /// environment variables that gpux.yml may read beside those named `GPUX_*`
    pub env: Vec<String>,
    /// what gpux.yml may grant to components beside its own models
    pub allow: Allow,
    /// the most that a component may ask for
    pub ceiling: Limits,
    /// what models are given in practice, by their names, for measuring
    pub shapes: Vec<(String, Shapes)>,
    /// where compiled components and verified models are remembered
    pub cache: Option<CacheDir>,
    /// whether graphs that models' optimizations leave are made and kept, for later starts
    pub optimize: bool,
    /// whether pipelines are opened to serve many requests at once: `serving.batch_size` counts then
    pub serving: bool,
    /// files to load in place of those that gpux.yml names, by the model's name
    pub instead: Vec<(String, PathBuf)>,
    /// the `gpux` program, which tries unknown models in a process of its own; without it they
    /// are loaded here, guarded against panics only
    pub program: Option<PathBuf>,
}

impl Operator {
    /// Gives up a cache that cannot be written to; says what to tell the user.
    pub fn drop_unusable_cache(&mut self) -> Option<String> {
        let cache = self.cache.as_ref()?;
        let error = cache.check().err()?;
        let warning = format!(
            "the cache `{}` cannot be used ({error}): components are compiled and models tried again each time; \
                 set {} to a folder of your own",
            cache.root().display(),
            CacheDir::VARIABLE
        );
        self.cache = None;
        Some(warning)
    }

    /// The sandbox of this process under the operator's ceiling: the same for every pipeline.
    pub fn sandbox(&self) -> Result<Sandbox, SandboxError> {
        Sandbox::shared(SandboxOptions {
            cache: self.cache.clone(),
            program: self.program.clone(),
            ceiling: self.ceiling.clone(),
            ..SandboxOptions::default()
        })
    }

    /// Changes the ceiling where `limits` says something.
    pub fn set_ceiling(&mut self, limits: &WasmLimits) {
        self.ceiling = limits::ceiling(self.ceiling.clone(), limits);
    }
}

impl Default for Operator {
    /// The best engine, nothing outside the pipeline's folder, variables named `GPUX_*`, no grants,
    /// components of at most 256 MiB and 10 s, the user's cache, no program.
    fn default() -> Self {
        Self {
            engine: EngineChoice::Auto,
            engine_library: None,
            provider: None,
            provider_libraries: Vec::new(),
            provider_options: Vec::new(),
            measure: false,
            shapes: Vec::new(),
            optimize: false,
            serving: false,
            strict: false,
            allow_outside: false,
            env: Vec::new(),
            allow: Allow::default(),
            ceiling: Limits { memory: 256 << 20, time: Duration::from_secs(10), ..Limits::default() },
            cache: CacheDir::from_environment(),
            instead: Vec::new(),
            program: None,
        }
    }
}
