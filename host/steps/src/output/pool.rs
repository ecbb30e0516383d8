//! `pool`: a vector for each token → one for each text, in any of sentence-transformers' ways.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::cls_pool::{TokenChoice, take};
use super::mean_pool::{MeanKind, Number, mean};
use super::token_vectors::{Floats, TokenVectors, hidden_ports, pooled_kind};
use crate::deadline::{Deadline, rows_per_check};
use crate::operation::{BuiltinStep, Inputs, Operation};
use crate::ports;
use gpux_core::{BuildError, Builtin, Dim, Group, Kind, StepFailure, Tensor, TensorKind, Value};

/// Options of `pool`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Options {
    /// One way, or a list of several whose vectors stand behind each other. Default: mean.
    mode: Modes,
}

#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum Modes {
    One(Mode),
    Several(#[schemars(length(min = 1, max = 6))] Vec<Mode>),
}

impl Default for Modes {
    fn default() -> Self {
        Self::One(Mode::Mean)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Mode {
    Cls,
    Max,
    Mean,
    MeanSqrtLenTokens,
    #[serde(rename = "weightedmean")]
    WeightedMean,
    #[serde(rename = "lasttoken")]
    LastToken,
}

/// Makes one vector of a text's: batch × length × width becomes batch × width, times the number of modes.
///
/// `attention_mask` (batch × length, optional) says which tokens count. `mean`, `cls` and `lasttoken` are those of
/// `mean-pool` and `cls-pool`. `max` takes the largest number of each place (minus infinity for a text without
/// tokens), `mean_sqrt_len_tokens` divides the sum by the root of the count, and in `weightedmean` the n-th token counts
/// n times. Follows sentence-transformers' `Pooling` (6.2). The element type stays; float16 and bfloat16 are added up in
/// float32.
struct Pool {
    modes: Vec<Mode>,
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "pool",
        summary: "Makes one vector of the tokens': mean, max, weighted mean and others",
        group: Group::Output,
        follows: "sentence-transformers: Pooling(pooling_mode=…)",
        example: "pool: { mode: weightedmean }",
        schema: || schemars::schema_for!(Options),
        build: |options, _| {
            let options: Options = ports::options(options)?;
            let modes = match &options.mode {
                Modes::One(mode) => vec![*mode],
                Modes::Several(modes) if modes.is_empty() => {
                    return Err(BuildError::option("mode", "`mode` is an empty list"));
                }
                Modes::Several(modes) => modes.clone(),
            };
            Ok(Box::new(BuiltinStep::new(hidden_ports(), json!(options), Pool { modes })))
        },
    }
}

impl Operation for Pool {
    fn infer_tensor(&self, given: &TensorKind, outputs: &mut Vec<Kind>) -> Result<(), String> {
        outputs[0] = pooled_kind(given)?;
        if let Kind::Tensor(TensorKind { shape: Some(shape), .. }) = &mut outputs[0]
            && let [_, width] = shape.as_mut_slice()
            && self.modes.len() > 1
        {
            *width = match width {
                Dim::Fixed(width) => Dim::Fixed(width.saturating_mul(self.modes.len())),
                _ => Dim::Dynamic,
            };
        }
        Ok(())
    }

    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        super::token_vectors::buffers(inputs).saturating_mul(2)
    }

    fn run(&self, inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        let hidden = TokenVectors::read(inputs, deadline)?;
        if hidden.shape[1] == 0 {
            return Err(StepFailure::InvalidInput("there are no tokens to make a vector of".into()));
        }
        let pooled = match hidden.floats(deadline)? {
            Floats::Float32(tensor) => self.pool::<f32>(&hidden, &tensor, deadline)?,
            Floats::Float64(tensor) => self.pool::<f64>(&hidden, &tensor, deadline)?,
        };
        Ok(vec![pooled.cast_cancellable(hidden.tensor.element(), deadline)?.into()])
    }
}

impl Pool {
    fn pool<T: Number>(
        &self,
        hidden: &TokenVectors,
        tensor: &Tensor,
        deadline: &Deadline,
    ) -> Result<Tensor, StepFailure> {
        let data = tensor.as_slice::<T>().unwrap_or_default();
        let pool = |mode: &Mode| match mode {
            Mode::Cls => take(TokenChoice::First, hidden, data, deadline),
            Mode::LastToken => take(TokenChoice::Last, hidden, data, deadline),
            Mode::Mean => mean::<T>(hidden, tensor, MeanKind::Mean, deadline),
            Mode::MeanSqrtLenTokens => mean::<T>(hidden, tensor, MeanKind::MeanSqrtLen, deadline),
            Mode::WeightedMean => mean::<T>(hidden, tensor, MeanKind::Weighted, deadline),
            Mode::Max => largest(hidden, data, deadline),
        };
        let parts = self.modes.iter().map(pool).collect::<Result<Vec<_>, _>>()?;
        if let [only] = parts.as_slice() {
            return Ok(only.clone());
        }
        let [batch, _, width] = hidden.shape;
        let mut joined = Vec::with_capacity(batch * width * parts.len());
        for row in 0..batch {
            for part in &parts {
                deadline.check_after(width)?;
                joined.extend_from_slice(&part.as_slice::<T>().unwrap_or_default()[row * width..(row + 1) * width]);
            }
        }
        Ok(Tensor::new([batch, width * parts.len()], joined)?)
    }
}

/// The largest number of each place; NaN if one of them is.
fn largest<T: Number>(hidden: &TokenVectors, data: &[T], deadline: &Deadline) -> Result<Tensor, StepFailure> {
    let [batch, length, width] = hidden.shape;
    let mut largest = vec![T::LOWEST; batch * width];
    if width > 0 {
        let at_once = rows_per_check(width);
        for (row, best) in largest.chunks_exact_mut(width).enumerate() {
            for (token, vector) in data[row * length * width..].chunks_exact(width).take(length).enumerate() {
                if token % at_once == 0 {
                    deadline.check_after(width.saturating_mul(at_once.min(length - token)))?;
                }
                if hidden.weight(row, token) == 0.0 {
                    continue;
                }
                for (best, number) in best.iter_mut().zip(vector) {
                    if *number > *best || number.is_nan() {
                        *best = *number;
                    }
                }
            }
        }
    }
    Ok(Tensor::new([batch, width], largest)?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;
    use crate::reference;
    use gpux_core::{Context, ElementType, Step};

    fn step(mode: serde_json::Value) -> Box<dyn Step> {
        reference::build(builtin(), json!({ "mode": mode })).unwrap()
    }

    #[test]
    fn weights_begin_behind_padding() {
        let hidden = Tensor::new([1, 4, 1], vec![f32::NAN, 1.0, 2.0, 4.0]).unwrap();
        let mask = Tensor::new([1, 4], vec![0_i64, 1, 1, 1]).unwrap();
        let pool = |mode: &str| {
            let inputs = vec![hidden.clone().into(), mask.clone().into()];
            let pooled = reference::run(&*step(json!(mode)), inputs).remove(0);
            pooled.as_tensor().unwrap().as_slice::<f32>().unwrap().to_vec()
        };
        assert_eq!(pool("weightedmean"), [17.0 / 6.0]);
        assert_eq!(pool("max"), [4.0]);
        assert_eq!(pool("mean_sqrt_len_tokens"), [7.0 / 3.0_f32.sqrt()]);
        let nan = Tensor::new([1, 2, 1], vec![f32::NAN, 1.0]).unwrap();
        let pooled = reference::run(&*step(json!("max")), vec![nan.into()]).remove(0);
        assert!(pooled.as_tensor().unwrap().as_slice::<f32>().unwrap()[0].is_nan(), "as PyTorch");
    }

    #[test]
    fn infers_the_width_of_several_modes() {
        let shape = [Dim::Named("N".into()), Dim::Dynamic, Dim::Fixed(384)];
        let hidden = Some(Kind::Tensor(TensorKind::shaped(ElementType::Float16, shape)));
        let kind = |mode| step(mode).infer(&[hidden.clone(), None]).unwrap()[0].to_string();
        assert_eq!(kind(json!("max")), "tensor float16[N, 384]");
        assert_eq!(kind(json!(["cls", "mean"])), "tensor float16[N, 768]");
    }

    #[test]
    fn handles_empty_and_invalid_inputs() {
        for mode in ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"] {
            let run = |shape: &[usize]| {
                let hidden = Tensor::zeros(ElementType::Float32, shape).unwrap();
                step(json!(mode)).run(vec![Some(hidden.into()), None], &mut Context::default())
            };
            for shape in [[0, 3, 4], [2, 3, 0]] {
                assert_eq!(run(&shape).unwrap()[0].as_tensor().unwrap().shape(), [shape[0], shape[2]], "{mode}");
            }
            for shape in [&[2, 0, 4][..], &[2, 3], &[]] {
                assert!(matches!(run(shape), Err(StepFailure::InvalidInput(_))), "{mode}");
            }
        }
        for wrong in [json!("other"), json!([]), json!(5)] {
            assert!(reference::build(builtin(), json!({ "mode": wrong })).is_err(), "{wrong}");
        }
    }

    #[test]
    fn stops_at_the_deadline() {
        for shape in [[1, 1 << 19, 4], [1 << 20, 1, 2]] {
            let (ports, hidden) = (hidden_ports().inputs, Tensor::zeros(ElementType::Float32, shape).unwrap());
            let hidden = TokenVectors::read(Inputs::new(&ports, vec![Some(hidden.into())]), &Deadline::default());
            let hidden = hidden.unwrap();
            let data = hidden.tensor.as_slice::<f32>().unwrap();
            let run = |looks| largest::<f32>(&hidden, data, &Deadline::exceeded_after(looks));
            assert_eq!(run(1), Err(StepFailure::Timeout), "{shape:?}");
        }
    }
}
