//! `standardize`: numbers with mean 0 and variance 1.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::along_axis;
use crate::deadline::{Deadline, DeadlineExceeded};
use crate::pairwise_sum::pairwise_sum;
use crate::ports;
use crate::unary::{self, TensorOperation};
use gpux_core::{BuildError, Builtin, ElementSet, Group, Tensor, TensorKind};

/// Options of `standardize`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Standardize {
    /// The axis along which mean and variance are taken; negative ones count from the last. Default: -1.
    axis: i64,
    /// What is added to the variance, so that silence is not divided by 0; at least 0. Default: 1e-7.
    #[schemars(range(min = 0))]
    epsilon: f64,
}

impl Default for Standardize {
    fn default() -> Self {
        Self { axis: -1, epsilon: 1e-7 }
    }
}

/// Brings the numbers along an axis to mean 0 and variance 1: `(x - mean) / sqrt(variance + epsilon)`. The element type
/// stays; float16 and bfloat16 are computed in float32.
///
/// Follows `Wav2Vec2FeatureExtractor` of transformers, which does so with each sound.
pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "standardize",
        summary: "Brings numbers to mean 0 and variance 1",
        group: Group::Tensor,
        follows: "transformers: Wav2Vec2FeatureExtractor",
        example: "standardize: { axis: -1 }",
        schema: || schemars::schema_for!(Standardize),
        build: |options, _| {
            let standardize: Standardize = ports::options(options)?;
            if !standardize.epsilon.is_finite() {
                return Err(BuildError::option("epsilon", "must be a finite number"));
            }
            Ok(unary::step(standardize, "floats", "floats of the same shape"))
        },
    }
}

/// Numbers between two deadline checks.
const PART: usize = 1 << 16;

macro_rules! standardize {
    ($name:ident, $type:ty) => {
        fn $name(row: &mut [$type], epsilon: $type, deadline: &Deadline) -> Result<(), DeadlineExceeded> {
            let count = row.len() as $type;
            let mean = pairwise_sum(row, deadline, |value| value)? / count;
            let square = |value: $type| (value - mean) * (value - mean);
            let variance = pairwise_sum(row, deadline, square)? / count;
            let deviation = (variance + epsilon).sqrt();
            for part in row.chunks_mut(PART) {
                deadline.check_after(part.len())?;
                for value in part {
                    *value = (*value - mean) / deviation;
                }
            }
            Ok(())
        }
    };
}
standardize!(standardize_f32, f32);
standardize!(standardize_f64, f64);

impl TensorOperation for Standardize {
    const NAME: &'static str = "standardize";

    fn takes(&self) -> ElementSet {
        ElementSet::floats()
    }

    fn kind(&self, given: &TensorKind) -> Result<TensorKind, String> {
        along_axis::kind(given, self.axis)
    }

    fn apply(&self, given: Tensor, deadline: &Deadline) -> Result<Tensor, String> {
        along_axis::change(
            given,
            self.axis,
            deadline,
            |row, deadline| standardize_f32(row, self.epsilon as f32, deadline),
            |row, deadline| standardize_f64(row, self.epsilon, deadline),
        )
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::unary::testing;

    #[test]
    fn standardizes_along_an_axis() {
        let standardize = |options, tensor| testing::apply(builtin(), options, tensor);
        let table = || Tensor::new([2, 2], vec![1_f64, 3.0, 5.0, 5.0]).unwrap();
        let rows = standardize(json!({"epsilon": 0.0}), table()).unwrap();
        assert_eq!(rows.as_slice::<f64>().unwrap()[..2], [-1.0, 1.0]);
        assert!(rows.as_slice::<f64>().unwrap()[2].is_nan(), "without epsilon, numbers that are the same have no unit");
        let columns = standardize(json!({"axis": 0, "epsilon": 0}), table()).unwrap();
        assert_eq!(columns.as_slice::<f64>().unwrap(), [-1.0, -1.0, 1.0, 1.0]);
        let silence = Tensor::new([1, 3], vec![0_f32; 3]).unwrap();
        assert_eq!(standardize(json!({}), silence.clone()).unwrap(), silence);
        assert_eq!(standardize(json!({}), Tensor::new([0], vec![0_f32; 0]).unwrap()).unwrap().shape(), [0]);
        assert!(standardize(json!({"axis": 1}), Tensor::new([1], vec![0_f32]).unwrap()).is_err());
        assert!(standardize(json!({}), Tensor::new([1], vec![0_i16]).unwrap()).unwrap_err().contains("cast them"));
        assert!(testing::build(builtin(), json!({"epsilon": -1})).is_err());
    }
}
