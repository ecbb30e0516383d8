//! Values of every kind that ONNX has, and how they are written as JSON.
//!
//! | ONNX | JSON |
//! | --- | --- |
//! | sequence | a list |
//! | map | an object; integer keys as text |
//! | optional | the value, or `null` |
//! | tensor in one of them | as everywhere: nested lists; `{"type", "shape", "data"}` where lists cannot tell its shape |

use std::fmt::Display;

use serde_json::{Map, Value as Json};

use super::graph::OnnxType;
use gpux_core::{
    Dim, ElementType, JsonError, Kind, Tensor, TensorData, TensorKind, Value, from_json, tensor_to_exact_json, to_json,
};

/// An input or output value of an engine.
#[derive(Clone, Debug, PartialEq)]
pub enum OnnxValue {
    /// a tensor
    Tensor(Tensor),
    /// values of one type, in order
    Sequence(Vec<Self>),
    /// two tensors of one axis and the same length: keys and values
    Map {
        /// strings or int64
        keys: Tensor,
        /// single elements
        values: Tensor,
    },
    /// an optional without a value
    None,
}

impl OnnxValue {
    /// Size of its tensors, in bytes.
    pub fn byte_len(&self) -> usize {
        self.tensors().map(Tensor::byte_len).sum()
    }

    /// Every tensor in it.
    pub(super) fn tensors(&self) -> Box<dyn Iterator<Item = &Tensor> + '_> {
        match self {
            Self::Tensor(tensor) => Box::new(std::iter::once(tensor)),
            Self::Sequence(values) => Box::new(values.iter().flat_map(Self::tensors)),
            Self::Map { keys, values } => Box::new([keys, values].into_iter()),
            Self::None => Box::new(std::iter::empty()),
        }
    }
}

/// JSON that is no value of an ONNX type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// it, or a part of it, is of another kind
    #[error("{}{source}", if place.is_empty() { String::new() } else { format!("at {place}: ") })]
    Json {
        /// which part, as `[2]["key"]`
        place: String,
        /// what is wrong
        source: JsonError,
    },
    /// a key that is no integer
    #[error("{}the key {key:?} is not an int64", if place.is_empty() { String::new() } else { format!("at {place}: ") })]
    Key {
        /// which part
        place: String,
        /// the key
        key: String,
    },
    /// a tensor of the wrong type or shape
    #[error("{}it {mismatch}", if place.is_empty() { String::new() } else { format!("at {place}: ") })]
    Mismatch {
        /// which part
        place: String,
        /// how it differs
        mismatch: String,
    },
}

impl ValueError {
    fn within(self, outer: impl Display) -> Self {
        let longer = |place: String| format!("{outer}{place}");
        match self {
            Self::Json { place, source } => Self::Json { place: longer(place), source },
            Self::Key { place, key } => Self::Key { place: longer(place), key },
            Self::Mismatch { place, mismatch } => Self::Mismatch { place: longer(place), mismatch },
        }
    }
}

impl From<JsonError> for ValueError {
    fn from(source: JsonError) -> Self {
        Self::Json { place: String::new(), source }
    }
}

impl OnnxValue {
    /// Reads JSON as a value of a type.
    ///
    /// ```
    /// use gpux_inference::{OnnxType, OnnxValue};
    /// use gpux_core::ElementType;
    /// use serde_json::json;
    ///
    /// let map = OnnxType::Map { key: ElementType::Int64, value: ElementType::Float32 };
    /// let kind = OnnxType::Sequence(Box::new(map));
    /// let value = OnnxValue::from_json(json!([{ "-1": 0.25 }]), &kind)?;
    /// assert_eq!(value.to_json(), json!([{ "-1": 0.25 }]));
    /// # Ok::<(), gpux_inference::ValueError>(())
    /// ```
    pub fn from_json(json: Json, kind: &OnnxType) -> Result<Self, ValueError> {
        match kind {
            OnnxType::Tensor { kind, .. } => tensor(json, kind).map(Self::Tensor),
            OnnxType::Optional(_) if json.is_null() => Ok(Self::None),
            OnnxType::Optional(inner) => Self::from_json(json, inner),
            OnnxType::Sequence(inner) => match json {
                Json::Array(items) => {
                    let item = |(index, item)| {
                        Self::from_json(item, inner).map_err(|error| error.within(format!("[{index}]")))
                    };
                    items.into_iter().enumerate().map(item).collect::<Result<_, _>>().map(Self::Sequence)
                }
                other => Err(JsonError::type_mismatch("a list", &other).into()),
            },
            OnnxType::Map { key, value } => match json {
                Json::Object(entries) => map(entries, *key, *value),
                other => Err(JsonError::type_mismatch("an object", &other).into()),
            },
        }
    }

    /// The value as JSON, which [`Self::from_json`] reads back.
    pub fn to_json(&self) -> Json {
        match self {
            Self::None => Json::Null,
            Self::Tensor(tensor) => tensor_to_exact_json(tensor),
            Self::Sequence(items) => items.iter().map(Self::to_json).collect(),
            Self::Map { keys, values } => {
                let values = match to_json(&Value::Tensor(values.clone())) {
                    Json::Array(values) => values,
                    other => vec![other],
                };
                let keys: Box<dyn Iterator<Item = String>> = match keys.data() {
                    TensorData::String(keys) => Box::new(keys.iter().cloned()),
                    TensorData::Int64(keys) => Box::new(keys.iter().map(ToString::to_string)),
                    _ => Box::new(std::iter::empty()),
                };
                Json::Object(keys.zip(values).collect())
            }
        }
    }

    /// The value as a pipeline carries it: a tensor as itself, all others as JSON.
    pub fn into_value(self, kind: &OnnxType) -> Value {
        match (self, kind) {
            (Self::Tensor(tensor), OnnxType::Tensor { .. }) => Value::Tensor(tensor),
            (other, _) => Value::from(other.to_json()),
        }
    }
}

fn tensor(json: Json, kind: &TensorKind) -> Result<Tensor, ValueError> {
    let wanted = Kind::Tensor(kind.clone());
    let value = from_json(json, &wanted)?;
    wanted
        .accepts(&value.kind())
        .map_err(|mismatch| ValueError::Mismatch { place: String::new(), mismatch: mismatch.to_string() })?;
    match value {
        Value::Tensor(tensor) => Ok(tensor),
        other => Err(JsonError::type_mismatch("a tensor", &to_json(&other)).into()),
    }
}

fn map(entries: Map<String, Json>, key: ElementType, value: ElementType) -> Result<OnnxValue, ValueError> {
    let single = TensorKind::shaped(value, []);
    let mut keys = Vec::with_capacity(entries.len());
    let mut values = Vec::with_capacity(entries.len());
    for (name, json) in entries {
        // One by one for the sake of the message; the numbers themselves are read together below.
        tensor(json.clone(), &single).map_err(|error| error.within(format_args!("[{name:?}]")))?;
        keys.push(name);
        values.push(json);
    }
    let count = [Dim::Fixed(keys.len())];
    let values = tensor(Json::Array(values), &TensorKind::shaped(value, count))?;
    let keys = if key == ElementType::String {
        Tensor::new([keys.len()], keys)
    } else {
        let number = |key: String| key.parse().map_err(|_| ValueError::Key { place: String::new(), key });
        let numbers: Vec<i64> = keys.into_iter().map(number).collect::<Result<_, _>>()?;
        Tensor::new([numbers.len()], numbers)
    };
    Ok(OnnxValue::Map { keys: keys.map_err(JsonError::from)?, values })
}

#[cfg(test)]
mod tests;
