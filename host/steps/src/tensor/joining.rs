//! Steps that combine several tensors: checks, shapes, and copying side by side.

use serde::Serialize;
use serde_json::json;

use crate::deadline::Deadline;
use crate::operation::{self, BuiltinStep, Inputs, Operation, expect_tensor};
use gpux_core::with_elements;
use gpux_core::{
    ElementSet, ElementType, Kind, Mismatch, Port, Signature, Step, StepFailure, Tensor, TensorData, TensorElement,
    TensorKind, Value, element_count,
};

use super::shape::{MAX_BYTES, check_size};

/// Elements that are copied at a stretch, at most.
const PART: usize = 1 << 20;

/// Most tensors that are put together.
const MOST: usize = 16;

/// How a step combines its tensors. Implemented by the options of the step.
pub(super) trait Combination: Serialize + Send + Sync + 'static {
    /// The step's name, for errors.
    const NAME: &'static str;

    /// The kind of the result, of tensors of these kinds and the element types that they share.
    fn kind(&self, kinds: &[&TensorKind], elements: ElementSet) -> Result<TensorKind, String>;

    /// The shape of the result, of tensors of these shapes.
    fn shape(&self, shapes: &[&[usize]]) -> Result<CombinedShape, String>;
}

/// The result: of each tensor in turn, the next `sizes[i]` elements.
pub(super) struct CombinedShape {
    pub(super) sizes: Vec<usize>,
    pub(super) shape: Vec<usize>,
}

/// A step of this combination; `gives` describes its output.
pub(super) fn step<T: Combination>(combination: T, gives: &str) -> Box<dyn Step> {
    Box::new(BuiltinStep::new(signature(gives), json!(combination), Combine(combination)))
}

struct Combine<T>(T);

impl<T: Combination> Operation for Combine<T> {
    fn infer(&self, signature: &Signature, inputs: &[Option<Kind>]) -> Result<Vec<Kind>, Mismatch> {
        let known = kinds(inputs)?.unwrap_or_default();
        let (Some(first), Some(last)) = (known.first(), known.last()) else {
            return Ok(operation::output_kinds(signature));
        };
        let elements = known.iter().fold(ElementSet::ANY, |elements, kind| elements.intersection(kind.elements));
        let kind = self.0.kind(&known, elements).map_err(|why| refuse(first, last, why))?;
        Ok(vec![Kind::Tensor(kind)])
    }

    /// Strings, whose size a kind does not tell.
    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        let bytes = |value: &Value| if value.kind() == Kind::Text { 0 } else { value.byte_len() };
        inputs.iter().flatten().map(bytes).fold(0, usize::saturating_add)
    }

    fn run(&self, inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        let tensors = tensors(inputs)?;
        let shapes: Vec<_> = tensors.iter().map(Tensor::shape).collect();
        let invalid = |why: String| StepFailure::InvalidInput(format!("{}: {why}", T::NAME));
        let combined = self.0.shape(&shapes).map_err(invalid)?;
        // One alone only gets its shape.
        if tensors.len() == 1 {
            let only = tensors.into_iter().map(|tensor| tensor.reshape(combined.shape.clone()).map(Value::from));
            return Ok(only.collect::<Result<_, _>>()?);
        }
        let made = interleave(&tensors, combined, deadline);
        deadline.check_cached()?;
        Ok(vec![made.map_err(invalid)?.into()])
    }
}

/// The ports `tensor-1` to `tensor-16`, of which two must be filled, and `tensor`. Few values of a pipeline
/// have such names, so that an optional port is filled only if it is named, not by chance.
fn signature(gives: &str) -> Signature {
    let any = || Kind::Tensor(TensorKind::of_elements(ElementSet::ANY));
    let port = |number: usize| {
        let name = format!("tensor-{number}");
        let port = if number > 2 { Port::optional(name, any()) } else { Port::new(name, any()) };
        Port { description: format!("number {number}"), ..port }
    };
    Signature {
        inputs: (1..=MOST).map(port).collect(),
        outputs: vec![Port { description: gives.into(), ..Port::new("tensor", any()) }],
    }
}

/// The kinds of the tensors, if the plan knows them all; an error for two element types.
fn kinds(inputs: &[Option<Kind>]) -> Result<Option<Vec<&TensorKind>>, Mismatch> {
    let mut kinds = Vec::with_capacity(inputs.len());
    for kind in inputs.iter().flatten() {
        let Kind::Tensor(tensor) = kind else { return Ok(None) };
        kinds.push(tensor);
    }
    let mut elements = kinds.first().map_or(ElementSet::ANY, |first| first.elements);
    for kind in &kinds {
        elements = elements.intersection(kind.elements);
        if elements.is_empty() {
            return Err(refuse(kinds[0], kind, "all tensors must have one element type; cast them first"));
        }
    }
    Ok(Some(kinds))
}

fn refuse(first: &TensorKind, other: &TensorKind, because: impl Into<String>) -> Mismatch {
    Mismatch {
        expected: Kind::Tensor(TensorKind::of_elements(first.elements)),
        given: Kind::Tensor(other.clone()),
        because: Some(because.into()),
    }
}

/// The tensors of a request, at least one, all of one element type.
fn tensors(inputs: Inputs<'_>) -> Result<Vec<Tensor>, StepFailure> {
    let invalid = StepFailure::InvalidInput;
    let tensor = |(port, value): (&Port, Option<Value>)| Some(expect_tensor(&port.name, value?));
    let tensors = inputs.filter_map(tensor).collect::<Result<Vec<_>, _>>()?;
    let Some(first) = tensors.first() else { return Err(invalid("there are no tensors".into())) };
    let element = first.element();
    match tensors.iter().find(|tensor| tensor.element() != element) {
        Some(other) => Err(invalid(format!(
            "all tensors must have one element type, but there are {element} and {}; cast them first",
            other.element()
        ))),
        None => Ok(tensors),
    }
}

fn interleave(
    tensors: &[Tensor],
    CombinedShape { sizes, shape }: CombinedShape,
    deadline: &Deadline,
) -> Result<Tensor, String> {
    let Some(first) = tensors.first() else { return Err("there are no tensors".into()) };
    check(first.element(), tensors, &shape)?;
    with_elements!(first.data(), data => side_by_side(data, tensors, &sizes, shape, deadline))
}

fn side_by_side<T: TensorElement>(
    _: &[T],
    tensors: &[Tensor],
    sizes: &[usize],
    shape: Vec<usize>,
    deadline: &Deadline,
) -> Result<Tensor, String> {
    let count = element_count(&shape).unwrap_or(0);
    let mut result = Vec::<T>::with_capacity(count);
    let mut rests: Vec<&[T]> = tensors.iter().map(|tensor| tensor.as_slice::<T>().unwrap_or_default()).collect();
    while result.len() < count {
        for (rest, size) in rests.iter_mut().zip(sizes) {
            let Some((taken, after)) = rest.split_at_checked(*size) else {
                return Err("the tensors do not fill the result".into());
            };
            for part in taken.chunks(PART) {
                deadline.check_after(part.len())?;
                result.extend_from_slice(part);
            }
            *rest = after;
        }
    }
    Tensor::new(shape, result).map_err(|error| error.to_string())
}

/// Rejects a result that would be too large; its text is no longer than that of the inputs.
fn check(element: ElementType, tensors: &[Tensor], shape: &[usize]) -> Result<(), String> {
    check_size(element, shape, 0)?;
    let text = tensors.iter().fold(0_usize, |sum, tensor| match tensor.data() {
        TensorData::String(_) => sum.saturating_add(tensor.byte_len()),
        _ => sum,
    });
    if text > MAX_BYTES { Err("the strings take more than 1 GiB".into()) } else { Ok(()) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn stops_at_the_deadline() {
        let tensors = vec![Tensor::zeros(ElementType::Uint8, [2 << 20]).unwrap(); 2];
        let joined = || CombinedShape { sizes: vec![2 << 20; 2], shape: vec![4 << 20] };
        assert!(interleave(&tensors, joined(), &Deadline::exceeded_after(2)).is_err());
        assert_eq!(interleave(&tensors, joined(), &Deadline::exceeded_after(9)).unwrap().len(), 4 << 20);
    }
}
