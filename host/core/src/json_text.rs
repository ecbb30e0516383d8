//! Writes values as JSON text without building a tree.

use std::io::Write;

use super::json_conversion::to_json;
use super::tensor::{Tensor, TensorData};
use super::value::Value;

/// Writes a value as the JSON that [`to_json`] gives.
pub fn write_json(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Tensor(tensor) => write_tensor(tensor, out),
        Value::Json(json) => write(&**json, out),
        Value::Text(_) | Value::Bytes(_) => write(&to_json(value), out),
    }
}

/// Writes what serde writes without fault: strings, numbers, and trees of them.
fn write(value: &(impl serde::Serialize + ?Sized), out: &mut Vec<u8>) {
    let before = out.len();
    if serde_json::to_writer(&mut *out, value).is_err() {
        out.truncate(before);
        out.extend_from_slice(b"null");
    }
}

/// Writes a string as JSON.
pub fn write_json_text(text: &str, out: &mut Vec<u8>) {
    write(text, out);
}

fn write_tensor(tensor: &Tensor, out: &mut Vec<u8>) {
    match tensor.data() {
        TensorData::Float32(data) => lists(tensor.shape(), data, out, &mut |number, out| float32(*number, out)),
        TensorData::Float64(data) => lists(tensor.shape(), data, out, &mut |number, out| float64(*number, out)),
        TensorData::Bool(data) => lists(tensor.shape(), data, out, &mut write),
        TensorData::Uint8(data) => lists(tensor.shape(), data, out, &mut write),
        TensorData::Int8(data) => lists(tensor.shape(), data, out, &mut write),
        TensorData::Uint16(data) => lists(tensor.shape(), data, out, &mut write),
        TensorData::Int16(data) => lists(tensor.shape(), data, out, &mut write),
        TensorData::Uint32(data) => lists(tensor.shape(), data, out, &mut write),
        TensorData::Int32(data) => lists(tensor.shape(), data, out, &mut write),
        TensorData::Uint64(data) => lists(tensor.shape(), data, out, &mut write),
        TensorData::Int64(data) => lists(tensor.shape(), data, out, &mut write),
        TensorData::String(data) => lists(tensor.shape(), data, out, &mut write),
        TensorData::Float16(data) => {
            lists(tensor.shape(), data, out, &mut |half, out| display(half, half.to_f32(), out));
        }
        TensorData::Bfloat16(data) => {
            lists(tensor.shape(), data, out, &mut |half, out| display(half, half.to_f32(), out));
        }
    }
}

fn float32(number: f32, out: &mut Vec<u8>) {
    if number.is_finite() { write(&number, out) } else { special(f64::from(number), out) }
}

fn float64(number: f64, out: &mut Vec<u8>) {
    if number.is_finite() { write(&number, out) } else { special(number, out) }
}

/// A narrow float in the fewest digits that read back as it.
fn display(number: &impl std::fmt::Display, wide: f32, out: &mut Vec<u8>) {
    if !wide.is_finite() {
        return special(f64::from(wide), out);
    }
    let start = out.len();
    // Writing to memory cannot fail.
    let _ = write!(out, "{number}");
    if !out[start..].iter().any(|byte| matches!(byte, b'.' | b'e')) {
        out.extend_from_slice(b".0");
    }
}

fn special(number: f64, out: &mut Vec<u8>) {
    out.extend_from_slice(if number.is_nan() {
        b"\"NaN\""
    } else if number > 0.0 {
        b"\"Infinity\""
    } else {
        b"\"-Infinity\""
    });
}

/// Nested lists of the data, in row-major order.
fn lists<T>(shape: &[usize], data: &[T], out: &mut Vec<u8>, leaf: &mut impl FnMut(&T, &mut Vec<u8>)) {
    let Some((size, inner)) = shape.split_first() else {
        match data.first() {
            Some(item) => leaf(item, out),
            None => out.extend_from_slice(b"null"),
        }
        return;
    };
    let step: usize = inner.iter().product();
    out.push(b'[');
    for index in 0..*size {
        if index > 0 {
            out.push(b',');
        }
        match inner {
            [] => leaf(&data[index], out),
            inner => lists(inner, &data[index * step..(index + 1) * step], out, leaf),
        }
    }
    out.push(b']');
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use half::{bf16, f16};
    use serde_json::Value as Json;

    use super::*;
    use crate::{ElementType, TensorElement};

    fn same<T: TensorElement>(shape: &[usize], data: Vec<T>) {
        let value = Value::from(Tensor::new(shape, data).unwrap());
        let mut text = Vec::new();
        write_json(&value, &mut text);
        let read: Json = serde_json::from_slice(&text).unwrap();
        assert_eq!(read, to_json(&value));
    }

    #[test]
    fn written_text_matches_the_tree() {
        same(&[2, 3], vec![0.1_f32, -3.5, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-40]);
        same(&[3], vec![1e300, 0.1, f64::NEG_INFINITY]);
        same(&[], vec![7_i64]);
        same(&[2], vec![u64::MAX, 0]);
        same(&[2, 1, 2], vec![1_u8, 2, 3, 4]);
        same(&[2], vec![true, false]);
        same(&[2], vec!["a\"b".to_owned(), "ü\n".to_owned()]);
        same(&[3], vec![f16::from_f32(0.1), f16::MAX, f16::NAN]);
        same(&[2], vec![bf16::from_f32(0.1), bf16::from_f32(3.0)]);
        for shape in [vec![2, 0], vec![0, 3], vec![0]] {
            let value = Value::from(Tensor::zeros(ElementType::Float32, shape).unwrap());
            let mut text = Vec::new();
            write_json(&value, &mut text);
            assert_eq!(serde_json::from_slice::<Json>(&text).unwrap(), to_json(&value));
        }
    }
}
