//! `cls-pool`: a vector for each token → the vector of one token.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::token_vectors::{TokenVectors, hidden_ports, pooled_kind};
use crate::deadline::Deadline;
use crate::operation::{BuiltinStep, Inputs, Operation};
use crate::ports;
use gpux_core::with_elements;
use gpux_core::{Builtin, Group, Kind, StepFailure, Tensor, TensorElement, TensorKind, Value};

/// Options of `cls-pool`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Options {
    /// Whose vector is taken: that of the `first` token (default, such as `[CLS]`) or of the `last`, as
    /// decoders are pooled. What the attention mask leaves out does not count.
    token: TokenChoice,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(super) enum TokenChoice {
    #[default]
    First,
    Last,
}

/// Takes one token's vector for the whole text: batch × length × width becomes batch × width.
///
/// Follows sentence-transformers' `Pooling` (6.2) with the modes `cls` and `lasttoken`: of a text of which
/// the mask leaves nothing, the first token is taken, or as the last one zeros.
struct ClsPool {
    options: Options,
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "cls-pool",
        summary: "Takes the vector of the first token, or of the last",
        group: Group::Output,
        follows: "sentence-transformers: Pooling(pooling_mode=\"cls\")",
        example: "cls-pool",
        schema: || schemars::schema_for!(Options),
        build: |options, _| {
            let options: Options = ports::options(options)?;
            Ok(Box::new(BuiltinStep::new(hidden_ports(), json!(options), ClsPool { options })))
        },
    }
}

/// Which token's vector is taken; `None` for zeros.
fn token(choice: TokenChoice, hidden: &TokenVectors, row: usize) -> Option<usize> {
    let mut tokens = 0..hidden.shape[1];
    let counts = |token: &usize| hidden.weight(row, *token) != 0.0;
    match choice {
        TokenChoice::First => Some(tokens.find(counts).unwrap_or(0)),
        TokenChoice::Last => tokens.rev().find(counts),
    }
}

/// The vector of one token of each text.
pub(super) fn take<T: TensorElement>(
    choice: TokenChoice,
    hidden: &TokenVectors,
    data: &[T],
    deadline: &Deadline,
) -> Result<Tensor, StepFailure> {
    let [batch, length, width] = hidden.shape;
    let mut taken = Vec::with_capacity(batch * width);
    for row in 0..batch {
        deadline.check_after(length + width)?;
        match token(choice, hidden, row) {
            Some(token) => taken.extend_from_slice(&data[(row * length + token) * width..][..width]),
            None => taken.extend(std::iter::repeat_n(T::default(), width)),
        }
    }
    Ok(Tensor::new([batch, width], taken)?)
}

impl Operation for ClsPool {
    fn infer_tensor(&self, given: &TensorKind, outputs: &mut Vec<Kind>) -> Result<(), String> {
        outputs[0] = pooled_kind(given)?;
        Ok(())
    }

    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        inputs.get(1).and_then(Option::as_ref).and_then(Value::as_tensor).map_or(0, |mask| mask.len().saturating_mul(4))
    }

    fn run(&self, inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        let hidden = TokenVectors::read(inputs, deadline)?;
        if !hidden.tensor.element().is_float() {
            let message = format!("vectors of tokens are floats, not {}; cast them first", hidden.tensor.element());
            return Err(StepFailure::InvalidInput(message));
        }
        if hidden.shape[1] == 0 {
            return Err(StepFailure::InvalidInput("there are no tokens to take one of".into()));
        }
        Ok(vec![
            with_elements!(hidden.tensor.data(), data => take(self.options.token, &hidden, data, deadline))?.into(),
        ])
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;
    use crate::reference;
    use gpux_core::{Context, ElementType, Step};

    fn step(options: serde_json::Value) -> Box<dyn Step> {
        reference::build(builtin(), options).unwrap()
    }

    #[test]
    fn takes_the_first_or_the_last_masked_token() {
        let hidden = || Value::from(Tensor::new([2, 3, 1], vec![1_f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap());
        let mask = || Value::from(Tensor::new([2, 3], vec![1_i32, 1, 0, 0, 0, 0]).unwrap());
        let pool = |options, inputs| {
            let pooled = reference::run(&*step(options), inputs).remove(0);
            pooled.as_tensor().unwrap().as_slice::<f32>().unwrap().to_vec()
        };
        assert_eq!(pool(json!({}), vec![hidden()]), [1.0, 4.0]);
        assert_eq!(pool(json!({}), vec![hidden(), mask()]), [1.0, 4.0]);
        assert_eq!(pool(json!({"token": "last"}), vec![hidden()]), [3.0, 6.0]);
        assert_eq!(pool(json!({"token": "last"}), vec![hidden(), mask()]), [2.0, 0.0]);
    }

    #[test]
    fn handles_empty_and_invalid_inputs() {
        for shape in [&[2, 0, 3][..], &[2, 3], &[]] {
            let hidden = Tensor::zeros(ElementType::Float32, shape).unwrap();
            let result = step(json!({})).run(vec![Some(hidden.into()), None], &mut Context::default());
            assert!(matches!(result, Err(StepFailure::InvalidInput(_))));
        }
        let whole = Tensor::zeros(ElementType::Int8, [1, 1, 1]).unwrap();
        assert!(step(json!({})).run(vec![Some(whole.into())], &mut Context::default()).is_err());
    }
}
