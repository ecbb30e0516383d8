//! What the host keeps for one running sandbox.

use std::sync::Arc;

use wasmtime::component::Resource;

use super::builtin_cache::BuiltinCache;
use super::clock::Clock;
use super::error::SandboxError;
use super::failure::Stop;
use super::grants::Grants;
use super::handles::{Handles, Held, cost};
use super::limits::{Limits, bytes, exceeded};
use super::log::Tail;
use super::meter::Meter;
use super::model_context::ModelContext;
use super::wasi_state::{Folders, Wasi};
use gpux_core::{Registry, StepFailure, Tensor};

/// What every sandbox of a step shares: what it may use and reach.
pub(super) struct Reach {
    pub(super) limits: Limits,
    pub(super) grants: Grants,
    /// the granted folders, opened
    pub(super) folders: Folders,
    pub(super) registry: Arc<Registry>,
    pub(super) builtins: BuiltinCache,
}

impl Reach {
    /// Opens the granted folders.
    pub(super) fn new(limits: Limits, mut grants: Grants, registry: Arc<Registry>) -> Result<Self, SandboxError> {
        let folders = Folders::open(&mut grants)?;
        Ok(Self { limits, grants, folders, registry, builtins: BuiltinCache::default() })
    }
}

/// The bindings work on the state itself.
pub(super) type HasState = wasmtime::component::HasSelf<State>;

/// What a sandbox is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// `describe` and `configure`, before any request
    Setup,
    /// `process`
    Request,
}

/// One running sandbox, as the host's functions see it.
pub(super) struct State {
    pub(super) reach: Arc<Reach>,
    pub(super) phase: Phase,
    pub(super) meter: Meter,
    pub(super) clock: Clock,
    pub(super) model_context: ModelContext,
    pub(super) handles: Handles,
    pub(super) log: Tail,
    /// there if anything of WASI is granted
    pub(super) wasi: Option<Box<Wasi>>,
    /// built-in steps and models run so far
    calls: usize,
}

impl State {
    pub(super) fn new(reach: Arc<Reach>, phase: Phase, clock: Clock) -> Self {
        Self {
            meter: Meter::new(&reach.limits),
            log: Tail::new(reach.limits.log),
            handles: Handles::default(),
            wasi: reach.grants.any_wasi().then(|| Box::new(Wasi::new(&reach.folders))),
            calls: 0,
            model_context: ModelContext::default(),
            phase,
            clock,
            reach,
        }
    }

    /// For the next request of the same instance.
    pub(super) fn renew(&mut self, clock: Clock) {
        self.clock = clock;
        self.calls = 0;
        self.log = Tail::new(self.reach.limits.log);
        self.meter.forget_peak();
        if let Some(wasi) = &mut self.wasi {
            wasi.renew();
        }
    }

    /// Counts one more built-in step or model that the guest runs.
    pub(super) fn count_call(&mut self) -> Result<(), Stop> {
        let limit = self.reach.limits.calls;
        if self.calls >= limit {
            return Err(Stop::limit(exceeded("calls", format!("{limit} calls"))));
        }
        self.calls += 1;
        Ok(())
    }

    /// A handle to a tensor that exists anyway: an input.
    pub(super) fn lend(&mut self, tensor: Tensor) -> Result<Resource<Tensor>, Stop> {
        self.room_for_handle()?;
        Ok(self.handles.insert(tensor, 0))
    }

    /// A handle to a tensor that the guest made, or had made.
    pub(super) fn hold(&mut self, tensor: Tensor) -> Result<Resource<Tensor>, Stop> {
        self.room_for_handle()?;
        let charged = cost(&tensor);
        self.meter.charge(charged)?;
        Ok(self.handles.insert(tensor, charged))
    }

    /// Stops the guest if it may hold nothing more: tensors, and what it has of WASI.
    pub(super) fn room_for_handle(&self) -> Result<(), Stop> {
        let limit = self.reach.limits.handles;
        let (held, what) = match &self.wasi {
            Some(wasi) => (self.handles.len() + wasi.held(), "handles"),
            None => (self.handles.len(), "tensors"),
        };
        if held >= limit {
            return Err(Stop::limit(exceeded("handles", format!("{limit} {what}"))));
        }
        Ok(())
    }

    /// Whether `size` bytes may go into the guest in one call.
    pub(super) fn may_cross(&self, size: usize) -> Result<(), Stop> {
        let limits = &self.reach.limits;
        if size > limits.copy { Err(Stop::limit(exceeded("copy", bytes(limits.copy)))) } else { Ok(()) }
    }

    pub(super) fn tensor(&self, handle: &Resource<Tensor>) -> Result<&Tensor, Stop> {
        self.handles.get(handle).map(|held| &held.tensor).ok_or_else(dead)
    }

    /// A tensor to change; the copy that this may make is counted.
    pub(super) fn tensor_mut(&mut self, handle: &Resource<Tensor>) -> Result<&mut Tensor, Stop> {
        let held = self.handles.get_mut(handle).ok_or_else(dead)?;
        if held.charged == 0 {
            let size = cost(&held.tensor);
            self.meter.charge(size)?;
            held.charged = size;
        }
        Ok(&mut held.tensor)
    }

    /// A tensor whose metadata changes: nothing is copied.
    pub(super) fn metadata_mut(&mut self, handle: &Resource<Tensor>) -> Result<&mut Tensor, Stop> {
        self.handles.get_mut(handle).map(|held| &mut held.tensor).ok_or_else(dead)
    }

    /// Takes a tensor out; its handle is dead.
    pub(super) fn take(&mut self, handle: &Resource<Tensor>) -> Result<Tensor, Stop> {
        let Held { tensor, charged } = self.handles.remove(handle).ok_or_else(dead)?;
        self.meter.release(charged);
        Ok(tensor)
    }
}

fn dead() -> Stop {
    Stop(StepFailure::Failed("it used a tensor that it no longer holds".to_owned()))
}
