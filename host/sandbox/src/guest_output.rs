//! Validates values that a guest returns or passes to the host, and converts them to gpux's own.
//!
//! wasmtime has already checked UTF-8, the ownership of handles and the total size of a call.

use super::bindings::{step, types};
use super::failure::StopReason;
use super::limits::{Limits, bytes, exceeded, json_error};
use super::log::sanitize;
use super::state::State;
use gpux_core::sanitize::is_unsafe_for_terminal;
use gpux_core::{
    BoundedJsonTree, Dim, ElementSet, ElementType, Kind, Port, Signature, StepFailure, TensorKind, Value, encoded_size,
    json_decoded_size,
};

/// Bytes of a description or an error's text.
const TEXT: usize = 4 << 10;
/// Axes of a tensor; `NumPy`'s own bound is 64, ONNX models in the wild stay below 10.
pub(super) const RANK: usize = 32;

fn fail(what: &str) -> StepFailure {
    StepFailure::Failed(format!("it broke its own signature: {what}"))
}

/// The values lent to a native step. The inner error is the guest's to handle.
pub(super) fn lent_values(
    state: &State,
    lent: Vec<types::NamedLentValue>,
) -> Result<Result<Vec<(String, Value)>, String>, StopReason> {
    let limits = &state.capabilities.limits;
    if lent.len() > limits.values {
        return Ok(Err(format!("{} values in one call; {} are allowed (limit `values`)", lent.len(), limits.values)));
    }
    let mut values = Vec::with_capacity(lent.len());
    let mut total = 0;
    // What all documents together may take.
    let mut room = limits.result.min(state.meter.left());
    for types::NamedLentValue { name, value } in lent {
        let value = match value {
            types::LentValue::Tensor(tensor) => Value::Tensor(state.tensor(&tensor)?.clone()),
            types::LentValue::Text(text) => Value::from(text),
            types::LentValue::Bytes(bytes) => Value::from(bytes),
            types::LentValue::Json(text) => match document(state, &text, &mut room)? {
                Ok(json) => json,
                Err(why) => return Ok(Err(why)),
            },
        };
        // A tensor counts each time it is named: a step or a model may copy it as often.
        count(&mut total, &value, limits)?;
        values.push((sanitize(&name, limits.name_length), value));
    }
    Ok(Ok(values))
}

/// The result of `process`, one value for each output of `signature`, in its order.
pub(super) fn results(
    state: &mut State,
    signature: &Signature,
    given: Vec<types::NamedValue>,
) -> Result<Vec<Value>, StepFailure> {
    let capabilities = state.capabilities.clone();
    let limits = &capabilities.limits;
    if given.len() > limits.values {
        return Err(StepFailure::Limit(exceeded("values", format!("{} values", limits.values))));
    }
    let mut outputs: Vec<Option<Value>> = vec![None; signature.outputs.len()];
    let mut total = 0;
    // What all documents together may take.
    let mut room = limits.result.min(state.meter.left());
    for types::NamedValue { name, value } in given {
        let shown = || sanitize(&name, limits.name_length);
        let place = signature.outputs.iter().position(|port| port.name == name);
        let (Some(place), true) = (place, name.len() <= limits.name_length) else {
            return Err(fail(&format!("it gave `{}`, which it does not name as an output", shown())));
        };
        let value = match value {
            types::Value::Tensor(tensor) => Value::Tensor(state.take(&tensor).map_err(|stop| stop.0)?),
            types::Value::Text(text) => Value::from(text),
            types::Value::Bytes(bytes) => Value::from(bytes),
            types::Value::Json(text) => document(state, &text, &mut room)
                .map_err(|stop| stop.0)?
                .map_err(|why| fail(&format!("output `{}` is {why}", shown())))?,
        };
        count(&mut total, &value, limits).map_err(|stop| stop.0)?;
        let port = &signature.outputs[place];
        port.kind.accepts(&value.kind()).map_err(|mismatch| {
            fail(&format!("output `{}` {}", shown(), mismatch.to_string().replace("takes", "is to be")))
        })?;
        if outputs[place].replace(value).is_some() {
            return Err(fail(&format!("it gave `{}` twice", shown())));
        }
    }
    let missing = |place: usize| fail(&format!("it did not give its output `{}`", signature.outputs[place].name));
    outputs.into_iter().enumerate().map(|(place, value)| value.ok_or_else(|| missing(place))).collect()
}

/// Counts a value that leaves the guest against `result`.
fn count(total: &mut usize, value: &Value, limits: &Limits) -> Result<(), StopReason> {
    *total = total.saturating_add(encoded_size::memory(value));
    if *total > limits.result { Err(StopReason::limit(exceeded("result", bytes(limits.result)))) } else { Ok(()) }
}

/// Parses a JSON document, which must fit into `room` bytes and the time left; subtracts its memory from `room`.
/// The inner error is the guest's to handle.
fn document(state: &State, text: &str, room: &mut usize) -> Result<Result<Value, String>, StopReason> {
    state.time_budget.admit(json_decoded_size::tree_bytes(text.as_bytes()).min(*room))?;
    // A growing list may have twice the capacity of its values.
    let parsed = BoundedJsonTree::parse(text, state.capabilities.limits.json_depth, *room / 2);
    Ok(parsed.map_err(|error| json_error(&error)).map(|(json, memory)| {
        *room -= 2 * memory;
        Value::from(json)
    }))
}

/// The guest's own error.
pub(super) fn failure(error: &types::Error) -> StepFailure {
    match error {
        types::Error::InvalidInput(why) => StepFailure::InvalidInput(sanitize(why, TEXT)),
        types::Error::Failed(why) => StepFailure::Failed(sanitize(why, TEXT)),
    }
}

/// The guest's error when it is configured again for a request: the request is not at
/// fault, even if the guest says so.
pub(super) fn configure_error(error: &types::Error) -> StepFailure {
    let (types::Error::InvalidInput(why) | types::Error::Failed(why)) = error;
    StepFailure::Failed(format!("its `configure`, which succeeded at first, failed: {}", sanitize(why, TEXT)))
}

/// The summary of `describe`.
pub(super) fn summary(text: &str) -> String {
    sanitize(text, TEXT)
}

/// What `configure` says the step takes and gives.
pub(super) fn signature(given: step::Signature, limits: &Limits) -> Result<Signature, String> {
    let step::Signature { inputs, outputs } = given;
    let signature = Signature { inputs: ports(inputs, "input", limits)?, outputs: ports(outputs, "output", limits)? };
    if let Some(port) = signature.outputs.iter().find(|port| port.optional) {
        return Err(format!("an optional output `{}`; only inputs may be optional", port.name));
    }
    if signature.outputs.is_empty() {
        return Err("no output".to_owned());
    }
    Ok(signature)
}

fn ports(given: Vec<step::Port>, what: &str, limits: &Limits) -> Result<Vec<Port>, String> {
    if given.len() > limits.values {
        return Err(format!("{} {what}s; {} are allowed (limit `values`)", given.len(), limits.values));
    }
    let mut ports: Vec<Port> = Vec::with_capacity(given.len());
    for step::Port { name, kind, optional, description } in given {
        let name = checked_name(&name, limits).map_err(|why| format!("an {what} named {why}"))?;
        if ports.iter().any(|port| port.name == name) {
            return Err(format!("two {what}s named `{name}`"));
        }
        let kind = match kind {
            step::Kind::Any => Kind::Any,
            step::Kind::Text => Kind::Text,
            step::Kind::Bytes => Kind::Bytes,
            step::Kind::Json => Kind::Json,
            step::Kind::Tensor(tensor) => {
                Kind::Tensor(tensor_kind(tensor, limits).map_err(|why| format!("an {what} `{name}` with {why}"))?)
            }
        };
        ports.push(Port { name, kind, optional, description: sanitize(&description, TEXT) });
    }
    Ok(ports)
}

fn tensor_kind(given: step::TensorKind, limits: &Limits) -> Result<TensorKind, String> {
    let step::TensorKind { elements, shape, layout } = given;
    let elements: Vec<_> = elements.into_iter().map(ElementType::from).collect();
    let elements = if elements.is_empty() { ElementSet::ANY } else { ElementSet::of(&elements) };
    let shape = shape.map(|dims| {
        if dims.len() > RANK {
            return Err(format!("{} axes; at most {RANK} are allowed", dims.len()));
        }
        dims.into_iter()
            .map(|dim| match dim {
                step::Dimension::Fixed(size) => Ok(Dim::Fixed(size as usize)),
                step::Dimension::Dynamic => Ok(Dim::Dynamic),
                step::Dimension::Named(name) => {
                    checked_name(&name, limits).map(Dim::Named).map_err(|why| format!("a dimension named {why}"))
                }
            })
            .collect()
    });
    Ok(TensorKind { elements, shape: shape.transpose()?, layout: layout.map(Into::into) })
}

fn checked_name(name: &str, limits: &Limits) -> Result<String, String> {
    if name.is_empty() || name.chars().any(is_unsafe_for_terminal) {
        return Err(format!("`{}`, which is no name", sanitize(name, limits.name_length)));
    }
    if name.len() > limits.name_length {
        let limit = limits.name_length;
        return Err(format!("`{}`, longer than {limit} bytes (limit `name_length`)", sanitize(name, 32)));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use wasmtime::component::Resource;

    use super::super::config::ComponentConfig;
    use super::super::state::{Capabilities, Phase};
    use super::super::time_budget::TimeBudget;
    use super::*;
    use gpux_core::Tensor;

    /// The result of lending `tensor` this many times in one call, under the default limits.
    fn lend(tensor: Tensor, times: usize) -> Option<String> {
        let capabilities = Capabilities::new(&ComponentConfig::default(), Arc::default()).unwrap();
        let time_budget = TimeBudget::start("time", Duration::from_mins(1), None);
        let mut state = State::new(Arc::new(capabilities), Phase::Request, time_budget);
        let handle = state.lend(tensor).unwrap().rep();
        let value = |name: usize| types::NamedLentValue {
            name: name.to_string(),
            value: types::LentValue::Tensor(Resource::new_borrow(handle)),
        };
        match lent_values(&state, (0..times).map(value).collect()) {
            Err(StopReason(StepFailure::Limit(limit))) => Some(limit.limit.into_owned()),
            other => {
                assert_eq!(other.unwrap().unwrap().len(), times);
                None
            }
        }
    }

    #[test]
    fn counts_a_tensor_each_time_it_is_lent() {
        let half = || Tensor::zeros(ElementType::Uint8, [32 << 20]).unwrap();
        assert_eq!(lend(half(), 2), None);
        assert_eq!(lend(half(), 3).as_deref(), Some("result"));
    }

    #[test]
    fn counts_empty_strings() {
        let texts = Tensor::zeros(ElementType::String, [1 << 20]).unwrap();
        assert_eq!(lend(texts.clone(), 2), None);
        assert_eq!(lend(texts, 3).as_deref(), Some("result"));
    }
}
