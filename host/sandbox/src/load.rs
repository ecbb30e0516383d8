//! The sandbox, and how a component becomes a step in it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use serde_json::Value;

use super::component::{CompiledComponent, ComponentKind};
use super::config::ComponentConfig;
use super::engine::SandboxEngine;
use super::error::SandboxError;
use super::grants::{ANY_MODEL, Grants};
use super::guest::Guest;
use super::imports;
use super::inspect::ComponentInfo;
use super::limits::{Limits, bytes as size_text, exceeded};
use super::linked_component::LinkedComponent;
use super::prepare::{
    self, ConfiguredComponent, FunctionCache, PrepareRequest, PreparedComponent, ProcessorTimer, SnapshotCache, Start,
};
use super::prepared::PreparedSteps;
use super::refusal::Refusal;
use super::shared::SandboxShared;
use super::state::Capabilities;
use super::step::ComponentStep;
use gpux_core::Registry;
use gpux_core::files;
use gpux_core::process_exit::Scratch;
use gpux_core::{CacheDir, CacheFolder};

/// How a process runs components: the operator's word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxOptions {
    /// where compiled components are kept; `None` compiles each time
    pub cache: Option<CacheDir>,
    /// the most that any component may use
    pub ceiling: Limits,
    /// the most sandboxes at a time: a request that needs one more waits. One for each
    /// core is enough; more are for instances that wait for a model or, if steps are
    /// reused, for their next request
    pub slots: u32,
    /// the `gpux` program, which compiles and sets up unknown components in a process of its own,
    /// within `compile_time` and `compile_memory`; without it that happens here, within
    /// `component_size` and `setup_time` alone
    pub program: Option<PathBuf>,
}

impl Default for SandboxOptions {
    /// No cache, the default limits, four sandboxes a core, no program.
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(4, usize::from);
        Self { cache: None, ceiling: Limits::default(), slots: (4 * cores).clamp(16, 256) as u32, program: None }
    }
}

/// Runs any number of components: it holds an engine, a pool of sandboxes, the thread that ticks
/// for their deadlines, and compiled code. A handle: a copy is the same sandbox.
#[derive(Clone)]
pub struct Sandbox(Arc<SandboxShared>);

/// The sandboxes that are in use in this process, with the operator's word for each.
static SHARED: Mutex<Vec<(SandboxOptions, Weak<SandboxShared>)>> = Mutex::new(Vec::new());

impl Sandbox {
    /// The sandbox of this process under these options, which lives as long as a handle or a step
    /// of it does: all pipelines of the process share one pool, one ticker, and compiled code.
    pub fn shared(options: SandboxOptions) -> Result<Self, SandboxError> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.retain(|(_, home)| home.strong_count() > 0);
        let living = shared.iter().find(|(said, _)| *said == options).and_then(|(_, home)| home.upgrade());
        if let Some(home) = living {
            return Ok(Self(home));
        }
        let sandbox = Self::new(options.clone())?;
        shared.push((options, Arc::downgrade(&sandbox.0)));
        Ok(sandbox)
    }

    /// A sandbox of its own: sets up the engine, with a pool of sandboxes where the machine has the
    /// address space for it.
    pub fn new(options: SandboxOptions) -> Result<Self, SandboxError> {
        let SandboxOptions { mut cache, ceiling, slots, program } = options;
        let in_cache = |error: std::io::Error, cache: &CacheDir| {
            SandboxError::Cache(format!("{}: {error}", cache.root().display()))
        };
        let mut scratch = None;
        if cache.is_none() && program.is_some() {
            let folder = scratch.insert(Scratch::new().map_err(|error| no_folder(&error))?);
            cache = Some(CacheDir::at(folder.path().join("cache")));
        }
        let mut folders = Vec::new();
        if let Some(cache) = &cache {
            folders.push(cache.folder(CacheFolder::Steps).map_err(|error| in_cache(error, cache))?);
        }
        // Elsewhere, files there have names, and the folder may be granted to a component.
        if cfg!(target_os = "linux") {
            folders.push(std::env::temp_dir());
        }
        let engine = Arc::new(SandboxEngine::new(folders, &ceiling, slots)?);
        Ok(Self(Arc::new(SandboxShared { engine, ceiling, cache, program, _scratch: scratch })))
    }

    /// A warning about the environment, although components run.
    pub fn warning(&self) -> Option<&'static str> {
        (!self.0.engine.pooled).then_some(
            "this machine refuses the address space for a pool of sandboxes (is there a limit on virtual memory?): each \
             request to a component reserves its own, which takes longer",
        )
    }

    #[cfg(test)]
    pub(super) fn engine(&self) -> &Arc<SandboxEngine> {
        &self.0.engine
    }

    /// What of a component's imports `grants` leave out.
    pub fn refusals(&self, bytes: &[u8], grants: &Grants) -> Result<Vec<Refusal>, SandboxError> {
        // Meanwhile it gets nothing: what `grants` ask for may not be allowed.
        let config = ComponentConfig { limits: self.0.ceiling.clone(), ..ComponentConfig::default() };
        let request = PrepareRequest { bytes, config: &config, registry: &Arc::default(), to_run: false };
        Ok(imports::refusals(&self.prepare(&request)?.facts.imports, grants))
    }

    /// Creates a step from a component (or from a core module with a component type): asks it for its
    /// schema, checks the options against it, configures it, checks its signature, and takes
    /// a snapshot for every request. The result is cached. `registry` has the built-in
    /// steps that it may call, and the models that a grant may name.
    pub fn load(
        &self,
        bytes: &[u8],
        mut config: ComponentConfig,
        registry: &Arc<Registry>,
    ) -> Result<ComponentStep, SandboxError> {
        if let Some(name) = config.grants.models.iter().find(|name| registry.model(name).is_none()) {
            let models = registry.model_names().map(str::to_owned).collect();
            return Err(SandboxError::UnknownModel { name: name.clone(), models });
        }
        if config.options.is_null() {
            config.options = ComponentConfig::default().options;
        }
        config.limits = config.limits.capped(&self.0.ceiling);
        let request = PrepareRequest { bytes, config: &config, registry, to_run: true };
        let (PreparedComponent { facts, described, ready }, compiled) = self.prepare_and_load(&request)?;
        let ConfiguredComponent { signature, start, prepared, .. } = ready?;
        let capabilities = Capabilities::new(&config, registry.clone())?;
        let prepared =
            PreparedSteps::rebuild(prepared, |call| capabilities.prepared(call)).map_err(SandboxError::Prepared)?;
        let linked = LinkedComponent::new(self.0.engine.clone(), compiled, capabilities)?;
        let text = (start != Start::Snapshot).then(|| config.options.to_string());
        let signature = match &text {
            Some(options) if config.grants.any_wasi() => prepare::signature(&linked, options)?,
            _ => signature,
        };
        // One for each worker at most.
        let reused = if config.reuse { self.0.engine.cores } else { 0 };
        let guest = Guest::new(linked, signature, text, prepared, reused);
        Ok(ComponentStep {
            _home: self.0.clone(),
            guest,
            facts,
            summary: described.map(|described| described.summary).unwrap_or_default(),
            options: config.options,
            start,
            reuse: config.reuse,
        })
    }

    /// Everything about a component that can be known without a pipeline. Without `options`, its
    /// signature is known only if it needs none.
    pub fn inspect(&self, bytes: &[u8], options: Option<&Value>) -> Result<ComponentInfo, SandboxError> {
        // To be described it may import everything that can be granted. It finds no model, no
        // folder and no variable; a clock and random numbers show it nothing of this machine.
        let grants =
            Grants { models: vec![ANY_MODEL.to_owned()], clock: true, random: true, stdio: true, ..Grants::default() };
        let defaults = ComponentConfig::default();
        let given = options.filter(|options| !options.is_null()).cloned().unwrap_or(defaults.options);
        let config = ComponentConfig { options: given, limits: self.0.ceiling.clone(), grants, ..defaults };
        let request = PrepareRequest { bytes, config: &config, registry: &Arc::default(), to_run: false };
        Ok(ComponentInfo::of(self.prepare(&request)?, options.is_some()))
    }

    /// The cached result of this preparation, or a new one.
    fn prepare(&self, request: &PrepareRequest<'_>) -> Result<PreparedComponent, SandboxError> {
        let snapshot_cache = self.snapshot_cache(request)?;
        snapshot_cache
            .as_ref()
            .and_then(SnapshotCache::read)
            .map_or_else(|| self.prepare_uncached(request, snapshot_cache.as_ref()), Ok)
    }

    /// The same, with the component loaded.
    fn prepare_and_load(
        &self,
        request: &PrepareRequest<'_>,
    ) -> Result<(PreparedComponent, Arc<CompiledComponent>), SandboxError> {
        let engine = &self.0.engine;
        let snapshot_cache = self.snapshot_cache(request)?;
        // Without its code, or with code that does not fit, it is made anew.
        let remembered = snapshot_cache.as_ref().and_then(|snapshot_cache| {
            let prepared = snapshot_cache.read()?;
            let digest = &prepared.ready.as_ref().ok()?.digest;
            let compiled = engine.find(digest).or_else(|| engine.load(digest, &snapshot_cache.code()?).ok())?;
            Some((prepared, compiled))
        });
        if let Some(remembered) = remembered {
            return Ok(remembered);
        }
        let PreparedComponent { facts, described, ready } = self.prepare_uncached(request, snapshot_cache.as_ref())?;
        let mut ready = ready?;
        let uncompiled = || SandboxError::Compile("there is no code".to_owned());
        let code = ready.code.take().ok_or_else(uncompiled)?;
        let compiled = engine.find(&ready.digest).map_or_else(|| engine.load(&ready.digest, &code), Ok)?;
        Ok((PreparedComponent { facts, described, ready: Ok(ready) }, compiled))
    }

    /// Where the result of this order is kept, if there is a cache.
    fn snapshot_cache(&self, request: &PrepareRequest<'_>) -> Result<Option<SnapshotCache>, SandboxError> {
        let limit = request.config.limits.component_size;
        if request.bytes.len() > limit {
            return Err(SandboxError::Limit(exceeded("component_size", size_text(limit))));
        }
        ComponentKind::of(request.bytes)?;
        Ok(SnapshotCache::at(self.0.cache.as_ref(), &self.0.engine.wasmtime, request))
    }

    /// Prepares a component in a child process, or without a program in this process.
    fn prepare_uncached(
        &self,
        request: &PrepareRequest<'_>,
        snapshot_cache: Option<&SnapshotCache>,
    ) -> Result<PreparedComponent, SandboxError> {
        let prepared = if let (Some(program), Some(cache)) = (&self.0.program, &self.0.cache) {
            prepare::prepare_in_child(program, cache, &self.0.engine.wasmtime, request)?
        } else {
            prepare::prepare(request, &Arc::new(FunctionCache::default()), &ProcessorTimer::default())?
        };
        if let Some(snapshot_cache) = snapshot_cache {
            snapshot_cache.write(&prepared);
        }
        Ok(prepared)
    }
}

/// Why there is no folder for what is compiled, with the names of both where it could lie.
fn no_folder(error: &std::io::Error) -> SandboxError {
    let error = files::without_path(error);
    let cache = CacheDir::from_environment().map(|cache| format!("`{}`", cache.root().display()));
    SandboxError::Cache(format!(
        "neither {} (${}) nor `{}` ($TMPDIR) takes them: {error}",
        cache.as_deref().unwrap_or("a folder of the user's"),
        CacheDir::VARIABLE,
        std::env::temp_dir().display()
    ))
}
