//! `scale`: each number times a factor, plus an offset.

use half::{bf16, f16};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::deadline::{Deadline, DeadlineExceeded};
use crate::ports;
use crate::simd::map_elements;
use crate::unary::{self, TensorOperation};
use gpux_core::{
    BuildError, Builtin, ElementSet, ElementType, Group, Tensor, TensorData, TensorElement, TensorKind, bf16_from_f64,
    f16_from_f64,
};

/// Options of `scale`: at least one of them.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Scale {
    /// What each number is multiplied by. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    factor: Option<f64>,
    /// What is added then. Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<f64>,
}

/// Computes `x × factor + offset`. Floats keep their type; integers and bools become float32 first.
///
/// Follows NumPy: each of the two operations is rounded to the type of the tensor, as are the two numbers.
pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "scale",
        summary: "Multiplies by a factor and adds an offset",
        group: Group::Tensor,
        follows: "NumPy: x * factor + offset",
        example: "scale: { factor: 0.00392156862745098 }",
        schema: || schemars::schema_for!(Scale),
        build: |options, _| {
            let scale: Scale = ports::options(options)?;
            if scale.factor.is_none() && scale.offset.is_none() {
                return Err(BuildError::option("factor", "neither `factor` nor `offset` says what to do"));
            }
            Ok(unary::step(scale, "numbers or bools", "floats of the same shape"))
        },
    }
}

impl Scale {
    fn floats<T: TensorElement + Copy>(
        &self,
        given: &mut Tensor,
        deadline: &Deadline,
        change: impl Fn(T, f64, f64) -> T + Copy,
    ) -> Result<(), DeadlineExceeded> {
        let (factor, offset) = (self.factor.unwrap_or(1.0), self.offset.unwrap_or(0.0));
        map_elements(
            given,
            deadline,
            #[inline(always)]
            move |value| change(value, factor, offset),
        )
    }
}

impl TensorOperation for Scale {
    const NAME: &'static str = "scale";

    fn takes(&self) -> ElementSet {
        ElementSet::numeric().with(ElementType::Bool)
    }

    fn kind(&self, given: &TensorKind) -> Result<TensorKind, String> {
        let made: Vec<_> = given.elements.iter().map(scaled_element).collect();
        Ok(TensorKind { elements: ElementSet::of(&made), ..given.clone() })
    }

    fn apply(&self, mut given: Tensor, deadline: &Deadline) -> Result<Tensor, String> {
        if !given.element().is_float() {
            given = given.cast_cancellable(ElementType::Float32, deadline).map_err(|error| error.to_string())?;
        }
        match given.data() {
            TensorData::Float64(_) => {
                self.floats(&mut given, deadline, |value: f64, factor, offset| value * factor + offset)
            }
            TensorData::Float16(_) => self.floats(&mut given, deadline, |value: f16, factor, offset| {
                let product = f16::from_f32(value.to_f32() * f16_from_f64(factor).to_f32());
                f16::from_f32(product.to_f32() + f16_from_f64(offset).to_f32())
            }),
            TensorData::Bfloat16(_) => self.floats(&mut given, deadline, |value: bf16, factor, offset| {
                let product = bf16::from_f32(value.to_f32() * bf16_from_f64(factor).to_f32());
                bf16::from_f32(product.to_f32() + bf16_from_f64(offset).to_f32())
            }),
            _ => self.floats(&mut given, deadline, |value: f32, factor, offset| value * factor as f32 + offset as f32),
        }?;
        Ok(given)
    }
}

fn scaled_element(element: ElementType) -> ElementType {
    if element.is_float() { element } else { ElementType::Float32 }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::unary::testing;

    #[test]
    fn scales_integers_to_floats_without_changing_shared_tensors() {
        let scale = |tensor: Tensor| testing::apply(builtin(), json!({"factor": 2, "offset": 1}), tensor);
        let given = Tensor::new([2], vec![1_f32, f32::NAN]).unwrap();
        let scaled = scale(given.clone()).unwrap();
        assert!(scaled.as_slice::<f32>().unwrap()[0].to_bits() == 3_f32.to_bits());
        assert!(scaled.as_slice::<f32>().unwrap()[1].is_nan());
        assert!(given.as_slice::<f32>().unwrap()[0].to_bits() == 1_f32.to_bits());
        assert_eq!(scale(Tensor::scalar(3_u8)).unwrap(), Tensor::scalar(7_f32));
        assert_eq!(scale(Tensor::scalar(true)).unwrap(), Tensor::scalar(3_f32));
        assert_eq!(scale(Tensor::new([0], vec![0_i64; 0]).unwrap()).unwrap().shape(), [0]);
        assert!(scale(Tensor::scalar(String::new())).is_err());
    }

    #[test]
    fn infers_type() {
        let plan =
            |element: ElementSet| testing::plan(builtin(), json!({"factor": 2}), TensorKind::of_elements(element));
        assert_eq!(plan(ElementType::Uint8.into()).unwrap(), "tensor float32");
        assert_eq!(plan(ElementType::Float16.into()).unwrap(), "tensor float16");
        assert_eq!(plan(ElementSet::ANY).unwrap(), "tensor float");
        assert!(plan(ElementType::String.into()).is_err());
        assert!(testing::build(builtin(), json!({})).is_err());
    }
}
