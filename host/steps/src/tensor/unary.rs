//! A step that makes one tensor of another: what differs is a [`TensorOperation`], the rest is here.

use serde::Serialize;

use crate::deadline::Deadline;
use crate::ports;
use gpux_core::{Context, ElementSet, Kind, Mismatch, Port, Signature, Step, StepFailure, Tensor, TensorKind, Value};

/// An operation on one tensor. Implemented by the options of a step, which `gpux inspect` shows.
pub(super) trait TensorOperation: Serialize + Send + Sync + 'static {
    /// The step's name.
    const NAME: &'static str;

    /// Which elements it works on. The default: any.
    fn takes(&self) -> ElementSet {
        ElementSet::ANY
    }

    /// The kind of the result; an error for a tensor that is certain to be rejected.
    fn kind(&self, given: &TensorKind) -> Result<TensorKind, String>;

    /// Bytes that it takes for a while, or more than the kind of the result tells.
    fn buffers(&self, given: &Tensor) -> usize {
        let _ = given;
        0
    }

    /// The result, or the error of the tensor. Long work checks `deadline`.
    fn apply(&self, given: Tensor, deadline: &Deadline) -> Result<Tensor, String>;
}

pub(super) struct UnaryStep<C> {
    change: C,
    signature: Signature,
}

impl<C: TensorOperation> UnaryStep<C> {
    pub(super) fn new(change: C, takes: &str, gives: &str) -> Self {
        let any = TensorKind::of_elements(change.takes());
        let given = change.kind(&any).unwrap_or_else(|_| TensorKind::of_elements(ElementSet::ANY));
        let signature = Signature::unary(
            Port { description: takes.into(), ..Port::new("tensor", Kind::Tensor(any)) },
            Port { description: gives.into(), ..Port::new("tensor", Kind::Tensor(given)) },
        );
        Self { change, signature }
    }
}

impl<C: TensorOperation> Step for UnaryStep<C> {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn infer(&self, inputs: &[Option<Kind>]) -> Result<Vec<Kind>, Mismatch> {
        ports::check(&self.signature, inputs)?;
        let Some(given) = ports::known_tensor(inputs) else {
            return Ok(vec![self.signature.outputs[0].kind.clone()]);
        };
        let narrowed = TensorKind { elements: given.elements.intersection(self.change.takes()), ..given.clone() };
        let made = self.change.kind(&narrowed).map_err(|why| ports::refuse(&self.signature, given, why))?;
        Ok(vec![Kind::Tensor(made)])
    }

    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        ports::given_tensor(inputs).map_or(0, |tensor| self.change.buffers(tensor))
    }

    fn run(&self, inputs: Vec<Option<Value>>, context: &mut Context) -> Result<Vec<Value>, StepFailure> {
        let tensor = ports::first_tensor(inputs, "tensor")?;
        let refuse = |why: String| StepFailure::InvalidInput(format!("{}: {why}", C::NAME));
        if !self.change.takes().contains(tensor.element()) {
            let why = format!("it takes {} elements, but gets {}", self.change.takes(), tensor.element());
            return Err(refuse(why));
        }
        let deadline = Deadline::from_context(context);
        deadline.check()?;
        let made = self.change.apply(tensor, &deadline);
        deadline.check_cached()?;
        Ok(vec![made.map_err(refuse)?.into()])
    }

    fn details(&self) -> serde_json::Value {
        serde_json::to_value(&self.change).unwrap_or_default()
    }
}

/// Helpers of these steps' tests.
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
pub(super) mod testing {
    use super::*;
    use gpux_core::{BuildError, Builtin, OptionOrigin};

    pub(in crate::tensor) fn build(builtin: Builtin, options: serde_json::Value) -> Result<Box<dyn Step>, BuildError> {
        (builtin.build)(options, &OptionOrigin::Component)
    }

    /// Runs the step on `tensor`, and checks the result against the inferred kind.
    pub(in crate::tensor) fn apply(
        builtin: Builtin,
        options: serde_json::Value,
        tensor: Tensor,
    ) -> Result<Tensor, String> {
        let step = build(builtin, options).unwrap_or_else(|error| panic!("{error}"));
        let value = Value::from(tensor);
        let promised = step.infer(&[Some(value.kind())]);
        match step.run(vec![Some(value)], &mut Context::default()) {
            Ok(values) => {
                promised.unwrap()[0].accepts(&values[0].kind()).unwrap();
                Ok(values[0].as_tensor().unwrap().clone())
            }
            Err(StepFailure::InvalidInput(why)) => Err(why),
            Err(other) => panic!("{other}"),
        }
    }

    /// The inferred kind of the result as text, or the error.
    pub(in crate::tensor) fn plan(
        builtin: Builtin,
        options: serde_json::Value,
        given: TensorKind,
    ) -> Result<String, String> {
        let step = build(builtin, options).unwrap_or_else(|error| panic!("{error}"));
        step.infer(&[Some(Kind::Tensor(given))]).map(|kinds| kinds[0].to_string()).map_err(|error| error.to_string())
    }
}
