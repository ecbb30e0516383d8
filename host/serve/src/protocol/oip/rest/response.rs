//! Encodes results: JSON, followed by raw tensor data.

use axum::response::Response;

use super::framing::JSON_LENGTH;
use crate::ServeError;
use crate::protocol::http::response;
use crate::protocol::oip::infer::{RequestedOutput, SelectedOutput};
use crate::protocol::oip::{datatype, tensors};
use gpux_core::encoded_size;
use gpux_core::{Kind, PlanSignature, Value, write_json_text};

/// An encoded result.
pub(super) struct EncodedResponse {
    bytes: Vec<u8>,
    /// the length of the JSON, if raw tensor data follows
    json: Option<usize>,
}

/// The model and request that a response is for.
pub(super) struct ResponseHeading<'a> {
    pub(super) model: &'a str,
    pub(super) version: &'a str,
    pub(super) id: &'a str,
    pub(super) parameters: Vec<(&'static str, &'a str)>,
}

/// The encoding of a response.
#[derive(Clone, Copy, Default)]
pub(super) struct ResponseEncoding {
    /// whether outputs are raw by default
    pub(super) binary: bool,
    /// whether NaN and infinite elements are bare literals, which are not valid JSON, instead of strings
    pub(super) literals: bool,
}

/// Rejects outputs that are requested in JSON but whose type JSON cannot hold, before anything runs. Outputs of unknown
/// type pass.
pub(super) fn check(signature: &PlanSignature, asked: &[RequestedOutput], binary: bool) -> Result<(), ServeError> {
    for output in signature.outputs() {
        let found = asked.iter().find(|asked| asked.name == output.name);
        let is_left_out = found.is_none() && !asked.is_empty();
        let is_text = found.is_some_and(|asked| asked.classification.is_some());
        if is_left_out || is_text || found.and_then(|asked| asked.binary).unwrap_or(binary) {
            continue;
        }
        let Kind::Tensor(kind) = &output.kind else { continue };
        if let Some(element) = kind.element().filter(|element| !datatype::is_written_out(*element)) {
            return Err(ServeError::invalid(tensors::not_in_json(&output.name, element)));
        }
    }
    Ok(())
}

/// Upper bound of the bytes that a result takes while it is encoded.
pub(super) fn size(outputs: &[SelectedOutput], form: ResponseEncoding) -> usize {
    let size = |output: &SelectedOutput| {
        let value = &output.tensor.value;
        // Raw bytes exist twice for a moment: where they are gathered, and after the JSON.
        let raw = || 2 * encoded_size::raw(value);
        // JSON is a string within JSON, where each quote takes two bytes.
        let json = || if matches!(value, Value::Json(_)) { 3 } else { 1 } * encoded_size::json(value);
        encoded_size::memory(value) + if output.binary.unwrap_or(form.binary) { raw() } else { json() }
    };
    outputs.iter().map(size).sum()
}

impl EncodedResponse {
    /// Encodes a result.
    pub(super) fn encode(
        heading: &ResponseHeading<'_>,
        outputs: &[SelectedOutput],
        form: ResponseEncoding,
    ) -> Result<Self, ServeError> {
        let (mut json, mut raw) = (Vec::with_capacity(256), Vec::new());
        json.extend_from_slice(b"{\"model_name\":");
        write_json_text(heading.model, &mut json);
        json.extend_from_slice(b",\"model_version\":");
        write_json_text(heading.version, &mut json);
        if !heading.id.is_empty() {
            json.extend_from_slice(b",\"id\":");
            write_json_text(heading.id, &mut json);
        }
        for (index, (key, value)) in heading.parameters.iter().enumerate() {
            json.extend_from_slice(if index == 0 { b",\"parameters\":{" } else { b"," });
            write_json_text(key, &mut json);
            json.push(b':');
            write_json_text(value, &mut json);
        }
        if !heading.parameters.is_empty() {
            json.push(b'}');
        }
        json.extend_from_slice(b",\"outputs\":[");
        let mut is_binary = false;
        for (index, output) in outputs.iter().enumerate() {
            if index > 0 {
                json.push(b',');
            }
            let raw = output.binary.unwrap_or(form.binary).then_some(&mut raw);
            is_binary |= raw.is_some();
            write_output(output, form.literals, &mut json, raw).map_err(ServeError::invalid)?;
        }
        json.extend_from_slice(b"]}");
        let length = json.len();
        json.append(&mut raw);
        Ok(Self { bytes: json, json: is_binary.then_some(length) })
    }

    pub(super) fn into_response(self) -> Response {
        let media_type = if self.json.is_some() { response::BYTES } else { response::JSON };
        let mut response = response::bytes(media_type, self.bytes);
        if let Some(length) = self.json {
            response.headers_mut().insert(JSON_LENGTH, length.into());
        }
        response
    }
}

/// Writes an output: its elements into `raw` if given, else into the JSON.
fn write_output(
    output: &SelectedOutput,
    literals: bool,
    json: &mut Vec<u8>,
    raw: Option<&mut Vec<u8>>,
) -> Result<(), String> {
    let tensor = &output.tensor;
    json.extend_from_slice(b"{\"name\":");
    write_json_text(&tensor.name, json);
    let shape: Vec<_> = tensor.shape().iter().map(ToString::to_string).collect();
    let described = format!(",\"datatype\":\"{}\",\"shape\":[{}]", datatype::name(tensor.element()), shape.join(","));
    json.extend_from_slice(described.as_bytes());
    if let Some(raw) = raw {
        let before = raw.len();
        tensor.write_raw(raw)?;
        let parameters = format!(",\"parameters\":{{\"binary_data_size\":{}}}}}", raw.len() - before);
        json.extend_from_slice(parameters.as_bytes());
        return Ok(());
    }
    if tensor.is_base64() {
        // MLServer's clients decode by this parameter.
        json.extend_from_slice(b",\"parameters\":{\"content_type\":\"base64\"}");
    }
    json.extend_from_slice(b",\"data\":");
    tensor.write_json(literals, json)?;
    json.push(b'}');
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use half::f16;
    use serde_json::{Value as Json, json};

    use super::*;
    use crate::protocol::oip::tensors::OutputTensor;
    use gpux_core::Tensor;

    fn output(value: Value, binary: Option<bool>) -> SelectedOutput {
        SelectedOutput { tensor: OutputTensor { name: "y".to_owned(), value }, binary }
    }

    fn heading(id: &str) -> ResponseHeading<'_> {
        ResponseHeading { model: "m", version: "1", id, parameters: Vec::new() }
    }

    fn written(outputs: &[SelectedOutput], binary: bool) -> EncodedResponse {
        let form = ResponseEncoding { binary, ..ResponseEncoding::default() };
        EncodedResponse::encode(&heading("a\"b"), outputs, form).unwrap()
    }

    #[test]
    fn accepts_mixed_json_and_binary() {
        let tensor = Value::from(Tensor::new([2, 1], vec![1_i16, -2]).unwrap());
        let written = written(&[output(tensor.clone(), Some(true)), output(tensor, None)], false);
        let (json, raw) = written.bytes.split_at(written.json.unwrap());
        let json: Json = serde_json::from_slice(json).unwrap();
        let described = json!({ "name": "y", "datatype": "INT16", "shape": [2, 1] });
        let mut binary = described.clone();
        binary["parameters"] = json!({ "binary_data_size": 4 });
        let mut plain = described;
        plain["data"] = json!([1, -2]);
        let expected = json!({ "model_name": "m", "model_version": "1", "id": "a\"b", "outputs": [binary, plain] });
        assert_eq!(json, expected);
        assert_eq!(raw, [1, 0, 0xfe, 0xff]);
    }

    #[test]
    fn encodes_non_finite_numbers() {
        let outputs = || {
            let single = Tensor::new([3], vec![f32::NAN, 0.5, f32::INFINITY]).unwrap();
            let double = Tensor::new([2], vec![f64::NEG_INFINITY, 1e300]).unwrap();
            [output(single.into(), None), output(double.into(), None)]
        };
        let json: Json = serde_json::from_slice(&written(&outputs(), false).bytes).unwrap();
        assert_eq!(json["outputs"][0]["data"], json!(["NaN", 0.5, "Infinity"]));
        assert_eq!(json["outputs"][1]["data"], json!(["-Infinity", 1e300]));
        let heading = heading("");
        let form = ResponseEncoding { literals: true, ..ResponseEncoding::default() };
        let text = String::from_utf8(EncodedResponse::encode(&heading, &outputs(), form).unwrap().bytes).unwrap();
        assert!(text.contains("[NaN,0.5,Infinity]") && text.contains("[-Infinity,1e+300]"), "{text}");
    }

    #[test]
    fn returns_half_floats_raw_only() {
        let halves = || [output(Tensor::new([1], vec![f16::ONE]).unwrap().into(), None)];
        assert!(written(&halves(), true).bytes.ends_with(&f16::ONE.to_le_bytes()));
        let heading = heading("");
        let error = EncodedResponse::encode(&heading, &halves(), ResponseEncoding::default()).err().unwrap();
        assert!(error.to_string().contains("FP16, which JSON does not hold"));
    }
}
