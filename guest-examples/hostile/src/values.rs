//! Attacks by what a request gives back: too large, too deep, claimed more than once, lies.

use super::gpux::pipeline::types::{ElementType, Error, NamedValue, Tensor, Value};
use super::refused;

/// Outputs of JSON that is small as text and large once it is read.
pub(super) const BOMBS: usize = 6;
/// Outputs that all claim the same bytes.
pub(super) const CLAIMS: usize = 60;

pub(super) fn attack(attack: &str) -> Option<Result<Option<Value>, Error>> {
    let value = match attack {
        "huge-result" => Value::Bytes(vec![1; 3 << 20]),
        "deep-json" => Value::Json(format!("{}{}", "[".repeat(10_000), "]".repeat(10_000))),
        "wide-json" => Value::Json(format!("[{}0]", "0,".repeat(500_000))),
        // SAFETY: none; the broken text only travels to the host, which must refuse it.
        "bad-utf8" => Value::Text(unsafe { String::from_utf8_unchecked(vec![b'a', 0xff, 0xc0]) }),
        "bad-json" => Value::Json("{".into()),
        "nan-json" => Value::Json("[NaN]".into()),
        "number-json" => Value::Json(format!("[1e999, {}]", "9".repeat(1 << 20))),
        "surrogate-json" => Value::Json(r#""\ud800""#.into()),
        "lying-length" => return Some(Err(refused(Tensor::create(ElementType::Float32, &[3, 4], &[0; 47])))),
        "overflowing-shape" => return Some(Err(refused(Tensor::zeros(ElementType::Float64, &[u32::MAX; 8])))),
        // 2^32 × 2^32 elements of a byte are none in 64 bits.
        "wrapping-shape" => {
            return Some(Err(refused(Tensor::create(ElementType::Uint8, &[1 << 31, 1 << 31, 4], &[]))));
        }
        // Nothing times more than anything is still nothing.
        "empty-shape" => {
            return Some(Err(refused(Tensor::zeros(ElementType::Float64, &[0, u32::MAX, u32::MAX, u32::MAX]))));
        }
        "many-axes" => return Some(Err(refused(Tensor::zeros(ElementType::Uint8, &[1; 1000])))),
        "bad-bool" => return Some(Err(refused(Tensor::create(ElementType::Boolean, &[1], &[7])))),
        "read-outside" => {
            let tensor = Tensor::zeros(ElementType::Uint8, &[4]);
            return Some(
                tensor.map_err(Error::Failed).and_then(|tensor| Err(refused(tensor.read(u32::MAX, u32::MAX)))),
            );
        }
        "write-outside" => {
            let tensor = Tensor::zeros(ElementType::Uint8, &[4]);
            return Some(tensor.map_err(Error::Failed).and_then(|tensor| Err(refused(tensor.write(2, &[0; 3])))));
        }
        _ => return None,
    };
    Some(Ok(Some(value)))
}

/// More values than any signature may have.
pub(super) fn many() -> Vec<NamedValue> {
    (0..20_000).map(|_| NamedValue { name: String::new(), value: Value::Bytes(Vec::new()) }).collect()
}

/// Values that all point at the same megabyte: little in the component, a lot for who copies each.
pub(super) fn claimed() -> Vec<NamedValue> {
    let bytes: &'static [u8] = Vec::leak(vec![b'x'; 1 << 20]);
    named(CLAIMS, |_| {
        // SAFETY: none; several owners of the same bytes is the attack, and none is ever dropped.
        let claimed = unsafe { String::from_raw_parts(bytes.as_ptr().cast_mut(), bytes.len(), bytes.len()) };
        Value::Text(claimed)
    })
}

/// Each a hundred kilobytes of text that become seventy times as much: one of them fits.
pub(super) fn json_bombs() -> Vec<NamedValue> {
    named(BOMBS, |_| Value::Json(format!("[{}0]", "0,".repeat(50_000))))
}

fn named(count: usize, value: impl Fn(usize) -> Value) -> Vec<NamedValue> {
    (0..count).map(|index| NamedValue { name: index.to_string(), value: value(index) }).collect()
}
