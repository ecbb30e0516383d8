//! A step's component at work: one sandbox for each request.

use crossbeam_queue::ArrayQueue;
use wasmtime::Store;

use super::bindings::{Input, InputValue, types};
use super::checked;
use super::clock::Clock;
use super::engine::{Place, Slot};
use super::failure::{Stop, failure};
use super::limits::{bytes, exceeded};
use super::linked::{Linked, Process};
use super::log::Tail;
use super::model_context::ModelContext;
use super::state::{Phase, State};
use gpux_core::{Context, Signature, StepFailure, Tensor, Value};

/// A component, ready for requests.
pub(super) struct Guest {
    pub(super) linked: Linked,
    pub(super) signature: Signature,
    /// the options that each new instance is configured with; `None` for a snapshot, which is
    pub(super) options: Option<String>,
    /// instances that wait for their next request, where they serve more than one
    idle: Option<ArrayQueue<(Live, Place)>>,
}

/// What `process` came to, with the sandbox's last words.
pub(super) struct Finished {
    pub(super) outcome: Result<Vec<Value>, StepFailure>,
    pub(super) memory_peak: u64,
    pub(super) log: Vec<String>,
}

/// A configured instance.
struct Live {
    store: Store<State>,
    process: Process,
    /// declared behind the store: it is free when that is gone
    _slot: Slot,
}

/// Where a request's instance comes from.
enum Found {
    Idle(Live),
    Free(Slot),
}

impl Guest {
    /// `reused` instances at most are kept for a next request.
    pub(super) fn new(linked: Linked, signature: Signature, options: Option<String>, reused: usize) -> Self {
        let idle = (reused > 0).then(|| ArrayQueue::new(reused));
        Self { linked, signature, options, idle }
    }

    /// Runs one request.
    pub(super) fn process(&self, inputs: Vec<Option<Value>>, context: &Context) -> Finished {
        let limits = &self.linked.reach.limits;
        let Some(found) = self.find(context) else {
            return Finished { outcome: Err(StepFailure::Timeout), memory_peak: 0, log: Vec::new() };
        };
        // No wait for a slot is the guest's time.
        let clock = Clock::start("time", limits.time, context.deadline);
        let _running = self.linked.running();
        // Dropped behind the instance, which keeps its slot until then.
        let model_context = self.linked.model_context(context);
        let mut live = match self.live(found, clock) {
            Ok(live) => live,
            Err((outcome, state, _slot)) => return finished(Err(outcome), &mut state.into_data()),
        };
        live.store.data_mut().model_context = model_context.clone();
        let outcome = self.call(&mut live, inputs);
        let finished = finished(outcome, live.store.data_mut());
        // A trapped instance is dead, and one that failed is not trusted with another request. One
        // that keeps an input would hold memory that nobody counts.
        if let (Ok(_), Some(idle)) = (&finished.outcome, &self.idle)
            && !live.store.data().handles.hold_an_input()
        {
            // What it has had to wait for a model serves as well to wait for a request.
            drop(model_context);
            if let Some(place) = self.linked.place() {
                let _ = idle.push((live, place));
            }
        }
        finished
    }

    /// An instance that waits, or a slot for another, which may take until the deadline.
    fn find(&self, context: &Context) -> Option<Found> {
        let idle = || self.idle.as_ref().and_then(ArrayQueue::pop);
        idle().map(|(live, _)| Found::Idle(live)).or_else(|| self.linked.slot(context.deadline).map(Found::Free))
    }

    /// A configured instance: one that waits, or a fresh one. The one place where they come from.
    fn live(&self, found: Found, clock: Clock) -> Result<Live, (StepFailure, Store<State>, Slot)> {
        let slot = match found {
            Found::Idle(mut live) => {
                live.store.data_mut().renew(clock);
                self.linked.arm(&mut live.store);
                return Ok(live);
            }
            Found::Free(slot) => slot,
        };
        // What still configures itself is not yet in its request: it runs no model.
        let phase = if self.options.is_some() { Phase::Setup } else { Phase::Request };
        let mut store = self.linked.store(phase, clock);
        match self.fresh(&mut store) {
            Ok(Ok(process)) => Ok(Live { store, process, _slot: slot }),
            Ok(Err(refusal)) => Err((checked::unconfigured(&refusal), store, slot)),
            Err(error) => Err((failure(&error, &self.linked.reach.limits, &store.data().log), store, slot)),
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

    fn call(&self, live: &mut Live, inputs: Vec<Option<Value>>) -> Result<Vec<Value>, StepFailure> {
        let limits = &self.linked.reach.limits;
        let total = inputs.iter().flatten().map(checked::weight).fold(0, usize::saturating_add);
        if total > limits.input {
            return Err(StepFailure::Limit(exceeded("input", bytes(limits.input))));
        }
        let mut owned = inputs;
        let given = lend(&mut live.store, &self.signature, &mut owned)?;
        let called = live.process.call(&mut live.store, (&given,));
        match called {
            Ok((Ok(given),)) => checked::results(live.store.data_mut(), &self.signature, given),
            Ok((Err(error),)) => Err(checked::failure(&error)),
            Err(error) => Err(failure(&error, limits, &live.store.data().log)),
        }
    }
}

/// Each value under the name of its port, without the optional ones that are not there.
fn lend<'a>(
    store: &mut Store<State>,
    signature: &'a Signature,
    inputs: &'a mut [Option<Value>],
) -> Result<Vec<Input<'a>>, StepFailure> {
    let mut given = Vec::with_capacity(inputs.len());
    for (port, value) in signature.inputs.iter().zip(inputs) {
        let value = if let Some(Value::Tensor(tensor)) = value.take_if(|value| value.as_tensor().is_some()) {
            if too_long(&tensor) {
                let why = format!("`{}` is larger than 4 GiB, which a component cannot address", port.name);
                return Err(StepFailure::InvalidInput(why));
            }
            // Moved, not shared: what nobody else reads is written to in place.
            InputValue::Tensor(store.data_mut().lend(tensor).map_err(|Stop(failure)| failure)?)
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
    Ok(given)
}

fn finished(outcome: Result<Vec<Value>, StepFailure>, state: &mut State) -> Finished {
    // An instance that waits for its next request has no caller.
    state.model_context = ModelContext::default();
    let log = std::mem::replace(&mut state.log, Tail::new(0));
    Finished { outcome, memory_peak: state.meter.peak(), log: log.into_lines() }
}

fn too_long(tensor: &Tensor) -> bool {
    let limit = u32::MAX as usize;
    tensor.byte_len() > limit || tensor.shape().iter().any(|size| *size > limit)
}
