//! `stack`: several tensors → one with an axis more.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::joining::{self, Combination, CombinedShape};
use super::shape::{self, MAX_RANK};
use crate::ports;
use gpux_core::{Builtin, Dim, ElementSet, Group, Kind, TensorKind};

/// Options of `stack`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Stack {
    /// Where the new axis is in the result; negative ones count from the result's last. Default: 0.
    axis: i64,
}

/// Puts 2 to 16 tensors of one shape and type beside each other along a new axis, as `numpy.stack` does.
/// `in: [a, b]` names them.
pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "stack",
        summary: "Puts tensors beside each other along a new axis",
        group: Group::Tensor,
        follows: "NumPy: numpy.stack",
        example: "stack: { axis: 0, in: [first, second] }",
        schema: || schemars::schema_for!(Stack),
        build: |options, _| Ok(joining::step(ports::options::<Stack>(options)?, "all of them, along the new axis")),
    }
}

impl Stack {
    /// The new axis in a result of tensors of `rank` axes.
    fn axis(&self, rank: usize) -> Result<usize, String> {
        if rank >= MAX_RANK {
            return Err(format!("the result would have {} axes, but at most {MAX_RANK} are made", rank + 1));
        }
        shape::normalize_axis(self.axis, rank + 1)
    }
}

impl Combination for Stack {
    const NAME: &'static str = "stack";

    fn kind(&self, kinds: &[&TensorKind], elements: ElementSet) -> Result<TensorKind, String> {
        let Some(first) = kinds.iter().find_map(|kind| kind.shape.as_ref()) else {
            return Ok(TensorKind::of_elements(elements));
        };
        for shape in kinds.iter().filter_map(|kind| kind.shape.as_ref()) {
            agree(first, shape)?;
        }
        let mut shape = first.clone();
        shape.insert(self.axis(first.len())?, Dim::Fixed(kinds.len()));
        Ok(TensorKind::shaped(elements, shape))
    }

    fn shape(&self, shapes: &[&[usize]]) -> Result<CombinedShape, String> {
        let shape = shapes.first().copied().unwrap_or_default();
        if let Some(other) = shapes.iter().find(|other| **other != shape) {
            return Err(format!("all shapes must be the same, but there are {shape:?} and {other:?}"));
        }
        let axis = self.axis(shape.len())?;
        let mut stacked = shape.to_vec();
        stacked.insert(axis, shapes.len());
        Ok(CombinedShape { sizes: vec![shape[axis..].iter().product(); shapes.len()], shape: stacked })
    }
}

/// Whether tensors of these shapes may be the same in each.
fn agree(one: &[Dim], other: &[Dim]) -> Result<(), String> {
    let kind = |shape: &[Dim]| Kind::Tensor(TensorKind::shaped(ElementSet::ANY, shape));
    let fits = kind(one).accepts(&kind(other));
    fits.map_err(|mismatch| format!("all shapes must be the same: {}", mismatch.because.unwrap_or_default()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::unary::testing;
    use gpux_core::{Context, ElementType, StepFailure, Tensor};

    fn stack(axis: i64, tensors: Vec<Tensor>) -> Result<Tensor, StepFailure> {
        let step = testing::build(builtin(), json!({ "axis": axis })).unwrap();
        let inputs = tensors.into_iter().map(|tensor| Some(tensor.into())).collect();
        Ok(step.run(inputs, &mut Context::default())?.remove(0).as_tensor().unwrap().clone())
    }

    #[test]
    fn stacks_along_a_new_axis() {
        let row = |from: i32| Tensor::new([2], vec![from, from + 1]).unwrap();
        assert_eq!(stack(-1, vec![row(0), row(10)]).unwrap().as_slice::<i32>().unwrap(), [0, 10, 1, 11]);
        assert_eq!(stack(0, vec![row(0), row(10)]).unwrap().as_slice::<i32>().unwrap(), [0, 1, 10, 11]);
        let numbers = stack(0, vec![Tensor::scalar(1_u8), Tensor::scalar(2_u8)]).unwrap();
        assert_eq!(numbers, Tensor::new([2], vec![1_u8, 2]).unwrap());
        let empty = Tensor::new([0, 2], Vec::<f32>::new()).unwrap();
        assert_eq!(stack(1, vec![empty.clone(), empty.clone(), empty]).unwrap().shape(), [0, 3, 2]);
        assert_eq!(stack(0, vec![row(0)]).unwrap().shape(), [1, 2]);
    }

    #[test]
    fn handles_empty_and_invalid_inputs() {
        let row = || Tensor::new([2], vec![1_u8; 2]).unwrap();
        for (axis, tensors) in [
            (0, vec![row(), Tensor::new([3], vec![1_u8; 3]).unwrap()]),
            (2, vec![row(), row()]),
            (0, vec![row(), Tensor::new([2], vec![1_i8; 2]).unwrap()]),
            (0, vec![]),
            (0, vec![Tensor::new(vec![1; 64], vec![1_u8]).unwrap(); 2]),
        ] {
            assert!(matches!(stack(axis, tensors), Err(StepFailure::InvalidInput(_))));
        }
    }

    #[test]
    fn infers_type_and_shape() {
        let step = testing::build(builtin(), json!({"axis": -1})).unwrap();
        let kind = |dims: &[Dim]| Some(Kind::Tensor(TensorKind::shaped(ElementType::Float32, dims)));
        let infer = |inputs: &[Option<Kind>]| step.infer(inputs).map(|kinds| kinds[0].to_string());
        assert_eq!(infer(&[kind(&[Dim::Dynamic]), None, kind(&[Dim::Fixed(3)])]).unwrap(), "tensor float32[?, 2]");
        assert!(infer(&[kind(&[Dim::Fixed(4)]), kind(&[Dim::Fixed(3)])]).unwrap_err().to_string().contains("axis 0"));
    }
}
