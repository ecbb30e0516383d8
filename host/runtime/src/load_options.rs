//! How pipelines are loaded: flags and environment, never gpux.yml.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::policy::Policy;
use gpux_core::{CacheDir, Precision, lossless_path};
use gpux_inference::{Drivers, InputShapes, ProviderLibrary};
use gpux_sandbox::{Sandbox, SandboxError, SandboxOptions};

/// How a pipeline is loaded. The operator sets these options; a gpux.yml cannot.
///
/// Default: the best engine and provider, the default [`Policy`], the user's cache, no program.
///
/// As JSON, all of them reach the processes that gpux starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
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
    #[serde(with = "lossless_path::option")]
    pub program: Option<PathBuf>,
    /// whether optimized graphs of the models are written to the cache, for later starts
    pub optimize: bool,
    /// whether `serving.batch_size` applies, rather than `runtime.batch_size`
    pub serving: bool,
    /// files that replace those of gpux.yml, by the model's name
    pub model_files: Vec<(String, PathBuf)>,
}

/// The inference engine and its libraries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EngineOptions {
    /// which engine
    pub choice: EngineChoice,
    /// the path of ONNX Runtime's library, in place of a search
    #[serde(with = "lossless_path::option")]
    pub library: Option<PathBuf>,
    /// libraries of further execution providers
    pub provider_libraries: Vec<ProviderLibrary>,
    /// folders of Python packages that may hold a library, before those of the active environment
    pub python_packages: Vec<PathBuf>,
    /// the cache with the engines that `gpux engine install` brought, where it is not [`LoadOptions::cache`]
    pub installed: Option<CacheDir>,
    /// the threads of each model's session, in place of gpux.yml's; at most 256 are used
    pub threads: Option<NonZeroU32>,
}

/// The most threads of one session: beyond any machine's cores they only cost.
pub const MAX_THREADS: u32 = 256;

/// An inference engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProviderSelection {
    /// a provider, or several with commas, tried in order
    pub names: Option<String>,
    /// options of the providers
    pub options: Vec<(String, serde_json::Value)>,
    /// what models are computed in, in place of gpux.yml's
    pub precision: Option<Precision>,
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
    #[doc(hidden)]
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
    #[doc(hidden)]
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
    use std::time::Duration;

    use serde_json::{Value as Json, json};

    use super::*;
    use crate::policy::{AllowedDir, AllowedGrants};
    use gpux_sandbox::Limits;

    /// Options that are the default ones in nothing; a new field is missing here.
    fn unusual() -> LoadOptions {
        let (second, one) = (Duration::from_secs(77), 77);
        let ceiling = Limits {
            time: second,
            setup_time: second,
            memory: one,
            table_elements: one,
            memories: one,
            tables: one,
            instances: one,
            handles: one,
            input: one,
            result: one,
            copy: one,
            calls: one,
            values: one,
            name_length: one,
            json_depth: one,
            log: one,
            component_size: one,
            compile_time: second,
            compile_memory: one,
        };
        let dirs = vec![AllowedDir { path: "/data".into(), writable: true }];
        LoadOptions {
            policy: Policy {
                outside_files: true,
                env: vec!["LANG".to_owned()],
                reserved_env: vec!["KEY".to_owned()],
                grants: AllowedGrants { clock: true, random: true, env: vec!["TZ".to_owned()], dirs },
                ceiling,
            },
            engine: EngineOptions {
                choice: EngineChoice::OnnxRuntime,
                library: Some("libonnxruntime.so".into()),
                provider_libraries: vec!["openvino=/opt/ep.so".parse().unwrap()],
                python_packages: vec!["/venv".into()],
                installed: Some(CacheDir::at("/engines")),
                threads: NonZeroU32::new(3),
            },
            providers: ProviderSelection {
                names: Some("cuda,cpu".to_owned()),
                options: vec![("device_id".to_owned(), json!(1))],
                precision: Some(Precision::Bf16),
                strict: true,
                measure: true,
                shapes: vec![("model".to_owned(), vec![None, Some(vec![1, 2])])],
            },
            cache: Some(CacheDir::within(&CacheDir::at("/shared"), "/own".into(), Some([7; 32]))),
            program: Some("/bin/gpux".into()),
            optimize: true,
            serving: true,
            model_files: vec![("model".to_owned(), "other.onnx".into())],
        }
    }

    /// The paths of the values that are the same in both.
    fn same(one: &Json, other: &Json, path: &str) -> Vec<String> {
        match (one, other) {
            (Json::Object(one), Json::Object(other)) => {
                one.iter().flat_map(|(key, value)| same(value, &other[key], &format!("{path}/{key}"))).collect()
            }
            _ if one == other => vec![path.to_owned()],
            _ => Vec::new(),
        }
    }

    #[test]
    fn every_option_is_in_the_json() {
        let options = unusual();
        let json = serde_json::to_value(&options).unwrap();
        assert_eq!(serde_json::from_value::<LoadOptions>(json.clone()).unwrap(), options);
        let usual = LoadOptions { cache: None, ..LoadOptions::default() };
        let usual = serde_json::to_value(usual).unwrap();
        assert_eq!(same(&json, &usual, ""), [""; 0], "each has another value than usual");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn paths_need_not_be_utf8_in_json() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt as _;

        let path = Path::new(OsStr::from_bytes(b"\xff"));
        let engine = EngineOptions { library: Some(path.to_owned()), ..EngineOptions::default() };
        let cache = Some(CacheDir::at(path));
        let options = LoadOptions { cache, program: Some(path.to_owned()), engine, ..LoadOptions::default() };
        let json = serde_json::to_string(&options).unwrap();
        assert_eq!(serde_json::from_str::<LoadOptions>(&json).unwrap(), options);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn engines_of_a_cache_that_cannot_be_written_to_are_used() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt as _;

        let parent = tempfile::tempdir().unwrap();
        // Not UTF-8.
        let cache = CacheDir::at(parent.path().join(OsStr::from_bytes(b"\xff")));
        let engine = cache.folder(gpux_core::CacheFolder::Engines).unwrap().join("onnxruntime-1.32.0-cpu");
        std::fs::create_dir(&engine).unwrap();
        let library = engine.join("libonnxruntime.so.1.32.0");
        std::fs::write(&library, "no library").unwrap();
        let mut options = LoadOptions { cache: Some(cache), ..LoadOptions::default() };
        let warning = options.drop_unusable_cache().unwrap();
        assert!(warning.contains("chosen precisions are not known"), "{warning}");
        assert_eq!(options.cache, None);
        let search = gpux_inference::LibrarySearch { variable: None, ..crate::internal::engine_search(&options, &[]) };
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
