//! `max`: the largest number along an axis.

use serde::Serialize;

use super::reduction::{AxisReduction, ReductionRows};
use crate::deadline::{Deadline, DeadlineExceeded};
use crate::ports;
use crate::unary::{self, TensorOperation};
use gpux_core::with_integer_type;
use gpux_core::{Builtin, ElementSet, ElementType, Group, Tensor, TensorElement, TensorKind};
use half::{bf16, f16};

#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
struct Max(AxisReduction);

/// Gives the largest number along an axis, or along several. The element type stays.
///
/// Follows `numpy.max`: NaN is more than every number.
pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "max",
        summary: "Gives the largest number along an axis",
        group: Group::Tensor,
        follows: "NumPy: numpy.max",
        example: "max: { axis: -1 }",
        schema: || schemars::schema_for!(AxisReduction),
        build: |options, _| Ok(unary::step(Max(ports::options(options)?), "numbers or bools", "the largest ones")),
    }
}

impl TensorOperation for Max {
    const NAME: &'static str = "max";

    fn takes(&self) -> ElementSet {
        ElementSet::numeric().with(ElementType::Bool)
    }

    fn kind(&self, given: &TensorKind) -> Result<TensorKind, String> {
        self.0.kind(given, |element| element)
    }

    /// The axes in another order.
    fn buffers(&self, given: &Tensor) -> usize {
        given.byte_len()
    }

    fn apply(&self, given: Tensor, deadline: &Deadline) -> Result<Tensor, String> {
        let element = given.element();
        let rows = self.0.rows(given, element, deadline)?;
        if rows.length == 0 {
            return Err("there is no largest of no numbers: the axis is empty".to_owned());
        }
        with_integer_type!(element, T => largest(&rows, deadline, |a: T, b| a > b),
            ElementType::Float16 => largest(&rows, deadline, |a: f16, b| a > b || a.is_nan()),
            ElementType::Bfloat16 => largest(&rows, deadline, |a: bf16, b| a > b || a.is_nan()),
            ElementType::Float32 => largest(&rows, deadline, |a: f32, b| (a > b) | a.is_nan()),
            ElementType::Float64 => largest(&rows, deadline, |a: f64, b| (a > b) | a.is_nan()),
            ElementType::Bool => largest(&rows, deadline, |a: bool, b| a && !b),
            ElementType::String => Err("texts have no largest".to_owned())
        )
    }
}

/// Numbers between two deadline checks.
const PART: usize = 1 << 16;

fn largest<T: TensorElement + Copy>(
    rows: &ReductionRows,
    deadline: &Deadline,
    beats: impl Fn(T, T) -> bool + Copy,
) -> Result<Tensor, String> {
    rows.reduce(deadline, |row: &[T]| {
        let mut best = row[0];
        for part in row.chunks(PART) {
            deadline.check_after(part.len())?;
            let of_part = largest_of(part, beats);
            best = if beats(of_part, best) { of_part } else { best };
        }
        Ok::<T, DeadlineExceeded>(best).map_err(String::from)
    })
}

/// The largest of some numbers, in eight lanes.
fn largest_of<T: Copy>(numbers: &[T], beats: impl Fn(T, T) -> bool) -> T {
    let (parts, rest) = numbers.as_chunks::<8>();
    let better = |best: T, number: T| if beats(number, best) { number } else { best };
    let mut best = numbers[0];
    if let Some((first, parts)) = parts.split_first() {
        let mut lanes = *first;
        for part in parts {
            for (lane, number) in lanes.iter_mut().zip(part) {
                *lane = better(*lane, *number);
            }
        }
        best = lanes.into_iter().fold(best, better);
    }
    rest.iter().copied().fold(best, better)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::unary::testing;

    #[test]
    fn finds_the_largest() {
        let max = |options, tensor| testing::apply(builtin(), options, tensor);
        let table = || Tensor::new([2, 3], vec![1, 3, 2, 9, 0, 3_u8]).unwrap();
        assert_eq!(max(json!({}), table()).unwrap(), Tensor::new([2], vec![3_u8, 9]).unwrap());
        assert_eq!(max(json!({"axis": 0, "keepdims": true}), table()).unwrap().shape(), [1, 3]);
        assert_eq!(max(json!({"axis": [0, 1]}), table()).unwrap(), Tensor::scalar(9_u8));
        let mut long = vec![-1_f32; 70];
        long[40] = f32::NAN;
        assert!(max(json!({}), Tensor::new([70], long).unwrap()).unwrap().as_slice::<f32>().unwrap()[0].is_nan());
        assert_eq!(max(json!({}), Tensor::new([2], vec![false, true]).unwrap()).unwrap(), Tensor::scalar(true));
    }

    #[test]
    fn handles_empty_and_invalid_inputs() {
        let max = |axis: i64, tensor| testing::apply(builtin(), json!({ "axis": axis }), tensor);
        assert_eq!(max(0, Tensor::new([3, 0], Vec::<f32>::new()).unwrap()).unwrap().shape(), [0]);
        assert!(max(1, Tensor::new([3, 0], Vec::<f32>::new()).unwrap()).unwrap_err().contains("axis is empty"));
        assert!(max(0, Tensor::scalar(1_f32)).unwrap_err().contains("single number"));
        assert!(max(2, Tensor::new([1, 1], vec![1_f32]).unwrap()).unwrap_err().contains("no axis 2"));
        assert!(max(0, Tensor::new([1], vec![String::new()]).unwrap()).is_err());
        let kind = TensorKind::shaped(ElementType::Float16, [Dim::Dynamic, Dim::Fixed(3)]);
        let plan = |axes| testing::plan(builtin(), json!({ "axis": axes }), kind.clone());
        assert_eq!(plan(json!(-1)).unwrap(), "tensor float16[?]");
        assert!(plan(json!([0, -2])).unwrap_err().contains("twice"));
    }

    use gpux_core::Dim;
}
