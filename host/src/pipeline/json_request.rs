//! Requests in JSON text, their numbers read straight into tensors.

use std::fmt;

use super::json::{fill_declared, from_json, tensor_from_json};
use super::json_elements::TensorSeed;
use super::json_tree::JsonTree;
use super::plan::Plan;
use super::request::{Reader, Request};
use super::signature::{Dim, Kind, Port, TensorKind};
use super::tensor::element_count;
use super::value::Value;
use serde::Deserialize as _;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

impl Reader<'_> {
    /// The request that `text` is, where it can be read without a tree of all its numbers: an object
    /// of inputs by name, or the list that is the only input. `None` for everything else, wrong
    /// requests among it: [`json`](Self::json) of the tree says what they are.
    pub fn json_text(self, text: &[u8]) -> Option<Request> {
        let start = text.trim_ascii_start();
        let mut json = serde_json::Deserializer::from_slice(text);
        let request = match start.first()? {
            b'{' => json.deserialize_map(Inputs(self.plan())).ok()?,
            b'[' => {
                let port = self.single().filter(|port| typed(&port.kind).is_some())?;
                vec![(port.name.clone(), PortSeed(port).deserialize(&mut json).ok()?)]
            }
            _ => return None,
        };
        json.end().ok()?;
        Some(request)
    }
}

/// The kind of a tensor of just one element type.
fn typed(kind: &Kind) -> Option<&TensorKind> {
    if let Kind::Tensor(kind) = kind { Some(kind).filter(|kind| kind.element().is_some()) } else { None }
}

/// An object whose every field is an input.
struct Inputs<'a>(&'a Plan);

impl<'de> Visitor<'de> for Inputs<'_> {
    type Value = Request;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of inputs by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Request, A::Error> {
        let mut request = Request::new();
        while let Some(name) = fields.next_key::<String>()? {
            let port = self.0.port(&name).ok_or_else(|| A::Error::custom("no input has this name"))?;
            let value = fields.next_value_seed(PortSeed(port))?;
            if request.iter().any(|(known, _)| *known == name) {
                return Err(A::Error::custom("an input is given twice"));
            }
            request.push((name, value));
        }
        if request.is_empty() { Err(A::Error::custom("there are no inputs")) } else { Ok(request) }
    }
}

/// The value of an input.
struct PortSeed<'a>(&'a Port);

impl<'de> DeserializeSeed<'de> for PortSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Value, D::Error> {
        match typed(&self.0.kind) {
            Some(kind) => json.deserialize_any(Typed(kind)),
            None => from_json(JsonTree::deserialize(json)?.0, &self.0.kind).map_err(D::Error::custom),
        }
    }
}

/// The value of an input that takes tensors of one element type.
struct Typed<'a>(&'a TensorKind);

impl<'de> Visitor<'de> for Typed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tensor {}", self.0)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Value, A::Error> {
        let size = |dim: &Dim| if let Dim::Fixed(size) = dim { *size } else { 1 };
        let shape: Vec<_> = self.0.shape.iter().flatten().map(size).collect();
        let element = self.0.element().ok_or_else(|| A::Error::custom("several element types"))?;
        let seed = TensorSeed { element, room: element_count(&shape).unwrap_or(0) };
        let tensor = seed.deserialize(SeqAccessDeserializer::new(items))?;
        fill_declared(tensor, self.0).map(Value::Tensor).map_err(A::Error::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Value, A::Error> {
        let JsonTree(json) = JsonTree::deserialize(MapAccessDeserializer::new(fields))?;
        tensor_from_json(&json, self.0).map(Value::Tensor).map_err(A::Error::custom)
    }
}
