//! Requests in JSON text, their numbers read straight into tensors.

use std::fmt;

use super::plan::PlanSignature;
use super::request::{Reader, Request};
use super::run::ValidationError;
use crate::json::bounded_json_tree::{TreeBudget, TreeBudgetExceeded, TreeSeed};
use crate::json::json_conversion::{JsonError, fill_declared, from_json, tensor_from_json};
use crate::json::json_elements::TensorSeed;
use crate::values::signature::{Dim, Kind, Port, TensorKind};
use crate::values::tensor::element_count;
use crate::values::value::Value;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// A value, or its error: text with a certain error is not parsed again as a tree.
type ReadResult<T> = Result<T, ValidationError>;

impl Reader<'_> {
    /// Parses a request without a tree of all its numbers: an object
    /// of inputs by name, or the list that is the only input. `None` for all other texts, including most wrong
    /// requests: [`json`](Self::json) of the tree finds the error.
    pub fn json_text(self, text: &[u8]) -> Option<ReadResult<Request>> {
        let budget = &TreeBudget::default();
        let mut json = serde_json::Deserializer::from_slice(text);
        let request = match text.trim_ascii_start().first()? {
            b'{' => InputsSeed { signature: self.signature(), budget }.deserialize(&mut json),
            b'[' => {
                let port = self.single().filter(|port| typed(&port.kind).is_some())?;
                let value = PortSeed { port, budget }.deserialize(&mut json);
                value.map(|read| read.map(|value| vec![(port.name.clone(), value)]))
            }
            _ => return None,
        };
        if budget.is_exceeded() {
            return Some(Err(budget_exceeded()));
        }
        request.ok().filter(|_| json.end().is_ok())
    }

    /// The requests that `text` lists, in the same way: objects of inputs by name, `most` of them.
    pub fn json_texts(self, text: &[u8], most: usize) -> Option<ReadResult<Vec<ReadResult<Request>>>> {
        let list = text.trim_ascii_start().strip_prefix(b"[")?;
        if list.trim_ascii_start().first() != Some(&b'{') {
            return None;
        }
        let mut json = serde_json::Deserializer::from_slice(text);
        let budget = &TreeBudget::default();
        let requests =
            json.deserialize_seq(RequestsSeed { item: InputsSeed { signature: self.signature(), budget }, most });
        if budget.is_exceeded() {
            return Some(Err(budget_exceeded()));
        }
        requests.ok().filter(|_| json.end().is_ok()).map(Ok)
    }
}

/// The tree of the same text would have no room either.
fn budget_exceeded() -> ValidationError {
    ValidationError::request(TreeBudgetExceeded.to_string())
}

/// The kind of a tensor of just one element type.
fn typed(kind: &Kind) -> Option<&TensorKind> {
    if let Kind::Tensor(kind) = kind { Some(kind).filter(|kind| kind.element().is_some()) } else { None }
}

/// A list of requests.
struct RequestsSeed<'a> {
    item: InputsSeed<'a>,
    most: usize,
}

impl<'de> Visitor<'de> for RequestsSeed<'_> {
    type Value = Vec<ReadResult<Request>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of requests")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut requests = Vec::new();
        while let Some(request) = items.next_element_seed(self.item)? {
            if requests.len() == self.most {
                return Err(A::Error::custom("too many requests"));
            }
            requests.push(request);
        }
        Ok(requests)
    }
}

/// An object whose every field is an input.
#[derive(Clone, Copy)]
struct InputsSeed<'a> {
    signature: &'a PlanSignature,
    budget: &'a TreeBudget,
}

impl<'de> DeserializeSeed<'de> for InputsSeed<'_> {
    type Value = ReadResult<Request>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for InputsSeed<'_> {
    type Value = ReadResult<Request>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of inputs by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
        let (mut request, mut fault) = (Request::new(), None);
        while let Some(name) = fields.next_key::<String>()? {
            let port = self.signature.port(&name).ok_or_else(|| A::Error::custom("no input has this name"))?;
            if request.iter().any(|(known, _)| *known == name) {
                return Err(A::Error::custom("an input is given twice"));
            }
            match fields.next_value_seed(PortSeed { port, budget: self.budget })? {
                Ok(value) => request.push((name, value)),
                Err(wrong) => fault = fault.or(Some(wrong)),
            }
        }
        match fault {
            Some(fault) => Ok(Err(fault)),
            None if request.is_empty() => Err(A::Error::custom("there are no inputs")),
            None => Ok(Ok(request)),
        }
    }
}

/// The value of an input.
struct PortSeed<'a> {
    port: &'a Port,
    budget: &'a TreeBudget,
}

impl<'de> DeserializeSeed<'de> for PortSeed<'_> {
    type Value = ReadResult<Value>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        let Self { port, budget } = self;
        let value = match typed(&port.kind) {
            Some(kind) => json.deserialize_any(ValueSeed { kind, budget })?,
            None => from_json(TreeSeed(budget).deserialize(json)?, &port.kind),
        };
        Ok(value.map_err(|fault| ValidationError::input(&port.name, fault)))
    }
}

/// The value of an input that takes tensors of one element type.
struct ValueSeed<'a> {
    kind: &'a TensorKind,
    budget: &'a TreeBudget,
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = Result<Value, JsonError>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tensor {}", self.kind)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
        let size = |dim: &Dim| if let Dim::Fixed(size) = dim { *size } else { 1 };
        let shape: Vec<_> = self.kind.shape.iter().flatten().map(size).collect();
        let element = self.kind.element().ok_or_else(|| A::Error::custom("several element types"))?;
        let seed = TensorSeed { element, room: element_count(&shape).unwrap_or(0) };
        let tensor = seed.deserialize(SeqAccessDeserializer::new(items))?;
        Ok(fill_declared(tensor, self.kind).map(Value::Tensor))
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Self::Value, A::Error> {
        let json = TreeSeed(self.budget).deserialize(MapAccessDeserializer::new(fields))?;
        Ok(tensor_from_json(&json, self.kind).map(Value::Tensor))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::Value as Json;

    use super::*;
    use crate::{ElementType, PlanBuilder, PlanInput};

    fn plan() -> crate::Plan {
        let numbers = Kind::Tensor(TensorKind::shaped(ElementType::Int32, [Dim::Fixed(2)]));
        let inputs = [("x", numbers), ("note", Kind::Text), ("more", Kind::Json)];
        let port = |(name, kind)| PlanInput {
            port: Port { optional: name != "x", ..Port::new(name, kind) },
            default: None,
            columns: None,
        };
        PlanBuilder::new(Some(inputs.into_iter().map(port).collect())).finish(None).unwrap()
    }

    #[test]
    fn streaming_parser_matches_the_tree_parser() {
        let plan = plan();
        for text in [
            r#"{"x": [1, 2], "note": "n", "more": [{"a": []}]}"#,
            r#"{"x": [1, 2, 3]}"#,
            r#"{"note": 7}"#,
            r#"{"x": {"type": "int32", "shape": [2], "data": [1, 2]}}"#,
            r#"{"x": {"shape": [3], "data": [1, 2]}}"#,
            "[1, 2]",
            "[1, 2, 3]",
        ] {
            let tree: Json = serde_json::from_str(text).unwrap();
            let read = plan.signature().reader(&[]).json_text(text.as_bytes()).unwrap();
            assert_eq!(read, plan.signature().reader(&[]).json(tree.clone()), "{text}");
            if text.starts_with('{') {
                let list = format!(" [{text}, {text} ]");
                let read = plan.signature().reader(&[]).json_texts(list.as_bytes(), 2).unwrap().unwrap();
                assert_eq!(
                    read,
                    [plan.signature().reader(&[]).json(tree.clone()), plan.signature().reader(&[]).json(tree)],
                    "{list}"
                );
                assert!(plan.signature().reader(&[]).json_texts(list.as_bytes(), 1).is_none(), "they are counted");
            }
        }
    }

    #[test]
    fn leaves_malformed_requests_to_the_tree_parser() {
        let plan = plan();
        for text in ["", "1", "{}", r#"{"y": 1}"#, r#"{"x": [1.5, 2]}"#, r#"{"x": [1, 2]} x"#, r#"{"x": [1, 2}"#] {
            assert!(plan.signature().reader(&[]).json_text(text.as_bytes()).is_none(), "{text}");
            assert!(plan.signature().reader(&[]).json_texts(format!("[{text}]").as_bytes(), 9).is_none(), "{text}");
        }
        assert!(plan.signature().reader(&[]).json_texts(br#"[{"x": [1, 2]}, 1]"#, 9).is_none());
    }

    #[test]
    fn requests_of_a_batch_share_the_tree_budget() {
        let plan = plan();
        let one = format!("{{\"more\":[{}1]}}", "1,".repeat(300_000));
        let list = |requests: usize| format!("[{}]", vec![one.as_str(); requests].join(","));
        assert!(plan.signature().reader(&[]).json_texts(list(3).as_bytes(), 9).unwrap().is_ok());
        let refused = plan.signature().reader(&[]).json_texts(list(4).as_bytes(), 9).unwrap().unwrap_err();
        assert!(refused.message.contains("more than 64 MiB"), "{refused}");
    }
}
