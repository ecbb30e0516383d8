//! Synthetic inputs of a model.

use super::graph::{ModelInfo, OnnxType};
use gpux_core::{SyntheticInputs, Value};

/// A value for each input of a model that must be given. `None` if one is no tensor, or too large.
pub fn synthetic_inputs(info: &ModelInfo, maker: SyntheticInputs) -> Option<Vec<Option<Value>>> {
    let mut values = Vec::with_capacity(info.inputs.len());
    for input in &info.inputs {
        values.push(match &input.value {
            _ if !input.required => None,
            Some(OnnxType::Tensor { kind, narrow: None }) => Some(Value::Tensor(maker.tensor(kind)?)),
            _ => return None,
        });
    }
    Some(values)
}
