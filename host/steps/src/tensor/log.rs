//! `log`: the natural logarithm.

use half::{bf16, f16};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::deadline::Deadline;
use crate::ports;
use crate::simd::map_elements;
use crate::unary::{self, TensorOperation};
use gpux_core::{BuildError, Builtin, ElementSet, ElementType, Group, Tensor, TensorKind, bf16_from_f64, f16_from_f64};

/// Options of `log`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Log {
    /// What is added to each number first, so that 0 has a logarithm; at least 0. Default: 0.
    #[schemars(range(min = 0))]
    epsilon: f64,
}

/// Computes the natural logarithm of each number: `ln(x + epsilon)`. The element type stays; float16 and bfloat16 are
/// computed in float32.
///
/// Follows `numpy.log`: 0 gives -infinity, a negative number NaN. `scale: { factor: 0.4342944819032518 }` makes it the
/// logarithm to base 10, `clip` before it bounds it from below.
pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "log",
        summary: "Computes the natural logarithm",
        group: Group::Tensor,
        follows: "NumPy: numpy.log",
        example: "log: { epsilon: 1e-6 }",
        schema: || schemars::schema_for!(Log),
        build: |options, _| {
            let log: Log = ports::options(options)?;
            if !log.epsilon.is_finite() {
                return Err(BuildError::option("epsilon", "must be a finite number"));
            }
            Ok(unary::step(log, "floats", "their logarithms"))
        },
    }
}

impl TensorOperation for Log {
    const NAME: &'static str = "log";

    fn takes(&self) -> ElementSet {
        ElementSet::floats()
    }

    fn kind(&self, given: &TensorKind) -> Result<TensorKind, String> {
        Ok(given.clone())
    }

    fn apply(&self, mut given: Tensor, deadline: &Deadline) -> Result<Tensor, String> {
        let (tensor, epsilon) = (&mut given, self.epsilon);
        match tensor.element() {
            ElementType::Float64 => map_elements(tensor, deadline, move |x: f64| (x + epsilon).ln())?,
            ElementType::Float16 => {
                let epsilon = f16_from_f64(epsilon).to_f32();
                map_elements(tensor, deadline, move |x: f16| {
                    f16::from_f32(f16::from_f32(x.to_f32() + epsilon).to_f32().ln())
                })?;
            }
            ElementType::Bfloat16 => {
                let epsilon = bf16_from_f64(epsilon).to_f32();
                map_elements(tensor, deadline, move |x: bf16| {
                    bf16::from_f32(bf16::from_f32(x.to_f32() + epsilon).to_f32().ln())
                })?;
            }
            _ => map_elements(tensor, deadline, move |x: f32| (x + epsilon as f32).ln())?,
        }
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
    fn handles_zero_and_invalid_inputs() {
        let log = |options, tensor| testing::apply(builtin(), options, tensor);
        let logs = log(json!({}), Tensor::new([3], vec![0_f32, 1.0, -1.0]).unwrap()).unwrap();
        assert_eq!(logs.as_slice::<f32>().unwrap()[..2], [f32::NEG_INFINITY, 0.0]);
        assert!(logs.as_slice::<f32>().unwrap()[2].is_nan());
        assert_eq!(log(json!({"epsilon": 1}), Tensor::scalar(0_f64)).unwrap(), Tensor::scalar(0_f64));
        assert!(log(json!({}), Tensor::scalar(1_i64)).unwrap_err().contains("cast them first"));
        assert!(testing::build(builtin(), json!({"epsilon": -1})).is_err());
    }
}
