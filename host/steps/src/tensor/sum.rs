//! `sum`: the sum of the numbers along an axis.

use half::{bf16, f16};
use serde::Serialize;

use super::reduction::{AxisReduction, ReductionRows};
use crate::deadline::Deadline;
use crate::pairwise_sum::{Addend, pairwise_sum};
use crate::ports;
use crate::unary::{self, TensorOperation};
use gpux_core::{Builtin, ElementSet, ElementType, Group, Tensor, TensorElement, TensorKind};

#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
struct Sum(AxisReduction);

/// Gives the sum of the numbers along an axis, or along several. Floats keep their type (float16 and bfloat16 are added
/// in float32); whole numbers and bools become int64, unsigned ones uint64, and wrap around.
///
/// Follows `numpy.sum`: NaN and infinities included; the sum of no numbers is 0.
pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "sum",
        summary: "Adds up the numbers along an axis",
        group: Group::Tensor,
        follows: "NumPy: numpy.sum",
        example: "sum: { axis: -1 }",
        schema: || schemars::schema_for!(AxisReduction),
        build: |options, _| Ok(unary::step(Sum(ports::options(options)?), "numbers or bools", "their sums")),
    }
}

/// The type of the sum of such elements.
fn element_of(element: ElementType) -> ElementType {
    use ElementType as E;
    match element {
        E::Bool | E::Int8 | E::Int16 | E::Int32 | E::Int64 => E::Int64,
        E::Uint8 | E::Uint16 | E::Uint32 | E::Uint64 => E::Uint64,
        E::Float16 | E::Bfloat16 | E::Float32 | E::Float64 | E::String => element,
    }
}

impl TensorOperation for Sum {
    const NAME: &'static str = "sum";

    fn takes(&self) -> ElementSet {
        ElementSet::numeric().with(ElementType::Bool)
    }

    fn kind(&self, given: &TensorKind) -> Result<TensorKind, String> {
        self.0.kind(given, element_of)
    }

    /// The axes in another order.
    fn buffers(&self, given: &Tensor) -> usize {
        given.byte_len()
    }

    fn apply(&self, given: Tensor, deadline: &Deadline) -> Result<Tensor, String> {
        let element = given.element();
        let rows = &self.0.rows(given, element_of(element), deadline)?;
        match element {
            ElementType::Bool => sums(rows, deadline, |is: bool| i64::from(is), |sum| sum),
            ElementType::Uint8 => sums(rows, deadline, |number: u8| u64::from(number), |sum| sum),
            ElementType::Int8 => sums(rows, deadline, |number: i8| i64::from(number), |sum| sum),
            ElementType::Uint16 => sums(rows, deadline, |number: u16| u64::from(number), |sum| sum),
            ElementType::Int16 => sums(rows, deadline, |number: i16| i64::from(number), |sum| sum),
            ElementType::Uint32 => sums(rows, deadline, |number: u32| u64::from(number), |sum| sum),
            ElementType::Int32 => sums(rows, deadline, |number: i32| i64::from(number), |sum| sum),
            ElementType::Uint64 => sums(rows, deadline, |number: u64| number, |sum| sum),
            ElementType::Int64 => sums(rows, deadline, |number: i64| number, |sum| sum),
            ElementType::Float16 => sums(rows, deadline, f16::to_f32, f16::from_f32),
            ElementType::Bfloat16 => sums(rows, deadline, bf16::to_f32, bf16::from_f32),
            ElementType::Float32 => sums(rows, deadline, |number: f32| number, |sum| sum),
            ElementType::Float64 => sums(rows, deadline, |number: f64| number, |sum| sum),
            ElementType::String => Err("texts have no sum".to_owned()),
        }
    }
}

/// The sum of each row, added as `wide` and given as `made`.
pub(super) fn sums<T: TensorElement + Copy, A: Addend, R: TensorElement>(
    rows: &ReductionRows,
    deadline: &Deadline,
    wide: impl Fn(T) -> A + Copy,
    made: impl Fn(A) -> R,
) -> Result<Tensor, String> {
    rows.reduce(deadline, |row: &[T]| Ok(made(pairwise_sum(row, deadline, wide)?)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::unary::testing;
    use gpux_core::Dim;

    #[test]
    fn adds_up() {
        let sum = |options, tensor| testing::apply(builtin(), options, tensor);
        let table = || Tensor::new([2, 2], vec![200, 100, 1, 2_u8]).unwrap();
        assert_eq!(sum(json!({}), table()).unwrap(), Tensor::new([2], vec![300_u64, 3]).unwrap());
        assert_eq!(sum(json!({"axis": 0}), table()).unwrap(), Tensor::new([2], vec![201_u64, 102]).unwrap());
        assert_eq!(sum(json!({"axis": [1, 0]}), table()).unwrap(), Tensor::scalar(303_u64));
        assert_eq!(sum(json!({}), Tensor::new([2], vec![true, true]).unwrap()).unwrap(), Tensor::scalar(2_i64));
    }

    #[test]
    fn handles_empty_and_invalid_inputs() {
        let sum = |axis: i64, tensor| testing::apply(builtin(), json!({ "axis": axis }), tensor);
        let empty = || Tensor::new([3, 0], Vec::<f32>::new()).unwrap();
        assert_eq!(sum(1, empty()).unwrap(), Tensor::new([3], vec![0_f32; 3]).unwrap());
        assert_eq!(sum(0, empty()).unwrap().shape(), [0]);
        assert!(sum(0, Tensor::new([1], vec![String::new()]).unwrap()).is_err());
        let kind = TensorKind::shaped(ElementType::Int8, [Dim::Dynamic, Dim::Fixed(3)]);
        let plan = testing::plan(builtin(), json!({"axis": 0, "keepdims": true}), kind);
        assert_eq!(plan.unwrap(), "tensor int64[1, 3]");
    }
}
