//! The sandbox, and how a component becomes a step in it.

use std::sync::Arc;

use serde_json::Value;

use super::builtins::BuiltinCache;
use super::checked;
use super::component::Compiled;
use super::engine::Machine;
use super::error::SandboxError;
use super::grants::Grants;
use super::guest::Guest;
use super::imports::{self, Refusal};
use super::inspect::{self, ComponentInfo};
use super::limits::{Limits, exceeded};
use super::schema;
use super::state::Reach;
use super::step::ComponentStep;
use super::wasi::Folders;
use crate::config::CacheDir;
use crate::pipeline::Registry;

/// How a process runs components: the operator's word.
#[derive(Clone, Debug)]
pub struct SandboxOptions {
    /// where compiled components are kept; `None` compiles each time
    pub cache: Option<CacheDir>,
    /// the most that any component may use
    pub ceiling: Limits,
    /// how many sandboxes may run at a time; one for each worker thread is enough
    pub slots: u32,
}

impl Default for SandboxOptions {
    /// No cache, the default limits, and room for four sandboxes on each core.
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(4, usize::from);
        Self { cache: None, ceiling: Limits::default(), slots: (4 * cores).clamp(16, 256) as u32 }
    }
}

/// What one step of a pipeline says about the component behind it.
#[derive(Clone, Default)]
pub struct LoadRequest {
    /// the component's options, an object; `null` for none
    pub options: Value,
    /// what it may use; capped by the operator's ceiling
    pub limits: Limits,
    /// what it may reach
    pub grants: Grants,
    /// the built-in steps that it may call, and the models that a grant may name
    pub registry: Arc<Registry>,
}

/// Runs components. One for each process: it holds an engine, a pool of sandboxes and the thread
/// that ticks for their deadlines.
pub struct Sandbox {
    pub(super) machine: Arc<Machine>,
    ceiling: Limits,
}

impl Sandbox {
    /// Sets up the engine, with a pool of sandboxes where the machine has the address space for it.
    pub fn new(options: SandboxOptions) -> Result<Self, SandboxError> {
        let SandboxOptions { cache, ceiling, slots } = options;
        let machine = Arc::new(Machine::new(cache.as_ref(), &ceiling, slots)?);
        Ok(Self { machine, ceiling })
    }

    /// Whether sandboxes come from a pool; if not, each request costs a few more microseconds.
    pub fn is_pooled(&self) -> bool {
        self.machine.pooled
    }

    /// Makes a step of a component (or of a core module that carries its contract): compiles it or
    /// finds it in the cache, asks it for its schema, checks the options against that, configures
    /// it and checks its signature.
    pub fn load(&self, bytes: &[u8], request: &LoadRequest) -> Result<ComponentStep, SandboxError> {
        let limits = request.limits.capped(&self.ceiling);
        let compiled = Compiled::new(&self.machine.engine, bytes, &limits)?;
        let guest = self.guest(&compiled, limits, request.grants.clone(), request.registry.clone())?;
        let description = guest.describe()?;
        let options = or_empty(&request.options);
        schema::check(&schema::parse(&description.options_schema)?, &options)?;
        let text = options.to_string();
        let signature = guest.configure(&text)?;
        Ok(ComponentStep { guest, compiled, summary: checked::summary(&description.summary), options, text, signature })
    }

    /// Everything about a component that can be known without a pipeline; with `options`, also its
    /// signature.
    pub fn inspect(&self, bytes: &[u8], options: Option<&Value>) -> Result<ComponentInfo, SandboxError> {
        let limits = self.ceiling.clone();
        let compiled = Compiled::new(&self.machine.engine, bytes, &limits)?;
        let mut info = ComponentInfo::of(&compiled);
        if let Err(error) = self.describe(&compiled, limits, options, &mut info) {
            info.problem = Some(error.to_string());
        }
        Ok(info)
    }

    /// What of a component's imports `grants` leave out, without running any of it.
    pub fn refusals(&self, bytes: &[u8], grants: &Grants) -> Result<Vec<Refusal>, SandboxError> {
        Ok(imports::refusals(&Compiled::new(&self.machine.engine, bytes, &self.ceiling)?.needs(), grants))
    }

    fn describe(
        &self,
        compiled: &Compiled,
        limits: Limits,
        options: Option<&Value>,
        info: &mut ComponentInfo,
    ) -> Result<(), SandboxError> {
        // To be described it may import everything that can be granted. It finds no model, no
        // folder and no variable; a clock and random numbers show it nothing of this machine.
        let grants =
            Grants { models: vec![String::new()], clock: true, random: true, stdio: true, ..Grants::default() };
        let guest = self.link(compiled, limits, grants, Arc::default())?;
        let description = guest.describe()?;
        let schema = schema::parse(&description.options_schema)?;
        info.summary = Some(checked::summary(&description.summary));
        info.options_schema = Some(schema.clone());
        let Some(options) = options else { return Ok(()) };
        let options = or_empty(options);
        schema::check(&schema, &options)?;
        info.signature = Some(inspect::SignatureInfo::of(&guest.configure(&options.to_string())?));
        Ok(())
    }

    fn guest(
        &self,
        compiled: &Compiled,
        limits: Limits,
        grants: Grants,
        registry: Arc<Registry>,
    ) -> Result<Guest, SandboxError> {
        if let Some(name) = grants.models.iter().find(|name| registry.model(name).is_none()) {
            let models = registry.model_names().map(str::to_owned).collect();
            return Err(SandboxError::UnknownModel { name: name.clone(), models });
        }
        self.link(compiled, limits, grants, registry)
    }

    fn link(
        &self,
        compiled: &Compiled,
        limits: Limits,
        grants: Grants,
        registry: Arc<Registry>,
    ) -> Result<Guest, SandboxError> {
        if let Some(needs) = compiled.component.resources_required() {
            for (name, needed, limit) in
                [("memories", needs.num_memories, limits.memories), ("tables", needs.num_tables, limits.tables)]
            {
                if needed as usize > limit {
                    return Err(SandboxError::Limit(exceeded(name, limit.to_string())));
                }
            }
        }
        let folders = Folders::open(&grants)?;
        let reach = Reach { limits, grants, folders, registry, builtins: BuiltinCache::default() };
        Guest::new(self.machine.clone(), compiled, reach)
    }
}

fn or_empty(options: &Value) -> Value {
    if options.is_null() { Value::Object(serde_json::Map::new()) } else { options.clone() }
}
