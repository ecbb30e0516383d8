//! Values from JSON and to JSON.
//!
//! | value | JSON |
//! | --- | --- |
//! | tensor | nested lists; a number for a tensor without axes |
//! | NaN, ∞, −∞ | `"NaN"`, `"Infinity"`, `"-Infinity"` (as in protobuf's JSON mapping) |
//! | 64-bit integers | numbers with every digit |
//! | text | a string |
//! | bytes | `{"base64": "…"}`; a base64 string or `data:` URL is read too |
//! | JSON | itself |
//!
//! A tensor is read from nested lists, from a flat list that fills the declared shape, or from
//! `{"type": "float32", "shape": [2, 3], "data": […]}`, where `data` may be a base64 string of
//! little-endian bytes. Without `shape`, it is the declared one, as for a flat list.

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD as BASE64};
use serde::Deserialize as _;
use serde_json::Value as Json;

use super::json_element::{JsonElement, special_float, with_json_element};
use crate::cancellation::CancelCheck;
use crate::values::element::ElementType;
use crate::values::signature::{Dim, Kind, TensorKind};
use crate::values::tensor::{MAX_AXES, Tensor, TensorError, check_axis_count, element_count};
use crate::values::value::Value;
use crate::with_elements;

/// Nesting levels of the JSON of a request: the parser's limit.
pub(crate) const REQUEST_DEPTH: usize = 128;
/// Levels of the JSON that a step makes of tensors and texts: as many lists as a tensor has axes, and some around.
pub(crate) const GENERATED_DEPTH: usize = MAX_AXES + 16;
/// Nesting levels of JSON that a pipeline may build: each thread that converts, writes or drops it recurses
/// as deep.
pub(crate) const MAX_DEPTH: usize = 256;

/// JSON that is not a value of the kind asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// another type of JSON
    #[error("takes {expected}, but this is {found}")]
    Type {
        /// what was asked for
        expected: String,
        /// what there is
        found: String,
    },
    /// lists of different lengths side by side
    #[error("the lists are ragged: {0} and {1} elements side by side")]
    Ragged(usize, usize),
    /// a number that the element type cannot hold
    #[error("{number} is not a {element}")]
    Number {
        /// the number as written
        number: String,
        /// the element type
        element: ElementType,
    },
    /// numbers that do not fill the shape
    #[error("{given} elements do not fill the shape [{shape}]")]
    Shape {
        /// how many there are
        given: usize,
        /// the declared shape
        shape: String,
    },
    /// text that is not base64
    #[error("the text is not base64: {0}")]
    Base64(String),
    /// a file's name in the place of its bytes
    #[error(
        "`{0}` looks like the name of a file, not like the base64 of its bytes; `gpux run` takes files by `--file PATH`, \
         the server as the body"
    )]
    FileName(String),
    /// data that makes no tensor
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

impl JsonError {
    /// JSON of another type than the one asked for.
    pub fn type_mismatch(expected: &str, found: &Json) -> Self {
        type_error(expected, found)
    }
}

/// Reads a value of the given kind.
pub fn from_json(json: Json, kind: &Kind) -> Result<Value, JsonError> {
    match kind {
        Kind::Json => Ok(Value::from(json)),
        Kind::Text => match json {
            Json::String(text) => Ok(Value::from(text)),
            other => Err(type_error("text (a string)", &other)),
        },
        Kind::Bytes => bytes_from_json(&json).map(Value::from),
        Kind::Tensor(kind) => tensor_from_json(&json, kind).map(Value::from),
        Kind::Any => Ok(match json {
            Json::String(text) => Value::from(text),
            other => Value::from(other),
        }),
    }
}

fn type_error(expected: &str, found: &Json) -> JsonError {
    let found = match found {
        Json::Null => "null".to_owned(),
        Json::Bool(_) => "a bool".to_owned(),
        Json::Number(number) => format!("the number {number}"),
        Json::String(text) if text.chars().count() <= 40 => format!("the string {text:?}"),
        Json::String(_) => "a string".to_owned(),
        Json::Array(items) => format!("a list of {}", items.len()),
        Json::Object(_) => "an object".to_owned(),
    };
    JsonError::Type { expected: expected.to_owned(), found }
}

pub(crate) fn decode_base64(text: &str) -> Result<Vec<u8>, JsonError> {
    decode_base64_strictly(text).or_else(|error| {
        let error = if is_file_name(text) { JsonError::FileName(text.to_owned()) } else { error };
        decode_variant(base64_payload(text)).ok_or(error)
    })
}

/// Whether a text ends in a dot and some letters, on one line.
fn is_file_name(text: &str) -> bool {
    let ending = text.rsplit_once('.').map_or("", |(_, ending)| ending);
    (1..=5).contains(&ending.len())
        && ending.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && text.lines().count() == 1
}

/// Decodes base64 with the usual alphabet and padding, on one line.
pub(crate) fn decode_base64_strictly(text: &str) -> Result<Vec<u8>, JsonError> {
    BASE64.decode(base64_payload(text).trim()).map_err(|error| JsonError::Base64(error.to_string()))
}

/// The text without the head of a `data:` URL.
fn base64_payload(text: &str) -> &str {
    match text.strip_prefix("data:").and_then(|url| url.split_once(";base64,")) {
        Some((_, payload)) => payload,
        None => text,
    }
}

/// Decodes base64 that is wrapped in lines, has the alphabet of URLs, or no padding.
fn decode_variant(payload: &str) -> Option<Vec<u8>> {
    const ENGINE: GeneralPurpose = GeneralPurpose::new(
        &base64::alphabet::STANDARD,
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
    );
    // In parts, so that no second copy of a long text is made.
    let mut part = Vec::with_capacity(VARIANT_PART);
    let mut bytes = Vec::with_capacity(payload.len() / 4 * 3 + 3);
    for byte in payload.bytes().filter(|byte| !byte.is_ascii_whitespace()) {
        if part.len() == VARIANT_PART {
            // Padding ends the text.
            ENGINE.decode_vec(&part, &mut bytes).ok().filter(|()| part.last() != Some(&b'='))?;
            part.clear();
        }
        part.push(match byte {
            b'-' => b'+',
            b'_' => b'/',
            other => other,
        });
    }
    ENGINE.decode_vec(&part, &mut bytes).ok()?;
    Some(bytes)
}

/// Characters that are decoded at once: a multiple of four.
const VARIANT_PART: usize = 4 << 10;

fn bytes_from_json(json: &Json) -> Result<Vec<u8>, JsonError> {
    match json {
        Json::String(text) => decode_base64(text),
        Json::Object(fields) if fields.len() == 1 => match fields.get("base64") {
            Some(Json::String(text)) => decode_base64(text),
            _ => Err(type_error("bytes, as {\"base64\": \"…\"}", json)),
        },
        other => Err(type_error("bytes, as {\"base64\": \"…\"}", other)),
    }
}

pub(crate) fn tensor_from_json(json: &Json, kind: &TensorKind) -> Result<Tensor, JsonError> {
    if let Json::Object(fields) = json {
        return explicit_tensor(fields, kind).unwrap_or_else(|| Err(type_error(&format!("tensor {kind}"), json)));
    }
    let mut leaves = Vec::new();
    let mut shape = Vec::new();
    flatten(json, 0, &mut shape, &mut leaves)?;
    let element = kind.element().unwrap_or_else(|| infer_element_type(&leaves, kind));
    let tensor = build(element, shape, &leaves)?;
    fill_declared(tensor, kind)
}

/// `{"type": …, "shape": …, "data": …}`; `None` when the object is not of that form.
fn explicit_tensor(fields: &serde_json::Map<String, Json>, kind: &TensorKind) -> Option<Result<Tensor, JsonError>> {
    let known = |name: &str| matches!(name, "type" | "shape" | "data");
    if !fields.keys().all(|name| known(name)) {
        return None;
    }
    let data = fields.get("data")?;
    let shape = match fields.get("shape") {
        Some(shape) => Some(Vec::<usize>::deserialize(shape).ok()?),
        None => None,
    };
    if let Err(error) = check_axis_count(shape.as_deref().unwrap_or_default()) {
        return Some(Err(error.into()));
    }
    let element = match fields.get("type") {
        Some(name) => Some(name.as_str()?.parse::<ElementType>().ok()?),
        None => kind.element(),
    };
    let elements = element.map_or(kind.elements, Into::into);
    let tensor = match (data, element.and_then(|element| Some((element, element.size()?)))) {
        (Json::String(text), Some((element, size))) => decode_base64(text).and_then(|bytes| {
            let shape = shape.clone().unwrap_or_else(|| vec![bytes.len() / size]);
            Ok(Tensor::from_bytes(element, shape, &bytes)?)
        }),
        _ => tensor_from_json(data, &TensorKind { elements, shape: None, layout: None }),
    };
    Some(tensor.and_then(|tensor| {
        let Some(shape) = shape else { return fill_declared(tensor, kind) };
        let shape: Vec<_> = shape.into_iter().map(Dim::Fixed).collect();
        let tensor = fill_declared(tensor, &TensorKind { elements, shape: Some(shape.clone()), layout: None })?;
        if tensor_has(&tensor, &shape) { Ok(tensor) } else { Err(shape_error(&tensor, &shape)) }
    }))
}

fn tensor_has(tensor: &Tensor, shape: &[Dim]) -> bool {
    tensor.rank() == shape.len()
        && tensor.shape().iter().zip(shape).all(|(size, dim)| matches!(dim, Dim::Fixed(fixed) if fixed == size))
}

fn shape_error(tensor: &Tensor, shape: &[Dim]) -> JsonError {
    let dims: Vec<_> = shape.iter().map(ToString::to_string).collect();
    JsonError::Shape { given: tensor.len(), shape: dims.join(", ") }
}

/// Collects the leaves of nested lists and the shape they make.
fn flatten<'a>(
    json: &'a Json,
    depth: usize,
    shape: &mut Vec<usize>,
    leaves: &mut Vec<&'a Json>,
) -> Result<(), JsonError> {
    let Json::Array(items) = json else {
        if depth < shape.len() {
            return Err(type_error("a list", json));
        }
        leaves.push(json);
        return Ok(());
    };
    // Only the first way down may add axes: once there is a leaf, the depth is known.
    match shape.get(depth) {
        Some(size) if *size != items.len() => return Err(JsonError::Ragged(*size, items.len())),
        Some(_) => {}
        None if leaves.is_empty() && shape.len() == depth => shape.push(items.len()),
        None => return Err(type_error("a number", json)),
    }
    items.iter().try_for_each(|item| flatten(item, depth + 1, shape, leaves))
}

/// The element type that JSON itself suggests, among those that are accepted.
fn infer_element_type(leaves: &[&Json], kind: &TensorKind) -> ElementType {
    let natural = match leaves.first() {
        Some(Json::Bool(_)) => ElementType::Bool,
        Some(Json::String(text)) if special_float(text).is_none() => ElementType::String,
        _ if leaves.iter().all(|leaf| leaf.is_i64() || leaf.is_u64()) => ElementType::Int64,
        _ => ElementType::Float32,
    };
    let choices = [natural, ElementType::Float32, ElementType::Float64, ElementType::Int64];
    choices
        .into_iter()
        .find(|element| kind.elements.contains(*element))
        .or_else(|| kind.elements.iter().next())
        .unwrap_or(natural)
}

fn build(element: ElementType, shape: Vec<usize>, leaves: &[&Json]) -> Result<Tensor, JsonError> {
    fn read<T: JsonElement>(leaf: &Json) -> Result<T, JsonError> {
        T::from_json(leaf).ok_or_else(|| match leaf {
            Json::Number(number) => JsonError::Number { number: number.to_string(), element: T::TYPE },
            other => type_error(&format!("{} elements", T::TYPE), other),
        })
    }
    with_json_element!(element, T => {
        Ok(Tensor::new(shape, leaves.iter().map(|leaf| read::<T>(leaf)).collect::<Result<Vec<_>, _>>()?)?)
    })
}

/// A flat list takes the declared shape when it can fill it in only one way.
pub(crate) fn fill_declared(tensor: Tensor, kind: &TensorKind) -> Result<Tensor, JsonError> {
    let Some(shape) = &kind.shape else { return Ok(tensor) };
    if tensor.rank() > 1 || tensor.rank() == shape.len() {
        return Ok(tensor);
    }
    let given = tensor.len();
    let fixed: Vec<_> = shape.iter().map(|dim| if let Dim::Fixed(size) = dim { *size } else { 1 }).collect();
    let open = shape.iter().filter(|dim| !matches!(dim, Dim::Fixed(_))).count();
    let known = element_count(&fixed).unwrap_or(0);
    let fault = || shape_error(&tensor, shape);
    let sizes = match open {
        0 if known == given => fixed,
        // One request without its batch axis: every open axis is 1.
        _ if open > 0 && known == given => fixed,
        1 if known > 0 && given.is_multiple_of(known) => {
            let size = given / known;
            shape.iter().map(|dim| if let Dim::Fixed(size) = dim { *size } else { size }).collect()
        }
        _ => return Err(fault()),
    };
    Ok(tensor.reshape(sizes)?)
}

/// Writes a value as JSON.
pub fn to_json(value: &Value) -> Json {
    // No request cancels it.
    to_json_cancellable(value, &()).unwrap_or_default()
}

/// As [`to_json`]; `None` where a tensor was being written when `cancel` stopped it.
pub fn to_json_cancellable(value: &Value, cancel: &dyn CancelCheck) -> Option<Json> {
    Some(match value {
        Value::Tensor(tensor) => return tensor_to_json(tensor, cancel),
        Value::Text(text) => Json::String(text.to_string()),
        Value::Bytes(bytes) => serde_json::json!({ "base64": BASE64.encode(bytes) }),
        Value::Json(json) => (**json).clone(),
    })
}

/// Counts the JSON values of a tensor of this shape: its elements and lists, including empty
/// lists.
pub fn json_value_count(shape: &[usize]) -> usize {
    let mut level = 1_usize;
    let lists = shape.iter().map(|size| {
        level = level.saturating_mul(*size);
        level
    });
    lists.fold(1, usize::saturating_add)
}

/// JSON values that are made at a stretch, and how many times as long as a copy of a number each takes, about.
const STRETCH: usize = 1 << 14;
const TIMES: usize = 64;

fn tensor_to_json(tensor: &Tensor, cancel: &dyn CancelCheck) -> Option<Json> {
    let mut level = with_elements!(tensor.data(), data => leaves(data, cancel))?;
    for size in tensor.shape().iter().skip(1).rev() {
        level = match size {
            0 => return empty(tensor.shape(), cancel),
            size => group(level, *size, cancel)?,
        };
    }
    Some(if tensor.rank() == 0 { level.into_iter().next().unwrap_or(Json::Null) } else { Json::Array(level) })
}

/// Converts elements until the request is cancelled.
fn leaves<T: JsonElement>(data: &[T], cancel: &dyn CancelCheck) -> Option<Vec<Json>> {
    let mut leaves = Vec::with_capacity(data.len());
    for stretch in data.chunks(STRETCH) {
        if !cancel.can_continue(TIMES * stretch.len()) {
            return None;
        }
        leaves.extend(stretch.iter().map(T::to_json));
    }
    Some(leaves)
}

/// A tensor as JSON that says all about its shape: lists, or `{"type", "shape", "data"}` where an
/// axis of size 0 hides those after it.
pub fn tensor_to_exact_json(tensor: &Tensor) -> Json {
    match tensor.shape() {
        [sizes @ .., _] if sizes.contains(&0) => {
            serde_json::json!({ "type": tensor.element().name(), "shape": tensor.shape(), "data": [] })
        }
        _ => tensor_to_json(tensor, &()).unwrap_or_default(),
    }
}

fn group(items: Vec<Json>, size: usize, cancel: &dyn CancelCheck) -> Option<Vec<Json>> {
    let mut items = items.into_iter();
    let mut groups = Vec::with_capacity(items.len() / size);
    while items.len() > 0 {
        if !cancel.can_continue(TIMES) {
            return None;
        }
        groups.push(Json::Array(items.by_ref().take(size).collect()));
    }
    Some(groups)
}

/// Nested empty lists, down to the first axis of size zero.
fn empty(shape: &[usize], cancel: &dyn CancelCheck) -> Option<Json> {
    let [size, rest @ ..] = shape else { return Some(Json::Array(Vec::new())) };
    if !cancel.can_continue(TIMES) {
        return None;
    }
    (0..*size).map(|_| empty(rest, cancel)).collect::<Option<_>>().map(Json::Array)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;

    fn kind(element: ElementType, shape: &[Dim]) -> Kind {
        Kind::Tensor(TensorKind::shaped(element, shape))
    }

    fn shape_of(json: Json, kind: &Kind) -> Vec<usize> {
        from_json(json, kind).unwrap().as_tensor().unwrap().shape().to_vec()
    }

    #[test]
    fn counts_json_values_without_building_them() {
        fn count(json: &Json) -> usize {
            1 + json.as_array().into_iter().flatten().map(count).sum::<usize>()
        }
        for shape in [&[][..], &[0], &[3], &[0, 7], &[7, 0], &[2, 3], &[2, 1, 1, 3], &[3, 2, 0, 5], &[2, 2, 2, 0]] {
            let tensor = Tensor::zeros(ElementType::Int8, shape).unwrap();
            assert_eq!(json_value_count(shape), count(&tensor_to_json(&tensor, &()).unwrap()), "{shape:?}");
        }
        assert_eq!(json_value_count(&[usize::MAX, 3, 0]), usize::MAX);
    }

    #[test]
    fn reshapes_flat_lists_to_the_declared_shape() {
        let float = |shape: &[Dim]| kind(ElementType::Float32, shape);
        let (n, two, three) = (Dim::Named("N".into()), Dim::Fixed(2), Dim::Fixed(3));
        assert_eq!(shape_of(json!([1, 2, 3]), &float(&[n.clone(), three.clone()])), [1, 3]);
        assert_eq!(shape_of(json!([1, 2, 3, 4, 5, 6]), &float(&[n.clone(), three.clone()])), [2, 3]);
        assert_eq!(shape_of(json!([[1, 2, 3]]), &float(&[n.clone(), three.clone()])), [1, 3]);
        assert_eq!(shape_of(json!(7), &float(&[n.clone(), Dim::Fixed(1)])), [1, 1]);
        let error = from_json(json!([1, 2, 3, 4]), &float(&[two, three])).unwrap_err();
        assert_eq!(error.to_string(), "4 elements do not fill the shape [2, 3]");
    }

    #[test]
    fn reports_the_error_in_the_json() {
        let float = kind(ElementType::Float32, &[Dim::Dynamic, Dim::Dynamic]);
        let message = |json: Json, kind: &Kind| from_json(json, kind).unwrap_err().to_string();
        assert_eq!(message(json!([[1, 2], [3]]), &float), "the lists are ragged: 2 and 1 elements side by side");
        assert_eq!(message(json!([[1], 3]), &float), "takes a list, but this is the number 3");
        assert_eq!(message(json!([1, [3]]), &float), "takes a number, but this is a list of 1");
        assert_eq!(message(json!(["x"]), &float), "takes float32 elements, but this is the string \"x\"");
        let uint8 = kind(ElementType::Uint8, &[Dim::Dynamic]);
        assert_eq!(message(json!([300]), &uint8), "300 is not a uint8");
        assert_eq!(message(json!([[1e39]]), &float), "1e+39 is not a float32");
        assert_eq!(message(json!([0.5]), &uint8), "0.5 is not a uint8");
        assert!(message(json!("*"), &Kind::Bytes).contains("not base64"));
        for wrong in ["A", "AA=A", "AAAA=", "=", "A*AA"] {
            assert!(message(json!(wrong), &Kind::Bytes).contains("not base64"), "{wrong}");
        }
        let named = message(json!("my photos/a.jpg"), &Kind::Bytes);
        assert!(named.starts_with("`my photos/a.jpg` looks like the name of a file") && named.contains("--file"));
        assert!(message(json!(1), &Kind::Text).contains("takes text"));
    }

    #[test]
    fn every_number_round_trips() {
        let cases = [
            (ElementType::Int64, json!([i64::MIN, i64::MAX, 9_007_199_254_740_993_i64])),
            (ElementType::Uint64, json!([u64::MAX])),
            (ElementType::Float32, json!([0.1, -3.5, "NaN", "Infinity", "-Infinity"])),
            (ElementType::Float16, json!([0.5, 65504.0])),
            (ElementType::Float64, json!([0.1, 1e300])),
            (ElementType::Bool, json!([true, false])),
            (ElementType::String, json!(["a", "ü"])),
            (ElementType::Float32, json!([])),
        ];
        for (element, json) in cases {
            let value = from_json(json.clone(), &kind(element, &[Dim::Dynamic])).unwrap();
            assert_eq!(to_json(&value), json, "{element}");
        }
    }

    #[test]
    fn nested_lists_follow_the_shape() {
        let tensor = Tensor::new([2, 1, 2], vec![1_u8, 2, 3, 4]).unwrap();
        assert_eq!(to_json(&tensor.into()), json!([[[1, 2]], [[3, 4]]]));
        assert_eq!(to_json(&Tensor::scalar(5_i32).into()), json!(5));
        assert_eq!(to_json(&Tensor::zeros(ElementType::Uint8, [2, 0]).unwrap().into()), json!([[], []]));
    }

    #[test]
    fn reads_base64_as_other_programs_write_it() {
        for length in [0, 1, 2, 3, 256, 3071, 3072, 3073, 10_000] {
            let bytes: Vec<u8> = (0..length).map(|number: u32| (number * 37 + 251) as u8).collect();
            let plain = BASE64.encode(&bytes);
            let url = plain.replace('+', "-").replace('/', "_");
            let lines: Vec<_> = plain.as_bytes().chunks(76).map(|line| String::from_utf8_lossy(line)).collect();
            let unpadded = plain.trim_end_matches('=').to_owned();
            for text in [plain.clone(), url, lines.join("\r\n") + "\n", unpadded] {
                assert_eq!(decode_base64(&text), Ok(bytes.clone()), "{length}");
                assert_eq!(decode_base64(&format!("data:image/png;base64,{text}")), Ok(bytes.clone()), "{length}");
            }
        }
        let two = format!("{}AA==AAAA", "A".repeat(VARIANT_PART - 4));
        assert!(decode_base64(&two).is_err(), "padding ends the text");
    }

    #[test]
    fn reads_tensors_with_explicit_type_and_shape() {
        let any = Kind::Tensor(TensorKind::of_elements(crate::ElementSet::ANY));
        let json = json!({ "type": "uint16", "shape": [1, 2], "data": "AQACAA==" });
        let value = from_json(json, &any).unwrap();
        assert_eq!(value.as_tensor().unwrap().as_slice::<u16>().unwrap(), [1, 2]);
        let error = from_json(json!({ "shape": [3], "data": [1, 2] }), &any).unwrap_err();
        assert_eq!(error.to_string(), "2 elements do not fill the shape [3]");
        let error = from_json(json!({ "shape": vec![1; 100_000], "data": [1] }), &any).unwrap_err();
        assert_eq!(error.to_string(), "a tensor has at most 64 axes, not 100000");
        assert!(from_json(json!({ "other": 1 }), &any).is_err());
    }
}
