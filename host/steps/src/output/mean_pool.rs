//! `mean-pool`: a vector for each token → one for each text.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::token_vectors::{Floats, TokenVectors, hidden_ports, pooled_kind};
use crate::deadline::{Deadline, rows_per_check};
use crate::operation::{BuiltinStep, Inputs, Operation};
use crate::ports;
use gpux_core::{Builtin, Group, Kind, StepFailure, Tensor, TensorElement, TensorKind, Value};

/// Options of `mean-pool`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Options {}

/// Averages the vectors of a text's tokens: batch × length × width becomes batch × width.
///
/// `attention_mask` (batch × length, optional) says how much each token counts; what it leaves out is
/// not looked at. Without it, all count. Follows sentence-transformers' `Pooling` (6.2) with the mode
/// `mean`: `sum(token × mask) / max(sum(mask), 1e-9)`. The element type stays;
/// float16 and bfloat16 are added up in float32.
struct MeanPool;

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "mean-pool",
        summary: "Averages the tokens' vectors, as the attention mask says",
        group: Group::Output,
        follows: "sentence-transformers: Pooling(pooling_mode=\"mean\")",
        example: "mean-pool",
        schema: || schemars::schema_for!(Options),
        build: |options, _| {
            let Options {} = ports::options(options)?;
            Ok(Box::new(BuiltinStep::new(hidden_ports(), json!({}), MeanPool)))
        },
    }
}

impl Operation for MeanPool {
    fn infer_tensor(&self, given: &TensorKind, outputs: &mut Vec<Kind>) -> Result<(), String> {
        outputs[0] = pooled_kind(given)?;
        Ok(())
    }

    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        super::token_vectors::buffers(inputs)
    }

    fn run(&self, inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        let hidden = TokenVectors::read(inputs, deadline)?;
        let pooled = match hidden.floats(deadline)? {
            Floats::Float32(tensor) => mean::<f32>(&hidden, &tensor, MeanKind::Mean, deadline)?,
            Floats::Float64(tensor) => mean::<f64>(&hidden, &tensor, MeanKind::Mean, deadline)?,
        };
        Ok(vec![pooled.cast_cancellable(hidden.tensor.element(), deadline)?.into()])
    }
}

/// How tokens count, and what their sum is divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MeanKind {
    /// each as much as the mask says, by their sum
    Mean,
    /// the same, by the root of their sum
    MeanSqrtLen,
    /// the more the later it stands in its text, by their sum
    Weighted,
}

/// A float that weights are applied in.
pub(super) trait Number:
    TensorElement + Copy + std::ops::AddAssign + std::ops::DivAssign + std::ops::Mul<Output = Self> + PartialOrd
{
    const LOWEST: Self;
    fn from_f32(weight: f32) -> Self;
    fn root(self) -> Self;
    fn is_nan(self) -> bool;
}

macro_rules! numbers {
    ($($type:ident),+) => {$(
        impl Number for $type {
            const LOWEST: Self = Self::NEG_INFINITY;

            fn from_f32(weight: f32) -> Self {
                Self::from(weight)
            }

            fn root(self) -> Self {
                self.sqrt()
            }

            fn is_nan(self) -> bool {
                $type::is_nan(self)
            }
        }
    )+};
}
numbers!(f32, f64);

pub(super) fn mean<T: Number>(
    hidden: &TokenVectors,
    tensor: &Tensor,
    kind: MeanKind,
    deadline: &Deadline,
) -> Result<Tensor, StepFailure> {
    let [batch, length, width] = hidden.shape;
    let mut means = vec![T::default(); batch * width];
    let data = tensor.as_slice::<T>().unwrap_or_default();
    if width > 0 {
        for (row, mean) in means.chunks_exact_mut(width).enumerate() {
            let tokens = &data[row * length * width..(row + 1) * length * width];
            let (mut total, at_once) = (T::default(), rows_per_check(width));
            deadline.check_after(width)?;
            // Padding may stand before the text.
            let before = match kind {
                MeanKind::Weighted => hidden.first(row, deadline)?,
                MeanKind::Mean | MeanKind::MeanSqrtLen => 0,
            };
            for (first, block) in (0..).step_by(at_once).zip(tokens.chunks(at_once * width)) {
                deadline.check_after(block.len())?;
                for (token, index) in block.chunks_exact(width).zip(first..) {
                    let mut weight = hidden.weight(row, index);
                    if weight == 0.0 {
                        continue;
                    }
                    if kind == MeanKind::Weighted {
                        weight *= (index - before + 1) as f32;
                    }
                    total += T::from_f32(weight);
                    add(mean, token, weight);
                }
            }
            let least = T::from_f32(1e-9);
            let total = if total < least { least } else { total };
            let total = if kind == MeanKind::MeanSqrtLen { total.root() } else { total };
            for sum in mean {
                *sum /= total;
            }
        }
    }
    Ok(Tensor::new([batch, width], means)?)
}

#[expect(clippy::float_cmp, reason = "a mask holds ones")]
fn add<T: Number>(sums: &mut [T], token: &[T], weight: f32) {
    let pairs = sums.iter_mut().zip(token);
    if weight == 1.0 {
        pairs.for_each(|(sum, value)| *sum += *value);
    } else {
        pairs.for_each(|(sum, value)| *sum += *value * T::from_f32(weight));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;
    use crate::reference;
    use gpux_core::{Context, Dim, ElementType, Step};

    fn step() -> Box<dyn Step> {
        reference::build(builtin(), json!({})).unwrap()
    }

    #[test]
    fn ignores_masked_tokens() {
        let hidden = Tensor::new([2, 2, 1], vec![1_f32, f32::NAN, 5.0, 7.0]).unwrap();
        let mask = Tensor::new([2, 2], vec![1_i64, 0, 1, 1]).unwrap();
        let pooled = reference::run(&*step(), vec![hidden.into(), mask.into()]).remove(0);
        assert_eq!(pooled.as_tensor().unwrap().as_slice::<f32>().unwrap(), [1.0, 6.0]);
        let none = Tensor::zeros(ElementType::Float16, [1, 3, 2]).unwrap();
        let mask = Tensor::zeros(ElementType::Bool, [1, 3]).unwrap();
        let pooled = reference::run(&*step(), vec![none.into(), mask.into()]).remove(0);
        assert_eq!(pooled, Tensor::zeros(ElementType::Float16, [1, 2]).unwrap().into());
    }

    #[test]
    fn stops_at_the_deadline() {
        // One text of many tokens, and many texts of one.
        for shape in [[1, 1 << 19, 4], [1 << 20, 1, 2]] {
            let (ports, hidden) = (hidden_ports().inputs, Tensor::zeros(ElementType::Float32, shape).unwrap());
            let inputs = Inputs::new(&ports, vec![Some(hidden.into())]);
            let hidden = TokenVectors::read(inputs, &Deadline::default());
            let hidden = hidden.unwrap();
            let run = |looks| mean::<f32>(&hidden, &hidden.tensor, MeanKind::Mean, &Deadline::exceeded_after(looks));
            assert_eq!(run(1), Err(StepFailure::Timeout), "{shape:?}");
            assert_eq!(run(9).unwrap().shape(), [shape[0], shape[2]]);
        }
    }

    #[test]
    fn infers_type_and_shape() {
        let shape = [Dim::Named("N".into()), Dim::Dynamic, Dim::Fixed(384)];
        let hidden = |shape: &[Dim]| Some(Kind::Tensor(TensorKind::shaped(ElementType::Float32, shape)));
        assert_eq!(step().infer(&[hidden(&shape), None]).unwrap()[0].to_string(), "tensor float32[N, 384]");
        assert!(step().infer(&[hidden(&shape[..2]), None]).unwrap_err().to_string().contains("batch × length × width"));
        assert!(step().infer(&[Some(Kind::Text), None]).is_err());
    }

    #[test]
    fn handles_empty_and_invalid_inputs() {
        let run = |inputs: Vec<Value>| step().run(inputs.into_iter().map(Some).collect(), &mut Context::default());
        let zeros = |shape: &[usize]| Value::from(Tensor::zeros(ElementType::Float32, shape).unwrap());
        for inputs in [
            vec![zeros(&[2, 3])],
            vec![zeros(&[2, 3, 4]), zeros(&[2, 4])],
            vec![zeros(&[2, 3, 4]), "mask".into()],
            vec![Tensor::zeros(ElementType::Int64, [1, 1, 1]).unwrap().into()],
            vec!["text".into()],
            vec![],
        ] {
            assert!(matches!(run(inputs), Err(StepFailure::InvalidInput(_))));
        }
        for shape in [[0, 3, 4], [2, 0, 4], [2, 3, 0]] {
            assert!(run(vec![zeros(&shape), zeros(&shape[..2])]).is_ok());
        }
    }
}
