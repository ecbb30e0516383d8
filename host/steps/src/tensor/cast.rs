//! `cast`: elements of one type → elements of another.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::element::ElementName;
use super::text;
use crate::deadline::Deadline;
use crate::ports;
use crate::unary::{self, TensorOperation};
use gpux_core::{Builtin, ElementType, Group, Tensor, TensorKind};

/// Options of `cast`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Cast {
    /// The element type of the result: `bool`, `uint8`, `int8`, `uint16`, `int16`, `uint32`, `int32`,
    /// `uint64`, `int64`, `float16`, `bfloat16`, `float32`, `float64` or `string`. Required.
    to: ElementName,
}

/// Converts each element to another type.
///
/// Follows `numpy.ndarray.astype`: floats lose their fraction, integers too large for the new type keep
/// their lowest bits, a number is true unless it is 0, strings are read and written as Python's `float`,
/// `int` and `str` do. Where NumPy leaves the result to the processor, it is defined here: a float outside
/// of an integer's range becomes the nearest end of it, NaN becomes 0.
pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "cast",
        summary: "Converts elements to another type",
        group: Group::Tensor,
        follows: "NumPy: numpy.ndarray.astype",
        example: "cast: { to: float32 }",
        schema: || schemars::schema_for!(Cast),
        build: |options, _| {
            let cast: Cast = ports::options(options)?;
            Ok(unary::step(cast, "of any shape", "of the same shape"))
        },
    }
}

impl TensorOperation for Cast {
    const NAME: &'static str = "cast";

    fn kind(&self, given: &TensorKind) -> Result<TensorKind, String> {
        if given.element() == Some(ElementType::String) && self.to.0 == ElementType::Bool {
            return Err(text::NO_BOOL.into());
        }
        Ok(TensorKind { elements: self.to.0.into(), ..given.clone() })
    }

    fn buffers(&self, given: &Tensor) -> usize {
        if self.to.0 == ElementType::String { given.len().saturating_mul(text::LONGEST) } else { 0 }
    }

    fn apply(&self, given: Tensor, deadline: &Deadline) -> Result<Tensor, String> {
        match (given.element(), self.to.0) {
            (from, to) if from == to => Ok(given),
            (ElementType::String, to) => text::read(&given, to, deadline),
            (_, ElementType::String) => text::write(&given, deadline),
            (_, to) => given.cast_cancellable(to, deadline).map_err(|error| error.to_string()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::unary::testing;
    use gpux_core::Dim;

    fn cast(to: &str, tensor: Tensor) -> Result<Tensor, String> {
        testing::apply(builtin(), json!({ "to": to }), tensor)
    }

    #[test]
    fn parses_numbers_and_names_invalid_text() {
        let texts = |texts: &[&str]| {
            Tensor::new([texts.len()], texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>()).unwrap()
        };
        let given = cast("float32", texts(&["1.5", " 2 ", "-inf", "1e3"])).unwrap();
        assert_eq!(given.as_slice::<f32>().unwrap(), [1.5, 2.0, f32::NEG_INFINITY, 1000.0]);
        assert!(cast("float32", texts(&["1", "one"])).unwrap_err().contains("`one` (element 1) is not a number"));
        assert!(cast("int8", texts(&["128"])).unwrap_err().contains("int8"));
        assert!(cast("int8", texts(&["1.0"])).is_err());
        assert!(cast("bool", texts(&["True"])).is_err());
        assert!(cast("float32", texts(&[&"9".repeat(1 << 16)])).is_err());
    }

    #[test]
    fn infers_type_and_keeps_shape() {
        let plan = |to: &str, from| {
            let given = TensorKind::shaped(from, vec![Dim::Dynamic, Dim::Fixed(2)]);
            testing::plan(builtin(), json!({ "to": to }), given)
        };
        assert_eq!(plan("int64", ElementType::Float32).unwrap(), "tensor int64[?, 2]");
        assert!(plan("bool", ElementType::String).is_err());
        assert!(testing::build(builtin(), json!({"to": "u8"})).is_err());
        assert!(testing::build(builtin(), json!({})).is_err());
    }

    #[test]
    fn tensors_of_the_type_are_not_copied() {
        let tensor = Tensor::new([2], vec![1_f32, 2.0]).unwrap();
        let same = cast("float32", tensor.clone()).unwrap();
        assert_eq!(same.as_slice::<f32>().unwrap().as_ptr(), tensor.as_slice::<f32>().unwrap().as_ptr());
    }
}
