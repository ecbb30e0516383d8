//! Writes values as JSON text without building a tree.

use super::json_conversion::to_json;
use super::json_element::{self, JsonElement};
use crate::values::value::Value;
use crate::with_elements;

/// Writes a value as the JSON that [`to_json`] gives.
pub fn write_json(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Tensor(tensor) => with_elements!(tensor.data(), data => write_lists(tensor.shape(), data, out)),
        Value::Json(json) => json_element::write_json(&**json, out),
        Value::Text(_) | Value::Bytes(_) => json_element::write_json(&to_json(value), out),
    }
}

/// Writes a string as JSON.
pub fn write_json_text(text: &str, out: &mut Vec<u8>) {
    json_element::write_json(text, out);
}

/// Nested lists of the data, in row-major order.
fn write_lists<T: JsonElement>(shape: &[usize], data: &[T], out: &mut Vec<u8>) {
    let Some((size, inner)) = shape.split_first() else {
        match data.first() {
            Some(item) => item.write_json(out),
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
            [] => data[index].write_json(out),
            inner => write_lists(inner, &data[index * step..(index + 1) * step], out),
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
    use crate::{ElementType, Tensor, TensorElement};

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
