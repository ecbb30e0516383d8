//! Tensors to and from ONNX Runtime.

use std::fmt::Debug;

use ort::session::SessionInputValue;
use ort::value::{
    DynTensor, DynValue, PrimitiveTensorElementType, Tensor as Native, TensorElementType, TensorRef, ValueType,
};

use gpux_core::{ElementType, Tensor, TensorData, TensorElement};

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

/// A copy of the session's output.
pub(super) fn copy(name: &str, value: &DynValue) -> Result<Tensor, String> {
    let ValueType::Tensor { ty, .. } = value.dtype() else {
        return Err(format!("output `{name}` is {}, and no tensor", value.dtype()));
    };
    match ty {
        TensorElementType::Bool => primitive::<bool>(name, value),
        TensorElementType::Uint8 => primitive::<u8>(name, value),
        TensorElementType::Int8 => primitive::<i8>(name, value),
        TensorElementType::Uint16 => primitive::<u16>(name, value),
        TensorElementType::Int16 => primitive::<i16>(name, value),
        TensorElementType::Uint32 => primitive::<u32>(name, value),
        TensorElementType::Int32 => primitive::<i32>(name, value),
        TensorElementType::Uint64 => primitive::<u64>(name, value),
        TensorElementType::Int64 => primitive::<i64>(name, value),
        TensorElementType::Float16 => primitive::<half::f16>(name, value),
        TensorElementType::Bfloat16 => primitive::<half::bf16>(name, value),
        TensorElementType::Float32 => primitive::<f32>(name, value),
        TensorElementType::Float64 => primitive::<f64>(name, value),
        TensorElementType::String => {
            let (shape, strings) = value.try_extract_strings().map_err(|error| fault(name, error))?;
            Tensor::new(dims(shape), strings).map_err(|error| fault(name, error))
        }
        other => Err(format!("output `{name}` has elements of type {other}, which gpux does not carry")),
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

fn primitive<T: PrimitiveTensorElementType + TensorElement>(name: &str, value: &DynValue) -> Result<Tensor, String> {
    let (shape, data) = value.try_extract_tensor::<T>().map_err(|error| fault(name, error))?;
    Tensor::new(dims(shape), data.to_vec()).map_err(|error| fault(name, error))
}

pub(super) fn dims(shape: &[i64]) -> Vec<usize> {
    shape.iter().map(|dim| usize::try_from(*dim).unwrap_or(0)).collect()
}

fn fault(name: &str, error: impl std::fmt::Display) -> String {
    format!("output `{name}` cannot be read: {error}")
}
