//! `concat`: several tensors → one, along an axis.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::joining::{self, Combination, CombinedShape};
use super::shape;
use crate::ports;
use gpux_core::{Builtin, Dim, ElementSet, Group, TensorKind};

/// Options of `concat`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Concat {
    /// The axis along which the tensors follow each other; negative ones count from the last. Default: 0.
    axis: i64,
}

/// Puts 2 to 16 tensors behind each other along an axis they have, as `numpy.concatenate` does. Their
/// other axes and their element type must be the same. `in: [a, b]` names them.
pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "concat",
        summary: "Puts tensors behind each other along an axis",
        group: Group::Tensor,
        follows: "NumPy: numpy.concatenate",
        example: "concat: { axis: -1, in: [left, right] }",
        schema: || schemars::schema_for!(Concat),
        build: |options, _| Ok(joining::step(ports::options::<Concat>(options)?, "all of them, along the axis")),
    }
}

impl Concat {
    /// The axis, and the result's shape; the sizes of `T` are added up along the axis.
    fn join_shapes<T: Clone>(
        &self,
        shapes: &[&[T]],
        differ: impl Fn(&T, &T) -> bool,
        sum: impl Fn(&T, &T) -> T,
    ) -> Result<(usize, Vec<T>), String> {
        let [first, rest @ ..] = shapes else { return Err("there are no tensors".into()) };
        let rank = first.len();
        let axis = shape::normalize_axis(self.axis, rank)?;
        let mut joined = first.to_vec();
        for (number, shape) in (2..).zip(rest) {
            if shape.len() != rank {
                return Err(format!("tensor 1 has {rank} axes, but tensor {number} has {}", shape.len()));
            }
            for (at, (size, other)) in joined.iter_mut().zip(*shape).enumerate() {
                if at == axis {
                    *size = sum(size, other);
                } else if differ(size, other) {
                    return Err(format!("tensor {number} has another size than tensor 1 on axis {at}"));
                }
            }
        }
        Ok((axis, joined))
    }
}

impl Combination for Concat {
    const NAME: &'static str = "concat";

    fn kind(&self, kinds: &[&TensorKind], elements: ElementSet) -> Result<TensorKind, String> {
        let shapes: Option<Vec<_>> = kinds.iter().map(|kind| kind.shape.as_deref()).collect();
        let Some(shapes) = shapes else { return Ok(TensorKind::of_elements(elements)) };
        let differ = |one: &Dim, other: &Dim| match (one, other) {
            (Dim::Fixed(one), Dim::Fixed(other)) => one != other,
            _ => false,
        };
        let sum = |one: &Dim, other: &Dim| match (one, other) {
            (Dim::Fixed(one), Dim::Fixed(other)) => Dim::Fixed(one.saturating_add(*other)),
            _ => Dim::Dynamic,
        };
        let (_, shape) = self.join_shapes(&shapes, differ, sum)?;
        Ok(TensorKind::shaped(elements, shape))
    }

    fn shape(&self, shapes: &[&[usize]]) -> Result<CombinedShape, String> {
        let sum = |one: &usize, other: &usize| one.saturating_add(*other);
        let (axis, shape) = self.join_shapes(shapes, |one, other| one != other, sum)?;
        Ok(CombinedShape { sizes: shapes.iter().map(|shape| shape[axis..].iter().product()).collect(), shape })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::unary::testing;
    use gpux_core::{Context, ElementType, Kind, StepFailure, Tensor};

    fn concat(axis: i64, tensors: Vec<Tensor>) -> Result<Tensor, StepFailure> {
        let step = testing::build(builtin(), json!({ "axis": axis })).unwrap();
        let inputs = tensors.into_iter().map(|tensor| Some(tensor.into())).collect();
        Ok(step.run(inputs, &mut Context::default())?.remove(0).as_tensor().unwrap().clone())
    }

    #[test]
    fn concatenates_in_order() {
        let left = || Tensor::new([2, 1], vec![1, 4]).unwrap();
        let right = || Tensor::new([2, 2], vec![2, 3, 5, 6]).unwrap();
        assert_eq!(concat(-1, vec![left(), right()]).unwrap().as_slice::<i32>().unwrap(), [1, 2, 3, 4, 5, 6]);
        assert_eq!(concat(0, vec![right(), right(), right()]).unwrap().shape(), [6, 2]);
        let texts = Tensor::new([1], vec!["x".to_owned()]).unwrap();
        assert_eq!(concat(0, vec![texts.clone(), texts]).unwrap().len(), 2);
        let empty = Tensor::new([2, 0], Vec::<i32>::new()).unwrap();
        assert_eq!(concat(1, vec![empty.clone(), left()]).unwrap().shape(), [2, 1]);
        assert_eq!(concat(0, vec![empty.clone(), empty]).unwrap().shape(), [4, 0]);
    }

    #[test]
    fn handles_empty_and_invalid_inputs() {
        let table = || Tensor::new([2, 2], vec![1_u8; 4]).unwrap();
        for (axis, other) in [
            (0, Tensor::new([2, 3], vec![1_u8; 6]).unwrap()),
            (0, Tensor::new([4], vec![1_u8; 4]).unwrap()),
            (2, table()),
            (0, Tensor::new([2, 2], vec![1_i8; 4]).unwrap()),
            (0, Tensor::scalar(1_u8)),
        ] {
            assert!(matches!(concat(axis, vec![table(), other]), Err(StepFailure::InvalidInput(_))));
        }
        assert!(concat(0, vec![]).is_err());
        let step = testing::build(builtin(), json!({})).unwrap();
        assert!(step.run(vec![Some("text".into())], &mut Context::default()).is_err());
        let huge = Tensor::zeros(ElementType::Uint8, [1 << 20, 0]).unwrap();
        assert!(concat(0, vec![huge.clone(), huge]).unwrap_err().to_string().contains("1 GiB"));
    }

    #[test]
    fn infers_type_and_shape() {
        let step = testing::build(builtin(), json!({"axis": 1})).unwrap();
        let kind = |element, dims: &[Dim]| Some(Kind::Tensor(TensorKind::shaped(element, dims)));
        let infer = |inputs: &[Option<Kind>]| step.infer(inputs).map(|kinds| kinds[0].to_string());
        let left = kind(ElementType::Float32, &[Dim::Named("N".into()), Dim::Fixed(3)]);
        let right = kind(ElementType::Float32, &[Dim::Dynamic, Dim::Fixed(4)]);
        assert_eq!(infer(&[left.clone(), right]).unwrap(), "tensor float32[N, 7]");
        assert!(infer(&[left.clone(), kind(ElementType::Int64, &[Dim::Dynamic])]).is_err());
        assert!(infer(&[left.clone(), kind(ElementType::Float32, &[Dim::Dynamic])]).is_err());
        assert_eq!(infer(&[left, Some(Kind::Any)]).unwrap(), "tensor any");
    }
}
