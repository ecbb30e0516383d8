//! Sizes of values in memory, and upper bounds of their sizes once they are encoded.

use std::io::{self, Write};

use super::element::ElementType;
use super::tensor::Tensor;
use super::value::Value;

/// The memory that values take together, in bytes.
pub fn of_all<'a>(values: impl Iterator<Item = &'a Value>) -> usize {
    values.map(memory).sum()
}

/// The memory that a value takes, in bytes; of an empty tensor, as much as its lists in JSON.
pub fn memory(value: &Value) -> usize {
    match value {
        Value::Tensor(tensor) if tensor.is_empty() => lists(tensor),
        Value::Tensor(tensor) if tensor.element() == ElementType::String => {
            tensor.byte_len().saturating_add(tensor.len().saturating_mul(size_of::<String>()))
        }
        value => value.byte_len(),
    }
}

/// The raw bytes of a value, at most: each text with its length before it.
pub fn raw(value: &Value) -> usize {
    match value {
        Value::Tensor(tensor) if tensor.element() != ElementType::String => tensor.byte_len(),
        Value::Tensor(tensor) => tensor.byte_len().saturating_add(tensor.len().saturating_mul(size_of::<u32>())),
        Value::Json(json) => written(&**json) + size_of::<u32>(),
        Value::Text(_) | Value::Bytes(_) => value.byte_len() + size_of::<u32>(),
    }
}

/// The bytes of a value's JSON, at most.
pub fn json(value: &Value) -> usize {
    match value {
        Value::Tensor(tensor) => lists(tensor).saturating_add(elements(tensor)),
        Value::Json(json) => written(&**json),
        Value::Text(text) => written(&**text),
        // `{"base64":"…"}`
        Value::Bytes(bytes) => bytes.len().div_ceil(3) * 4 + 16,
    }
}

/// The brackets and commas of nested lists.
fn lists(tensor: &Tensor) -> usize {
    let mut lists = 1_usize;
    tensor.shape().iter().fold(0_usize, |bytes, size| {
        let bytes = bytes.saturating_add(lists.saturating_mul(3));
        lists = lists.saturating_mul(*size);
        bytes
    })
}

/// The elements, each with a comma.
fn elements(tensor: &Tensor) -> usize {
    let longest = match tensor.element() {
        ElementType::Bool => "false".len(),
        ElementType::Uint8 => "255".len(),
        ElementType::Int8 => "-128".len(),
        ElementType::Uint16 => "65535".len(),
        ElementType::Int16 => "-32768".len(),
        ElementType::Uint32 => "4294967295".len(),
        ElementType::Int32 => "-2147483648".len(),
        ElementType::Uint64 => "18446744073709551615".len(),
        ElementType::Int64 => "-9223372036854775808".len(),
        ElementType::Float32 => "-1.23456789e-38".len(),
        ElementType::Float64 => "-1.2345678901234567e-308".len(),
        // Written without an exponent.
        ElementType::Float16 => "-0.000000059604645".len(),
        ElementType::Bfloat16 => "-0.".len() + 41 + 9,
        ElementType::String => {
            return tensor.as_slice::<String>().unwrap_or_default().iter().map(|text| written(text) + 1).sum();
        }
    };
    tensor.len().saturating_mul(longest + 1)
}

/// The bytes that serde writes.
fn written(value: &(impl serde::Serialize + ?Sized)) -> usize {
    struct Count(usize);
    impl Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // A value that cannot be encoded becomes `null`.
    if serde_json::to_writer(&mut count, value).is_ok() { count.0 } else { "null".len() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use half::{bf16, f16};
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::{TensorElement, write_json};

    fn text(value: &Value) -> usize {
        let mut text = Vec::new();
        write_json(value, &mut text);
        text.len()
    }

    fn holds(value: impl Into<Value>) {
        let value = value.into();
        assert!(text(&value) <= json(&value), "{} > {}: {value:?}", text(&value), json(&value));
    }

    fn longest<T: TensorElement + Clone>(items: &[T]) {
        for item in items {
            for shape in [&[3][..], &[3, 1], &[1, 3, 1, 1], &[]] {
                let count = shape.iter().product();
                holds(Tensor::new(shape, vec![item.clone(); count]).unwrap());
            }
        }
    }

    #[test]
    fn json_never_exceeds_the_estimate() {
        longest(&[f32::MIN, -f32::MIN_POSITIVE, -1.234_567_9e-38, f32::from_bits(0x8000_0001), f32::NEG_INFINITY]);
        longest(&[f64::MIN, -f64::MIN_POSITIVE, -5e-324, -2.225_073_858_507_201_4e-308, f64::NAN]);
        longest(&[f16::MIN, f16::from_bits(0x8001), f16::from_bits(0x83ff), f16::NEG_INFINITY]);
        longest(&[bf16::MIN, bf16::from_bits(0x8001), bf16::from_bits(0x807f), bf16::NEG_INFINITY]);
        longest(&[i64::MIN, i64::MAX]);
        longest(&[u64::MAX]);
        longest(&[i32::MIN]);
        longest(&[u32::MAX]);
        longest(&[i16::MIN]);
        longest(&[u16::MAX]);
        longest(&[i8::MIN]);
        longest(&[u8::MAX]);
        longest(&[true, false]);
        longest(&["\u{1}\u{2}\"\\\n".to_owned(), String::new(), "ü".to_owned()]);
        for shape in [&[1000, 0][..], &[0], &[0, 7], &[10, 10, 0]] {
            holds(Tensor::zeros(ElementType::Float32, shape).unwrap());
        }
        holds(Value::from("\u{1}\"ü"));
        holds(Value::from(json!({ "a": [1, 2.5, null, "\u{1}"], "": {} })));
        for size in 0..5 {
            holds(Value::from(vec![7; size]));
        }
    }

    proptest! {
        #[test]
        fn numbers_never_exceed_the_estimate(bits in any::<u64>()) {
            holds(Tensor::new([1], vec![f64::from_bits(bits)]).unwrap());
            holds(Tensor::new([1], vec![f32::from_bits(bits as u32)]).unwrap());
            holds(Tensor::new([1], vec![f16::from_bits(bits as u16)]).unwrap());
            holds(Tensor::new([1], vec![bf16::from_bits(bits as u16)]).unwrap());
        }
    }
}
