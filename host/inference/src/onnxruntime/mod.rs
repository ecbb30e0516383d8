//! ONNX Runtime: whichever build of its library the operator has.

mod device_binding;
mod device_placement;
mod environment;
mod error_text;
mod native_options;
mod non_tensor_values;
mod plugins;
mod preload;
mod profile;
mod providers;
mod session;
mod values;
mod watchdog;

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ort::environment::Environment;
use ort::logging::LogLevel;
use ort::session::Session as Native;
use ort::session::builder::{GraphOptimizationLevel, SessionBuilder};

use super::engine::{Device, Engine, Optimized, Session, SessionOptions, not_offered};
use super::error::ModelLoadError;
use super::exclusive_device::{self, ExclusiveValue};
use super::hardware::Hardware;
use super::library::{LibraryBuild, LibraryError, LibraryFile};
use super::model_file::{ModelFile, RelocatedModel};
use super::providers::{ExecutionProvider, ProviderLibrary};
use device_placement::DevicePlacement;
use gpux_core::Precision;
use gpux_core::catch_panic::{catch_panic, shorten};
use gpux_core::files::open_canonical;
use gpux_core::threads::startable;
use native_options::NativeOptions;
use providers::Availability;

/// The file of the weights of a kept graph, in its folder.
pub(super) const WEIGHTS: &str = "weights.bin";

/// ONNX Runtime, loaded.
#[derive(Debug)]
pub struct OnnxRuntime {
    environment: &'static Environment,
    name: String,
    identity: String,
    version: String,
    /// as it was loaded: links to it may lie elsewhere than the providers' libraries
    library: PathBuf,
    availability: Vec<(ExecutionProvider, Availability)>,
    providers: Vec<ExecutionProvider>,
}

impl OnnxRuntime {
    /// Loads the library. A process holds one: loading the same again is free, loading another
    /// is an error.
    pub fn load(library: &LibraryFile) -> Result<Self, LibraryError> {
        Self::load_with(library, &[])
    }

    /// [`Self::load`], and registers these plug-ins with it.
    pub fn load_with(library: &LibraryFile, libraries: &[ProviderLibrary]) -> Result<Self, LibraryError> {
        let environment = environment::environment(&library.path)?;
        let version =
            build_version().or_else(|| library.version.clone()).unwrap_or_else(|| "of unknown version".into());
        let meta = library.path.metadata().ok();
        let modified = meta.as_ref().and_then(|meta| meta.modified().ok());
        let loaded = library.path.canonicalize().unwrap_or_else(|_| library.path.clone());
        let availability =
            ExecutionProvider::ALL.map(|provider| (provider, providers::availability_of(&loaded, provider)));
        let offered = |(provider, availability_of): &(_, Availability)| {
            (*availability_of == Availability::Available).then_some(*provider)
        };
        let plugins = plugins::register(environment, libraries)?;
        let of_plugin = |provider| plugins.iter().find(|(plugin, _)| *plugin == provider).cloned();
        let of_library = availability.map(|(provider, own)| of_plugin(provider).unwrap_or((provider, own)));
        // After the CPU: a provider that the operator named is only used by name.
        let is_named =
            |(provider, _): &&(ExecutionProvider, Availability)| matches!(provider, ExecutionProvider::Plugin(_));
        let availability: Vec<_> = of_library.into_iter().chain(plugins.iter().filter(is_named).cloned()).collect();
        let providers: Vec<_> = availability.iter().filter_map(offered).collect();
        let identity = format!(
            "onnxruntime {version} {} {} {modified:?} {providers:?} {}",
            library.path.display(),
            meta.as_ref().map_or(0, std::fs::Metadata::len),
            libraries.iter().map(plugins::identity).collect::<String>(),
        );
        let name = format!("ONNX Runtime {version}");
        Ok(Self { environment, name, identity, version, library: loaded, availability, providers })
    }

    /// Loads the library, and makes what every session uses, in a process that copies of itself go on from. No thread
    /// runs until [`Self::start_threads`].
    ///
    /// # Errors
    ///
    /// The library cannot be loaded.
    pub fn load_for_fork(library: &LibraryFile) -> Result<(), LibraryError> {
        environment::delay_threads();
        let environment = environment::environment(&library.path)?;
        // The first session registers every kernel. One that is refused would have the copies do so.
        let _ = builder(environment, &SessionOptions::cpu())
            .map(|mut builder| builder.commit_from_memory(include_bytes!("identity.onnx")));
        Ok(())
    }

    /// Starts the threads that [`Self::load_for_fork`] left.
    ///
    /// # Errors
    ///
    /// The system lets this process start no more: runs would wait for them forever.
    pub fn start_threads() -> io::Result<()> {
        environment::start_threads()
    }

    /// The library's version, for example `1.32.0`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The library that this process has loaded, if any.
    pub fn loaded() -> Option<PathBuf> {
        environment::loaded()
    }

    /// Where sessions made so keep tensors.
    fn place(&self, options: &SessionOptions) -> DevicePlacement {
        match options.provider {
            provider if plugins::is_registered(provider) => plugins::placement(self.environment, provider),
            provider => DevicePlacement::for_provider(provider, &options.provider_options),
        }
    }

    /// The process's environment, of which `ort` allows one: benchmarks make the bare sessions
    /// in it that gpux is compared with.
    #[doc(hidden)]
    pub fn environment(&self) -> &'static Environment {
        self.environment
    }
}

/// The version in the library's build information (`git-branch=rel-1.32.0`).
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

    fn unavailable_reason(&self, provider: ExecutionProvider) -> String {
        let availability_of = self
            .availability
            .iter()
            .find(|(offered, _)| *offered == provider)
            .map(|(_, availability_of)| availability_of);
        let build = LibraryBuild::with(provider);
        match availability_of {
            Some(Availability::Incomplete(file)) => format!(
                "{} offers it, but `{file}` does not lie beside the library; `gpux engine install {build}` brings both",
                self.name
            ),
            Some(Availability::Unsupported(why)) => why.clone(),
            Some(Availability::NotBuilt | Availability::Available) | None => not_offered(&self.name, provider),
        }
    }

    fn threads(&self, own: Option<usize>) -> usize {
        own.unwrap_or_else(environment::pool)
    }

    fn is_exclusive(&self, options: &SessionOptions) -> bool {
        self.place(options).exclusive
    }

    fn devices(&self) -> Vec<Device> {
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

    fn load(&self, file: &ModelFile, options: &SessionOptions) -> Result<Box<dyn Session>, ModelLoadError> {
        let refused = |reason: String| {
            let (path, engine) = (file.path().to_owned(), self.name.clone());
            if let Some(operator) = file.info().custom_operator() {
                return ModelLoadError::CustomOperator { path, operator: operator.to_owned() };
            }
            match error_text::lacking(&reason) {
                Some(reason) => ModelLoadError::Lacking { path, engine, reason },
                None => ModelLoadError::Engine { path, engine, reason: shorten(&error_text::simplify(&reason)) },
            }
        };
        preload::preload(&self.library, options.provider);
        let place = self.place(options);
        let load = |options: &SessionOptions| {
            let _guard = exclusive_device::acquire(place.exclusive, None);
            catch_panic(|| native(self.environment, file, options)).unwrap_or_else(Err)
        };
        let native = match load(options) {
            // A damaged cached graph is optimized again.
            Err(_) if matches!(options.optimized, Some(Optimized::Read(_))) => {
                load(&SessionOptions { optimized: None, ..options.clone() })
            }
            other => other,
        };
        let native = ExclusiveValue::new(native.map_err(refused)?, place.exclusive);
        let kinds = non_tensor_values::NonTensorValues::new(self.environment, file).map_err(refused)?;
        session::OrtSession::new(native, place, file, kinds)
            .map(|session| Box::new(session) as Box<dyn Session>)
            .map_err(refused)
    }
}

/// A pool of the session's own, whose threads stop looking for work when no run is going on.
fn own_threads(builder: SessionBuilder, threads: usize) -> Result<SessionBuilder, String> {
    // ONNX Runtime waits forever for a thread that does not start.
    if startable(threads) < threads {
        return Err(format!("the system lets this process start no {threads} threads"));
    }
    let builder = builder.with_independent_thread_pool().map_err(text)?.with_intra_threads(threads).map_err(text)?;
    builder.with_config_entry("session.force_spinning_stop", "1").map_err(text)
}

/// Writes weights, also `prepacked` ones, to a file beside the graph. Sessions of all processes map
/// that file and share its memory.
fn with_external_weights(builder: SessionBuilder, prepacked: bool) -> Result<SessionBuilder, String> {
    let builder = builder.with_config_entry("session.optimized_model_external_initializers_file_name", WEIGHTS);
    let prepacked = if prepacked { "1" } else { "0" };
    let builder = builder.map_err(text)?;
    builder.with_config_entry("session.save_external_prepacked_constant_initializers", prepacked).map_err(text)
}

/// The options of ONNX Runtime's own kernels.
fn for_cpu(builder: SessionBuilder, precision: Precision) -> Result<SessionBuilder, String> {
    // Its kernel for a sum with its normalization takes several times as long as the two of them (decision 037).
    let slow_fusions = "SkipLayerNormFusion";
    let mut builder =
        builder.with_config_entry("optimization.disable_specified_optimizers", slow_fusions).map_err(text)?;
    if cfg!(target_arch = "x86_64") && !Hardware::detect().cpu.multiplies_bytes() {
        // Sums of unsigned times signed bytes overflow there: weights become unsigned.
        builder = builder.with_config_entry("session.x64quantprecision", "1").map_err(text)?;
    }
    if precision == Precision::Bf16 {
        builder = builder.with_config_entry("mlas.enable_gemm_fastmath_arm64_bfloat16", "1").map_err(text)?;
    }
    Ok(builder)
}

#[expect(clippy::needless_pass_by_value, reason = "what a builder's methods fail with")]
fn text(error: ort::Error<SessionBuilder>) -> String {
    error.to_string()
}

/// A session builder with the provider and the threads of the options.
fn builder(environment: &Environment, options: &SessionOptions) -> Result<SessionBuilder, String> {
    let provider = options.provider;
    let builder = Native::builder(environment).map_err(|error| error.to_string())?;
    let builder = builder.with_log_level(LogLevel::Fatal).map_err(text)?;
    for folder in options.provider_options.folders(provider) {
        // If it cannot be made, the provider says so.
        let _ = std::fs::create_dir_all(folder);
    }
    let mut builder = if plugins::is_registered(provider) {
        plugins::with_device(builder, environment, provider, &NativeOptions::new(provider, options, true)?)?
    } else {
        builder.with_execution_providers(providers::registrations(options)?).map_err(text)?
    };
    if let Some(threads) = options.threads {
        builder = own_threads(builder, threads)?;
    }
    if provider == ExecutionProvider::Cpu {
        builder = for_cpu(builder, options.precision)?;
    }
    Ok(builder)
}

fn native(environment: &Environment, file: &ModelFile, options: &SessionOptions) -> Result<Native, String> {
    let mut builder = builder(environment, options)?;
    let rewritten_model = non_tensor_values::rewritten_model(file)?;
    match &options.optimized {
        Some(Optimized::Read(kept)) if rewritten_model.is_none() => {
            let mut plain = builder.with_optimization_level(GraphOptimizationLevel::Disable).map_err(text)?;
            return plain.commit_from_file(kept).map_err(|error| error.to_string());
        }
        Some(Optimized::Write { graph, prepacked }) if rewritten_model.is_none() => {
            builder = with_external_weights(builder.with_optimized_model_path(graph).map_err(text)?, *prepacked)?;
        }
        Some(Optimized::Write { .. }) => return Err("its graph is changed at each load".to_owned()),
        _ => {}
    }
    match rewritten_model {
        Some(bytes) => builder.commit_from_memory(&bytes).map_err(|error| error.to_string()),
        None => commit(builder, file),
    }
}

/// The session of a model's file.
fn commit(mut builder: SessionBuilder, file: &ModelFile) -> Result<Native, String> {
    if let Some(RelocatedModel { bytes, folder, unmappable }) = file.relocated()? {
        let key = "session.model_external_initializers_file_folder_path";
        let mut builder = builder.with_config_entry(key, folder.to_string_lossy()).map_err(text)?;
        for name in unmappable {
            let weights = read_weights(&folder.join(&name)).map_err(|error| format!("`{name}`: {error}"))?;
            builder = builder.with_external_initializer_file_in_memory(name, weights).map_err(text)?;
        }
        return builder.commit_from_memory(&bytes).map_err(|error| error.to_string());
    }
    if let Some(bytes) = file.contents()? {
        return builder.commit_from_memory(&bytes).map_err(|error| error.to_string());
    }
    builder.commit_from_file(file.path()).or_else(|error| {
        let copy = file.copied().map_err(|copying| format!("{error}; a copy of it cannot be made: {copying}"))?;
        let copy = copy.ok_or_else(|| error.to_string())?;
        builder.commit_from_file(copy.path()).map_err(|error| error.to_string())
    })
}

/// The bytes of a file whose path was resolved and checked; ONNX Runtime checks that they are as many as its tensors take.
fn read_weights(path: &Path) -> io::Result<Arc<[u8]>> {
    let mut file = open_canonical(path)?;
    let found = file.metadata()?;
    let size = usize::try_from(found.len()).unwrap_or(usize::MAX);
    if !found.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    // Where there is no memory for it, this fails; an `Arc` would end the process.
    Vec::<u8>::new().try_reserve_exact(size).map_err(io::Error::other)?;
    let mut weights: Arc<[u8]> = std::iter::repeat_n(0, size).collect();
    if let Some(bytes) = Arc::get_mut(&mut weights) {
        file.read_exact(bytes)?;
    }
    Ok(weights)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn reads_weights_without_following_links() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::write(root.join("weights"), [1, 2, 3]).unwrap();
        assert_eq!(&*read_weights(&root.join("weights")).unwrap(), [1, 2, 3]);
        assert!(read_weights(&root).is_err());
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink("weights", root.join("link")).unwrap();
            assert!(read_weights(&root.join("link")).is_err());
        }
    }
}
