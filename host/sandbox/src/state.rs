//! The store's state: the host's side of one running sandbox.

use std::sync::Arc;

use wasmtime::component::Resource;

use super::builtin_cache::BuiltinCache;
use super::config::ComponentConfig;
use super::error::SandboxError;
use super::failure::StopReason;
use super::grants::Grants;
use super::limits::{Limits, bytes, exceeded};
use super::log::LogTail;
use super::model_context::ModelContext;
use super::prepared::{PreparedCall, PreparedSteps};
use super::resource_meter::ResourceMeter;
use super::tensor_table::{TensorEntry, TensorTable, cost};
use super::time_budget::TimeBudget;
use super::wasi_state::{GrantedFolders, Wasi};
use gpux_core::{CallStatistics, Registry, Step, StepFailure, Tensor};

/// Bytes that the parsed options of a call may take.
const MAX_OPTIONS_MEMORY: usize = 1 << 20;
/// The same of a step that is prepared: a vocabulary has many small texts.
const MAX_PREPARED_OPTIONS_MEMORY: usize = 16 << 20;

/// Limits, grants and native steps that every sandbox of a step shares.
pub(super) struct Capabilities {
    pub(super) limits: Limits,
    pub(super) grants: Grants,
    /// the granted folders, opened
    pub(super) folders: GrantedFolders,
    pub(super) registry: Arc<Registry>,
    pub(super) builtins: BuiltinCache,
}

impl Capabilities {
    /// Opens the granted folders.
    pub(super) fn new(config: &ComponentConfig, registry: Arc<Registry>) -> Result<Self, SandboxError> {
        let (limits, mut grants) = (config.limits.clone(), config.grants.clone());
        let folders = GrantedFolders::open(&mut grants)?;
        Ok(Self { limits, grants, folders, registry, builtins: BuiltinCache::default() })
    }
}

impl Capabilities {
    /// The built-in step `name` with `options`, or why there is none.
    pub(super) fn builtin(&self, name: &str, options: &str) -> Result<Arc<dyn Step>, String> {
        self.builtins.get(&self.registry, name, options, self.limits.json_depth, MAX_OPTIONS_MEMORY)
    }

    /// The same for a component that prepares it.
    pub(super) fn prepared(&self, PreparedCall { name, options }: &PreparedCall) -> Result<Arc<dyn Step>, String> {
        self.builtins.get(&self.registry, name, options, self.limits.json_depth, MAX_PREPARED_OPTIONS_MEMORY)
    }
}

/// The bindings work on the state itself.
pub(super) type HasState = wasmtime::component::HasSelf<State>;

/// The purpose of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// `describe`, and what runs as an instance is made
    Setup,
    /// `configure`
    Configure,
    /// `process`
    Request,
}

/// One running sandbox, as the host's functions see it.
pub(super) struct State {
    pub(super) capabilities: Arc<Capabilities>,
    pub(super) phase: Phase,
    pub(super) meter: ResourceMeter,
    pub(super) time_budget: TimeBudget,
    pub(super) model_context: ModelContext,
    pub(super) handles: TensorTable,
    pub(super) log: LogTail,
    /// the steps that `configure` prepared
    pub(super) prepared: Arc<PreparedSteps>,
    /// those that it prepared when the component was loaded, where each instance is configured again
    pub(super) known_prepared: Option<Arc<PreparedSteps>>,
    /// there if anything of WASI is granted
    pub(super) wasi: Option<Box<Wasi>>,
    /// how often it called built-in steps and models so far
    call_count: usize,
    /// those calls, by name
    pub(super) calls: CallStatistics,
}

impl State {
    pub(super) fn new(capabilities: Arc<Capabilities>, phase: Phase, time_budget: TimeBudget) -> Self {
        Self {
            meter: ResourceMeter::new(&capabilities.limits),
            log: LogTail::new(capabilities.limits.log),
            handles: TensorTable::default(),
            wasi: capabilities.grants.any_wasi().then(|| Box::new(Wasi::new(&capabilities.folders))),
            prepared: Arc::default(),
            known_prepared: None,
            call_count: 0,
            calls: CallStatistics::default(),
            model_context: ModelContext::default(),
            phase,
            time_budget,
            capabilities,
        }
    }

    /// For the next request of the same instance.
    pub(super) fn renew(&mut self, time_budget: TimeBudget) {
        self.time_budget = time_budget;
        self.call_count = 0;
        self.calls = CallStatistics::default();
        self.log = LogTail::new(self.capabilities.limits.log);
        self.meter.reset_peak();
        if let Some(wasi) = &mut self.wasi {
            wasi.renew();
        }
    }

    /// Counts one more built-in step or model that the guest runs, and stops the guest if its time is over or its
    /// request was cancelled.
    pub(super) fn count_call(&mut self) -> Result<(), StopReason> {
        self.time_budget.check()?;
        let limit = self.capabilities.limits.calls;
        if self.call_count >= limit {
            return Err(StopReason::limit(exceeded("calls", format!("{limit} calls"))));
        }
        self.call_count += 1;
        Ok(())
    }

    /// A handle to a tensor that exists anyway: an input.
    pub(super) fn lend(&mut self, tensor: Tensor) -> Result<Resource<Tensor>, StopReason> {
        self.check_handle_limit()?;
        Ok(self.handles.insert(tensor, 0))
    }

    /// A handle to a tensor that the guest made, or had made.
    pub(super) fn insert_tensor(&mut self, tensor: Tensor) -> Result<Resource<Tensor>, StopReason> {
        self.check_handle_limit()?;
        let charged = cost(&tensor);
        self.meter.charge(charged)?;
        Ok(self.handles.insert(tensor, charged))
    }

    /// Stops the guest at its limit of handles: tensors and WASI resources.
    pub(super) fn check_handle_limit(&self) -> Result<(), StopReason> {
        let limit = self.capabilities.limits.handles;
        let (held, what) = match &self.wasi {
            Some(wasi) => (self.handles.len() + wasi.held(), "handles"),
            None => (self.handles.len(), "tensors"),
        };
        if held >= limit {
            return Err(StopReason::limit(exceeded("handles", format!("{limit} {what}"))));
        }
        Ok(())
    }

    /// Whether `size` bytes may go into the guest in one call.
    pub(super) fn check_copy_size(&self, size: usize) -> Result<(), StopReason> {
        let limits = &self.capabilities.limits;
        if size > limits.copy { Err(StopReason::limit(exceeded("copy", bytes(limits.copy)))) } else { Ok(()) }
    }

    pub(super) fn tensor(&self, handle: &Resource<Tensor>) -> Result<&Tensor, StopReason> {
        self.handles.get(handle).map(|held| &held.tensor).ok_or_else(invalid_handle)
    }

    /// A tensor to change; the copy that this may make is counted.
    pub(super) fn tensor_mut(&mut self, handle: &Resource<Tensor>) -> Result<&mut Tensor, StopReason> {
        let held = self.handles.get_mut(handle).ok_or_else(invalid_handle)?;
        if held.charged == 0 {
            let size = cost(&held.tensor);
            self.meter.charge(size)?;
            held.charged = size;
        }
        Ok(&mut held.tensor)
    }

    /// A tensor whose metadata changes: nothing is copied.
    pub(super) fn metadata_mut(&mut self, handle: &Resource<Tensor>) -> Result<&mut Tensor, StopReason> {
        self.handles.get_mut(handle).map(|held| &mut held.tensor).ok_or_else(invalid_handle)
    }

    /// Takes a tensor out; its handle is dead.
    pub(super) fn take(&mut self, handle: &Resource<Tensor>) -> Result<Tensor, StopReason> {
        let TensorEntry { tensor, charged } = self.handles.remove(handle).ok_or_else(invalid_handle)?;
        self.meter.release(charged);
        Ok(tensor)
    }
}

fn invalid_handle() -> StopReason {
    StopReason(StepFailure::Failed("it used a tensor that it no longer holds".to_owned()))
}
