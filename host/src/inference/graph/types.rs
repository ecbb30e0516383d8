//! ONNX's types in gpux's words.

use crate::pipeline::{Dim, ElementType, TensorKind};

use super::proto;

/// ONNX's number for an element type (`TensorProto.DataType`) in gpux's; `None` where gpux has
/// no such type.
pub(super) fn element(data_type: i32) -> Option<ElementType> {
    Some(match data_type {
        1 => ElementType::Float32,
        2 => ElementType::Uint8,
        3 => ElementType::Int8,
        4 => ElementType::Uint16,
        5 => ElementType::Int16,
        6 => ElementType::Int32,
        7 => ElementType::Int64,
        8 => ElementType::String,
        9 => ElementType::Bool,
        10 => ElementType::Float16,
        11 => ElementType::Float64,
        12 => ElementType::Uint32,
        13 => ElementType::Uint64,
        16 => ElementType::Bfloat16,
        _ => return None,
    })
}

/// The name of any of ONNX's element types.
fn element_name(data_type: i32) -> String {
    match data_type {
        14 => "complex64".into(),
        15 => "complex128".into(),
        17 => "float8e4m3fn".into(),
        18 => "float8e4m3fnuz".into(),
        19 => "float8e5m2".into(),
        20 => "float8e5m2fnuz".into(),
        21 => "uint4".into(),
        22 => "int4".into(),
        23 => "float4e2m1".into(),
        24 => "float8e8m0".into(),
        25 => "uint2".into(),
        26 => "int2".into(),
        other => element(other).map_or_else(|| format!("unknown type {other}"), |known| known.name().to_owned()),
    }
}

/// A type as ONNX writes it, for people.
pub(super) fn name(kind: Option<&proto::Type>) -> String {
    let inner = |kind: &proto::Inner| name(kind.element.as_deref());
    match kind.and_then(|kind| kind.value.as_ref()) {
        None => "unknown".into(),
        Some(proto::TypeValue::Tensor(tensor)) => element_name(tensor.element),
        Some(proto::TypeValue::SparseTensor(tensor)) => format!("sparse_tensor({})", element_name(tensor.element)),
        Some(proto::TypeValue::Sequence(sequence)) => format!("sequence({})", inner(sequence)),
        Some(proto::TypeValue::Optional(optional)) => format!("optional({})", inner(optional)),
        Some(proto::TypeValue::Map(map)) => format!("map({}, {})", element_name(map.key), name(map.value.as_deref())),
    }
}

/// The dimensions of a tensor type; `None` when the rank is open or this is no tensor.
pub(super) fn shape(kind: Option<&proto::Type>) -> Option<Vec<Dim>> {
    let Some(proto::TypeValue::Tensor(tensor)) = kind.and_then(|kind| kind.value.as_ref()) else { return None };
    let shape = tensor.shape.as_ref()?;
    let dim = |dim: &proto::Dimension| match &dim.value {
        Some(proto::DimensionValue::Size(size)) => usize::try_from(*size).map_or(Dim::Dynamic, Dim::Fixed),
        Some(proto::DimensionValue::Name(name)) if !name.is_empty() => Dim::Named(name.clone()),
        _ => Dim::Dynamic,
    };
    Some(shape.dims.iter().map(dim).collect())
}

/// A tensor type as the pipeline describes it; `None` for every type that gpux does not carry.
pub(super) fn tensor(kind: Option<&proto::Type>) -> Option<TensorKind> {
    let Some(proto::TypeValue::Tensor(tensor)) = kind.and_then(|kind| kind.value.as_ref()) else { return None };
    Some(TensorKind { elements: element(tensor.element)?.into(), shape: shape(kind), layout: None })
}
