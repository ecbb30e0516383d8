//! Results, written as the client accepts them.

use axum::response::Response;
use http::HeaderValue;

use super::accept::Format;
use super::answer;
use crate::pipeline::{Outputs, Tensor, Value, to_npy, write_json, write_json_text};
use crate::serve::ServeError;
use crate::serve::trace::Trace;

/// How a result is to be written.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) format: Format,
    /// the output to give, where one is given alone
    pub(super) output: Option<String>,
}

/// A result in bytes.
pub(super) struct Written {
    media_type: HeaderValue,
    pub(super) bytes: Vec<u8>,
    /// element type and shape of a tensor whose bytes these are
    tensor: Option<(&'static str, String)>,
}

impl Written {
    /// `{"outputs": …, "trace": …}`, of outputs in JSON.
    pub(super) fn with_trace(mut self, trace: &Trace) -> Self {
        let mut text = Vec::with_capacity(self.bytes.len() + 1024);
        text.extend_from_slice(b"{\"outputs\":");
        text.append(&mut self.bytes);
        text.extend_from_slice(b",\"trace\":");
        text.extend_from_slice(serde_json::json!(trace).to_string().as_bytes());
        text.push(b'}');
        Self { bytes: text, ..self }
    }

    pub(super) fn into_response(self) -> Result<Response, ServeError> {
        let mut response = answer::bytes(self.media_type, self.bytes);
        if let Some((element, shape)) = self.tensor {
            let headers = response.headers_mut();
            headers.insert("x-tensor-type", HeaderValue::from_static(element));
            let shape = HeaderValue::try_from(shape).map_err(|error| ServeError::Body(error.to_string()))?;
            headers.insert("x-tensor-shape", shape);
        }
        Ok(response)
    }
}

impl Wanted {
    pub(super) fn write(&self, outputs: &Outputs) -> Result<Written, ServeError> {
        if self.format == Format::Json {
            return Ok(plain(answer::JSON, object(outputs, self.output.as_deref())?));
        }
        let fits = |(_, value): &&(String, Value)| self.fits(value);
        let (name, value) = if let Some(wanted) = &self.output {
            let known = || names(outputs.iter());
            let found = outputs.iter().find(|(name, _)| name == wanted);
            found.ok_or_else(|| ServeError::invalid(format!("there is no output `{wanted}`, but {}", known())))?
        } else {
            let mut fitting = outputs.iter().filter(fits);
            match (fitting.next(), fitting.next()) {
                (Some(one), None) => one,
                (None, _) => return Err(self.none(outputs)),
                (Some(_), Some(_)) => {
                    let known = names(outputs.iter().filter(fits));
                    let message = format!("several outputs could be given; say which by `?output=`: {known}");
                    return Err(ServeError::NotAcceptable(message));
                }
            }
        };
        self.value(value).ok_or_else(|| {
            ServeError::NotAcceptable(format!(
                "the output `{name}` ({}) is not given as {}",
                value.kind(),
                self.format.name()
            ))
        })
    }

    fn fits(&self, value: &Value) -> bool {
        match (self.format, value) {
            (Format::Image, Value::Bytes(bytes)) => picture(bytes).is_some(),
            (Format::Text, Value::Text(_)) => true,
            (Format::Bytes, Value::Bytes(_)) => true,
            (Format::Bytes | Format::Npy, Value::Tensor(tensor)) => tensor.bytes().is_some(),
            _ => false,
        }
    }

    fn none(&self, outputs: &Outputs) -> ServeError {
        let kinds: Vec<_> = outputs.iter().map(|(name, value)| format!("`{name}` ({})", value.kind())).collect();
        ServeError::NotAcceptable(format!(
            "no output is given as {}: there is {}",
            self.format.name(),
            kinds.join(", ")
        ))
    }

    fn value(&self, value: &Value) -> Option<Written> {
        match (self.format, value) {
            (Format::Image, Value::Bytes(bytes)) => {
                Some(plain(HeaderValue::from_static(picture(bytes)?), bytes.to_vec()))
            }
            (Format::Text, Value::Text(text)) => {
                Some(plain(HeaderValue::from_static("text/plain; charset=utf-8"), text.as_bytes().to_vec()))
            }
            (Format::Bytes, Value::Bytes(bytes)) => Some(plain(answer::BYTES, bytes.to_vec())),
            (Format::Bytes, Value::Tensor(tensor)) => {
                let bytes = tensor.bytes()?.to_vec();
                Some(Written {
                    media_type: answer::BYTES,
                    bytes,
                    tensor: Some((tensor.element().name(), shape(tensor))),
                })
            }
            (Format::Npy, Value::Tensor(tensor)) => {
                Some(plain(HeaderValue::from_static("application/x-npy"), to_npy(tensor).ok()?))
            }
            _ => None,
        }
    }
}

fn plain(media_type: HeaderValue, bytes: Vec<u8>) -> Written {
    Written { media_type, bytes, tensor: None }
}

fn shape(tensor: &Tensor) -> String {
    tensor.shape().iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// The outputs as an object; only `wanted`, if it is given.
fn object(outputs: &Outputs, wanted: Option<&str>) -> Result<Vec<u8>, ServeError> {
    if let Some(wanted) = wanted.filter(|wanted| !outputs.iter().any(|(name, _)| name == wanted)) {
        let known = names(outputs.iter());
        return Err(ServeError::invalid(format!("there is no output `{wanted}`, but {known}")));
    }
    let mut text = Vec::with_capacity(512);
    text.push(b'{');
    write_fields(outputs.iter().filter(|(name, _)| wanted.is_none_or(|wanted| name == wanted)), &mut text);
    text.push(b'}');
    Ok(text)
}

/// Writes outputs as fields of the object that `text` has begun.
pub(in crate::serve) fn write_fields<'a>(outputs: impl Iterator<Item = &'a (String, Value)>, text: &mut Vec<u8>) {
    for (name, value) in outputs {
        if text.last() != Some(&b'{') {
            text.push(b',');
        }
        write_json_text(name, text);
        text.push(b':');
        write_json(value, text);
    }
}

fn names<'a>(outputs: impl Iterator<Item = &'a (String, Value)>) -> String {
    outputs.map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// The media type of a picture, by its first bytes.
pub(in crate::serve) fn picture(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        [b'B', b'M', ..] => Some("image/bmp"),
        _ => None,
    }
}
