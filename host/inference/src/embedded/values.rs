//! Tensors to and from tract.

use tract_onnx::prelude::{Datum, DatumType, TractResult};
use tract_onnx::tract_hir::internal::{anyhow, tract_core::prelude::Tensor as Native};

use gpux_core::{ElementType, Tensor, TensorData, TensorElement};

/// A copy for tract; `None` for strings and bfloat16, which it does not carry.
pub(super) fn to_native(tensor: &Tensor) -> Option<TractResult<Native>> {
    let shape = tensor.shape();
    Some(match tensor.data() {
        TensorData::Bool(data) => Native::from_shape(shape, data),
        TensorData::Uint8(data) => Native::from_shape(shape, data),
        TensorData::Int8(data) => Native::from_shape(shape, data),
        TensorData::Uint16(data) => Native::from_shape(shape, data),
        TensorData::Int16(data) => Native::from_shape(shape, data),
        TensorData::Uint32(data) => Native::from_shape(shape, data),
        TensorData::Int32(data) => Native::from_shape(shape, data),
        TensorData::Uint64(data) => Native::from_shape(shape, data),
        TensorData::Int64(data) => Native::from_shape(shape, data),
        TensorData::Float16(data) => Native::from_shape(shape, data),
        TensorData::Float32(data) => Native::from_shape(shape, data),
        TensorData::Float64(data) => Native::from_shape(shape, data),
        TensorData::Bfloat16(_) | TensorData::String(_) => return None,
    })
}

/// A copy of what tract gave, as the element type that the model declares (tract computes sizes
/// in a type of its own).
pub(super) fn from_native(native: &Native, declared: Option<ElementType>) -> TractResult<Tensor> {
    let tensor = match native.datum_type().unquantized() {
        DatumType::Bool => copy::<bool>(native),
        DatumType::U8 => copy::<u8>(native),
        DatumType::I8 => copy::<i8>(native),
        DatumType::U16 => copy::<u16>(native),
        DatumType::I16 => copy::<i16>(native),
        DatumType::U32 => copy::<u32>(native),
        DatumType::I32 => copy::<i32>(native),
        DatumType::U64 => copy::<u64>(native),
        DatumType::I64 => copy::<i64>(native),
        DatumType::F16 => copy::<half::f16>(native),
        DatumType::F32 => copy::<f32>(native),
        DatumType::F64 => copy::<f64>(native),
        DatumType::TDim => copy::<i64>(native.cast_to::<i64>()?.as_ref()),
        other => Err(anyhow!("a tensor of {other:?} came out")),
    }?;
    match declared {
        Some(element) if element != tensor.element() => Ok(tensor.cast(element)?),
        _ => Ok(tensor),
    }
}

fn copy<T: TensorElement + Datum>(native: &Native) -> TractResult<Tensor> {
    let view = native.try_as_plain_ram()?;
    let data: Vec<T> = match view.as_slice::<T>() {
        Ok(data) => data.to_vec(),
        Err(_) => view.to_array_view::<T>()?.iter().cloned().collect(),
    };
    Ok(Tensor::new(native.shape(), data)?)
}
