//! Tensors to and from ONNX Runtime.

use std::fmt::Debug;
use std::ops::Range;

use ort::session::{SessionInputValue, SessionOutputs};
use ort::value::{
    DynTensor, DynValue, PrimitiveTensorElementType, Tensor as Native, TensorElementType, TensorRef, TensorValueType,
    ValueType,
};
use smallvec::SmallVec;

use gpux_core::{ElementType, Elements, ElementsOwner, Tensor, TensorData, TensorElement};

/// The tensor as ONNX Runtime reads it, in place; strings are copied.
pub(super) fn view(tensor: &Tensor) -> ort::Result<SessionInputValue<'_>> {
    let shape = tensor.shape();
    macro_rules! borrowed {
        ($data:expr) => {
            TensorRef::from_array_view((shape, $data.as_slice())).map(SessionInputValue::from)
        };
    }
    match tensor.data() {
        TensorData::Bool(data) => borrowed!(data),
        TensorData::Uint8(data) => borrowed!(data),
        TensorData::Int8(data) => borrowed!(data),
        TensorData::Uint16(data) => borrowed!(data),
        TensorData::Int16(data) => borrowed!(data),
        TensorData::Uint32(data) => borrowed!(data),
        TensorData::Int32(data) => borrowed!(data),
        TensorData::Uint64(data) => borrowed!(data),
        TensorData::Int64(data) => borrowed!(data),
        TensorData::Float16(data) => borrowed!(data),
        TensorData::Bfloat16(data) => borrowed!(data),
        TensorData::Float32(data) => borrowed!(data),
        TensorData::Float64(data) => borrowed!(data),
        TensorData::String(data) => {
            ort::value::Tensor::from_string_array((shape, data.as_slice())).map(SessionInputValue::from)
        }
    }
}

/// A tensor that owns its elements.
pub(super) fn owned(tensor: &Tensor) -> ort::Result<DynTensor> {
    fn copied<T: PrimitiveTensorElementType + TensorElement + Debug>(
        tensor: &Tensor,
        data: &[T],
    ) -> ort::Result<DynTensor> {
        Native::from_array((tensor.shape().to_vec(), data.to_vec())).map(Native::upcast)
    }
    match tensor.data() {
        TensorData::Bool(data) => copied(tensor, data),
        TensorData::Uint8(data) => copied(tensor, data),
        TensorData::Int8(data) => copied(tensor, data),
        TensorData::Uint16(data) => copied(tensor, data),
        TensorData::Int16(data) => copied(tensor, data),
        TensorData::Uint32(data) => copied(tensor, data),
        TensorData::Int32(data) => copied(tensor, data),
        TensorData::Uint64(data) => copied(tensor, data),
        TensorData::Int64(data) => copied(tensor, data),
        TensorData::Float16(data) => copied(tensor, data),
        TensorData::Bfloat16(data) => copied(tensor, data),
        TensorData::Float32(data) => copied(tensor, data),
        TensorData::Float64(data) => copied(tensor, data),
        TensorData::String(data) => Native::from_string_array((tensor.shape(), data.as_slice())).map(Native::upcast),
    }
}

/// Calls a function for the Rust type of a primitive element type.
macro_rules! with_primitive {
    ($ty:expr, $function:ident $arguments:tt, $other:pat => $otherwise:expr) => {
        match $ty {
            TensorElementType::Bool => $function::<bool> $arguments,
            TensorElementType::Uint8 => $function::<u8> $arguments,
            TensorElementType::Int8 => $function::<i8> $arguments,
            TensorElementType::Uint16 => $function::<u16> $arguments,
            TensorElementType::Int16 => $function::<i16> $arguments,
            TensorElementType::Uint32 => $function::<u32> $arguments,
            TensorElementType::Int32 => $function::<i32> $arguments,
            TensorElementType::Uint64 => $function::<u64> $arguments,
            TensorElementType::Int64 => $function::<i64> $arguments,
            TensorElementType::Float16 => $function::<half::f16> $arguments,
            TensorElementType::Bfloat16 => $function::<half::bf16> $arguments,
            TensorElementType::Float32 => $function::<f32> $arguments,
            TensorElementType::Float64 => $function::<f64> $arguments,
            $other => $otherwise,
        }
    };
}

/// A copy of the session's output.
pub(super) fn copy(name: &str, value: &DynValue) -> Result<Tensor, String> {
    let ValueType::Tensor { ty, .. } = value.dtype() else {
        return Err(format!("output `{name}` is {}, and no tensor", value.dtype()));
    };
    with_primitive!(ty, copied(name, value), other => {
        if *other != TensorElementType::String {
            return Err(format!("output `{name}` has elements of type {other}, which gpux does not carry"));
        }
        let (shape, strings) = value.try_extract_strings().map_err(|error| fault(name, error))?;
        Tensor::new(dims(shape), strings).map_err(|error| fault(name, error))
    })
}

/// Outputs from this size, in bytes, stay in ONNX Runtime's memory; copying smaller ones costs less.
const KEPT_BYTES: usize = 64 << 10;

/// The outputs of a run on `inputs`, in order. With `may_keep`, large ones stay where ONNX Runtime has written them.
pub(super) fn take(
    outputs: SessionOutputs<'_>,
    inputs: &[(usize, &Tensor)],
    may_keep: bool,
) -> Result<Vec<Tensor>, String> {
    // An output may be an input that the graph passes on, or another output.
    let mut taken: Option<Taken> = None;
    let take = |(name, value): (&str, DynValue)| {
        let ValueType::Tensor { ty, ref shape, .. } = *value.dtype() else { return copy(name, &value) };
        let is_large = ty.byte_size(shape.num_elements()).is_some_and(|bytes| bytes >= KEPT_BYTES);
        if !(may_keep && is_large) {
            return copy(name, &value);
        }
        let taken = taken.get_or_insert_with(|| {
            let inputs = inputs.iter().filter_map(|(_, tensor)| tensor.bytes());
            inputs.map(addresses).collect()
        });
        with_primitive!(ty, kept(name, value, taken), _ => copy(name, &value))
    };
    outputs.into_iter().map(take).collect()
}

/// Addresses of memory that other tensors use.
type Taken = SmallVec<[Range<usize>; 4]>;

fn addresses<T>(of: &[T]) -> Range<usize> {
    let Range { start, end } = of.as_ptr_range();
    start.addr()..end.addr()
}

/// A tensor in ONNX Runtime's memory. Its allocator lives as long as the tensor, also without the session.
struct NativeElements<T: PrimitiveTensorElementType + Debug>(Native<T>);

impl<T: PrimitiveTensorElementType + Debug> ElementsOwner<T> for NativeElements<T> {
    fn elements(&self) -> &[T] {
        self.0.try_extract_tensor::<T>().map_or(&[], |(_, elements)| elements)
    }

    fn elements_mut(&mut self) -> Option<&mut [T]> {
        self.0.try_extract_tensor_mut::<T>().ok().map(|(_, elements)| elements)
    }

    fn is_writable(&self) -> bool {
        true
    }
}

/// The element type as gpux names it, if it carries it.
pub(super) fn element(of: TensorElementType) -> Option<ElementType> {
    Some(match of {
        TensorElementType::Bool => ElementType::Bool,
        TensorElementType::Uint8 => ElementType::Uint8,
        TensorElementType::Int8 => ElementType::Int8,
        TensorElementType::Uint16 => ElementType::Uint16,
        TensorElementType::Int16 => ElementType::Int16,
        TensorElementType::Uint32 => ElementType::Uint32,
        TensorElementType::Int32 => ElementType::Int32,
        TensorElementType::Uint64 => ElementType::Uint64,
        TensorElementType::Int64 => ElementType::Int64,
        TensorElementType::Float16 => ElementType::Float16,
        TensorElementType::Bfloat16 => ElementType::Bfloat16,
        TensorElementType::Float32 => ElementType::Float32,
        TensorElementType::Float64 => ElementType::Float64,
        TensorElementType::String => ElementType::String,
        _ => return None,
    })
}

fn copied<T: PrimitiveTensorElementType + TensorElement>(name: &str, value: &DynValue) -> Result<Tensor, String> {
    let (shape, data) = value.try_extract_tensor::<T>().map_err(|error| fault(name, error))?;
    Tensor::new(dims(shape), data.to_vec()).map_err(|error| fault(name, error))
}

/// The tensor in place; a copy if others use its memory.
fn kept<T: PrimitiveTensorElementType + TensorElement + Debug>(
    name: &str,
    value: DynValue,
    taken: &mut Taken,
) -> Result<Tensor, String> {
    let (_, data) = value.try_extract_tensor::<T>().map_err(|error| fault(name, error))?;
    let addresses = addresses(data);
    if taken.iter().any(|other| other.start < addresses.end && addresses.start < other.end) {
        return copied::<T>(name, &value);
    }
    taken.push(addresses);
    let value = value.downcast::<TensorValueType<T>>().map_err(|error| fault(name, error))?;
    let shape = dims(value.shape());
    Tensor::from_elements(shape, Elements::from_owner(NativeElements(value))).map_err(|error| fault(name, error))
}

pub(super) fn dims(shape: &[i64]) -> Vec<usize> {
    shape.iter().map(|dim| usize::try_from(*dim).unwrap_or(0)).collect()
}

fn fault(name: &str, error: impl std::fmt::Display) -> String {
    format!("output `{name}` cannot be read: {error}")
}
