//! Encodes results in the format that the client negotiated.

use std::cmp::Reverse;

use axum::response::Response;
use http::HeaderValue;
use smallvec::SmallVec;

use crate::ServeError;
use crate::protocol::http::accept::{Accept, Preference};
use crate::protocol::http::response;
use gpux_core::encoded_size;
use gpux_core::{Kind, Outputs, PlanOutput, Tensor, Value, image_type, to_npy, write_json, write_json_text};
use gpux_worker::Trace;

/// A response format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// all outputs, as an object
    Json,
    /// an output that is an image
    Image,
    /// an output that is a text
    Text,
    /// the bytes of an output; those of a tensor are little-endian, in row-major order
    Bytes,
    /// an output that is a tensor, in NumPy's file format
    Npy,
}

/// All formats. The first wins a tie in the client's preference.
const FORMATS: [Format; 5] = [Format::Json, Format::Image, Format::Text, Format::Bytes, Format::Npy];

/// The known media types of images.
const PICTURES: [&str; 5] = ["image/png", "image/jpeg", "image/gif", "image/webp", "image/bmp"];

impl Format {
    /// Its media type, for error messages.
    const fn name(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Image => "image/*",
            Self::Text => "text/plain",
            Self::Bytes => "application/octet-stream",
            Self::Npy => "application/x-npy",
        }
    }

    /// Whether a value of this kind can have this format.
    const fn may_hold(self, kind: &Kind) -> bool {
        match self {
            Self::Json => true,
            Self::Image => matches!(kind, Kind::Any | Kind::Bytes),
            Self::Text => matches!(kind, Kind::Any | Kind::Text),
            Self::Bytes => matches!(kind, Kind::Any | Kind::Bytes | Kind::Tensor(_)),
            Self::Npy => matches!(kind, Kind::Any | Kind::Tensor(_)),
        }
    }
}

/// The response format that a client negotiated.
#[derive(Clone, Debug)]
pub(crate) struct ResponseFormat {
    accept: Accept,
    /// the output to return, if only one is requested
    output: Option<String>,
    /// whether JSON is preferred, whatever the outputs are
    json: bool,
}

/// An encoded result.
pub(crate) struct EncodedOutput {
    media_type: HeaderValue,
    pub(crate) bytes: Vec<u8>,
    /// element type and shape, if the bytes are those of a tensor
    tensor: Option<(&'static str, String)>,
}

impl EncodedOutput {
    /// Wraps outputs in JSON as `{"outputs": …, "trace": …}`.
    pub(crate) fn with_trace(mut self, trace: &Trace) -> Self {
        let mut text = Vec::with_capacity(self.bytes.len() + 1024);
        text.extend_from_slice(b"{\"outputs\":");
        text.append(&mut self.bytes);
        text.extend_from_slice(b",\"trace\":");
        text.extend_from_slice(serde_json::json!(trace).to_string().as_bytes());
        text.push(b'}');
        Self { bytes: text, ..self }
    }

    pub(crate) fn into_response(self) -> Result<Response, ServeError> {
        let mut response = response::bytes(self.media_type, self.bytes);
        if let Some((element, shape)) = self.tensor {
            let headers = response.headers_mut();
            headers.insert("x-tensor-type", HeaderValue::from_static(element));
            let shape = HeaderValue::try_from(shape).map_err(|error| ServeError::Body(error.to_string()))?;
            headers.insert("x-tensor-shape", shape);
        }
        Ok(response)
    }
}

impl ResponseFormat {
    /// Negotiates by `Accept`; `output` restricts the result to one output. Fails before anything runs if no result of
    /// a pipeline with these outputs could have an accepted format.
    pub(crate) fn new(accept: Accept, output: Option<String>, outputs: &[PlanOutput]) -> Result<Self, ServeError> {
        let mut wanted = Self { accept, output, json: false };
        if let Some(output) = &wanted.output
            && !outputs.iter().any(|known| known.name == *output)
        {
            let known: Vec<_> = outputs.iter().map(|output| format!("`{}`", output.name)).collect();
            return Err(ServeError::invalid(format!("there is no output `{output}`, but {}", known.join(", "))));
        }
        let formats = wanted.formats(&PICTURES);
        wanted.json = formats.first() == Some(&Format::Json);
        let may_be =
            |known: &PlanOutput| wanted.wants(&known.name) && formats.iter().any(|format| format.may_hold(&known.kind));
        match formats.first() {
            None => Err(not_given()),
            Some(_) if outputs.iter().any(may_be) => Ok(wanted),
            Some(best) => Err(none(*best, outputs.iter().map(|output| (output.name.as_str(), &output.kind)))),
        }
    }

    fn wants(&self, output: &str) -> bool {
        self.output.as_ref().is_none_or(|wanted| wanted == output)
    }

    /// Whether the client accepts JSON.
    pub(crate) fn takes_json(&self) -> bool {
        self.accept.preference(Format::Json.name()).is_some()
    }

    /// The formats that the client accepts, highest `q` first, for images of these types.
    fn formats(&self, pictures: &[&str]) -> SmallVec<[Format; FORMATS.len()]> {
        let preference = |format: Format| match format {
            Format::Image => pictures.iter().filter_map(|name| self.accept.preference(name)).max(),
            other => self.accept.preference(other.name()),
        };
        let mut liked: SmallVec<[(Preference, Format); FORMATS.len()]> =
            FORMATS.into_iter().filter_map(|format| Some((preference(format)?, format))).collect();
        liked.sort_by_key(|(preference, _)| Reverse(*preference));
        liked.into_iter().map(|(_, format)| format).collect()
    }

    /// Encodes the result in the most preferred format that its values permit.
    pub(crate) fn write(&self, outputs: &Outputs) -> Result<EncodedOutput, ServeError> {
        if self.json {
            return Ok(self.write_json(outputs));
        }
        let mut refused = None;
        let pictures: SmallVec<[_; 4]> = outputs.iter().filter_map(|(_, value)| media_type(value)).collect();
        for format in self.formats(&pictures) {
            match self.write_as(format, outputs) {
                Ok(written) => return Ok(written),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        Err(refused.unwrap_or_else(not_given))
    }

    /// Upper bound of the bytes that a result takes while it is encoded.
    pub(crate) fn size(&self, outputs: &Outputs) -> usize {
        let values = || outputs.iter().filter(|(name, _)| self.wants(name)).map(|(_, value)| value);
        let pictures: SmallVec<[_; 4]> = values().filter_map(media_type).collect();
        let is_given = |format: Format| format == Format::Json || values().any(|value| self.fits(format, value));
        let is_json =
            self.json || self.formats(&pictures).into_iter().find(|format| is_given(*format)) == Some(Format::Json);
        let written = |value: &Value| if is_json { encoded_size::json(value) } else { encoded_size::raw(value) };
        values().map(written).sum::<usize>() + encoded_size::of_all(outputs.iter().map(|(_, value)| value))
    }

    /// All outputs, or the requested one, as an object.
    pub(crate) fn write_json(&self, outputs: &Outputs) -> EncodedOutput {
        let mut text = Vec::with_capacity(512);
        text.push(b'{');
        write_fields(outputs.iter().filter(|(name, _)| self.wants(name)), &mut text);
        text.push(b'}');
        plain(response::JSON, text)
    }

    fn write_as(&self, format: Format, outputs: &Outputs) -> Result<EncodedOutput, ServeError> {
        if format == Format::Json {
            return Ok(self.write_json(outputs));
        }
        let mut fitting = outputs.iter().filter(|(name, value)| self.wants(name) && self.fits(format, value));
        match (fitting.next(), fitting.next()) {
            (Some((name, value)), None) => value_as(format, value).ok_or_else(|| {
                ServeError::NotAcceptable(format!("the output `{name}` is not given as {}", format.name()))
            }),
            (None, _) => {
                let kinds: Vec<_> = outputs.iter().map(|(name, value)| (name.as_str(), value.kind())).collect();
                Err(none(format, kinds.iter().map(|(name, kind)| (*name, kind))))
            }
            (Some(first), Some(second)) => {
                let names: Vec<_> =
                    [first, second].into_iter().chain(fitting).map(|(name, _)| format!("`{name}`")).collect();
                let message = format!("several outputs could be given; say which by `?output=`: {}", names.join(", "));
                Err(ServeError::NotAcceptable(message))
            }
        }
    }

    fn fits(&self, format: Format, value: &Value) -> bool {
        match (format, value) {
            (Format::Image, value) => media_type(value).is_some_and(|name| self.accept.preference(name).is_some()),
            (Format::Text, Value::Text(_)) | (Format::Bytes, Value::Bytes(_)) => true,
            (Format::Bytes | Format::Npy, Value::Tensor(tensor)) => tensor.bytes().is_some(),
            _ => false,
        }
    }
}

/// The value in this format, if its type permits that.
fn value_as(format: Format, value: &Value) -> Option<EncodedOutput> {
    match (format, value) {
        (Format::Image, Value::Bytes(bytes)) => {
            Some(plain(HeaderValue::from_static(image_type(bytes)?), bytes.to_vec()))
        }
        (Format::Text, Value::Text(text)) => {
            Some(plain(HeaderValue::from_static("text/plain; charset=utf-8"), text.as_bytes().to_vec()))
        }
        (Format::Bytes, Value::Bytes(bytes)) => Some(plain(response::BYTES, bytes.to_vec())),
        (Format::Bytes, Value::Tensor(tensor)) => {
            let bytes = tensor.bytes()?.to_vec();
            Some(EncodedOutput {
                media_type: response::BYTES,
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

/// The media type of an output that is an image.
fn media_type(value: &Value) -> Option<&'static str> {
    if let Value::Bytes(bytes) = value { image_type(bytes) } else { None }
}

fn not_given() -> ServeError {
    let names = FORMATS.map(Format::name);
    ServeError::NotAcceptable(format!("a result is given as one of {}", names.join(", ")))
}

fn none<'a>(format: Format, outputs: impl Iterator<Item = (&'a str, &'a Kind)>) -> ServeError {
    let kinds: Vec<_> = outputs.map(|(name, kind)| format!("`{name}` ({kind})")).collect();
    ServeError::NotAcceptable(format!("no output is given as {}: there is {}", format.name(), kinds.join(", ")))
}

fn plain(media_type: HeaderValue, bytes: Vec<u8>) -> EncodedOutput {
    EncodedOutput { media_type, bytes, tensor: None }
}

fn shape(tensor: &Tensor) -> String {
    tensor.shape().iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Writes outputs as fields of the object that `text` has opened.
pub(crate) fn write_fields<'a>(outputs: impl Iterator<Item = &'a (String, Value)>, text: &mut Vec<u8>) {
    for (name, value) in outputs {
        if text.last() != Some(&b'{') {
            text.push(b',');
        }
        write_json_text(name, text);
        text.push(b':');
        write_json(value, text);
    }
}
