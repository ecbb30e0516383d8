//! A step that makes one tensor of another: what differs is a [`TensorOperation`], the rest is here.

use serde::Serialize;
use serde_json::json;

use crate::deadline::Deadline;
use crate::operation::{BuiltinStep, Inputs, Operation};
use crate::ports;
use gpux_core::{ElementSet, Kind, Port, Signature, Step, StepFailure, Tensor, TensorKind, Value};

/// An operation on one tensor. Implemented by the options of a step, which `gpux inspect` shows.
pub(crate) trait TensorOperation: Serialize + Send + Sync + 'static {
    /// The step's name.
    const NAME: &'static str;

    /// The names of its input and its output.
    const PORTS: [&'static str; 2] = ["tensor", "tensor"];

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

/// A step of this operation; `takes` and `gives` describe its ports.
pub(crate) fn step<T: TensorOperation>(operation: T, takes: &str, gives: &str) -> Box<dyn Step> {
    let any = TensorKind::of_elements(operation.takes());
    let given = operation.kind(&any).unwrap_or_else(|_| TensorKind::of_elements(ElementSet::ANY));
    let [from, to] = T::PORTS;
    let signature = Signature::unary(
        Port { description: takes.into(), ..Port::new(from, Kind::Tensor(any)) },
        Port { description: gives.into(), ..Port::new(to, Kind::Tensor(given)) },
    );
    Box::new(BuiltinStep::new(signature, json!(operation), UnaryStep(operation)))
}

struct UnaryStep<T>(T);

impl<T: TensorOperation> Operation for UnaryStep<T> {
    fn infer_tensor(&self, given: &TensorKind, outputs: &mut Vec<Kind>) -> Result<(), String> {
        let narrowed = TensorKind { elements: given.elements.intersection(self.0.takes()), ..given.clone() };
        outputs[0] = Kind::Tensor(self.0.kind(&narrowed)?);
        Ok(())
    }

    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        ports::given_tensor(inputs).map_or(0, |tensor| self.0.buffers(tensor))
    }

    fn run(&self, mut inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        let tensor = inputs.tensor()?;
        let refuse = |why: String| StepFailure::InvalidInput(format!("{}: {why}", T::NAME));
        if !self.0.takes().contains(tensor.element()) {
            let why = format!("it takes {} elements, but gets {}; cast them first", self.0.takes(), tensor.element());
            return Err(refuse(why));
        }
        let made = self.0.apply(tensor, deadline);
        deadline.check_cached()?;
        Ok(vec![made.map_err(refuse)?.into()])
    }
}

/// Helpers of these steps' tests.
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
pub(crate) mod testing {
    use super::*;
    use gpux_core::{BuildError, Builtin, Context};

    pub(crate) fn build(builtin: Builtin, options: serde_json::Value) -> Result<Box<dyn Step>, BuildError> {
        crate::reference::build(builtin, options)
    }

    /// Runs the step on `tensor`, and checks the result against the inferred kind.
    pub(crate) fn apply(builtin: Builtin, options: serde_json::Value, tensor: Tensor) -> Result<Tensor, String> {
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
    pub(crate) fn plan(builtin: Builtin, options: serde_json::Value, given: TensorKind) -> Result<String, String> {
        let step = build(builtin, options).unwrap_or_else(|error| panic!("{error}"));
        step.infer(&[Some(Kind::Tensor(given))]).map(|kinds| kinds[0].to_string()).map_err(|error| error.to_string())
    }
}
