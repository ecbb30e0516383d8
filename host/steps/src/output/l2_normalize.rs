//! `l2-normalize`: vectors → the same of length 1.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::along_axis;
use crate::deadline::Deadline;
use crate::ports;
use crate::unary::{self, TensorOperation};
use gpux_core::{Builtin, ElementSet, Group, Tensor, TensorKind};

/// The least length that is divided by, so that a vector of zeros stays one.
const LEAST: f32 = 1e-12;

/// Options of `l2-normalize`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct L2Normalize {
    /// The axis along which a vector lies; negative ones count from the last. Default: -1.
    axis: i64,
}

impl Default for L2Normalize {
    fn default() -> Self {
        Self { axis: -1 }
    }
}

/// Divides each vector by its length: `x / max(‖x‖₂, 1e-12)`.
///
/// Follows `torch.nn.functional.normalize`, as sentence-transformers' `Normalize` does. The element
/// type stays; float16 and bfloat16 are computed in float32.
pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "l2-normalize",
        summary: "Brings vectors to length 1",
        group: Group::Output,
        follows: "PyTorch: torch.nn.functional.normalize",
        example: "l2-normalize",
        schema: || schemars::schema_for!(L2Normalize),
        build: |options, _| {
            Ok(unary::step(ports::options::<L2Normalize>(options)?, "vectors along an axis", "the same of length 1"))
        },
    }
}

impl TensorOperation for L2Normalize {
    const NAME: &'static str = "l2-normalize";
    const PORTS: [&'static str; 2] = ["embeddings"; 2];

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
            |row, deadline| {
                normalize(row);
                deadline.check_after(row.len())
            },
            |row, deadline| {
                normalize_f64(row);
                deadline.check_after(row.len())
            },
        )
    }
}

/// The sum of the products, in sixteen parts that the processor adds side by side.
pub(super) fn dot(left: &[f32], right: &[f32]) -> f32 {
    const LANES: usize = 16;
    let mut sums = [0_f32; LANES];
    let (left_parts, right_parts) = (left.chunks_exact(LANES), right.chunks_exact(LANES));
    let rest: f32 = left_parts.remainder().iter().zip(right_parts.remainder()).map(|(a, b)| a * b).sum();
    for (left, right) in left_parts.zip(right_parts) {
        for (sum, (a, b)) in sums.iter_mut().zip(left.iter().zip(right)) {
            *sum += a * b;
        }
    }
    sums.iter().sum::<f32>() + rest
}

/// Brings one vector to length 1; NaN stays NaN.
pub(super) fn normalize(row: &mut [f32]) {
    let norm = dot(row, row).sqrt();
    let norm = if norm < LEAST { LEAST } else { norm };
    for value in row {
        *value /= norm;
    }
}

fn normalize_f64(row: &mut [f64]) {
    let norm = row.iter().map(|value| value * value).sum::<f64>().sqrt();
    let norm = if norm < f64::from(LEAST) { f64::from(LEAST) } else { norm };
    for value in row {
        *value /= norm;
    }
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
    fn handles_empty_and_invalid_inputs() {
        let zeros = Tensor::zeros(ElementType::Float32, [2, 3]).unwrap();
        assert_eq!(run(-1, zeros.clone()).unwrap(), zeros);
        let nan = run(0, Tensor::new([2], vec![f32::NAN, 1.0]).unwrap()).unwrap();
        assert!(nan.as_slice::<f32>().unwrap().iter().all(|value| value.is_nan()), "as PyTorch");
        assert_eq!(run(1, Tensor::zeros(ElementType::Float64, [3, 0]).unwrap()).unwrap().shape(), [3, 0]);
        for (axis, tensor) in [
            (2, Tensor::new([1, 1], vec![1_f32]).unwrap()),
            (i64::MIN, Tensor::new([1], vec![1_f32]).unwrap()),
            (-1, Tensor::scalar(1_f32)),
            (0, Tensor::new([1], vec![1_i64]).unwrap()),
        ] {
            assert!(matches!(run(axis, tensor), Err(StepFailure::InvalidInput(_))));
        }
    }

    #[test]
    fn infers_type_and_shape() {
        let step = crate::reference::build(builtin(), serde_json::json!({})).unwrap();
        let kind = Kind::Tensor(TensorKind::shaped(ElementType::Float16, [Dim::Dynamic, Dim::Fixed(8)]));
        assert_eq!(step.infer(&[Some(kind.clone())]).unwrap(), [kind]);
        assert!(step.infer(&[Some(Kind::Tensor(TensorKind::shaped(ElementType::Float32, [])))]).is_err());
    }
}
