//! `clip`: numbers held between two bounds.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Number;

use crate::deadline::{Deadline, DeadlineExceeded};
use crate::ports;
use crate::simd::map_elements;
use crate::unary::{self, TensorOperation};
use gpux_core::with_integer_type;
use gpux_core::{
    BuildError, Builtin, ElementSet, ElementType, Group, Tensor, TensorElement, TensorKind, bf16_from_f64, f16_from_f64,
};

/// Options of `clip`: at least one of them.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Clip {
    /// The least that a number may be; smaller ones become this. Whole, if the tensor's numbers are. Default: no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    min: Option<Number>,
    /// The most that a number may be; larger ones become this. Whole, if the tensor's numbers are. Default: no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    max: Option<Number>,
}

/// Holds each number between two bounds, as `numpy.clip` does; NaN stays NaN. The element type stays.
pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "clip",
        summary: "Holds numbers between two bounds",
        group: Group::Tensor,
        follows: "NumPy: numpy.clip",
        example: "clip: { min: 0, max: 1 }",
        schema: || schemars::schema_for!(Clip),
        build: |options, _| {
            let clip: Clip = ports::options(options)?;
            clip.check()?;
            Ok(unary::step(clip, "numbers", "the numbers within the bounds"))
        },
    }
}

/// A bound as a whole number, if it is one.
fn whole(bound: &Number) -> Option<i128> {
    let written_as_float = || bound.as_f64().filter(|float| float.fract() == 0.0).map(|float| float as i128);
    bound.as_i64().map(i128::from).or_else(|| bound.as_u64().map(i128::from)).or_else(written_as_float)
}

impl Clip {
    fn check(&self) -> Result<(), BuildError> {
        let number = |bound: &Option<Number>| bound.as_ref().and_then(Number::as_f64);
        match (number(&self.min), number(&self.max)) {
            (None, None) => Err(BuildError::option("min", "neither `min` nor `max` says what to do")),
            (Some(min), Some(max)) if min > max => {
                Err(BuildError::option("max", format!("`max` is {max}, which is less than `min`, {min}")))
            }
            _ => Ok(()),
        }
    }

    /// The bounds for integers.
    fn whole_bounds(&self, element: ElementType) -> Result<(i128, i128), String> {
        let bound = |bound: &Option<Number>, none: i128| match bound {
            None => Ok(none),
            Some(bound) => {
                whole(bound).ok_or_else(|| format!("{bound} is not a whole number, but the numbers are {element}"))
            }
        };
        Ok((bound(&self.min, i128::MIN)?, bound(&self.max, i128::MAX)?))
    }

    fn integers<T>(&self, given: &mut Tensor, deadline: &Deadline, (low, high): (T, T)) -> Result<(), String>
    where
        T: TensorElement + Copy + Ord + Into<i128> + TryFrom<i128>,
    {
        let (min, max) = self.whole_bounds(T::TYPE)?;
        // A bound beyond the type's range is none.
        let least = T::try_from(min.max(low.into())).ok();
        let most = T::try_from(max.min(high.into())).ok();
        let (Some(least), Some(most)) = (least, most) else {
            return Err(format!("the bounds allow no {}", T::TYPE));
        };
        map_elements(
            given,
            deadline,
            #[inline(always)]
            move |value: T| value.max(least).min(most),
        )?;
        Ok(())
    }

    fn floats<T: TensorElement + Copy + PartialOrd>(
        &self,
        given: &mut Tensor,
        deadline: &Deadline,
        of: impl Fn(f64) -> T,
    ) -> Result<(), DeadlineExceeded> {
        let bound = |bound: &Option<Number>, none: f64| of(bound.as_ref().and_then(Number::as_f64).unwrap_or(none));
        let (min, max) = (bound(&self.min, f64::NEG_INFINITY), bound(&self.max, f64::INFINITY));
        map_elements(
            given,
            deadline,
            #[inline(always)]
            move |value: T| {
                // Comparisons with NaN are false, so it stays.
                let raised = if value < min { min } else { value };
                if raised > max { max } else { raised }
            },
        )
    }
}

impl TensorOperation for Clip {
    const NAME: &'static str = "clip";

    fn takes(&self) -> ElementSet {
        ElementSet::numeric()
    }

    fn kind(&self, given: &TensorKind) -> Result<TensorKind, String> {
        if let Some(element) = given.element().filter(|element| !element.is_float()) {
            self.whole_bounds(element)?;
        }
        Ok(given.clone())
    }

    fn apply(&self, mut given: Tensor, deadline: &Deadline) -> Result<Tensor, String> {
        with_integer_type!(given.element(), T => self.integers(&mut given, deadline, (T::MIN, T::MAX))?,
            ElementType::Float16 => self.floats(&mut given, deadline, f16_from_f64)?,
            ElementType::Bfloat16 => self.floats(&mut given, deadline, bf16_from_f64)?,
            ElementType::Float32 => self.floats(&mut given, deadline, |bound| bound as f32)?,
            ElementType::Float64 => self.floats(&mut given, deadline, |bound| bound)?,
            ElementType::Bool | ElementType::String => {}
        );
        Ok(given)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::unary::testing;

    #[test]
    fn handles_empty_and_invalid_inputs() {
        let clip = |options, tensor| testing::apply(builtin(), options, tensor);
        let floats = clip(json!({"min": 0, "max": 1}), Tensor::new([3], vec![f64::NAN, -1.0, 9.0]).unwrap()).unwrap();
        assert!(floats.as_slice::<f64>().unwrap()[0].is_nan());
        assert_eq!(floats.as_slice::<f64>().unwrap()[1..], [0.0, 1.0]);
        assert_eq!(clip(json!({"max": 255.0}), Tensor::scalar(300_i64)).unwrap(), Tensor::scalar(255_i64));
        assert_eq!(clip(json!({"min": -5, "max": 1e30}), Tensor::scalar(7_u8)).unwrap(), Tensor::scalar(7_u8));
        assert_eq!(clip(json!({"min": u64::MAX}), Tensor::scalar(1_u64)).unwrap(), Tensor::scalar(u64::MAX));
        assert!(clip(json!({"min": 300}), Tensor::scalar(7_u8)).unwrap_err().contains("uint8"));
        assert!(clip(json!({"min": 0.5}), Tensor::scalar(7_u8)).unwrap_err().contains("not a whole number"));
        assert!(clip(json!({"min": 0}), Tensor::scalar(true)).is_err());
        assert_eq!(clip(json!({"min": 0}), Tensor::new([0], vec![0_i8; 0]).unwrap()).unwrap().shape(), [0]);
    }

    #[test]
    fn rejects_invalid_options_and_inputs() {
        assert!(testing::build(builtin(), json!({})).is_err());
        assert!(testing::build(builtin(), json!({"min": 2, "max": 1})).is_err());
        let given = TensorKind::of_elements(ElementType::Int32);
        assert!(testing::plan(builtin(), json!({"min": 0.5}), given).unwrap_err().contains("not a whole number"));
    }
}
