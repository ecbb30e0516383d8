//! Tensors in requests and responses. This module alone checks name, datatype, shape and data against each other.

use bytes::{Buf as _, Bytes};
use serde_json::{Value as Json, json};

use super::datatype;
use gpux_core::{
    BoundedJsonTree, ElementType, Kind, Tensor, TensorData, Value, check_axis_count, element_count, from_json, to_json,
};

/// An input of a request.
#[derive(Debug)]
pub(super) struct InputTensor {
    pub(super) name: String,
    pub(super) element: ElementType,
    pub(super) shape: Vec<usize>,
    pub(super) data: Data,
}

/// The elements of a tensor.
#[derive(Debug)]
pub(super) enum Data {
    /// parsed elements, flat or nested like the shape
    Elements(Tensor),
    /// elements of BYTES, each of any content
    Items(Vec<Bytes>),
    /// raw: row-major, little-endian; BYTES elements with a length prefix
    Raw(Bytes),
}

impl InputTensor {
    /// The value for an input of this kind, or the mismatch.
    pub(super) fn into_value(self, kind: &Kind) -> Result<Value, String> {
        let Self { element, shape, data, .. } = self;
        check_axis_count(&shape).map_err(|error| error.to_string())?;
        let count = element_count(&shape).ok_or_else(|| format!("its shape {shape:?} is too large"))?;
        match data {
            Data::Raw(bytes) if element == ElementType::String => bytes_value(Elements(&bytes), &shape, count, kind),
            Data::Raw(bytes) => {
                Tensor::from_bytes(element, shape, &bytes).map(Value::from).map_err(|error| error.to_string())
            }
            Data::Items(items) => bytes_value(items.iter().map(|item| Ok(&item[..])), &shape, count, kind),
            Data::Elements(tensor) => match (tensor.as_slice::<String>(), kind) {
                // A JSON string cannot hold arbitrary bytes, so they are base64.
                (Some([text]), Kind::Bytes) => {
                    shaped(tensor.shape(), &shape, count)?;
                    from_json(Json::String(text.clone()), kind).map_err(|error| error.to_string())
                }
                (Some([text]), Kind::Text | Kind::Json | Kind::Any) => {
                    shaped(tensor.shape(), &shape, count)?;
                    bytes_value(std::iter::once(Ok(text.as_bytes())), &shape, count, kind)
                }
                (Some(_), Kind::Bytes | Kind::Text | Kind::Json) => {
                    shaped(tensor.shape(), &shape, count)?;
                    Err(not_one(count))
                }
                (_, _) => {
                    shaped(tensor.shape(), &shape, count)?;
                    tensor.reshape(shape).map(Value::from).map_err(|error| error.to_string())
                }
            },
        }
    }
}

/// Checks that elements nested like `given` fit a tensor of this shape.
fn shaped(given: &[usize], shape: &[usize], count: usize) -> Result<(), String> {
    let flat: usize = given.iter().product();
    if given.is_empty() {
        return Err("its data is no list".to_owned());
    }
    if given == shape || (given.len() == 1 && flat == count) {
        return Ok(());
    }
    if flat == count {
        return Err(format!("its data is nested as {given:?}, but its shape is {shape:?}"));
    }
    Err(format!("its shape {shape:?} holds {count} elements, but its data has {flat}"))
}

/// BYTES as the value of an input: a text, a file, JSON, or a tensor of strings. Elements beyond the shape are not
/// read.
fn bytes_value<'a>(
    mut items: impl Iterator<Item = Result<&'a [u8], String>>,
    shape: &[usize],
    count: usize,
    kind: &Kind,
) -> Result<Value, String> {
    let wrong = |found: &str| format!("its shape {shape:?} holds {count} elements, but its data has {found}");
    if matches!(kind, Kind::Tensor(_)) || (matches!(kind, Kind::Any) && count != 1) {
        let mut strings = Vec::new();
        for item in items {
            let item = item?;
            if strings.len() == count {
                return Err(wrong("more"));
            }
            strings.push(text(item)?.to_owned());
        }
        if strings.len() < count {
            return Err(wrong(&strings.len().to_string()));
        }
        return Tensor::new(shape, strings).map(Value::from).map_err(|error| error.to_string());
    }
    if count != 1 {
        return Err(not_one(count));
    }
    let item = items.next().ok_or_else(|| wrong("none"))??;
    if items.next().transpose()?.is_some() {
        return Err(wrong("more"));
    }
    match kind {
        Kind::Bytes => Ok(Value::Bytes(item.into())),
        Kind::Text => text(item).map(Value::from),
        Kind::Json => serde_json::from_slice::<BoundedJsonTree>(item)
            .map(|tree| Value::from(tree.0))
            .map_err(|error| format!("not JSON: {error}")),
        Kind::Any | Kind::Tensor(_) => Ok(text(item).map_or_else(|_| Value::Bytes(item.into()), Value::from)),
    }
}

fn not_one(count: usize) -> String {
    format!("it takes one element a request, of shape [1], not {count}")
}

fn text(item: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(item).map_err(|error| format!("an element is not UTF-8 text: {error}"))
}

/// Iterates over the elements of raw BYTES, each after its length in four bytes. Ends at malformed input.
struct Elements<'a>(&'a [u8]);

impl<'a> Iterator for Elements<'a> {
    type Item = Result<&'a [u8], String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let mut bytes = std::mem::take(&mut self.0);
        let Ok(length) = bytes.try_get_u32_le() else {
            return Some(Err("its data ends within the length of an element".to_owned()));
        };
        let Some((element, rest)) = bytes.split_at_checked(length as usize) else {
            let left = bytes.len();
            return Some(Err(format!("an element says that it is {length} bytes, but {left} are left")));
        };
        self.0 = rest;
        Some(Ok(element))
    }
}

/// A value as a tensor in JSON; `None` if it has no JSON form.
pub(crate) fn tensor_json(name: String, value: Value) -> Option<Json> {
    let tensor = OutputTensor { name, value };
    let mut data = Vec::new();
    tensor.write_json(false, &mut data).ok()?;
    let data: Json = serde_json::from_slice(&data).ok()?;
    let datatype = datatype::name(tensor.element());
    Some(json!({ "name": tensor.name, "datatype": datatype, "shape": tensor.shape(), "data": data }))
}

/// An output of a pipeline.
#[derive(Debug)]
pub(super) struct OutputTensor {
    pub(super) name: String,
    pub(super) value: Value,
}

impl OutputTensor {
    pub(super) fn element(&self) -> ElementType {
        self.value.as_tensor().map_or(ElementType::String, Tensor::element)
    }

    pub(super) fn shape(&self) -> &[usize] {
        self.value.as_tensor().map_or(&[1], Tensor::shape)
    }

    /// Whether its only element is binary and therefore base64 in JSON.
    pub(super) const fn is_base64(&self) -> bool {
        matches!(self.value, Value::Bytes(_))
    }

    /// The elements of BYTES.
    #[cfg(feature = "grpc")]
    pub(super) fn items(&self) -> Vec<Bytes> {
        match &self.value {
            Value::Text(text) => vec![Bytes::copy_from_slice(text.as_bytes())],
            Value::Bytes(bytes) => vec![Bytes::copy_from_slice(bytes)],
            Value::Json(json) => vec![json.to_string().into()],
            Value::Tensor(tensor) => {
                let texts = tensor.as_slice::<String>().unwrap_or_default();
                texts.iter().map(|text| Bytes::copy_from_slice(text.as_bytes())).collect()
            }
        }
    }

    /// Appends its raw bytes: little-endian and row-major; BYTES elements with a length prefix.
    pub(super) fn write_raw(&self, out: &mut Vec<u8>) -> Result<(), String> {
        if let Some(bytes) = self.value.as_tensor().and_then(Tensor::bytes) {
            out.extend_from_slice(bytes);
            return Ok(());
        }
        let mut item = |item: &[u8]| {
            let too_long = || format!("an element of the output `{}` is longer than 4 GiB", self.name);
            let length = u32::try_from(item.len()).map_err(|_| too_long())?;
            out.extend_from_slice(&length.to_le_bytes());
            out.extend_from_slice(item);
            Ok(())
        };
        match &self.value {
            Value::Text(text) => item(text.as_bytes()),
            Value::Bytes(bytes) => item(bytes),
            Value::Json(json) => item(json.to_string().as_bytes()),
            Value::Tensor(tensor) => {
                let texts = tensor.as_slice::<String>().unwrap_or_default();
                texts.iter().try_for_each(|text| item(text.as_bytes()))
            }
        }
    }

    /// Appends its elements as a flat JSON list. NaN and infinite elements are strings, as elsewhere in gpux, or, with
    /// `literals`, bare literals that are not valid JSON.
    pub(super) fn write_json(&self, literals: bool, out: &mut Vec<u8>) -> Result<(), String> {
        let written = match &self.value {
            Value::Text(text) => serde_json::to_writer(out, &[text]),
            Value::Json(json) => serde_json::to_writer(out, &[json.to_string()]),
            // `to_json` gives `{"base64": …}`; the protocol's list holds only the string.
            Value::Bytes(_) => serde_json::to_writer(out, &[to_json(&self.value)["base64"].clone()]),
            Value::Tensor(tensor) => match tensor.data() {
                TensorData::Bool(data) => serde_json::to_writer(out, &data[..]),
                TensorData::Uint8(data) => serde_json::to_writer(out, &data[..]),
                TensorData::Int8(data) => serde_json::to_writer(out, &data[..]),
                TensorData::Uint16(data) => serde_json::to_writer(out, &data[..]),
                TensorData::Int16(data) => serde_json::to_writer(out, &data[..]),
                TensorData::Uint32(data) => serde_json::to_writer(out, &data[..]),
                TensorData::Int32(data) => serde_json::to_writer(out, &data[..]),
                TensorData::Uint64(data) => serde_json::to_writer(out, &data[..]),
                TensorData::Int64(data) => serde_json::to_writer(out, &data[..]),
                TensorData::Float32(data) => floats(data, |number| f64::from(*number), literals, out),
                TensorData::Float64(data) => floats(data, |number| *number, literals, out),
                TensorData::String(data) => serde_json::to_writer(out, &data[..]),
                TensorData::Float16(_) | TensorData::Bfloat16(_) => {
                    return Err(not_in_json(&self.name, tensor.element()));
                }
            },
        };
        written.map_err(|error| error.to_string())
    }
}

/// The error for an output that JSON cannot hold.
pub(super) fn not_in_json(name: &str, element: ElementType) -> String {
    let datatype = datatype::name(element);
    format!("the output `{name}` is {datatype}, which JSON does not hold; ask for binary")
}

/// Writes floats; usually all are finite.
fn floats<T: serde::Serialize>(
    data: &[T],
    wide: impl Fn(&T) -> f64,
    literals: bool,
    out: &mut Vec<u8>,
) -> serde_json::Result<()> {
    if data.iter().all(|number| wide(number).is_finite()) {
        return serde_json::to_writer(out, data);
    }
    let quote = if literals { "" } else { "\"" };
    for (index, number) in data.iter().enumerate() {
        out.push(if index == 0 { b'[' } else { b',' });
        let name = match wide(number) {
            number if number.is_nan() => "NaN",
            f64::INFINITY => "Infinity",
            f64::NEG_INFINITY => "-Infinity",
            _ => {
                serde_json::to_writer(&mut *out, number)?;
                continue;
            }
        };
        out.extend([quote, name, quote].concat().bytes());
    }
    out.push(b']');
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use gpux_core::{ElementSet, TensorKind};

    fn tensors() -> Kind {
        Kind::Tensor(TensorKind::of_elements(ElementSet::ANY))
    }

    fn raw(element: ElementType, shape: &[usize], bytes: &[u8]) -> InputTensor {
        let data = Data::Raw(Bytes::copy_from_slice(bytes));
        InputTensor { name: "x".to_owned(), element, shape: shape.to_vec(), data }
    }

    fn fault(input: InputTensor, kind: &Kind) -> String {
        input.into_value(kind).unwrap_err()
    }

    #[test]
    fn checks_bytes_against_the_shape() {
        use ElementType::{Bool, Float32, String as Strings};
        assert!(fault(raw(Float32, &[2], &[0; 9]), &tensors()).contains("takes 8 bytes, but 9 were given"));
        assert!(fault(raw(Float32, &[usize::MAX, 3], &[]), &tensors()).contains("too large"));
        assert!(fault(raw(Bool, &[1], &[2]), &tensors()).contains("not a bool"));
        assert!(fault(raw(Strings, &[1], &[1, 0, 0]), &tensors()).contains("within the length"));
        assert!(fault(raw(Strings, &[1], &[9, 0, 0, 0, b'a']), &tensors()).contains("9 bytes, but 1 are left"));
        assert!(fault(raw(Strings, &[2], &[1, 0, 0, 0, b'a']), &tensors()).contains("holds 2 elements"));
        assert!(fault(raw(Strings, &[1], &[1, 0, 0, 0, 0xff]), &tensors()).contains("not UTF-8"));
        // Elements beyond the shape are not parsed.
        let beyond = [&[0; 12][..], &[9, 0, 0, 0]].concat();
        for shape in [&[2][..], &[0], &[1]] {
            assert!(fault(raw(Strings, shape, &beyond), &tensors()).contains("but its data has more"), "{shape:?}");
        }
        assert!(fault(raw(Strings, &[1], &beyond), &Kind::Text).contains("but its data has more"));
        assert!(fault(raw(Strings, &[1], &[]), &Kind::Text).contains("but its data has none"));
        assert!(fault(raw(Strings, &[2], &[0; 8]), &Kind::Text).contains("one element a request"));
        let file = raw(Strings, &[1], &[1, 0, 0, 0, 0xff]).into_value(&Kind::Bytes).unwrap();
        assert_eq!(file, Value::from(vec![0xff]));
    }

    #[test]
    fn accepts_flat_and_nested_elements() {
        let given = |nested: &[usize], shape: &[usize]| {
            let data = Data::Elements(Tensor::zeros(ElementType::Int8, nested).unwrap());
            InputTensor { name: "x".to_owned(), element: ElementType::Int8, shape: shape.to_vec(), data }
                .into_value(&tensors())
        };
        assert_eq!(given(&[4], &[2, 2]).unwrap().as_tensor().unwrap().shape(), [2, 2]);
        assert_eq!(given(&[2, 2], &[2, 2]).unwrap().as_tensor().unwrap().shape(), [2, 2]);
        assert!(given(&[1, 4], &[2, 2]).unwrap_err().contains("nested as [1, 4]"));
        assert!(given(&[3], &[2, 2]).unwrap_err().contains("holds 4 elements, but its data has 3"));
    }

    #[test]
    fn encodes_bytes_as_base64_in_json() {
        let data = Data::Elements(Tensor::new([1], vec!["/w==".to_owned()]).unwrap());
        let input = InputTensor { name: "x".into(), element: ElementType::String, shape: vec![1], data };
        let value = input.into_value(&Kind::Bytes).unwrap();
        assert_eq!(value, Value::from(vec![0xff]));
        let output = OutputTensor { name: "y".into(), value };
        let mut text = Vec::new();
        output.write_json(false, &mut text).unwrap();
        assert_eq!(text, b"[\"/w==\"]");
    }

    proptest! {
        #[test]
        fn strings_round_trip_through_raw_bytes(texts in prop::collection::vec(any::<String>(), 0..5)) {
            let value = Value::from(Tensor::new([texts.len()], texts.clone()).unwrap());
            let output = OutputTensor { name: "y".into(), value: value.clone() };
            let mut bytes = Vec::new();
            output.write_raw(&mut bytes).unwrap();
            prop_assert_eq!(raw(ElementType::String, &[texts.len()], &bytes).into_value(&tensors()).unwrap(), value);
        }

        #[test]
        fn never_panics_on_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..40), size in 0_usize..9) {
            for element in ElementType::ALL {
                for kind in [tensors(), Kind::Any, Kind::Text, Kind::Json] {
                    let _ = raw(element, &[size], &bytes).into_value(&kind);
                }
            }
        }
    }
}
