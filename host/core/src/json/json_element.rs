//! Elements of tensors from JSON and to JSON.

use std::io::Write as _;

use half::{bf16, f16};
use serde_json::Value as Json;

use crate::values::tensor::{TensorElement, bf16_from_f64, f16_from_f64};

/// How the elements of a type are read from JSON and written as JSON.
pub(crate) trait JsonElement: TensorElement {
    /// A number without a point.
    fn from_integer(number: i128) -> Option<Self> {
        let _ = number;
        None
    }
    /// A number with a point or an exponent.
    fn from_float(number: f64) -> Option<Self> {
        let _ = number;
        None
    }
    fn from_bool(value: bool) -> Option<Self> {
        let _ = value;
        None
    }
    fn from_text(text: &str) -> Option<Self> {
        let _ = text;
        None
    }
    /// A missing value.
    fn from_null() -> Option<Self> {
        None
    }
    fn from_json(json: &Json) -> Option<Self> {
        match json {
            Json::Null => Self::from_null(),
            Json::Bool(value) => Self::from_bool(*value),
            Json::String(text) => Self::from_text(text),
            Json::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(number), _) => Self::from_integer(number.into()),
                (None, Some(number)) => Self::from_integer(number.into()),
                (None, None) => Self::from_float(number.as_f64()?),
            },
            Json::Array(_) | Json::Object(_) => None,
        }
    }
    fn to_json(&self) -> Json;
    /// Writes the text of [`to_json`](Self::to_json).
    fn write_json(&self, out: &mut Vec<u8>) {
        write_json(&self.to_json(), out);
    }
}

macro_rules! integers {
    ($($type:ty),+) => {
        $(impl JsonElement for $type {
            fn from_integer(number: i128) -> Option<Self> {
                Self::try_from(number).ok()
            }
            /// Whole numbers may be written as floats (`3.0`), as JavaScript and some encoders do.
            fn from_float(number: f64) -> Option<Self> {
                let whole = number.fract() == 0.0 && number.abs() < 9.0e15;
                whole.then_some(number as i128).and_then(Self::from_integer)
            }
            fn to_json(&self) -> Json {
                Json::from(*self)
            }
            fn write_json(&self, out: &mut Vec<u8>) {
                write_json(self, out);
            }
        })+
    };
}
integers!(u8, i8, u16, i16, u32, i32, u64, i64);

macro_rules! floats {
    ($($type:ty, $narrow:expr, $to_json:expr, $write:expr);+) => {
        $(impl JsonElement for $type {
            fn from_integer(number: i128) -> Option<Self> {
                Self::from_float(number as f64)
            }
            /// A number too large for the type is refused, not made infinite.
            fn from_float(number: f64) -> Option<Self> {
                let narrowed = ($narrow)(number);
                narrowed.is_finite().then_some(narrowed)
            }
            fn from_text(text: &str) -> Option<Self> {
                special_float(text).map($narrow)
            }
            /// As pandas and NumPy have it.
            fn from_null() -> Option<Self> {
                Some(($narrow)(f64::NAN))
            }
            fn to_json(&self) -> Json {
                ($to_json)(*self)
            }
            fn write_json(&self, out: &mut Vec<u8>) {
                if self.is_finite() { ($write)(self, out) } else { write_json(&self.to_json(), out) }
            }
        })+
    };
}
floats! {
    f16, f16_from_f64, |number: Self| shortest(&number.to_string(), number.into()), write_half;
    bf16, bf16_from_f64, |number: Self| shortest(&number.to_string(), number.into()), write_half;
    f32, |wide: f64| wide as Self, float32_to_json, write_json;
    f64, |wide: f64| wide, float64_to_json, write_json
}

impl JsonElement for bool {
    fn from_bool(value: bool) -> Option<Self> {
        Some(value)
    }
    fn to_json(&self) -> Json {
        Json::Bool(*self)
    }
}

impl JsonElement for String {
    fn from_text(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }
    fn to_json(&self) -> Json {
        Json::String(self.clone())
    }
    fn write_json(&self, out: &mut Vec<u8>) {
        write_json(self, out);
    }
}

/// Runs `$body` with `$type` as the Rust type of this [`ElementType`](crate::ElementType).
macro_rules! with_json_element {
    ($element:expr, $type:ident => $body:expr) => {
        with_json_element!($element, $type => $body,
            Bool bool, Uint8 u8, Int8 i8, Uint16 u16, Int16 i16, Uint32 u32, Int32 i32, Uint64 u64, Int64 i64,
            Float16 half::f16, Bfloat16 half::bf16, Float32 f32, Float64 f64, String String)
    };
    ($element:expr, $type:ident => $body:expr, $($variant:ident $rust:ty),+) => {
        match $element {
            $($crate::ElementType::$variant => {
                type $type = $rust;
                $body
            })+
        }
    };
}
pub(crate) use with_json_element;

pub(crate) fn special_float(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

fn float64_to_json(number: f64) -> Json {
    serde_json::Number::from_f64(number).map_or_else(
        || {
            let name = if number.is_nan() {
                "NaN"
            } else if number > 0.0 {
                "Infinity"
            } else {
                "-Infinity"
            };
            Json::String(name.to_owned())
        },
        Json::Number,
    )
}

/// The shortest decimal that reads back as the same number of the narrower type.
fn shortest(text: &str, number: f64) -> Json {
    float64_to_json(text.parse().unwrap_or(number))
}

/// A float32 as every tensor of them is written: its shortest decimal, `"NaN"` and `"Infinity"` as text.
pub fn float32_to_json(number: f32) -> Json {
    shortest(&number.to_string(), f64::from(number))
}

/// A finite narrow float in the fewest digits that read back as it.
fn write_half(number: &impl std::fmt::Display, out: &mut Vec<u8>) {
    let start = out.len();
    // Writing to memory cannot fail.
    let _ = write!(out, "{number}");
    if !out[start..].iter().any(|byte| matches!(byte, b'.' | b'e')) {
        out.extend_from_slice(b".0");
    }
}

/// Writes a value that serde can always write: strings, numbers, and trees of them.
pub(crate) fn write_json(value: &(impl serde::Serialize + ?Sized), out: &mut Vec<u8>) {
    let before = out.len();
    if serde_json::to_writer(&mut *out, value).is_err() {
        out.truncate(before);
        out.extend_from_slice(b"null");
    }
}
