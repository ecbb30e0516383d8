//! The host's side of the interfaces `builtins` and `models`: native steps, called by a guest.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::bindings::{builtins, models, types};
use super::builtin_cache::MAX_NAME;
use super::failure::StopReason;
use super::grants::ANY_MODEL;
use super::guest_output;
use super::log::sanitize;
use super::prepared::PreparedCall;
use super::state::{Phase, State};
use gpux_core::catch_panic::catch_panic;
use gpux_core::{Context, Dim, Kind, Signature, Step, StepFailure, Value};

type Answer = wasmtime::Result<Result<Vec<types::NamedValue>, types::Error>>;

impl builtins::Host for State {
    fn run(&mut self, name: String, options: String, inputs: Vec<types::NamedLentValue>) -> Answer {
        self.count_call()?;
        let capabilities = self.capabilities.clone();
        // Reading options and checking them takes time in proportion to their text.
        self.time_budget.admit(options.len())?;
        let step = match capabilities.builtin(&name, &options) {
            Ok(step) => step,
            Err(why) => return Ok(Err(types::Error::InvalidInput(why))),
        };
        self.run_builtin(&name, step.as_ref(), inputs)
    }

    fn prepare(&mut self, name: String, options: String) -> wasmtime::Result<Result<u32, types::Error>> {
        self.count_call()?;
        if self.phase != Phase::Configure {
            return Ok(Err(types::Error::Failed("steps can be prepared in `configure` only".to_owned())));
        }
        self.time_budget.admit(options.len())?;
        let size = name.len().saturating_add(options.len());
        // Kept as long as the instance.
        self.meter.charge(size)?;
        let call = PreparedCall { name, options };
        let (capabilities, known) = (&self.capabilities, self.known_prepared.as_deref());
        let build = |call: &PreparedCall| capabilities.prepared(call);
        let prepared = Arc::make_mut(&mut self.prepared).prepare(call, build, known);
        if prepared.is_err() {
            self.meter.release(size);
        }
        self.time_budget.check()?;
        Ok(prepared.map_err(types::Error::InvalidInput))
    }

    fn run_prepared(&mut self, step: u32, inputs: Vec<types::NamedLentValue>) -> Answer {
        self.count_call()?;
        let prepared = self.prepared.clone();
        match prepared.get(step) {
            Ok((name, step)) => self.run_builtin(name, step.as_ref(), inputs),
            Err(why) => Ok(Err(types::Error::InvalidInput(why))),
        }
    }
}

impl models::Host for State {
    fn run(&mut self, model: String, inputs: Vec<types::NamedLentValue>) -> Answer {
        self.count_call()?;
        if self.phase != Phase::Request {
            return Ok(Err(types::Error::Failed("models can be run in `process` only".to_owned())));
        }
        let capabilities = self.capabilities.clone();
        let granted = &capabilities.grants.models;
        let step = granted.contains(&model).then(|| capabilities.registry.model(&model)).flatten();
        let Some(step) = step else { return Ok(Err(not_granted(&model, granted))) };
        let name = format!("model {model}");
        let call = match self.check_inputs(&name, step.as_ref(), inputs)? {
            Ok(call) => call,
            Err(why) => return Ok(Err(types::Error::InvalidInput(format!("`{model}`: {why}")))),
        };
        let begin = Instant::now();
        let (deadline, cancelled) = (self.time_budget.request(), self.time_budget.cancelled());
        let mut context = Context { deadline, cancelled, ..self.model_context.context() };
        let outcome = step.run(call.inputs, &mut context);
        self.record_call(&name, begin.elapsed(), outcome.is_err(), &context);
        self.time_budget.uncount(begin);
        self.time_budget.check()?;
        self.give(step.signature(), outcome)
    }
    fn require(&mut self, model: String) -> wasmtime::Result<Result<(), types::Error>> {
        self.count_call()?;
        let granted = &self.capabilities.grants.models;
        let is_granted = granted.iter().any(|name| *name == model || name == ANY_MODEL);
        Ok(if is_granted { Ok(()) } else { Err(not_granted(&model, granted)) })
    }
}

/// The error of a component that names a model without a grant for it.
fn not_granted(model: &str, granted: &[String]) -> types::Error {
    let model = sanitize(model, MAX_NAME);
    types::Error::InvalidInput(format!("the model `{model}` is not granted; granted are: {}", granted.join(", ")))
}

/// A native call that may be made.
struct NativeCall {
    inputs: Vec<Option<Value>>,
    /// of all inputs, of the outputs as far as their size is known before, and of what lies between
    bytes: usize,
}

impl State {
    /// Runs the built-in step `name`.
    fn run_builtin(&mut self, name: &str, step: &dyn Step, inputs: Vec<types::NamedLentValue>) -> Answer {
        let call = match self.check_inputs(name, step, inputs)? {
            Ok(call) => call,
            Err(why) => return Ok(Err(types::Error::InvalidInput(format!("`{name}`: {why}")))),
        };
        self.time_budget.admit(call.bytes)?;
        let (deadline, cancelled) = (Some(self.time_budget.end()), self.time_budget.cancelled());
        let mut context = Context { deadline, cancelled, ..Context::default() };
        let begin = Instant::now();
        // Untrusted arguments must not end the process, whatever bug they find.
        let outcome = catch_panic(|| step.run(call.inputs, &mut context));
        let outcome = outcome.unwrap_or_else(|why| Err(StepFailure::Failed(format!("`{name}` broke down: {why}"))));
        self.record_call(name, begin.elapsed(), outcome.is_err(), &context);
        self.time_budget.check()?;
        self.give(step.signature(), outcome)
    }

    /// Records a call that has run, and the calls that it made.
    fn record_call(&mut self, name: &str, time: Duration, has_failed: bool, context: &Context) {
        self.calls.record(name, time, has_failed);
        self.calls.record_within(name, &context.calls);
    }

    /// What a call of `name` works on. A call that does not fit the step is recorded as failed.
    fn check_inputs(
        &mut self,
        name: &str,
        step: &dyn Step,
        lent: Vec<types::NamedLentValue>,
    ) -> Result<Result<NativeCall, String>, StopReason> {
        let call = self.native_call(step, lent)?;
        if call.is_err() {
            self.calls.record(name, Duration::ZERO, true);
        }
        Ok(call)
    }

    /// Checks the values of a call and the kinds of its results; the inner error is the
    /// guest's to handle.
    fn native_call(
        &self,
        step: &dyn Step,
        lent: Vec<types::NamedLentValue>,
    ) -> Result<Result<NativeCall, String>, StopReason> {
        let values = match guest_output::lent_values(self, lent)? {
            Ok(values) => values,
            Err(why) => return Ok(Err(why)),
        };
        let inputs = match arrange(step.signature(), values) {
            Ok(inputs) => inputs,
            Err(why) => return Ok(Err(why)),
        };
        let kinds: Vec<_> = inputs.iter().map(|input| input.as_ref().map(Value::kind)).collect();
        let outputs = match step.infer(&kinds) {
            Ok(outputs) => outputs,
            Err(mismatch) => return Ok(Err(mismatch.to_string())),
        };
        let given: usize = inputs.iter().flatten().map(Value::byte_len).sum();
        let made = outputs.iter().map(least_size).fold(step.buffers(&inputs), usize::saturating_add);
        self.meter.check_fits(made)?;
        Ok(Ok(NativeCall { inputs, bytes: given.saturating_add(made) }))
    }

    /// Counts what one call copies into the guest.
    fn check_total_copy_size(&self, copied: &mut usize, size: usize) -> Result<(), StopReason> {
        *copied = copied.saturating_add(size);
        self.check_copy_size(*copied)
    }

    fn give(&mut self, signature: &Signature, outcome: Result<Vec<Value>, StepFailure>) -> Answer {
        let values = match outcome {
            Ok(values) => values,
            Err(StepFailure::InvalidInput(why)) => return Ok(Err(types::Error::InvalidInput(why))),
            Err(StepFailure::Failed(why)) => return Ok(Err(types::Error::Failed(why))),
            Err(other) => return Err(StopReason(other).into()),
        };
        let mut copied = 0_usize;
        let mut given = Vec::with_capacity(values.len());
        for (port, value) in signature.outputs.iter().zip(values) {
            let value = match value {
                Value::Tensor(tensor) => types::Value::Tensor(self.insert_tensor(tensor)?),
                Value::Text(text) => {
                    self.check_total_copy_size(&mut copied, text.len())?;
                    types::Value::Text(text.as_ref().to_owned())
                }
                Value::Bytes(bytes) => {
                    self.check_total_copy_size(&mut copied, bytes.len())?;
                    types::Value::Bytes(bytes.to_vec())
                }
                Value::Json(json) => {
                    // Only the text itself says how long it is.
                    let text = json.to_string();
                    self.check_total_copy_size(&mut copied, text.len())?;
                    types::Value::Json(text)
                }
            };
            given.push(types::NamedValue { name: port.name.clone(), value });
        }
        Ok(Ok(given))
    }
}

/// Values by name, or in order where no value has a name, to the ports of `signature`.
fn arrange(signature: &Signature, values: Vec<(String, Value)>) -> Result<Vec<Option<Value>>, String> {
    let ports = &signature.inputs;
    let mut inputs: Vec<Option<Value>> = vec![None; ports.len()];
    let in_order = values.iter().all(|(name, _)| name.is_empty());
    for (index, (name, value)) in values.into_iter().enumerate() {
        let place = if in_order { Some(index) } else { ports.iter().position(|port| port.name == name) };
        let Some(input) = place.and_then(|place| inputs.get_mut(place)) else {
            let names: Vec<_> = ports.iter().map(|port| port.name.as_str()).collect();
            return Err(format!("it has no input `{name}` (number {}); it has: {}", index + 1, names.join(", ")));
        };
        if input.replace(value).is_some() {
            return Err(format!("two values for the input `{name}`"));
        }
    }
    match ports.iter().zip(&inputs).find(|(port, input)| !port.optional && input.is_none()) {
        Some((port, _)) => Err(format!("its input `{}` is missing", port.name)),
        None => Ok(inputs),
    }
}

/// The size in bytes of a kind with a known shape; 0 for an open shape.
fn least_size(kind: &Kind) -> usize {
    let Kind::Tensor(tensor) = kind else { return 0 };
    let Some(shape) = &tensor.shape else { return 0 };
    let fixed = |dim: &Dim| if let Dim::Fixed(size) = dim { Some(*size) } else { None };
    let element = tensor.elements.iter().filter_map(gpux_core::ElementType::size).min().unwrap_or(1);
    shape.iter().try_fold(element, |size, dim| Some(size.saturating_mul(fixed(dim)?))).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpux_core::{ElementType, Port, TensorKind};

    #[test]
    fn assigns_values_to_ports() {
        let signature = Signature {
            inputs: vec![Port::new("a", Kind::Text), Port::optional("b", Kind::Text)],
            outputs: Vec::new(),
        };
        let named = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), Value::from(*name))).collect();
        let arrange = |names: &[&str]| arrange(&signature, named(names));
        assert_eq!(arrange(&["b", "a"]).unwrap(), [Some(Value::from("a")), Some(Value::from("b"))]);
        assert_eq!(arrange(&[""]).unwrap(), [Some(Value::from("")), None]);
        assert!(arrange(&["b"]).unwrap_err().contains("`a` is missing"));
        assert!(arrange(&["a", "a"]).unwrap_err().contains("two values"));
        assert!(arrange(&["", "", ""]).unwrap_err().contains("number 3"));
        assert!(arrange(&["c"]).unwrap_err().contains("no input `c`"));
    }

    #[test]
    fn sizes_saturate() {
        let kind = |shape: Vec<Dim>| Kind::Tensor(TensorKind::shaped(ElementType::Float32, shape));
        assert_eq!(least_size(&kind(vec![Dim::Fixed(2), Dim::Fixed(3)])), 24);
        assert_eq!(least_size(&kind(vec![Dim::Fixed(2), Dim::Dynamic])), 0);
        assert_eq!(least_size(&kind(vec![Dim::Fixed(usize::MAX), Dim::Fixed(3)])), usize::MAX);
    }
}
