//! The element types of tensors, under ONNX's names.

use std::fmt;
use std::str::FromStr;

use half::{bf16, f16};
use serde::{Deserialize, Serialize};

/// What one element of a tensor is. Names and meanings are ONNX's (`TensorProto.DataType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ElementType {
    /// true or false, one byte
    Bool,
    /// 8-bit unsigned integer
    Uint8,
    /// 8-bit signed integer
    Int8,
    /// 16-bit unsigned integer
    Uint16,
    /// 16-bit signed integer
    Int16,
    /// 32-bit unsigned integer
    Uint32,
    /// 32-bit signed integer
    Int32,
    /// 64-bit unsigned integer
    Uint64,
    /// 64-bit signed integer
    Int64,
    /// IEEE 754 half precision
    Float16,
    /// bfloat16: the upper half of a float32
    Bfloat16,
    /// IEEE 754 single precision
    Float32,
    /// IEEE 754 double precision
    Float64,
    /// UTF-8 strings of any length
    String,
}

impl ElementType {
    /// Every element type, in declaration order.
    pub const ALL: [Self; 14] = [
        Self::Bool,
        Self::Uint8,
        Self::Int8,
        Self::Uint16,
        Self::Int16,
        Self::Uint32,
        Self::Int32,
        Self::Uint64,
        Self::Int64,
        Self::Float16,
        Self::Bfloat16,
        Self::Float32,
        Self::Float64,
        Self::String,
    ];

    /// The name in gpux.yml, in JSON and in the component contract, for example `float32`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Uint8 => "uint8",
            Self::Int8 => "int8",
            Self::Uint16 => "uint16",
            Self::Int16 => "int16",
            Self::Uint32 => "uint32",
            Self::Int32 => "int32",
            Self::Uint64 => "uint64",
            Self::Int64 => "int64",
            Self::Float16 => "float16",
            Self::Bfloat16 => "bfloat16",
            Self::Float32 => "float32",
            Self::Float64 => "float64",
            Self::String => "string",
        }
    }

    /// Bytes of one element; `None` for strings, whose size varies.
    pub const fn size(self) -> Option<usize> {
        match self {
            Self::Bool | Self::Uint8 | Self::Int8 => Some(1),
            Self::Uint16 | Self::Int16 | Self::Float16 | Self::Bfloat16 => Some(2),
            Self::Uint32 | Self::Int32 | Self::Float32 => Some(4),
            Self::Uint64 | Self::Int64 | Self::Float64 => Some(8),
            Self::String => None,
        }
    }

    /// Whether this is one of the four floating-point types.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::Float16 | Self::Bfloat16 | Self::Float32 | Self::Float64)
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text is not the name of an element type.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not an element type; these are: {names}", names = ElementType::ALL.map(ElementType::name).join(", "))]
pub struct UnknownElementType(String);

impl FromStr for ElementType {
    type Err = UnknownElementType;

    /// Reads [`ElementType::name`], and the aliases that configurations in the wild use
    /// (`float`, `double`, `half`, `int`, `long`, `str`, `boolean`).
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let canonical = match name {
            "float" => "float32",
            "double" => "float64",
            "half" => "float16",
            "int" => "int32",
            "long" => "int64",
            "str" => "string",
            "boolean" => "bool",
            other => other,
        };
        Self::ALL
            .into_iter()
            .find(|element| element.name() == canonical)
            .ok_or_else(|| UnknownElementType(name.to_owned()))
    }
}

/// A set of element types that a port accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElementSet(u16);

impl ElementSet {
    /// Every element type.
    pub const ANY: Self = Self(u16::MAX);

    /// The set of the given types.
    pub const fn of(elements: &[ElementType]) -> Self {
        let mut bits = 0;
        let mut index = 0;
        while index < elements.len() {
            bits |= 1 << elements[index] as u16;
            index += 1;
        }
        Self(bits)
    }

    /// Every numeric type (all but `bool` and `string`).
    pub const fn numeric() -> Self {
        Self(Self::ANY.0 & !Self::of(&[ElementType::Bool, ElementType::String]).0)
    }

    /// The eight integer types.
    pub const fn integers() -> Self {
        use ElementType::{Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64};
        Self::of(&[Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64])
    }

    /// The four floating-point types.
    pub const fn floats() -> Self {
        Self::of(&[ElementType::Float16, ElementType::Bfloat16, ElementType::Float32, ElementType::Float64])
    }

    /// Whether `element` is in the set.
    pub const fn contains(self, element: ElementType) -> bool {
        self.0 & (1 << element as u16) != 0
    }

    /// The set with `element` in it.
    #[must_use]
    pub const fn with(self, element: ElementType) -> Self {
        Self(self.0 | 1 << element as u16)
    }

    /// The types in both sets.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The types of either.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether no element type is left.
    pub fn is_empty(self) -> bool {
        self.iter().next().is_none()
    }

    /// The only member, if there is just one.
    pub fn single(self) -> Option<ElementType> {
        let mut members = self.iter();
        let first = members.next()?;
        members.next().is_none().then_some(first)
    }

    /// The members, in declaration order.
    pub fn iter(self) -> impl Iterator<Item = ElementType> {
        ElementType::ALL.into_iter().filter(move |element| self.contains(*element))
    }
}

impl From<ElementType> for ElementSet {
    fn from(element: ElementType) -> Self {
        Self::of(&[element])
    }
}

impl fmt::Display for ElementSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.iter().count() == ElementType::ALL.len() {
            return f.write_str("any");
        }
        if *self == Self::numeric() {
            return f.write_str("number");
        }
        if *self == Self::floats() {
            return f.write_str("float");
        }
        let names: Vec<_> = self.iter().map(ElementType::name).collect();
        f.write_str(&names.join("|"))
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that a tensor can hold.
pub trait Element: sealed::Sealed + Clone + Default + Send + Sync + 'static {
    /// Its element type.
    const TYPE: ElementType;
}

macro_rules! elements {
    ($($type:ty => $variant:ident),+ $(,)?) => {
        $(
            impl sealed::Sealed for $type {}
            impl Element for $type {
                const TYPE: ElementType = ElementType::$variant;
            }
        )+
    };
}

elements! {
    bool => Bool, u8 => Uint8, i8 => Int8, u16 => Uint16, i16 => Int16, u32 => Uint32,
    i32 => Int32, u64 => Uint64, i64 => Int64, f16 => Float16, bf16 => Bfloat16,
    f32 => Float32, f64 => Float64, String => String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn element_type_names_round_trip() {
        for element in ElementType::ALL {
            assert_eq!(element.name().parse::<ElementType>().unwrap(), element);
        }
        assert!("u8".parse::<ElementType>().is_err());
    }

    #[test]
    fn element_sets_intersect_and_print() {
        assert_eq!(ElementSet::from(ElementType::Int8).single(), Some(ElementType::Int8));
        assert_eq!(ElementSet::floats().single(), None);
        assert!(ElementSet::floats().intersection(ElementType::Int8.into()).is_empty());
        assert_eq!(ElementSet::ANY.to_string(), "any");
        assert_eq!(ElementSet::of(&[ElementType::Uint8, ElementType::Float32]).to_string(), "uint8|float32");
    }
}
