//! The texts that a value holds.

use std::fmt::Display;

use gpux_core::{Dim, ElementType, Kind, Mismatch, Port, StepFailure, TensorData, TensorKind, Value, media_file};

/// The most bytes of text in one call of a step.
pub(crate) const MAX_TEXT: usize = 64 << 20;

/// A port for a text or several, by any of their forms.
pub(crate) fn port(name: &str, description: &str) -> Port {
    Port { description: description.into(), ..Port::new(name, Kind::Any) }
}

/// The number of texts, as far as the plan knows; an error for a kind that holds none.
pub(crate) fn inferred_count(port: &Port, given: &Kind) -> Result<Dim, Mismatch> {
    match given {
        Kind::Text => Ok(Dim::Fixed(1)),
        Kind::Tensor(tensor) => {
            let texts = Kind::Tensor(TensorKind::shaped(ElementType::String, [Dim::Dynamic]));
            texts.accepts(given)?;
            Ok(tensor.shape.as_ref().and_then(|shape| shape.first()).cloned().unwrap_or(Dim::Dynamic))
        }
        Kind::Bytes => {
            let because = Some(format!("`{}` takes text or a list of texts", port.name));
            Err(Mismatch { expected: Kind::Text, given: given.clone(), because })
        }
        Kind::Json | Kind::Any => Ok(Dim::Dynamic),
    }
}

/// The texts themselves: a text, a JSON string or list of strings, a string tensor of one axis. At
/// least one, and no more than the limit of a step.
pub(crate) fn read(value: Value, port: &str) -> Result<Vec<String>, StepFailure> {
    let refuse = |what: &dyn Display| {
        Err(StepFailure::InvalidInput(format!("`{port}` takes text or a list of texts, but gets {what}")))
    };
    let texts = match value {
        Value::Text(text) => vec![text.to_string()],
        Value::Json(json) => match json.as_ref() {
            serde_json::Value::String(text) => vec![text.clone()],
            serde_json::Value::Array(items) => {
                let text = |item: &serde_json::Value| item.as_str().map(str::to_owned);
                match items.iter().map(text).collect::<Option<Vec<_>>>() {
                    Some(texts) => texts,
                    None => return refuse(&"a list with something else in it"),
                }
            }
            serde_json::Value::Object(_) => return refuse(&"a JSON object"),
            _ => return refuse(&"other JSON"),
        },
        Value::Tensor(tensor) => match (tensor.data(), tensor.rank()) {
            (TensorData::String(texts), 0 | 1) => texts.to_vec(),
            _ => return refuse(&Kind::Tensor(TensorKind::of(&tensor))),
        },
        Value::Bytes(bytes) => return refuse(&media_file(&bytes).unwrap_or("bytes that are not UTF-8 text")),
    };
    if texts.is_empty() { refuse(&"an empty list") } else { Ok(texts) }
}

/// The number of texts in a value, and the bytes of the longest; 0 for a value without texts.
pub(crate) fn count_and_bytes(value: &Value) -> (usize, usize) {
    fn measure<'t>(texts: impl ExactSizeIterator<Item = &'t str>) -> (usize, usize) {
        (texts.len(), texts.map(str::len).max().unwrap_or(0))
    }
    match value {
        Value::Text(text) => (1, text.len()),
        Value::Json(json) => match json.as_ref() {
            serde_json::Value::String(text) => (1, text.len()),
            serde_json::Value::Array(items) => measure(items.iter().map(|item| item.as_str().unwrap_or_default())),
            _ => (0, 0),
        },
        Value::Tensor(tensor) => measure(tensor.as_slice::<String>().unwrap_or_default().iter().map(String::as_str)),
        Value::Bytes(_) => (0, 0),
    }
}

/// Whether a value is one text, which is no list of one.
pub(crate) fn is_one(value: &Value) -> bool {
    match value {
        Value::Text(_) => true,
        Value::Json(json) => json.is_string(),
        Value::Tensor(_) | Value::Bytes(_) => false,
    }
}

/// Bytes of all texts in the inputs, one beside a list as often as it is paired.
pub(crate) fn paired_bytes(inputs: &[Option<Value>]) -> usize {
    let rows = inputs.iter().flatten().map(|value| count_and_bytes(value).0).max().unwrap_or(0);
    let bytes = |value: &Value| value.byte_len().saturating_mul(if is_one(value) { rows.max(1) } else { 1 });
    inputs.iter().flatten().map(bytes).fold(0, usize::saturating_add)
}

/// Whether all texts that a value holds are ASCII.
pub(crate) fn is_ascii(value: &Value) -> bool {
    match value {
        Value::Text(text) => text.is_ascii(),
        Value::Json(json) => match json.as_ref() {
            serde_json::Value::String(text) => text.is_ascii(),
            serde_json::Value::Array(items) => items.iter().filter_map(|item| item.as_str()).all(str::is_ascii),
            _ => true,
        },
        Value::Tensor(tensor) => tensor.as_slice::<String>().unwrap_or_default().iter().all(|text| text.is_ascii()),
        Value::Bytes(_) => true,
    }
}

/// Bytes of all texts together, which are bounded.
pub(crate) fn check_size<'t>(texts: impl Iterator<Item = &'t String>) -> Result<usize, StepFailure> {
    let bytes: usize = texts.map(String::len).sum();
    check_bytes(bytes)
}

/// Refuses more bytes of text than a step takes at once.
pub(crate) fn check_bytes(bytes: usize) -> Result<usize, StepFailure> {
    if bytes > MAX_TEXT {
        let message = format!("the text is {bytes} bytes; at most {MAX_TEXT} are taken at once");
        return Err(StepFailure::InvalidInput(message));
    }
    Ok(bytes)
}
