//! Checks and adapts the inputs of a model.

use std::sync::Arc;

use super::super::adaptation::{Adaptations, apply, plan_adaptations};
use super::super::graph::OnnxType;
use super::super::value::OnnxValue;
use super::ModelStep;
use gpux_core::{Deadline, Dim, Kind, Mismatch, StepFailure, Tensor, TensorKind, Value};

impl ModelStep {
    /// The changes to input number `index` when it is given as `given`.
    pub fn adaptations(&self, index: usize, given: &TensorKind) -> Result<Adaptations, Mismatch> {
        plan_adaptations(given, &self.wanted[index]).map_err(|fault| self.with_input_name(index, fault))
    }

    /// Whether a tensor in a device's memory fits unchanged. The plan relied on the previous model's
    /// declaration, which its output may contradict.
    pub(super) fn check_unchanged(&self, index: usize, given: &TensorKind) -> Result<(), StepFailure> {
        let adaptations = self.adaptations(index, given)?;
        if adaptations.is_empty() {
            return Ok(());
        }
        let changes: Vec<_> = adaptations.iter().map(ToString::to_string).collect();
        let (name, kind) = (&self.signature.inputs[index].name, Kind::Tensor(given.clone()));
        Err(StepFailure::Failed(format!(
            "input `{name}` lies on the device as {kind}, which is not what the model before declares: it cannot be \
             changed there ({})",
            changes.join(", ")
        )))
    }

    /// The fault with the input's name in front.
    pub(super) fn with_input_name(&self, index: usize, fault: Mismatch) -> Mismatch {
        let name = &self.signature.inputs[index].name;
        let because = match fault.because {
            Some(because) => format!("input `{name}`: {because}"),
            None => format!("input `{name}`"),
        };
        Mismatch { because: Some(because), ..fault }
    }

    pub(super) fn missing_input(&self, index: usize) -> String {
        let port = &self.signature.inputs[index];
        format!("the model's input `{}` is missing; it takes {}", port.name, self.describe_input(index))
    }

    /// The kind of an input, with its ONNX type where the kind does not tell.
    pub(super) fn describe_input(&self, index: usize) -> String {
        let input = &self.file.info().inputs[index];
        match &self.signature.inputs[index].kind {
            Kind::Json => format!("JSON for {}", input.kind),
            kind => kind.to_string(),
        }
    }

    /// The ONNX type of an input that takes JSON, and an optional tensor that it may be given as.
    pub(super) fn json_input(&self, index: usize) -> Option<&OnnxType> {
        let kind = self.file.info().inputs.get(index)?.value.as_ref()?;
        matches!(kind.kind(), Kind::Json).then_some(kind)
    }

    /// The value as the model takes it.
    pub(super) fn to_onnx_value(
        &self,
        index: usize,
        value: Value,
        deadline: &Deadline,
    ) -> Result<OnnxValue, StepFailure> {
        match (self.json_input(index), value) {
            (Some(kind), Value::Json(json)) => {
                if json.is_null() && !self.signature.inputs[index].optional {
                    let because = "it must have a value here: the model's loop begins with it";
                    return Err(StepFailure::InvalidInput(format!(
                        "input `{}`, which takes {}: {because}",
                        self.signature.inputs[index].name,
                        self.describe_input(index)
                    )));
                }
                let json = Arc::try_unwrap(json).unwrap_or_else(|shared| (*shared).clone());
                let value = OnnxValue::from_json(json, kind).map_err(|error| {
                    let name = &self.signature.inputs[index].name;
                    StepFailure::InvalidInput(format!(
                        "input `{name}`, which takes {}: {error}",
                        self.describe_input(index)
                    ))
                })?;
                self.check_nul_in_value(index, &value, deadline)?;
                Ok(value)
            }
            (Some(kind), value) if kind.tensor().is_none() || value.as_tensor().is_none() => {
                let because = Some(self.describe_input(index));
                Err(self.with_input_name(index, Mismatch { expected: Kind::Json, given: value.kind(), because }).into())
            }
            (_, value) => self.adapt_input(index, value, deadline).map(OnnxValue::Tensor),
        }
    }

    /// Whether all is given that must be.
    pub(super) fn check_inputs<T>(&self, inputs: &[Option<T>]) -> Result<(), StepFailure> {
        if inputs.len() > self.wanted.len() {
            let message = format!("the model takes {} inputs, but gets {}", self.wanted.len(), inputs.len());
            return Err(StepFailure::InvalidInput(message));
        }
        let is_missing =
            |index: &usize| !self.signature.inputs[*index].optional && inputs.get(*index).is_none_or(Option::is_none);
        match (0..self.wanted.len()).find(is_missing) {
            Some(index) => Err(StepFailure::InvalidInput(self.missing_input(index))),
            None => Ok(()),
        }
    }

    /// The same of every tensor in a value.
    fn check_nul_in_value(&self, index: usize, value: &OnnxValue, deadline: &Deadline) -> Result<(), StepFailure> {
        let all = |value: &OnnxValue, item| {
            value.tensors().try_for_each(|tensor| self.check_nul(index, tensor, item, deadline))
        };
        match value {
            OnnxValue::Sequence(items) => items.iter().enumerate().try_for_each(|(item, value)| all(value, Some(item))),
            other => all(other, None),
        }
    }

    /// Refuses texts that an engine could not be given whole: they end at the character NUL there.
    fn check_nul(
        &self,
        index: usize,
        tensor: &Tensor,
        item: Option<usize>,
        deadline: &Deadline,
    ) -> Result<(), StepFailure> {
        for (place, text) in tensor.as_slice::<String>().unwrap_or_default().iter().enumerate() {
            deadline.check_after(text.len().saturating_add(size_of::<String>()))?;
            if text.contains('\0') {
                let name = &self.signature.inputs[index].name;
                let because = "holds the character NUL, which models cannot be given";
                let item = item.map_or_else(String::new, |item| format!("item {item}, "));
                return Err(StepFailure::InvalidInput(format!("input `{name}`: {item}element {place} {because}")));
            }
        }
        Ok(())
    }

    /// The tensor as the model takes it, made in the request's time.
    pub(crate) fn adapt_input(&self, index: usize, value: Value, deadline: &Deadline) -> Result<Tensor, StepFailure> {
        let Value::Tensor(tensor) = value else {
            let expected = Kind::Tensor(self.wanted[index].clone());
            return Err(self.with_input_name(index, Mismatch { expected, given: value.kind(), because: None }).into());
        };
        self.check_nul(index, &tensor, None, deadline)?;
        if fits(&tensor, &self.wanted[index]) {
            return Ok(tensor);
        }
        let adaptations = self.adaptations(index, &TensorKind::of(&tensor))?;
        Ok(apply(tensor, &adaptations, deadline)?)
    }
}

/// Whether the tensor needs no change and cannot be refused. Images are left to [`plan_adaptations`].
fn fits(tensor: &Tensor, wanted: &TensorKind) -> bool {
    let shape_fits = |shape: &Vec<Dim>| {
        shape.len() == tensor.rank()
            && shape.iter().zip(tensor.shape()).all(|(dim, size)| !matches!(dim, Dim::Fixed(fixed) if fixed != size))
    };
    tensor.metadata.layout.is_none()
        && wanted.elements.contains(tensor.element())
        && wanted.shape.as_ref().is_none_or(shape_fits)
}
