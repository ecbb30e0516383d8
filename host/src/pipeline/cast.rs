//! Conversion between element types.

use half::{bf16, f16};

use super::element::ElementType;
use super::tensor::{TensorData, TensorElement};

/// A number that converts to every other element type.
trait Number: Copy {
    fn to_f64(self) -> f64;
    fn to_i128(self) -> i128;
    fn to_bool(self) -> bool;
}

macro_rules! integers {
    ($($type:ty),+) => {$(impl Number for $type {
        #[allow(clippy::cast_lossless, reason = "lossless for the narrower types of the macro only")]
        fn to_f64(self) -> f64 { self as f64 }
        fn to_i128(self) -> i128 { i128::from(self) }
        fn to_bool(self) -> bool { self != 0 }
    })+};
}
integers!(u8, i8, u16, i16, u32, i32, u64, i64);

macro_rules! floats {
    ($($type:ty),+) => {$(impl Number for $type {
        fn to_f64(self) -> f64 { f64::from(self) }
        fn to_i128(self) -> i128 { f64::from(self) as i128 }
        fn to_bool(self) -> bool { f64::from(self) != 0.0 }
    })+};
}
floats!(f32, f64, f16, bf16);

impl Number for bool {
    fn to_f64(self) -> f64 {
        f64::from(u8::from(self))
    }
    fn to_i128(self) -> i128 {
        i128::from(self)
    }
    fn to_bool(self) -> bool {
        self
    }
}

fn saturate<T: TryFrom<i128> + Copy>(value: i128, low: T, high: T) -> T {
    T::try_from(value).unwrap_or(if value < 0 { low } else { high })
}

fn convert<T: Number>(data: &[T], to: ElementType) -> TensorData {
    macro_rules! map {
        ($convert:expr) => {
            TensorElement::wrap(data.iter().copied().map($convert).collect::<Vec<_>>())
        };
    }
    macro_rules! integer {
        ($type:ty) => {
            map!(|value: T| saturate::<$type>(value.to_i128(), <$type>::MIN, <$type>::MAX))
        };
    }
    match to {
        ElementType::Bool => map!(T::to_bool),
        ElementType::Uint8 => integer!(u8),
        ElementType::Int8 => integer!(i8),
        ElementType::Uint16 => integer!(u16),
        ElementType::Int16 => integer!(i16),
        ElementType::Uint32 => integer!(u32),
        ElementType::Int32 => integer!(i32),
        ElementType::Uint64 => integer!(u64),
        ElementType::Int64 => integer!(i64),
        ElementType::Float16 => map!(|value| f16::from_f64(value.to_f64())),
        ElementType::Bfloat16 => map!(|value| bf16::from_f64(value.to_f64())),
        ElementType::Float32 => map!(|value| value.to_f64() as f32),
        ElementType::Float64 => map!(T::to_f64),
        ElementType::String => TensorElement::wrap(Vec::<String>::new()),
    }
}

/// Converts `data` to numbers of type `to`; neither may be strings (the caller has checked).
pub(super) fn cast(data: &TensorData, to: ElementType) -> TensorData {
    match data {
        // The hot one: an image's bytes to floats.
        TensorData::Uint8(data) if to == ElementType::Float32 => {
            TensorElement::wrap(data.iter().map(|value| f32::from(*value)).collect())
        }
        TensorData::Bool(data) => convert(data, to),
        TensorData::Uint8(data) => convert(data, to),
        TensorData::Int8(data) => convert(data, to),
        TensorData::Uint16(data) => convert(data, to),
        TensorData::Int16(data) => convert(data, to),
        TensorData::Uint32(data) => convert(data, to),
        TensorData::Int32(data) => convert(data, to),
        TensorData::Uint64(data) => convert(data, to),
        TensorData::Int64(data) => convert(data, to),
        TensorData::Float16(data) => convert(data, to),
        TensorData::Bfloat16(data) => convert(data, to),
        TensorData::Float32(data) => convert(data, to),
        TensorData::Float64(data) => convert(data, to),
        TensorData::String(_) => data.clone(),
    }
}
