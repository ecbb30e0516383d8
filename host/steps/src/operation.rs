//! What every built-in step shares: [`BuiltinStep`] makes a [`Step`] of an [`Operation`].

use std::sync::Arc;

use serde_json::Value as Json;

use crate::deadline::Deadline;
use gpux_core::{Context, Kind, Mismatch, Port, Signature, Step, StepFailure, Tensor, TensorKind, TextCounts, Value};

/// The work of one built-in step. Everything has a default but [`run`](Self::run).
pub(crate) trait Operation: Send + Sync + 'static {
    /// Narrows `outputs`, the kinds of the output ports, if it is known which tensor the first port gets. An error
    /// says why that tensor cannot be processed. The default: the ports' kinds stay.
    fn infer_tensor(&self, given: &TensorKind, outputs: &mut Vec<Kind>) -> Result<(), String> {
        let _ = (given, outputs);
        Ok(())
    }

    /// [`Step::infer`], for inputs that fit their ports. The default calls [`infer_tensor`](Self::infer_tensor);
    /// a step whose result depends on other inputs than the first defines this instead.
    fn infer(&self, signature: &Signature, inputs: &[Option<Kind>]) -> Result<Vec<Kind>, Mismatch> {
        let mut outputs = output_kinds(signature);
        if let Some(given) = known_tensor(inputs) {
            self.infer_tensor(given, &mut outputs).map_err(|why| mismatch(signature, given, why))?;
        }
        Ok(outputs)
    }

    /// [`Step::buffers`]
    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        let _ = inputs;
        0
    }

    /// [`Step::class_names`]
    fn class_names(&self) -> &[String] {
        &[]
    }

    /// [`Step::tokenizer`]
    fn tokenizer(&self) -> Option<Arc<dyn Step>> {
        None
    }

    /// The values of the output ports. Long work checks `deadline`, which has not passed at first.
    fn run(&self, inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure>;

    /// The same; also counts the texts that it reads.
    fn run_noting(
        &self,
        inputs: Inputs<'_>,
        deadline: &Deadline,
        texts: &mut TextCounts,
    ) -> Result<Vec<Value>, StepFailure> {
        let _ = texts;
        self.run(inputs, deadline)
    }
}

/// An [`Operation`] with its signature, and with the details that `gpux inspect` shows.
pub(crate) struct BuiltinStep<T> {
    signature: Signature,
    details: Json,
    pub(crate) operation: T,
}

impl<T: Operation> BuiltinStep<T> {
    pub(crate) const fn new(signature: Signature, details: Json, operation: T) -> Self {
        Self { signature, details, operation }
    }
}

impl<T: Operation> Step for BuiltinStep<T> {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn infer(&self, inputs: &[Option<Kind>]) -> Result<Vec<Kind>, Mismatch> {
        for (port, given) in self.signature.inputs.iter().zip(inputs) {
            if let Some(given) = given {
                port.kind.accepts(given)?;
            }
        }
        self.operation.infer(&self.signature, inputs)
    }

    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        self.operation.buffers(inputs)
    }

    fn class_names(&self) -> &[String] {
        self.operation.class_names()
    }

    fn tokenizer(&self) -> Option<Arc<dyn Step>> {
        self.operation.tokenizer()
    }

    fn run(&self, inputs: Vec<Option<Value>>, context: &mut Context) -> Result<Vec<Value>, StepFailure> {
        let deadline = Deadline::from_context(context);
        deadline.check()?;
        self.operation.run_noting(Inputs::new(&self.signature.inputs, inputs), &deadline, &mut context.texts)
    }

    fn details(&self) -> Json {
        self.details.clone()
    }
}

/// The values of a request, port after port.
pub(crate) struct Inputs<'s> {
    ports: std::slice::Iter<'s, Port>,
    values: std::vec::IntoIter<Option<Value>>,
}

/// Each port, with its value if it has one.
impl<'s> Iterator for Inputs<'s> {
    type Item = (&'s Port, Option<Value>);

    fn next(&mut self) -> Option<Self::Item> {
        Some((self.ports.next()?, self.values.next().flatten()))
    }
}

impl<'s> Inputs<'s> {
    pub(crate) fn new(ports: &'s [Port], values: Vec<Option<Value>>) -> Self {
        Self { ports: ports.iter(), values: values.into_iter() }
    }

    /// The next value, with the name of its port.
    pub(crate) fn named(&mut self) -> Result<(&str, Value), StepFailure> {
        match self.next() {
            Some((port, Some(value))) => Ok((&port.name, value)),
            Some((port, None)) => Err(StepFailure::InvalidInput(format!("the input `{}` is missing", port.name))),
            None => Err(StepFailure::Failed("it reads more inputs than it has ports".into())),
        }
    }

    /// The next value, which is a tensor.
    pub(crate) fn tensor(&mut self) -> Result<Tensor, StepFailure> {
        self.named().and_then(|(name, value)| expect_tensor(name, value))
    }

    /// The next value, which is bytes.
    pub(crate) fn bytes(&mut self) -> Result<Arc<[u8]>, StepFailure> {
        match self.named()? {
            (_, Value::Bytes(bytes)) => Ok(bytes),
            (name, other) => Err(StepFailure::InvalidInput(format!("`{name}` takes bytes, but gets {}", other.kind()))),
        }
    }

    /// The value of the next port, which is optional.
    pub(crate) fn optional(&mut self) -> Option<Value> {
        self.next()?.1
    }
}

/// The tensor in the value of the port `name`.
pub(crate) fn expect_tensor(name: &str, value: Value) -> Result<Tensor, StepFailure> {
    match value {
        Value::Tensor(tensor) => Ok(tensor),
        other => Err(StepFailure::InvalidInput(format!("`{name}` takes a tensor, but gets {}", other.kind()))),
    }
}

/// The kinds of the output ports.
pub(crate) fn output_kinds(signature: &Signature) -> Vec<Kind> {
    signature.outputs.iter().map(|port| port.kind.clone()).collect()
}

/// The tensor that the plan knows will arrive at the first port.
pub(crate) fn known_tensor(inputs: &[Option<Kind>]) -> Option<&TensorKind> {
    match inputs.first() {
        Some(Some(Kind::Tensor(tensor))) => Some(tensor),
        _ => None,
    }
}

/// The first port cannot take this tensor, for this reason.
pub(crate) fn mismatch(signature: &Signature, given: &TensorKind, because: impl Into<String>) -> Mismatch {
    Mismatch {
        expected: signature.inputs.first().map_or(Kind::Any, |port| port.kind.clone()),
        given: Kind::Tensor(given.clone()),
        because: Some(because.into()),
    }
}
