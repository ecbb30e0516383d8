//! A component, linked to what it may reach: where its sandboxes and their calls come from.

use std::sync::Arc;
use std::time::Instant;

use wasmtime::component::{ComponentExportIndex, ComponentNamedList, Instance, InstancePre, Lift, Lower, TypedFunc};
use wasmtime::{Store, UpdateDeadline};

use super::bindings::{Input, step, types};
use super::clock::{Clock, Running};
use super::component::{Calls, Compiled};
use super::engine::{Machine, Place, Slot};
use super::error::SandboxError;
use super::model_context::ModelContext;
use super::model_wait::ModelWait;
use super::state::{Phase, Reach, State};
use gpux_core::{Context, Waits};

/// A compiled component with everything that one of its sandboxes needs.
pub(super) struct Linked {
    machine: Arc<Machine>,
    /// held for others that load the same
    _compiled: Arc<Compiled>,
    pub(super) pre: InstancePre<State>,
    pub(super) calls: Calls,
    pub(super) reach: Arc<Reach>,
}

/// `process` of one instance.
pub(super) type Process = TypedFunc<(&'static [Input<'static>],), (Result<Vec<types::NamedValue>, types::Error>,)>;
/// What `configure` gives.
pub(super) type Configured = Result<step::Signature, types::Error>;

impl Linked {
    pub(super) fn new(machine: Arc<Machine>, compiled: Arc<Compiled>, reach: Reach) -> Result<Self, SandboxError> {
        let calls = compiled.calls()?;
        let linker = compiled.linker(&reach.grants)?;
        // The interface is there, but one of its types differs.
        let pre = linker
            .instantiate_pre(&compiled.component)
            .map_err(|error| SandboxError::OtherTypes { call: "imports".into(), reason: format!("{error:#}") })?;
        Ok(Self { machine, pre, calls, reach: Arc::new(reach), _compiled: compiled })
    }

    /// A slot for a sandbox; see [`Machine::slot`].
    pub(super) fn slot(&self, deadline: Option<Instant>) -> Option<Slot> {
        self.machine.slot(deadline)
    }

    /// An empty sandbox whose guest must be done by `clock`. It needs a slot, for as long as it is there.
    pub(super) fn store(&self, phase: Phase, clock: Clock) -> Store<State> {
        let mut store = Store::new(&self.machine.engine, State::new(self.reach.clone(), phase, clock));
        store.limiter(|state| &mut state.meter);
        store.epoch_deadline_callback(|store| {
            store.data().clock.check()?;
            Ok(UpdateDeadline::Continue(1))
        });
        self.arm(&mut store);
        store
    }

    /// What is used up by a call, as at its beginning.
    pub(super) fn arm(&self, store: &mut Store<State>) {
        store.set_hostcall_fuel(self.reach.limits.crossing().1);
        store.set_epoch_deadline(1);
    }

    /// Keeps the ticks of the deadline coming.
    pub(super) fn running(&self) -> Running<'_> {
        self.machine.ticker.guard()
    }

    /// The context of models that the guest of this request runs; empty where no model is granted.
    pub(super) fn model_context(&self, context: &Context) -> ModelContext {
        if self.reach.grants.models.is_empty() {
            return ModelContext::default();
        }
        let report = |waits: &Arc<dyn Waits>| -> Arc<dyn Waits> {
            Arc::new(ModelWait::new(waits.clone(), self.machine.clone()))
        };
        ModelContext { priority: context.priority, waits: context.waits.as_ref().map(report) }
    }

    /// A place for an instance to wait for its next request, if one is left.
    pub(super) fn place(&self) -> Option<Place> {
        self.machine.place()
    }

    pub(super) fn describe(&self, store: &mut Store<State>) -> wasmtime::Result<step::Description> {
        let instance = self.pre.instantiate(&mut *store)?;
        let describe: TypedFunc<(), (step::Description,)> = typed(&instance, store, &self.calls.describe)?;
        Ok(describe.call(store, ())?.0)
    }

    pub(super) fn configure(
        &self,
        store: &mut Store<State>,
        instance: &Instance,
        options: &str,
    ) -> wasmtime::Result<Configured> {
        let configure: TypedFunc<(&str,), (Configured,)> = typed(instance, store, &self.calls.configure)?;
        Ok(configure.call(store, (options,))?.0)
    }

    pub(super) fn process(&self, store: &mut Store<State>, instance: &Instance) -> wasmtime::Result<Process> {
        typed(instance, store, &self.calls.process)
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
