//! `mean`: the mean of the numbers along an axis.

use half::{bf16, f16};
use serde::Serialize;

use super::reduction::AxisReduction;
use super::sum::sums;
use crate::deadline::Deadline;
use crate::ports;
use crate::unary::{self, TensorOperation};
use gpux_core::{Builtin, ElementSet, ElementType, Group, Tensor, TensorKind};

#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
struct Mean(AxisReduction);

/// Gives the mean of the numbers along an axis, or along several. Floats keep their type (float16 and bfloat16 are added
/// in float32); whole numbers and bools give float64.
///
/// Follows `numpy.mean`: NaN and infinities included; the mean of no numbers is NaN.
pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "mean",
        summary: "Gives the mean of the numbers along an axis",
        group: Group::Tensor,
        follows: "NumPy: numpy.mean",
        example: "mean: { axis: -1 }",
        schema: || schemars::schema_for!(AxisReduction),
        build: |options, _| Ok(unary::step(Mean(ports::options(options)?), "numbers or bools", "their means")),
    }
}

const fn element_of(element: ElementType) -> ElementType {
    if element.is_float() { element } else { ElementType::Float64 }
}

impl TensorOperation for Mean {
    const NAME: &'static str = "mean";

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
        let (single, double) = (rows.length as f32, rows.length as f64);
        match element {
            ElementType::Bool => sums(rows, deadline, |is: bool| f64::from(u8::from(is)), |sum| sum / double),
            ElementType::Uint8 => sums(rows, deadline, |number: u8| f64::from(number), |sum| sum / double),
            ElementType::Int8 => sums(rows, deadline, |number: i8| f64::from(number), |sum| sum / double),
            ElementType::Uint16 => sums(rows, deadline, |number: u16| f64::from(number), |sum| sum / double),
            ElementType::Int16 => sums(rows, deadline, |number: i16| f64::from(number), |sum| sum / double),
            ElementType::Uint32 => sums(rows, deadline, |number: u32| f64::from(number), |sum| sum / double),
            ElementType::Int32 => sums(rows, deadline, |number: i32| f64::from(number), |sum| sum / double),
            ElementType::Uint64 => sums(rows, deadline, |number: u64| number as f64, |sum| sum / double),
            ElementType::Int64 => sums(rows, deadline, |number: i64| number as f64, |sum| sum / double),
            ElementType::Float16 => sums(rows, deadline, f16::to_f32, |sum| f16::from_f32(sum / single)),
            ElementType::Bfloat16 => sums(rows, deadline, bf16::to_f32, |sum| bf16::from_f32(sum / single)),
            ElementType::Float32 => sums(rows, deadline, |number: f32| number, |sum| sum / single),
            ElementType::Float64 => sums(rows, deadline, |number: f64| number, |sum| sum / double),
            ElementType::String => Err("texts have no mean".to_owned()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::unary::testing;

    #[test]
    fn averages() {
        let mean = |axis: i64, tensor| testing::apply(builtin(), json!({ "axis": axis }), tensor);
        let table = Tensor::new([2, 2], vec![255, 254, 1, 2_u8]).unwrap();
        assert_eq!(mean(-1, table).unwrap(), Tensor::new([2], vec![254.5, 1.5]).unwrap());
        let half = mean(0, Tensor::new([2], vec![1_f32, 2.0]).unwrap()).unwrap();
        assert_eq!(half, Tensor::scalar(1.5_f32));
        let none = mean(1, Tensor::new([1, 0], Vec::<f32>::new()).unwrap()).unwrap();
        assert!(none.as_slice::<f32>().unwrap()[0].is_nan());
        assert!(mean(1, Tensor::new([1], vec![1_f32]).unwrap()).unwrap_err().contains("no axis 1"));
        let plan = |element: ElementType| testing::plan(builtin(), json!({}), TensorKind::of_elements(element));
        assert_eq!(plan(ElementType::Int8).unwrap(), "tensor float64");
        assert_eq!(plan(ElementType::Bfloat16).unwrap(), "tensor bfloat16");
        assert!(plan(ElementType::String).is_err());
    }
}
