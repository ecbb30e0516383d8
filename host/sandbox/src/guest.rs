//! A step's component at work: one sandbox for each request.

use std::sync::Arc;

use crossbeam_queue::ArrayQueue;
use wasmtime::Store;

use super::bindings::{InputValue, NamedInput, types};
use super::engine::{IdlePermit, SlotPermit};
use super::failure::{StopReason, failure_from_error};
use super::guest_output;
use super::limits::{bytes, exceeded};
use super::linked_component::{LinkedComponent, Process};
use super::log::LogTail;
use super::model_context::ModelContext;
use super::prepared::PreparedSteps;
use super::state::{Phase, State};
use super::time_budget::TimeBudget;
use gpux_core::{CallStatistics, Context, Signature, StepFailure, Tensor, Value, encoded_size};

/// A component, ready for requests.
pub(super) struct Guest {
    pub(super) linked: LinkedComponent,
    pub(super) signature: Signature,
    /// the options that each new instance is configured with; `None` for a snapshot: it is already configured
    pub(super) options: Option<String>,
    /// the steps that `configure` prepared
    prepared: Arc<PreparedSteps>,
    /// instances that wait for their next request, where they serve more than one
    idle: Option<ArrayQueue<(GuestInstance, IdlePermit)>>,
}

/// The outcome of `process`, with the sandbox's peak memory and its log.
pub(super) struct GuestResult {
    pub(super) outcome: Result<Vec<Value>, StepFailure>,
    pub(super) memory_peak: u64,
    pub(super) log: Vec<String>,
    /// the calls of built-in steps and models
    pub(super) calls: CallStatistics,
}

/// A configured instance.
struct GuestInstance {
    store: Store<State>,
    process: Process,
    /// declared behind the store: it is free when that is gone
    _slot: SlotPermit,
}

/// Where a request's instance comes from.
enum InstanceSource {
    Idle(GuestInstance),
    Free(SlotPermit),
}

impl Guest {
    /// `reused` instances at most are kept for a next request.
    pub(super) fn new(
        linked: LinkedComponent,
        signature: Signature,
        options: Option<String>,
        prepared: PreparedSteps,
        reused: usize,
    ) -> Self {
        let idle = (reused > 0).then(|| ArrayQueue::new(reused));
        Self { linked, signature, options, prepared: Arc::new(prepared), idle }
    }

    /// Runs one request.
    pub(super) fn process(&self, inputs: Vec<Option<Value>>, context: &Context) -> GuestResult {
        let limits = &self.linked.capabilities.limits;
        let Some(found) = self.find(context) else {
            let calls = CallStatistics::default();
            return GuestResult { outcome: Err(StepFailure::Timeout), memory_peak: 0, log: Vec::new(), calls };
        };
        // Waiting for a slot does not count against the guest's time.
        let time_budget = TimeBudget::start("time", limits.time, context.deadline).with(context.cancelled.clone());
        let _running = self.linked.running();
        // Dropped behind the instance, which keeps its slot until then.
        let model_context = self.linked.model_context(context);
        let mut instance = match self.instance(found, time_budget) {
            Ok(instance) => instance,
            Err((outcome, state, _slot)) => return guest_result(Err(outcome), &mut state.into_data()),
        };
        instance.store.data_mut().model_context = model_context.clone();
        let outcome = self.call(&mut instance, inputs);
        let guest_result = guest_result(outcome, instance.store.data_mut());
        // A trapped instance is dead, and a failed one is not reused. An instance
        // that keeps an input would hold uncounted memory.
        if let (Ok(_), Some(idle)) = (&guest_result.outcome, &self.idle)
            && !instance.store.data().handles.has_input()
        {
            // A slot that it got for a model call also serves to wait for a request.
            drop(model_context);
            if let Some(permit) = self.linked.idle_permit() {
                let _ = idle.push((instance, permit));
            }
        }
        guest_result
    }

    /// An instance that waits, or a slot for another, which may take until the deadline.
    fn find(&self, context: &Context) -> Option<InstanceSource> {
        let idle = || self.idle.as_ref().and_then(ArrayQueue::pop);
        idle()
            .map(|(instance, _)| InstanceSource::Idle(instance))
            .or_else(|| self.linked.slot(context.deadline).map(InstanceSource::Free))
    }

    /// A configured instance: an idle one, or a new one. All instances come from here.
    fn instance(
        &self,
        found: InstanceSource,
        time_budget: TimeBudget,
    ) -> Result<GuestInstance, (StepFailure, Store<State>, SlotPermit)> {
        let slot = match found {
            InstanceSource::Idle(mut instance) => {
                instance.store.data_mut().renew(time_budget);
                self.linked.arm(&mut instance.store);
                return Ok(instance);
            }
            InstanceSource::Free(slot) => slot,
        };
        // During `configure` the phase is still Setup, so models cannot be called.
        let phase = if self.options.is_some() { Phase::Setup } else { Phase::Request };
        let mut store = self.linked.store(phase, time_budget);
        if self.options.is_some() {
            store.data_mut().known_prepared = Some(self.prepared.clone());
        } else {
            store.data_mut().prepared = self.prepared.clone();
        }
        match self.fresh(&mut store) {
            Ok(Ok(process)) => Ok(GuestInstance { store, process, _slot: slot }),
            Ok(Err(refusal)) => Err((guest_output::configure_error(&refusal), store, slot)),
            Err(error) => {
                Err((failure_from_error(&error, &self.linked.capabilities.limits, &store.data().log), store, slot))
            }
        }
    }

    fn fresh(&self, store: &mut Store<State>) -> wasmtime::Result<Result<Process, types::Error>> {
        let instance = self.linked.pre.instantiate(&mut *store)?;
        if let Some(options) = &self.options
            && let Err(refusal) = self.linked.configure(store, &instance, options)?
        {
            return Ok(Err(refusal));
        }
        store.data_mut().phase = Phase::Request;
        Ok(Ok(self.linked.process(store, &instance)?))
    }

    fn call(&self, instance: &mut GuestInstance, inputs: Vec<Option<Value>>) -> Result<Vec<Value>, StepFailure> {
        let limits = &self.linked.capabilities.limits;
        let total = inputs.iter().flatten().map(encoded_size::memory).fold(0, usize::saturating_add);
        if total > limits.input {
            return Err(StepFailure::Limit(exceeded("input", bytes(limits.input))));
        }
        let mut owned = inputs;
        let given = lend(&mut instance.store, &self.signature, &mut owned)?;
        let called = instance.process.call(&mut instance.store, (&given,));
        match called {
            Ok((Ok(given),)) => guest_output::results(instance.store.data_mut(), &self.signature, given),
            Ok((Err(error),)) => Err(guest_output::failure(&error)),
            Err(error) => Err(failure_from_error(&error, limits, &instance.store.data().log)),
        }
    }
}

/// Each value under the name of its port, without the optional ones that are not there.
fn lend<'a>(
    store: &mut Store<State>,
    signature: &'a Signature,
    inputs: &'a mut [Option<Value>],
) -> Result<Vec<NamedInput<'a>>, StepFailure> {
    let mut given = Vec::with_capacity(inputs.len());
    for (port, value) in signature.inputs.iter().zip(inputs) {
        let value = if let Some(Value::Tensor(tensor)) = value.take_if(|value| value.as_tensor().is_some()) {
            if too_long(&tensor) {
                let why = format!("`{}` is larger than 4 GiB, which a component cannot address", port.name);
                return Err(StepFailure::InvalidInput(why));
            }
            // Moved, not shared: the host writes in place to a value without other owners.
            InputValue::Tensor(store.data_mut().lend(tensor).map_err(|StopReason(failure)| failure)?)
        } else {
            match value {
                Some(Value::Text(text)) => InputValue::Text(text),
                Some(Value::Bytes(bytes)) => InputValue::Bytes(bytes),
                Some(Value::Json(json)) => InputValue::Json(json.to_string()),
                Some(Value::Tensor(_)) | None => continue,
            }
        };
        given.push(NamedInput { name: &port.name, value });
    }
    Ok(given)
}

fn guest_result(outcome: Result<Vec<Value>, StepFailure>, state: &mut State) -> GuestResult {
    // An instance that waits for its next request has no caller.
    state.model_context = ModelContext::default();
    state.time_budget.forget_request();
    let calls = std::mem::take(&mut state.calls);
    let log = std::mem::replace(&mut state.log, LogTail::new(0));
    GuestResult { outcome, memory_peak: state.meter.peak(), log: log.into_lines(), calls }
}

fn too_long(tensor: &Tensor) -> bool {
    let limit = u32::MAX as usize;
    tensor.byte_len() > limit || tensor.shape().iter().any(|size| *size > limit)
}
