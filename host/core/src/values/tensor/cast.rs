//! Conversion between element types.

use half::{bf16, f16};

use super::data::{TensorData, TensorElement};
use crate::{CancelCheck, ElementType};

/// A number that converts to every other element type: integers to integers keep their lowest bits,
/// floats to integers lose their fraction and stay within the range, NaN becomes 0.
trait Number: Copy {
    fn to_u8(self) -> u8;
    fn to_i8(self) -> i8;
    fn to_u16(self) -> u16;
    fn to_i16(self) -> i16;
    fn to_u32(self) -> u32;
    fn to_i32(self) -> i32;
    fn to_u64(self) -> u64;
    fn to_i64(self) -> i64;
    fn to_f32(self) -> f32;
    fn to_f64(self) -> f64;
    fn to_bool(self) -> bool;
    /// In one rounding from float64, through float32 from anything else, as NumPy does.
    fn to_f16(self) -> f16;
    fn to_bf16(self) -> bf16;
}

macro_rules! numbers {
    ($($type:ty as $wide:ty, $half:path, $brain:path, through $through:ident);+ $(;)?) => {$(
        #[allow(
            clippy::cast_lossless, clippy::float_cmp, clippy::unnecessary_cast, trivial_numeric_casts,
            reason = "for some of the types of the macro only"
        )]
        impl Number for $type {
            fn to_u8(self) -> u8 { <$wide>::from(self) as u8 }
            fn to_i8(self) -> i8 { <$wide>::from(self) as i8 }
            fn to_u16(self) -> u16 { <$wide>::from(self) as u16 }
            fn to_i16(self) -> i16 { <$wide>::from(self) as i16 }
            fn to_u32(self) -> u32 { <$wide>::from(self) as u32 }
            fn to_i32(self) -> i32 { <$wide>::from(self) as i32 }
            fn to_u64(self) -> u64 { <$wide>::from(self) as u64 }
            fn to_i64(self) -> i64 { <$wide>::from(self) as i64 }
            fn to_f32(self) -> f32 { <$wide>::from(self) as f32 }
            fn to_f64(self) -> f64 { <$wide>::from(self) as f64 }
            fn to_bool(self) -> bool { <$wide>::from(self) != <$wide>::default() }
            fn to_f16(self) -> f16 { $half(<$wide>::from(self) as $through) }
            fn to_bf16(self) -> bf16 { $brain(<$wide>::from(self) as $through) }
        }
    )+};
}
/// The nearest float16, of two equally near the even one. `half` rounds twice, or forgets the lowest bits.
pub fn f16_from_f64(wide: f64) -> f16 {
    f16::from_f32(round_to_odd(wide))
}

/// The nearest bfloat16, of two equally near the even one.
pub fn bf16_from_f64(wide: f64) -> bf16 {
    bf16::from_f32(round_to_odd(wide))
}

/// Toward zero, with the last bit set where something was lost: rounded to fewer bits by two or more, that is as if
/// `wide` had been (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums", 2008).
fn round_to_odd(wide: f64) -> f32 {
    let near = wide as f32;
    let back = f64::from(near);
    if wide.is_nan() || back.to_bits() == wide.to_bits() {
        return near;
    }
    let toward_zero = if back.abs() > wide.abs() { near.to_bits() - 1 } else { near.to_bits() };
    f32::from_bits(toward_zero | 1)
}

numbers! {
    bool as u8, f16::from_f32, bf16::from_f32, through f32;
    u8 as u8, f16::from_f32, bf16::from_f32, through f32;
    i8 as i8, f16::from_f32, bf16::from_f32, through f32;
    u16 as u16, f16::from_f32, bf16::from_f32, through f32;
    i16 as i16, f16::from_f32, bf16::from_f32, through f32;
    u32 as u32, f16::from_f32, bf16::from_f32, through f32;
    i32 as i32, f16::from_f32, bf16::from_f32, through f32;
    u64 as u64, f16::from_f32, bf16::from_f32, through f32;
    i64 as i64, f16::from_f32, bf16::from_f32, through f32;
    f16 as f32, f16::from_f32, bf16::from_f32, through f32;
    bf16 as f32, f16::from_f32, bf16::from_f32, through f32;
    f32 as f32, f16::from_f32, bf16::from_f32, through f32;
    f64 as f64, f16_from_f64, bf16_from_f64, through f64;
}

/// Elements that are converted at a stretch.
const STRETCH: usize = 1 << 16;

/// `None` where the work was stopped.
fn convert<T: Number>(data: &[T], to: ElementType, cancel: &dyn CancelCheck) -> Option<TensorData> {
    macro_rules! map {
        ($convert:expr) => {{
            let mut converted = Vec::with_capacity(data.len());
            for stretch in data.chunks(STRETCH) {
                if !cancel.can_continue(stretch.len()) {
                    return None;
                }
                converted.extend(stretch.iter().copied().map($convert));
            }
            TensorElement::wrap(converted)
        }};
    }
    Some(match to {
        ElementType::Bool => map!(T::to_bool),
        ElementType::Uint8 => map!(T::to_u8),
        ElementType::Int8 => map!(T::to_i8),
        ElementType::Uint16 => map!(T::to_u16),
        ElementType::Int16 => map!(T::to_i16),
        ElementType::Uint32 => map!(T::to_u32),
        ElementType::Int32 => map!(T::to_i32),
        ElementType::Uint64 => map!(T::to_u64),
        ElementType::Int64 => map!(T::to_i64),
        ElementType::Float16 => map!(T::to_f16),
        ElementType::Bfloat16 => map!(T::to_bf16),
        ElementType::Float32 => map!(T::to_f32),
        ElementType::Float64 => map!(T::to_f64),
        ElementType::String => TensorElement::wrap(Vec::<String>::new()),
    })
}

/// Converts `data` to numbers of type `to`; neither may be strings (the caller has checked). `None` where the work
/// was stopped.
pub(super) fn cast(data: &TensorData, to: ElementType, cancel: &dyn CancelCheck) -> Option<TensorData> {
    match data {
        TensorData::Bool(data) => convert(data, to, cancel),
        TensorData::Uint8(data) => convert(data, to, cancel),
        TensorData::Int8(data) => convert(data, to, cancel),
        TensorData::Uint16(data) => convert(data, to, cancel),
        TensorData::Int16(data) => convert(data, to, cancel),
        TensorData::Uint32(data) => convert(data, to, cancel),
        TensorData::Int32(data) => convert(data, to, cancel),
        TensorData::Uint64(data) => convert(data, to, cancel),
        TensorData::Int64(data) => convert(data, to, cancel),
        TensorData::Float16(data) => convert(data, to, cancel),
        TensorData::Bfloat16(data) => convert(data, to, cancel),
        TensorData::Float32(data) => convert(data, to, cancel),
        TensorData::Float64(data) => convert(data, to, cancel),
        TensorData::String(_) => Some(data.clone()),
    }
}
