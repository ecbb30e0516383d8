//! Requests as they come from outside: JSON, or the bytes of one input.

use serde_json::{Map, Value as Json};

use super::plan::PlanSignature;
use super::run::ValidationError;
use crate::json::bounded_json_tree::BoundedJsonTree;
use crate::json::json_conversion::{decode_base64_strictly, from_json};
use crate::values::npy::from_npy;
use crate::values::signature::{Kind, Port};
use crate::values::value::Value;

/// The inputs of one run, by name.
pub type Request = Vec<(String, Value)>;

/// What can become a request of a plan; some inputs may be known already.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    signature: &'a PlanSignature,
    known: &'a [(String, Value)],
}

impl PlanSignature {
    /// Reads requests, in which the inputs in `known` may be left out.
    #[doc(hidden)]
    pub const fn reader<'a>(&'a self, known: &'a [(String, Value)]) -> Reader<'a> {
        Reader { signature: self, known }
    }

    /// The input of this name.
    pub fn port(&self, name: &str) -> Option<&Port> {
        self.inputs().iter().map(|input| &input.port).find(|port| port.name == name)
    }

    /// The inputs in one line: "`image` (bytes)".
    pub fn describe_inputs(&self) -> String {
        let inputs = self.inputs().iter().map(|input| {
            let optional = if input.is_required() { "" } else { ", optional" };
            format!("`{}` ({}{optional})", input.port.name, input.port.kind)
        });
        let inputs: Vec<_> = inputs.collect();
        if inputs.is_empty() { "no inputs".to_owned() } else { inputs.join(", ") }
    }
}

impl<'a> Reader<'a> {
    /// The inputs that requests are read for.
    pub const fn signature(self) -> &'a PlanSignature {
        self.signature
    }

    /// The only input that a request must give, if there is just one.
    pub fn single(self) -> Option<&'a Port> {
        let mut ports = self.signature.inputs().iter().map(|input| &input.port);
        let first = ports.next()?;
        if ports.next().is_none() {
            return Some(first);
        }
        let missing = self.signature.inputs().iter().filter(|input| input.is_required());
        let mut missing = missing.map(|input| &input.port).filter(|port| !self.knows(port));
        let first = missing.next()?;
        missing.next().is_none().then_some(first)
    }

    /// Whether plain text is a request.
    pub fn takes_text(self) -> bool {
        self.single().is_some_and(|port| matches!(port.kind, Kind::Text | Kind::Any))
    }

    /// A list is a batch if there is an object among its items; for a pipeline with one input that
    /// is not a tensor, also if they are that input's values.
    pub fn is_batch(self, items: &[Json]) -> bool {
        items.iter().any(Json::is_object) || self.single().is_some_and(|port| !matches!(port.kind, Kind::Tensor(_)))
    }

    /// One request: an object of inputs by name, or the value of the only input.
    pub fn json(self, json: Json) -> Result<Request, ValidationError> {
        match json {
            Json::Object(fields) if self.is_request(&fields) => {
                let read = |(name, json): (String, Json)| {
                    let port = self.signature.port(&name).ok_or_else(|| {
                        let inputs = self.signature.describe_inputs();
                        ValidationError::input(&name, format_args!("the pipeline has none; it takes {inputs}"))
                    })?;
                    let value = from_json(json, &port.kind).map_err(|error| ValidationError::input(&name, error))?;
                    Ok((name, value))
                };
                fields.into_iter().map(read).collect()
            }
            json => {
                let port = self.single().ok_or_else(|| {
                    let inputs = self.signature.describe_inputs();
                    ValidationError::request(format!("a request is an object of inputs by name: {inputs}"))
                })?;
                let is_data = json.get("data").is_some();
                let value = from_json(json, &port.kind).map_err(|error| {
                    let note =
                        if is_data { " (the pipeline has no input `data`, so this is its elements)" } else { "" };
                    ValidationError::input(&port.name, format_args!("{error}{note}"))
                })?;
                Ok(vec![(port.name.clone(), value)])
            }
        }
    }

    /// A file's bytes, as the value of the one input that takes a file.
    pub fn payload(self, bytes: Vec<u8>) -> Result<Request, ValidationError> {
        let ports = self.signature.inputs().iter().map(|input| &input.port);
        let takes_file = |port: &&Port| matches!(port.kind, Kind::Bytes | Kind::Text | Kind::Any);
        let ports: Vec<_> = ports.filter(takes_file).filter(|port| !self.knows(port)).collect();
        match ports.as_slice() {
            [port] => Ok(vec![(port.name.clone(), port.file(bytes)?)]),
            [] => Err(ValidationError::request(format!(
                "no input takes the content of a file as it is (tensors come as JSON or .npy): there is {}",
                self.signature.describe_inputs()
            ))),
            several => {
                let names: Vec<_> = several.iter().map(|port| format!("`{}`", port.name)).collect();
                let message = format!("several inputs take a file: {}; give each by its name", names.join(", "));
                Err(ValidationError::request(message))
            }
        }
    }

    /// Whether this JSON can be a request, or a list of them, rather than the content of a file for an input of bytes.
    pub fn may_be_request(self, json: &Json) -> bool {
        let takes_bytes = self.signature.inputs().iter().any(|input| input.port.kind == Kind::Bytes);
        match json {
            Json::Object(fields) => {
                !takes_bytes || fields.keys().any(|name| name == "base64" || self.signature.port(name).is_some())
            }
            Json::Array(items) => items.iter().all(|item| self.may_be_request(item)),
            Json::String(text) => !takes_bytes || decode_base64_strictly(text).is_ok(),
            _ => !takes_bytes,
        }
    }

    /// A `.npy` file, as the value of the one input.
    pub fn npy(self, bytes: &[u8]) -> Result<Request, ValidationError> {
        let port = self.single().ok_or_else(|| {
            ValidationError::request("several inputs might take the .npy file; give it by the input's name")
        })?;
        Ok(vec![(port.name.clone(), port.npy(bytes)?)])
    }

    /// Whether an input is known already.
    pub(crate) fn knows(self, port: &Port) -> bool {
        self.known.iter().any(|(name, _)| *name == port.name)
    }

    /// An object is a request unless it can only be the value of the one input.
    fn is_request(self, fields: &Map<String, Json>) -> bool {
        let named = fields.keys().any(|name| self.signature.port(name).is_some());
        named
            || self.single().is_none_or(|port| matches!(port.kind, Kind::Tensor(_) | Kind::Text | Kind::Bytes))
                && !(fields.contains_key("data") || fields.contains_key("base64"))
    }
}

/// The text of a file, without the byte order mark, which is no part of it.
fn text(bytes: Vec<u8>) -> Result<String, String> {
    if let [0xff, 0xfe, ..] | [0xfe, 0xff, ..] = *bytes {
        return Err("the file is UTF-16 text; convert it to UTF-8".to_owned());
    }
    let mut text = String::from_utf8(bytes).map_err(|error| format!("the file is not UTF-8 text: {error}"))?;
    if text.starts_with(BYTE_ORDER_MARK) {
        text.remove(0);
    }
    Ok(text)
}

const BYTE_ORDER_MARK: char = '\u{feff}';

impl Port {
    /// Its value from a `.npy` file.
    pub fn npy(&self, bytes: &[u8]) -> Result<Value, ValidationError> {
        from_npy(bytes).map(Value::Tensor).map_err(|error| ValidationError::input(&self.name, error))
    }

    /// Its value from a field of a form: a file, a text, or JSON where it takes neither.
    pub fn field(&self, bytes: Vec<u8>) -> Result<Value, ValidationError> {
        if matches!(self.kind, Kind::Bytes | Kind::Text | Kind::Any) {
            return self.file(bytes);
        }
        let fault = |message: String| ValidationError::input(&self.name, message);
        let BoundedJsonTree(json) =
            serde_json::from_slice(&bytes).map_err(|error| fault(format!("not JSON: {error}")))?;
        from_json(json, &self.kind).map_err(|error| fault(error.to_string()))
    }

    /// Its value from the content of a file: text where it takes text, else bytes.
    pub fn file(&self, bytes: Vec<u8>) -> Result<Value, ValidationError> {
        match self.kind {
            Kind::Any => Ok(String::from_utf8(bytes).map_or_else(|error| Value::from(error.into_bytes()), Value::from)),
            Kind::Text => text(bytes).map(Value::from).map_err(|message| ValidationError::input(&self.name, message)),
            _ => Ok(Value::from(bytes)),
        }
    }
}
