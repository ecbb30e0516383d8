//! `softmax`: scores → probabilities.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::along_axis;
use crate::deadline::{Deadline, DeadlineExceeded};
use crate::ports;
use crate::unary::{self, TensorOperation};
use gpux_core::{Builtin, ElementSet, Group, Tensor, TensorKind};

/// Options of `softmax`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Softmax {
    /// The axis whose values shall sum to 1; negative ones count from the last. Default: -1.
    axis: i64,
}

impl Default for Softmax {
    fn default() -> Self {
        Self { axis: -1 }
    }
}

/// Turns scores into probabilities that sum to 1 along an axis: `exp(x - max) / sum(exp(x - max))`.
///
/// Follows `scipy.special.softmax`, NaN and infinities included. The element type stays; float16 and
/// bfloat16 are computed in float32.
pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "softmax",
        summary: "Turns scores into probabilities that sum to 1",
        group: Group::Output,
        follows: "SciPy: scipy.special.softmax",
        example: "softmax",
        schema: || schemars::schema_for!(Softmax),
        build: |options, _| {
            Ok(unary::step(
                ports::options::<Softmax>(options)?,
                "scores of any shape",
                "probabilities, of the same shape and type",
            ))
        },
    }
}

impl TensorOperation for Softmax {
    const NAME: &'static str = "softmax";
    const PORTS: [&'static str; 2] = ["scores"; 2];

    fn takes(&self) -> ElementSet {
        ElementSet::floats()
    }

    fn kind(&self, given: &TensorKind) -> Result<TensorKind, String> {
        along_axis::kind(given, self.axis)
    }

    fn apply(&self, given: Tensor, deadline: &Deadline) -> Result<Tensor, String> {
        along_axis::change(given, self.axis, deadline, softmax_f32, softmax_f64)
    }
}

/// Elements of a row that are worked on at a stretch.
const PART: usize = 1 << 18;

macro_rules! softmax {
    ($name:ident, $type:ty) => {
        fn $name(row: &mut [$type], deadline: &Deadline) -> Result<(), DeadlineExceeded> {
            let max = row.iter().copied().fold(<$type>::NEG_INFINITY, <$type>::max);
            for part in row.chunks_mut(PART) {
                deadline.check_after(part.len())?;
                for value in part {
                    *value = (*value - max).exp();
                }
            }
            // In parts, so that a long row loses no more precision than NumPy's pairwise sum does.
            let sum: $type = row.chunks(128).map(|part| part.iter().sum::<$type>()).sum();
            for part in row.chunks_mut(PART) {
                deadline.check_after(part.len())?;
                for value in part {
                    *value /= sum;
                }
            }
            Ok(())
        }
    };
}
softmax!(softmax_f32, f32);
softmax!(softmax_f64, f64);

/// The softmax of a short row, without deadline checks.
pub(super) fn softmax_of_few(row: &mut [f32]) {
    let _ = softmax_f32(row, &Deadline::default());
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;
    use gpux_core::{Context, Dim, ElementType, Kind, StepFailure};

    fn run(axis: i64, tensor: Tensor) -> Result<Tensor, StepFailure> {
        let mut values = crate::reference::build(builtin(), serde_json::json!({"axis": axis}))
            .unwrap()
            .run(vec![Some(tensor.into())], &mut Context::default())?;
        Ok(values.remove(0).as_tensor().unwrap().clone())
    }

    #[test]
    fn long_rows_stop_at_the_deadline() {
        let mut row = vec![1.0; 2 << 20];
        // Both passes check the deadline.
        for looks in 0..2 {
            assert!(softmax_f32(&mut row, &Deadline::exceeded_after(looks)).is_err());
        }
        assert!(softmax_f32(&mut row, &Deadline::exceeded_after(9)).is_ok());
    }

    #[test]
    fn handles_empty_and_invalid_inputs() {
        for axis in [0, 1, -1, -2] {
            assert_eq!(run(axis, Tensor::new([0, 3], Vec::<f32>::new()).unwrap()).unwrap().shape(), [0, 3]);
            assert_eq!(run(axis, Tensor::new([3, 0], Vec::<f32>::new()).unwrap()).unwrap().shape(), [3, 0]);
        }
        let infinite = run(0, Tensor::new([2], vec![f32::NEG_INFINITY, 1.0]).unwrap()).unwrap();
        assert_eq!(infinite.as_slice::<f32>().unwrap(), [0.0, 1.0]);
        let nan = run(0, Tensor::new([2], vec![f32::NAN, 1.0]).unwrap()).unwrap();
        assert!(nan.as_slice::<f32>().unwrap().iter().all(|value| value.is_nan()), "as SciPy");
        for (axis, tensor) in [
            (2, Tensor::new([1, 1], vec![1_f32]).unwrap()),
            (i64::MIN, Tensor::new([1, 1], vec![1_f32]).unwrap()),
            (-1, Tensor::scalar(1_f32)),
            (0, Tensor::new([1], vec![1_i64]).unwrap()),
        ] {
            assert!(matches!(run(axis, tensor), Err(StepFailure::InvalidInput(_))));
        }
    }

    #[test]
    fn shared_tensors_are_not_modified() {
        let scores = Tensor::new([2], vec![0_f32, 0.0]).unwrap();
        assert_eq!(run(0, scores.clone()).unwrap().as_slice::<f32>().unwrap(), [0.5, 0.5]);
        assert_eq!(scores.as_slice::<f32>().unwrap(), [0.0, 0.0]);
    }

    #[test]
    fn infers_type_and_shape() {
        let infer = |axis, element: ElementType, shape: &[Dim]| {
            let kind = Kind::Tensor(TensorKind::shaped(element, shape));
            crate::reference::build(builtin(), serde_json::json!({"axis": axis}))
                .unwrap()
                .infer(&[Some(kind)])
                .map(|kinds| kinds[0].to_string())
        };
        let shape = [Dim::Dynamic, Dim::Fixed(10)];
        assert_eq!(infer(-1, ElementType::Float16, &shape).unwrap(), "tensor float16[?, 10]");
        assert!(
            infer(2, ElementType::Float32, &shape).unwrap_err().to_string().contains("axis 2, but there are 2 axes")
        );
        assert!(infer(-1, ElementType::Int64, &shape).is_err());
    }
}
