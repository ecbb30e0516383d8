//! What flows between steps.

use std::sync::Arc;

use super::signature::{Kind, TensorKind};
use super::tensor::Tensor;

/// One value of a frame. Cloning is cheap: the payload is shared.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// numbers, bools or strings with a shape
    Tensor(Tensor),
    /// UTF-8 text
    Text(Arc<str>),
    /// an encoded image, a sound file, any bytes
    Bytes(Arc<[u8]>),
    /// structured data
    Json(Arc<serde_json::Value>),
}

impl Value {
    /// `tensor`, `text`, `bytes` or `json`.
    pub const fn type_name(&self) -> &'static str {
        match self {
            Self::Tensor(_) => "tensor",
            Self::Text(_) => "text",
            Self::Bytes(_) => "bytes",
            Self::Json(_) => "json",
        }
    }

    /// All that is known about this value, as a [`Kind`].
    pub fn kind(&self) -> Kind {
        match self {
            Self::Tensor(tensor) => Kind::Tensor(TensorKind::of(tensor)),
            Self::Text(_) => Kind::Text,
            Self::Bytes(_) => Kind::Bytes,
            Self::Json(_) => Kind::Json,
        }
    }

    /// Size of the payload, in bytes. JSON counts as its text would.
    pub fn byte_len(&self) -> usize {
        match self {
            Self::Tensor(tensor) => tensor.byte_len(),
            Self::Text(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
            Self::Json(json) => json_len(json),
        }
    }

    /// The tensor, if this is one.
    pub fn as_tensor(&self) -> Option<&Tensor> {
        if let Self::Tensor(tensor) = self { Some(tensor) } else { None }
    }
}

fn json_len(json: &serde_json::Value) -> usize {
    match json {
        serde_json::Value::Null => 4,
        serde_json::Value::Bool(value) => 5 - usize::from(*value),
        serde_json::Value::Number(_) => 8,
        serde_json::Value::String(text) => text.len() + 2,
        serde_json::Value::Array(items) => 2 + items.iter().map(|item| json_len(item) + 1).sum::<usize>(),
        serde_json::Value::Object(fields) => {
            2 + fields.iter().map(|(name, value)| name.len() + 4 + json_len(value)).sum::<usize>()
        }
    }
}

impl From<Tensor> for Value {
    fn from(tensor: Tensor) -> Self {
        Self::Tensor(tensor)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes.into())
    }
}

impl From<serde_json::Value> for Value {
    fn from(json: serde_json::Value) -> Self {
        Self::Json(Arc::new(json))
    }
}
