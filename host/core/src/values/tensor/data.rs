//! The elements of a tensor, each type in its own variant.

use half::{bf16, f16};

use super::elements::Elements;
use crate::{Element, ElementType};

/// The elements of a tensor, typed, row-major. Cloning shares them.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each variant is the element type of its name")]
pub enum TensorData {
    Bool(Elements<bool>),
    Uint8(Elements<u8>),
    Int8(Elements<i8>),
    Uint16(Elements<u16>),
    Int16(Elements<i16>),
    Uint32(Elements<u32>),
    Int32(Elements<i32>),
    Uint64(Elements<u64>),
    Int64(Elements<i64>),
    Float16(Elements<f16>),
    Bfloat16(Elements<bf16>),
    Float32(Elements<f32>),
    Float64(Elements<f64>),
    String(Elements<String>),
}

/// Runs `$body` with `$data` bound to the shared elements of the variant, whichever it is.
#[macro_export]
#[doc(hidden)]
macro_rules! with_elements {
    ($value:expr, $data:ident => $body:expr) => {
        match $value {
            $crate::TensorData::Bool($data) => $body,
            $crate::TensorData::Uint8($data) => $body,
            $crate::TensorData::Int8($data) => $body,
            $crate::TensorData::Uint16($data) => $body,
            $crate::TensorData::Int16($data) => $body,
            $crate::TensorData::Uint32($data) => $body,
            $crate::TensorData::Int32($data) => $body,
            $crate::TensorData::Uint64($data) => $body,
            $crate::TensorData::Int64($data) => $body,
            $crate::TensorData::Float16($data) => $body,
            $crate::TensorData::Bfloat16($data) => $body,
            $crate::TensorData::Float32($data) => $body,
            $crate::TensorData::Float64($data) => $body,
            $crate::TensorData::String($data) => $body,
        }
    };
}

/// Runs `$body` with `$type` as the integer type that `$element` names; other arms of the match follow.
#[macro_export]
#[doc(hidden)]
macro_rules! with_integer_type {
    ($element:expr, $type:ident => $body:expr, $($others:tt)*) => {
        $crate::with_integer_type!(@match $element, $type, $body, {$($others)*}
            Uint8 u8, Int8 i8, Uint16 u16, Int16 i16, Uint32 u32, Int32 i32, Uint64 u64, Int64 i64)
    };
    (@match $element:expr, $type:ident, $body:expr, {$($others:tt)*} $($variant:ident $int:ty),+) => {
        match $element {
            $($crate::ElementType::$variant => {
                type $type = $int;
                $body
            })+
            $($others)*
        }
    };
}

/// A Rust type with its place in [`TensorData`].
pub trait TensorElement: Element {
    /// Wraps elements of this type.
    fn wrap(data: Vec<Self>) -> TensorData {
        Self::wrap_elements(data.into())
    }
    /// Wraps shared elements of this type.
    fn wrap_elements(data: Elements<Self>) -> TensorData;
    /// The elements, if they are of this type.
    fn slice(data: &TensorData) -> Option<&[Self]>;
    /// The elements for writing, if they are of this type; shared ones are copied first.
    fn slice_mut(data: &mut TensorData) -> Option<&mut [Self]>;
}

macro_rules! tensor_elements {
    ($($type:ty => $variant:ident),+ $(,)?) => {
        $(impl TensorElement for $type {
            fn wrap_elements(data: Elements<Self>) -> TensorData {
                TensorData::$variant(data)
            }
            fn slice(data: &TensorData) -> Option<&[Self]> {
                if let TensorData::$variant(data) = data { Some(data) } else { None }
            }
            fn slice_mut(data: &mut TensorData) -> Option<&mut [Self]> {
                if let TensorData::$variant(data) = data { Some(data.make_mut()) } else { None }
            }
        })+

        impl TensorData {
            /// The type of the elements.
            pub fn element(&self) -> ElementType {
                match self { $(Self::$variant(_) => ElementType::$variant,)+ }
            }

            pub(super) fn zeros(element: ElementType, len: usize) -> Self {
                match element {
                    $(ElementType::$variant => <$type as TensorElement>::wrap(vec![<$type>::default(); len]),)+
                }
            }
        }
    };
}

tensor_elements! {
    bool => Bool, u8 => Uint8, i8 => Int8, u16 => Uint16, i16 => Int16, u32 => Uint32,
    i32 => Int32, u64 => Uint64, i64 => Int64, f16 => Float16, bf16 => Bfloat16,
    f32 => Float32, f64 => Float64, String => String,
}

macro_rules! numeric {
    ($value:expr, $data:ident => $body:expr, bool($bools:ident) => $on_bool:expr, strings => $on_strings:expr) => {
        match $value {
            TensorData::Bool($bools) => $on_bool,
            TensorData::String(_) => $on_strings,
            TensorData::Uint8($data) => $body,
            TensorData::Int8($data) => $body,
            TensorData::Uint16($data) => $body,
            TensorData::Int16($data) => $body,
            TensorData::Uint32($data) => $body,
            TensorData::Int32($data) => $body,
            TensorData::Uint64($data) => $body,
            TensorData::Int64($data) => $body,
            TensorData::Float16($data) => $body,
            TensorData::Bfloat16($data) => $body,
            TensorData::Float32($data) => $body,
            TensorData::Float64($data) => $body,
        }
    };
}
pub(super) use numeric;
