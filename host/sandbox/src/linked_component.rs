//! A component linked to the host functions that it may call; it creates stores and calls exports.

use std::sync::Arc;
use std::time::Instant;

use wasmtime::component::{ComponentExportIndex, ComponentNamedList, Instance, InstancePre, Lift, Lower, TypedFunc};
use wasmtime::{Store, UpdateDeadline};

use super::bindings::{NamedInput, step, types};
use super::component::{CompiledComponent, StepExports};
use super::engine::{IdlePermit, SandboxEngine, SlotPermit};
use super::error::SandboxError;
use super::model_context::ModelContext;
use super::model_wait::ModelWait;
use super::state::{Capabilities, Phase, State};
use super::time_budget::{TickerGuard, TimeBudget};
use gpux_core::{Context, WaitObserver};

/// A compiled component with everything that one of its sandboxes needs.
pub(super) struct LinkedComponent {
    engine: Arc<SandboxEngine>,
    /// held for others that load the same
    _compiled: Arc<CompiledComponent>,
    pub(super) pre: InstancePre<State>,
    pub(super) exports: StepExports,
    pub(super) capabilities: Arc<Capabilities>,
}

/// `process` of one instance.
pub(super) type Process = TypedFunc<(&'static [NamedInput<'static>],), (Result<Vec<types::NamedValue>, types::Error>,)>;
/// What `configure` gives.
pub(super) type Configured = Result<step::Signature, types::Error>;

impl LinkedComponent {
    pub(super) fn new(
        engine: Arc<SandboxEngine>,
        compiled: Arc<CompiledComponent>,
        capabilities: Capabilities,
    ) -> Result<Self, SandboxError> {
        let exports = compiled.step_exports()?;
        let linker = compiled.linker(&capabilities.grants)?;
        // The interface is there, but one of its types differs.
        let pre = linker
            .instantiate_pre(&compiled.component)
            .map_err(|error| SandboxError::OtherTypes { call: "imports".into(), reason: format!("{error:#}") })?;
        Ok(Self { engine, pre, exports, capabilities: Arc::new(capabilities), _compiled: compiled })
    }

    /// A slot for a sandbox; see [`SandboxEngine::slot`].
    pub(super) fn slot(&self, deadline: Option<Instant>) -> Option<SlotPermit> {
        self.engine.slot(deadline)
    }

    /// Creates an empty sandbox whose guest must finish within `time_budget`. It holds a slot as long as it exists.
    pub(super) fn store(&self, phase: Phase, time_budget: TimeBudget) -> Store<State> {
        let mut store = Store::new(&self.engine.wasmtime, State::new(self.capabilities.clone(), phase, time_budget));
        store.limiter(|state| &mut state.meter);
        store.epoch_deadline_callback(|store| {
            store.data().time_budget.check()?;
            Ok(UpdateDeadline::Continue(1))
        });
        self.arm(&mut store);
        store
    }

    /// The resource counters at the beginning of a call.
    pub(super) fn arm(&self, store: &mut Store<State>) {
        store.set_hostcall_fuel(self.capabilities.limits.copy_limit().1);
        store.set_epoch_deadline(1);
    }

    /// Keeps the ticks of the deadline coming.
    pub(super) fn running(&self) -> TickerGuard<'_> {
        self.engine.ticker.guard()
    }

    /// The context of models that the guest of this request runs; empty where no model is granted.
    pub(super) fn model_context(&self, context: &Context) -> ModelContext {
        if self.capabilities.grants.models.is_empty() {
            return ModelContext::default();
        }
        let report = |waits: &Arc<dyn WaitObserver>| -> Arc<dyn WaitObserver> {
            Arc::new(ModelWait::new(waits.clone(), self.engine.clone()))
        };
        ModelContext { priority: context.priority, waits: context.waits.as_ref().map(report) }
    }

    /// A place for an instance to wait for its next request, if one is left.
    pub(super) fn idle_permit(&self) -> Option<IdlePermit> {
        self.engine.idle_permit()
    }

    pub(super) fn describe(&self, store: &mut Store<State>) -> wasmtime::Result<step::Description> {
        let instance = self.pre.instantiate(&mut *store)?;
        let describe: TypedFunc<(), (step::Description,)> = typed(&instance, store, &self.exports.describe)?;
        Ok(describe.call(store, ())?.0)
    }

    pub(super) fn configure(
        &self,
        store: &mut Store<State>,
        instance: &Instance,
        options: &str,
    ) -> wasmtime::Result<Configured> {
        store.data_mut().phase = Phase::Configure;
        let configure: TypedFunc<(&str,), (Configured,)> = typed(instance, store, &self.exports.configure)?;
        Ok(configure.call(store, (options,))?.0)
    }

    pub(super) fn process(&self, store: &mut Store<State>, instance: &Instance) -> wasmtime::Result<Process> {
        typed(instance, store, &self.exports.process)
    }
}

fn typed<Params, Results>(
    instance: &Instance,
    store: &mut Store<State>,
    call: &ComponentExportIndex,
) -> wasmtime::Result<TypedFunc<Params, Results>>
where
    Params: ComponentNamedList + Lower,
    Results: ComponentNamedList + Lift,
{
    instance.get_typed_func(store, call)
}
