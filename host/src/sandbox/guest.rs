//! A component that can be called: a fresh sandbox, its three calls.

use std::sync::Arc;
use std::time::Instant;

use wasmtime::component::{ComponentExportIndex, ComponentNamedList, Instance, InstancePre, Lift, Lower, TypedFunc};
use wasmtime::{Store, UpdateDeadline};

use super::bindings::{Input, InputValue, step, types};
use super::checked;
use super::clock::Clock;
use super::component::{Calls, Compiled};
use super::engine::Machine;
use super::error::SandboxError;
use super::failure::failure;
use super::state::{Reach, State};
use crate::pipeline::{Signature, StepFailure, Value};

/// A linked component and everything that one of its sandboxes needs.
pub(super) struct Guest {
    machine: Arc<Machine>,
    pre: InstancePre<State>,
    calls: Calls,
    pub(super) reach: Arc<Reach>,
}

/// What `process` came to, with the sandbox's last words.
pub(super) struct Finished {
    pub(super) outcome: Result<Vec<Value>, StepFailure>,
    pub(super) memory_peak: u64,
    pub(super) log: Vec<String>,
}

impl Guest {
    pub(super) fn new(machine: Arc<Machine>, compiled: &Compiled, reach: Reach) -> Result<Self, SandboxError> {
        let calls = compiled.calls()?;
        let linker = compiled.linker(&reach.grants, &reach.registry)?;
        // The interface is there, but one of its types differs.
        let pre = linker
            .instantiate_pre(&compiled.component)
            .map_err(|error| SandboxError::OtherTypes { call: "imports", reason: format!("{error:#}") })?;
        Ok(Self { machine, pre, calls, reach: Arc::new(reach) })
    }

    /// An empty sandbox whose guest must be done by `clock`.
    fn store(&self, clock: Clock) -> Store<State> {
        let mut store = Store::new(&self.machine.engine, State::new(self.reach.clone(), clock));
        store.limiter(|state| &mut state.meter);
        store.set_hostcall_fuel(self.reach.limits.crossing().1);
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|store| {
            store.data().clock.check()?;
            Ok(UpdateDeadline::Continue(1))
        });
        store
    }

    fn setup_store(&self) -> Store<State> {
        self.store(Clock::start("setup_time", self.reach.limits.setup_time, None))
    }

    /// Asks the component what it is.
    pub(super) fn describe(&self) -> Result<step::Description, SandboxError> {
        let mut store = self.setup_store();
        let _running = self.machine.ticker.guard();
        let described = self.pre.instantiate(&mut store).and_then(|instance| {
            let describe: TypedFunc<(), (step::Description,)> =
                instance.get_typed_func(&mut store, self.calls.describe)?;
            Ok(describe.call(&mut store, ())?.0)
        });
        described.map_err(|error| self.setup_failed("describe", &error, store))
    }

    /// What the step takes and gives with `options`. Also makes sure that `process` is callable.
    pub(super) fn configure(&self, options: &str) -> Result<Signature, SandboxError> {
        let mut store = self.setup_store();
        let _running = self.machine.ticker.guard();
        let configured = match self.configured(&mut store, options) {
            Ok(configured) => configured,
            Err(error) => return Err(self.setup_failed("configure", &error, store)),
        };
        let Configured { instance, signature } = configured;
        typed::<Process<'_>, ProcessResult>(&instance, &mut store, &self.calls.process)
            .map_err(|error| SandboxError::OtherTypes { call: "process", reason: format!("{error:#}") })?;
        let given = signature.map_err(|error| SandboxError::Setup {
            call: "configure",
            failure: checked::failure(&error),
            log: store.into_data().log.into_lines(),
        })?;
        checked::signature(given, &self.reach.limits).map_err(|what| SandboxError::Contract { call: "configure", what })
    }

    fn setup_failed(&self, call: &'static str, error: &wasmtime::Error, store: Store<State>) -> SandboxError {
        let log = store.into_data().log;
        let failure = failure(error, &self.reach.limits, &log);
        SandboxError::Setup { call, failure, log: log.into_lines() }
    }

    /// An instance ready for `process`. The one place where a configured instance comes from.
    fn configured(&self, store: &mut Store<State>, options: &str) -> wasmtime::Result<Configured> {
        let instance = self.pre.instantiate(&mut *store)?;
        let configure: TypedFunc<(&str,), (Result<step::Signature, types::Error>,)> =
            instance.get_typed_func(&mut *store, self.calls.configure)?;
        let (signature,) = configure.call(store, (options,))?;
        Ok(Configured { instance, signature })
    }

    /// Runs one request in a sandbox of its own.
    pub(super) fn process(
        &self,
        options: &str,
        signature: &Signature,
        inputs: Vec<Option<Value>>,
        deadline: Option<Instant>,
    ) -> Finished {
        let limits = &self.reach.limits;
        let mut store = self.store(Clock::start("time", limits.time, deadline));
        let running = self.machine.ticker.guard();
        let called = self.call_process(&mut store, options, signature, inputs);
        drop(running);
        let mut state = store.into_data();
        let outcome = match called {
            Ok(Ok(given)) => checked::results(&mut state, signature, given),
            Ok(Err(failure)) => Err(failure),
            Err(error) => Err(failure(&error, limits, &state.log)),
        };
        Finished { outcome, memory_peak: state.meter.peak(), log: state.log.into_lines() }
    }

    fn call_process(
        &self,
        store: &mut Store<State>,
        options: &str,
        signature: &Signature,
        mut inputs: Vec<Option<Value>>,
    ) -> wasmtime::Result<Result<Vec<types::NamedValue>, StepFailure>> {
        let Configured { instance, signature: again } = self.configured(store, options)?;
        if let Err(error) = again {
            return Ok(Err(checked::failure(&error)));
        }
        let process = typed::<Process<'_>, ProcessResult>(&instance, store, &self.calls.process)?;
        let mut given = Vec::with_capacity(inputs.len());
        for (port, value) in signature.inputs.iter().zip(&mut inputs) {
            let value = if let Some(Value::Tensor(tensor)) = value.take_if(|value| value.as_tensor().is_some()) {
                if too_long(&tensor) {
                    let why = format!("`{}` is larger than 4 GiB, which a component cannot address", port.name);
                    return Ok(Err(StepFailure::InvalidInput(why)));
                }
                // Moved, not shared: what nobody else reads is written to in place.
                InputValue::Tensor(store.data_mut().lend(tensor)?)
            } else {
                match value {
                    Some(Value::Text(text)) => InputValue::Text(text),
                    Some(Value::Bytes(bytes)) => InputValue::Bytes(bytes),
                    Some(Value::Json(json)) => InputValue::Json(json.to_string()),
                    Some(Value::Tensor(_)) | None => continue,
                }
            };
            given.push(Input { name: &port.name, value });
        }
        let (outcome,) = process.call(store, (&given,))?;
        Ok(outcome.map_err(|error| checked::failure(&error)))
    }
}

struct Configured {
    instance: Instance,
    signature: Result<step::Signature, types::Error>,
}

type Process<'a> = (&'a [Input<'a>],);
type ProcessResult = (Result<Vec<types::NamedValue>, types::Error>,);

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

fn too_long(tensor: &crate::pipeline::Tensor) -> bool {
    let limit = u32::MAX as usize;
    tensor.byte_len() > limit || tensor.shape().iter().any(|size| *size > limit)
}
