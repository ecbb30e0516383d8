//! ONNX's element types of less than a byte's worth of numbers: each is carried as the smallest
//! element type of the pipeline that holds every one of its numbers.

use std::fmt;

use gpux_core::ElementType;

/// An element type that a tensor of the pipeline does not have, but holds exactly as another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NarrowType {
    /// 2-bit signed integer, four a byte
    Int2,
    /// 2-bit unsigned integer
    Uint2,
    /// 4-bit signed integer, two a byte
    Int4,
    /// 4-bit unsigned integer
    Uint4,
    /// 8-bit float: 4 bits of exponent, 3 of mantissa, no infinities
    Float8e4m3fn,
    /// the same without a negative zero
    Float8e4m3fnuz,
    /// 8-bit float: 5 bits of exponent, 2 of mantissa
    Float8e5m2,
    /// the same without infinities and a negative zero
    Float8e5m2fnuz,
    /// a power of two, without sign
    Float8e8m0,
}

impl NarrowType {
    const ALL: [Self; 9] = [
        Self::Int2,
        Self::Uint2,
        Self::Int4,
        Self::Uint4,
        Self::Float8e4m3fn,
        Self::Float8e4m3fnuz,
        Self::Float8e5m2,
        Self::Float8e5m2fnuz,
        Self::Float8e8m0,
    ];

    /// ONNX's number for it (`TensorProto.DataType`).
    pub(crate) const fn data_type(self) -> i32 {
        match self {
            Self::Float8e4m3fn => 17,
            Self::Float8e4m3fnuz => 18,
            Self::Float8e5m2 => 19,
            Self::Float8e5m2fnuz => 20,
            Self::Uint4 => 21,
            Self::Int4 => 22,
            Self::Float8e8m0 => 24,
            Self::Uint2 => 25,
            Self::Int2 => 26,
        }
    }

    /// The type of that number.
    pub(super) fn from_data_type(data_type: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|narrow| narrow.data_type() == data_type)
    }

    /// The version of ONNX's operator set whose `Cast` knows it.
    pub(crate) const fn opset(self) -> i64 {
        match self {
            Self::Float8e4m3fn | Self::Float8e4m3fnuz | Self::Float8e5m2 | Self::Float8e5m2fnuz => 19,
            Self::Int4 | Self::Uint4 => 21,
            Self::Float8e8m0 => 24,
            Self::Int2 | Self::Uint2 => 25,
        }
    }

    /// ONNX's name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Int2 => "int2",
            Self::Uint2 => "uint2",
            Self::Int4 => "int4",
            Self::Uint4 => "uint4",
            Self::Float8e4m3fn => "float8e4m3fn",
            Self::Float8e4m3fnuz => "float8e4m3fnuz",
            Self::Float8e5m2 => "float8e5m2",
            Self::Float8e5m2fnuz => "float8e5m2fnuz",
            Self::Float8e8m0 => "float8e8m0",
        }
    }

    /// The element type of the pipeline that carries it.
    pub const fn carried_as(self) -> ElementType {
        match self {
            Self::Int2 | Self::Int4 => ElementType::Int8,
            Self::Uint2 | Self::Uint4 => ElementType::Uint8,
            _ => ElementType::Float32,
        }
    }

    /// Its smallest and its largest finite number.
    pub const fn range(self) -> (f32, f32) {
        match self {
            Self::Int2 => (-2.0, 1.0),
            Self::Uint2 => (0.0, 3.0),
            Self::Int4 => (-8.0, 7.0),
            Self::Uint4 => (0.0, 15.0),
            Self::Float8e4m3fn => (-448.0, 448.0),
            Self::Float8e4m3fnuz => (-240.0, 240.0),
            Self::Float8e5m2 | Self::Float8e5m2fnuz => (-57344.0, 57344.0),
            // 2⁻¹²⁷ (a subnormal number) to 2¹²⁷
            Self::Float8e8m0 => (f32::MIN_POSITIVE / 2.0, 1.701_411_8e38),
        }
    }

    /// Whether a number is one of its own, but for rounding.
    pub fn contains(self, number: f32) -> bool {
        let (least, most) = self.range();
        (least..=most).contains(&number)
            || match self {
                Self::Float8e5m2 => !number.is_finite(),
                narrow => number.is_nan() && narrow.carried_as() == ElementType::Float32,
            }
    }
}

impl fmt::Display for NarrowType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
