use std::fmt;

/// What one element of a tensor is: ONNX's names and meanings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ElementType {
    /// 0 or 1, one byte: ONNX's `bool`.
    Boolean,
    /// One byte.
    Uint8,
    /// One byte.
    Int8,
    /// Two bytes.
    Uint16,
    /// Two bytes.
    Int16,
    /// Four bytes.
    Uint32,
    /// Four bytes.
    Int32,
    /// Eight bytes.
    Uint64,
    /// Eight bytes.
    Int64,
    /// IEEE 754 half precision, two bytes.
    Float16,
    /// The upper half of a float32, two bytes.
    Bfloat16,
    /// IEEE 754 single precision, four bytes.
    Float32,
    /// IEEE 754 double precision, eight bytes.
    Float64,
    /// UTF-8 text of any length: ONNX's `string`.
    Text,
}

impl ElementType {
    /// Bytes of one element; `None` for [`Text`](Self::Text).
    pub const fn size(self) -> Option<usize> {
        Some(match self {
            Self::Boolean | Self::Uint8 | Self::Int8 => 1,
            Self::Uint16 | Self::Int16 | Self::Float16 | Self::Bfloat16 => 2,
            Self::Uint32 | Self::Int32 | Self::Float32 => 4,
            Self::Uint64 | Self::Int64 | Self::Float64 => 8,
            Self::Text => return None,
        })
    }

    /// The name that gpux.yml and error messages use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Boolean => "bool",
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
            Self::Text => "string",
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A Rust type that is an element of a tensor: the integers of 8 to 64 bits, `f32`, `f64`, `bool`,
/// and with the feature `half` its `f16` and `bf16`.
pub trait Element: Copy + Default + 'static + private::Bytes {
    /// The tensor's name for it.
    const TYPE: ElementType;
}

pub(crate) mod private {
    /// How elements lie in bytes.
    pub trait Bytes: Sized {
        /// The elements in place, if the bytes are aligned for them and hold nothing else.
        fn view(bytes: &[u8]) -> Option<&[Self]>;
        /// The elements, copied.
        fn collect(bytes: &[u8]) -> Vec<Self>;
        /// Copies as many elements as `into` takes; `bytes` must hold exactly as many.
        fn fill(into: &mut [Self], bytes: &[u8]);
        /// The bytes of elements.
        fn bytes(elements: &[Self]) -> &[u8];
    }
}

// Views are the bytes themselves, so both ends must agree on their order.
const _: () = assert!(cfg!(target_endian = "little"), "tensors are little-endian, and so must this machine be");

macro_rules! numbers {
    ($($(#[$when:meta])? $rust:ty => $name:ident,)+) => {$(
        $(#[$when])?
        impl private::Bytes for $rust {
            fn view(bytes: &[u8]) -> Option<&[Self]> {
                bytemuck::try_cast_slice(bytes).ok()
            }

            fn collect(bytes: &[u8]) -> Vec<Self> {
                bytes.chunks_exact(size_of::<Self>()).map(bytemuck::pod_read_unaligned).collect()
            }

            fn fill(into: &mut [Self], bytes: &[u8]) {
                bytemuck::cast_slice_mut(into).copy_from_slice(bytes);
            }

            fn bytes(elements: &[Self]) -> &[u8] {
                bytemuck::cast_slice(elements)
            }
        }

        $(#[$when])?
        impl Element for $rust {
            const TYPE: ElementType = ElementType::$name;
        }
    )+};
}

numbers! {
    u8 => Uint8,
    i8 => Int8,
    u16 => Uint16,
    i16 => Int16,
    u32 => Uint32,
    i32 => Int32,
    u64 => Uint64,
    i64 => Int64,
    f32 => Float32,
    f64 => Float64,
    #[cfg(feature = "half")] half::f16 => Float16,
    #[cfg(feature = "half")] half::bf16 => Bfloat16,
}

impl private::Bytes for bool {
    /// Not every byte is a `bool`, so they are always copied.
    fn view(_: &[u8]) -> Option<&[Self]> {
        None
    }

    fn collect(bytes: &[u8]) -> Vec<Self> {
        bytes.iter().map(|byte| *byte != 0).collect()
    }

    fn fill(into: &mut [Self], bytes: &[u8]) {
        for (element, byte) in into.iter_mut().zip(bytes) {
            *element = *byte != 0;
        }
    }

    fn bytes(elements: &[Self]) -> &[u8] {
        bytemuck::cast_slice(elements)
    }
}

impl Element for bool {
    const TYPE: ElementType = ElementType::Boolean;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_has_the_size_of_its_name() {
        fn check<T: Element>() {
            assert_eq!(T::TYPE.size(), Some(size_of::<T>()), "{}", T::TYPE);
        }
        check::<u8>();
        check::<i8>();
        check::<u16>();
        check::<i16>();
        check::<u32>();
        check::<i32>();
        check::<u64>();
        check::<i64>();
        check::<f32>();
        check::<f64>();
        check::<bool>();
        #[cfg(feature = "half")]
        {
            check::<half::f16>();
            check::<half::bf16>();
        }
        assert_eq!(ElementType::Text.size(), None);
    }
}
