//! How pipelines are loaded: flags and environment, never gpux.yml.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use super::policy::Policy;
use gpux_config::PrecisionChoice;
use gpux_core::CacheDir;
use gpux_inference::{Drivers, InputShapes, ProviderLibrary};
use gpux_sandbox::{Sandbox, SandboxError, SandboxOptions};

/// How a pipeline is loaded. The operator sets these options; a gpux.yml cannot.
///
/// Default: the best engine and provider, the default [`Policy`], the user's cache, no program.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// the permissions of a gpux.yml
    pub policy: Policy,
    /// the inference engine
    pub engine: EngineOptions,
    /// the execution providers
    pub providers: ProviderSelection,
    /// the cache of compiled components and verified models
    pub cache: Option<CacheDir>,
    /// the `gpux` program, which tries unknown models in a child process; without it they are
    /// loaded in this process, guarded against panics only
    pub program: Option<PathBuf>,
    /// whether optimized graphs of the models are written to the cache, for later starts
    pub optimize: bool,
    /// whether `serving.batch_size` applies, rather than `runtime.batch_size`
    pub serving: bool,
    /// files that replace those of gpux.yml, by the model's name
    pub model_files: Vec<(String, PathBuf)>,
}

/// The inference engine and its libraries.
#[derive(Clone, Debug, Default)]
pub struct EngineOptions {
    /// which engine
    pub choice: EngineChoice,
    /// the path of ONNX Runtime's library, in place of a search
    pub library: Option<PathBuf>,
    /// libraries of further execution providers
    pub provider_libraries: Vec<ProviderLibrary>,
    /// folders of Python packages that may hold a library, before those of the active environment
    pub python_packages: Vec<PathBuf>,
    /// the cache with the engines that `gpux engine install` brought, where it is not [`LoadOptions::cache`]
    pub installed: Option<CacheDir>,
    /// the threads of each model's session, in place of gpux.yml's; at most [`MAX_THREADS`] are used
    pub threads: Option<NonZeroU32>,
}

/// The most threads of one session: beyond any machine's cores they only cost.
pub const MAX_THREADS: u32 = 256;

/// An inference engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineChoice {
    /// ONNX Runtime where its library is found, else the embedded engine
    #[default]
    Auto,
    /// ONNX Runtime, or an error
    OnnxRuntime,
    /// the embedded engine
    Embedded,
}

/// The execution providers, in place of those in gpux.yml.
#[derive(Clone, Debug, Default)]
pub struct ProviderSelection {
    /// a provider, or several with commas, tried in order
    pub names: Option<String>,
    /// options of the providers
    pub options: Vec<(String, serde_json::Value)>,
    /// what models are computed in, in place of gpux.yml's
    pub precision: Option<PrecisionChoice>,
    /// whether a provider that cannot be used is an error, instead of being replaced by the next
    pub strict: bool,
    /// whether to measure which provider is the fastest, even where that is cached
    pub measure: bool,
    /// the shapes to measure with, by the model's name
    pub shapes: Vec<(String, InputShapes)>,
}

impl LoadOptions {
    /// Whether models may run on something else than the processor.
    pub(crate) fn may_use_accelerators(&self) -> bool {
        self.engine.choice != EngineChoice::Embedded && self.providers.names.as_deref() != Some("cpu")
    }

    /// The program that tries models in child processes; `None` also where children cannot use what the models run on.
    /// NVIDIA's driver writes to `/proc/self/task`. A confined process has the right to its own, which its children
    /// inherit, but not one to theirs.
    pub(crate) fn trial_program(&self, drivers: &Drivers) -> Option<&Path> {
        let confined = self.cache.as_ref().is_some_and(|cache| cache.shared().is_some());
        let fails = confined && self.may_use_accelerators() && drivers.has_nvidia();
        self.program.as_deref().filter(|_| !fails)
    }

    /// Stops using a cache that cannot be written to, or that others can, and returns the warning for the user. The
    /// engines in it are used if nobody else can write to them.
    pub fn drop_unusable_cache(&mut self) -> Option<String> {
        let error = self.cache.as_ref()?.check().err()?;
        let cache = self.cache.take()?;
        let warning = format!(
            "the cache `{}` cannot be used ({error}): components are compiled, models tried and execution providers \
             measured again each time, and chosen precisions are not known; set {} to a folder of your own",
            cache.root().display(),
            CacheDir::VARIABLE
        );
        self.engine.installed = Some(cache);
        Some(warning)
    }

    /// The sandbox of this process, which all pipelines share.
    pub fn sandbox(&self) -> Result<Sandbox, SandboxError> {
        Sandbox::shared(SandboxOptions {
            cache: self.cache.clone(),
            program: self.program.clone(),
            ceiling: self.policy.ceiling.clone(),
            ..SandboxOptions::default()
        })
    }
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            engine: EngineOptions::default(),
            providers: ProviderSelection::default(),
            cache: CacheDir::from_environment(),
            program: None,
            optimize: false,
            serving: false,
            model_files: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn engines_of_a_cache_that_cannot_be_written_to_are_used() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt as _;

        let parent = tempfile::tempdir().unwrap();
        // Not UTF-8.
        let cache = CacheDir::at(parent.path().join(OsStr::from_bytes(b"\xff")));
        let engine = cache.folder(gpux_core::CacheFolder::Engines).unwrap().join("onnxruntime-1.31.1-cpu");
        std::fs::create_dir(&engine).unwrap();
        let library = engine.join("libonnxruntime.so.1.31.1");
        std::fs::write(&library, "no library").unwrap();
        let mut options = LoadOptions { cache: Some(cache), ..LoadOptions::default() };
        let warning = options.drop_unusable_cache().unwrap();
        assert!(warning.contains("chosen precisions are not known"), "{warning}");
        assert_eq!(options.cache, None);
        let search = gpux_inference::LibrarySearch { variable: None, ..crate::engine_search(&options, &[]) };
        assert_eq!(search.choose().unwrap().found.map(|found| found.path), Some(library));
    }

    #[test]
    fn tries_no_models_for_a_gpu_that_children_cannot_use() {
        let nvidia = Drivers { nvidia: Some("580.82.07".to_owned()), ..Drivers::default() };
        let shared = CacheDir::at("shared");
        let mut options = LoadOptions {
            program: Some("gpux".into()),
            cache: Some(CacheDir::within(&shared, "own".into(), None)),
            ..LoadOptions::default()
        };
        assert_eq!(options.trial_program(&nvidia), None);
        assert!(options.trial_program(&Drivers::default()).is_some());
        options.providers.names = Some("cpu".to_owned());
        assert!(options.trial_program(&nvidia).is_some());
        options.providers.names = None;
        options.cache = Some(shared);
        assert!(options.trial_program(&nvidia).is_some());
    }
}
