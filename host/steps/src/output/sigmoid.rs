//! `sigmoid`: scores → independent probabilities.

use half::{bf16, f16};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::exponential::exp_of_negative;
use crate::deadline::Deadline;
use crate::ports;
use crate::simd::map_elements;
use crate::unary::{self, TensorOperation};
use gpux_core::{Builtin, ElementSet, ElementType, Group, Tensor, TensorKind};

/// `sigmoid` takes no options.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Sigmoid {}

/// Turns each score into a probability of its own: `1 / (1 + exp(-x))`.
///
/// Follows `scipy.special.expit`, NaN and infinities included. The element type stays; float16 and
/// bfloat16 are computed in float32.
pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "sigmoid",
        summary: "Turns each score into a probability of its own",
        group: Group::Output,
        follows: "SciPy: scipy.special.expit",
        example: "sigmoid",
        schema: || schemars::schema_for!(Sigmoid),
        build: |options, _| {
            let sigmoid: Sigmoid = ports::options(options)?;
            Ok(unary::step(sigmoid, "scores of any shape", "probabilities, of the same shape and type"))
        },
    }
}

impl TensorOperation for Sigmoid {
    const NAME: &'static str = "sigmoid";
    const PORTS: [&'static str; 2] = ["scores"; 2];

    fn takes(&self) -> ElementSet {
        ElementSet::floats()
    }

    fn kind(&self, given: &TensorKind) -> Result<TensorKind, String> {
        Ok(given.clone())
    }

    #[expect(clippy::redundant_closure, reason = "a function that is passed as it is would not be inlined")]
    fn apply(&self, mut given: Tensor, deadline: &Deadline) -> Result<Tensor, String> {
        let tensor = &mut given;
        match tensor.element() {
            ElementType::Float64 => map_elements(tensor, deadline, |x: f64| 1.0 / (1.0 + (-x).exp()))?,
            ElementType::Float16 => map_elements(tensor, deadline, |x: f16| f16::from_f32(sigmoid(x.to_f32())))?,
            ElementType::Bfloat16 => map_elements(tensor, deadline, |x: bf16| bf16::from_f32(sigmoid(x.to_f32())))?,
            _ => map_elements(
                tensor,
                deadline,
                #[inline(always)]
                |x| sigmoid(x),
            )?,
        }
        Ok(given)
    }
}

/// 1 / (1 + e^-x), with a power that is never more than 1.
#[inline(always)]
fn sigmoid(x: f32) -> f32 {
    let power = exp_of_negative(-x.abs());
    (if x >= 0.0 { 1.0 } else { power }) / (1.0 + power)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;
    use gpux_core::{Context, Dim, Kind, StepFailure};

    fn run(tensor: Tensor) -> Result<Tensor, StepFailure> {
        let step = crate::reference::build(builtin(), serde_json::json!({})).unwrap();
        let mut values = step.run(vec![Some(tensor.into())], &mut Context::default())?;
        Ok(values.remove(0).as_tensor().unwrap().clone())
    }

    #[test]
    fn handles_empty_and_invalid_inputs() {
        let given = Tensor::new([4], vec![f32::NEG_INFINITY, 0.0, f32::INFINITY, f32::NAN]).unwrap();
        let probabilities = run(given.clone()).unwrap();
        assert_eq!(probabilities.as_slice::<f32>().unwrap()[..3], [0.0, 0.5, 1.0]);
        assert!(probabilities.as_slice::<f32>().unwrap()[3].is_nan());
        assert_eq!(given.as_slice::<f32>().unwrap()[..2], [f32::NEG_INFINITY, 0.0], "what is shared stays as it was");
        assert_eq!(run(Tensor::new([0, 3], Vec::<f64>::new()).unwrap()).unwrap().shape(), [0, 3]);
        assert_eq!(run(Tensor::scalar(0_f32)).unwrap(), Tensor::scalar(0.5_f32));
        assert!(matches!(run(Tensor::scalar(0_i32)), Err(StepFailure::InvalidInput(_))));
    }

    #[test]
    fn is_exact_to_the_last_digits() {
        for step in -110_000..110_000 {
            let x = step as f32 * 1e-3;
            let wanted = 1.0 / (1.0 + (-f64::from(x)).exp());
            let nearest = wanted as f32;
            let place = f64::from(f32::from_bits(nearest.to_bits() + 1)) - f64::from(nearest);
            let difference = (f64::from(sigmoid(x)) - wanted).abs();
            assert!(difference <= 2.1 * place, "{x}: {difference:e} is {} places", difference / place);
        }
    }

    #[test]
    fn infers_type_and_shape() {
        let step = crate::reference::build(builtin(), serde_json::json!({})).unwrap();
        let kind = |element| Some(Kind::Tensor(TensorKind::shaped(element, vec![Dim::Dynamic, Dim::Fixed(3)])));
        assert_eq!(step.infer(&[kind(ElementType::Float16)]).unwrap()[0].to_string(), "tensor float16[?, 3]");
        assert!(step.infer(&[kind(ElementType::Int64)]).is_err());
    }
}
