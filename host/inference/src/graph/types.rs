//! ONNX's types in gpux's words.

use std::fmt;

use gpux_core::{Dim, ElementType, Kind, TensorKind};

use super::narrow_type::NarrowType;
use super::proto;

/// The type of a model's input or output.
#[derive(Clone, Debug, PartialEq)]
pub enum OnnxType {
    /// a tensor; `narrow` where its elements are of a type that the pipeline carries as another
    Tensor {
        /// its kind in a pipeline
        kind: TensorKind,
        /// its own element type, if that is another
        narrow: Option<NarrowType>,
    },
    /// any number of values of one type
    Sequence(Box<Self>),
    /// single elements by their keys, which are strings or integers
    Map {
        /// the element type of the keys
        key: ElementType,
        /// the element type of the values
        value: ElementType,
    },
    /// a value or none
    Optional(Box<Self>),
}

impl OnnxType {
    /// The tensor, if this is a plain one: of an element type that the pipeline has.
    pub fn plain(&self) -> Option<&TensorKind> {
        if let Self::Tensor { kind, narrow: None } = self { Some(kind) } else { None }
    }

    /// The tensor that a value of this type is, or may be if it is there.
    pub fn tensor(&self) -> Option<&TensorKind> {
        match self {
            Self::Tensor { kind, .. } => Some(kind),
            Self::Optional(inner) => inner.tensor(),
            Self::Sequence(_) | Self::Map { .. } => None,
        }
    }

    /// Its kind in a pipeline: a tensor, or JSON.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Tensor { kind, .. } => Kind::Tensor(kind.clone()),
            Self::Sequence(_) | Self::Map { .. } | Self::Optional(_) => Kind::Json,
        }
    }
}

impl fmt::Display for OnnxType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tensor { narrow: Some(narrow), .. } => write!(f, "{narrow}"),
            Self::Tensor { kind, narrow: None } => write!(f, "{kind}"),
            Self::Sequence(inner) => write!(f, "sequence({inner})"),
            Self::Map { key, value } => write!(f, "map({key}, {value})"),
            Self::Optional(inner) => write!(f, "optional({inner})"),
        }
    }
}

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

/// The number of an element type, for [`element`].
pub(crate) fn data_type(wanted: ElementType) -> i32 {
    (1..=16).find(|data_type| element(*data_type) == Some(wanted)).unwrap_or_default()
}

/// The name of any of ONNX's element types.
pub(super) fn element_name(data_type: i32) -> String {
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
    let inner = |kind: &proto::ElementOf| name(kind.element.as_deref());
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
    Some(shape.dims.iter().map(dim).collect())
}

/// A dimension as the file states it.
pub(super) fn dim(dim: &proto::Dimension) -> Dim {
    match &dim.value {
        Some(proto::DimensionValue::Size(size)) => usize::try_from(*size).map_or(Dim::Dynamic, Dim::Fixed),
        Some(proto::DimensionValue::Name(name)) if !is_placeholder(name) => Dim::Named(name.clone()),
        _ => Dim::Dynamic,
    }
}

/// What exporters write for a size that they do not know, in lower case.
const PLACEHOLDERS: [&str; 8] = ["none", "null", "nan", "unk", "unknown", "undefined", "dynamic", "any"];

/// Whether the name of a dimension only says that its size is unknown: two axes of such a name may differ.
pub(crate) fn is_placeholder(name: &str) -> bool {
    let name = name.trim().to_ascii_lowercase();
    // onnx and tf2onnx number them; a size below 0 and a name without letters (`?`, `*`) are no names either.
    name.starts_with("unk__")
        || PLACEHOLDERS.contains(&name.as_str())
        || name.parse().is_ok_and(|size: i64| size < 0)
        || !name.contains(char::is_alphanumeric)
}

/// The type of an input or output; `None` for those that gpux does not carry: sparse tensors,
/// complex numbers, sequences of sequences, maps of anything but single elements.
pub(super) fn onnx_type(kind: Option<&proto::Type>) -> Option<OnnxType> {
    match kind?.value.as_ref()? {
        proto::TypeValue::Tensor(tensor) => tensor_type(tensor, shape(kind)),
        proto::TypeValue::Sequence(inner) => match onnx_type(inner.element.as_deref())? {
            inner @ (OnnxType::Tensor { narrow: None, .. } | OnnxType::Map { .. }) => {
                Some(OnnxType::Sequence(Box::new(inner)))
            }
            _ => None,
        },
        proto::TypeValue::Optional(inner) => match onnx_type(inner.element.as_deref())? {
            OnnxType::Tensor { narrow: Some(_), .. } | OnnxType::Optional(_) => None,
            inner => Some(OnnxType::Optional(Box::new(inner))),
        },
        proto::TypeValue::Map(map) => {
            let key = element(map.key).filter(|key| matches!(key, ElementType::Int64 | ElementType::String))?;
            let Some(proto::TypeValue::Tensor(value)) = map.value.as_ref()?.value.as_ref() else { return None };
            Some(OnnxType::Map { key, value: element(value.element)? })
        }
        proto::TypeValue::SparseTensor(_) => None,
    }
}

fn tensor_type(tensor: &proto::TensorType, shape: Option<Vec<Dim>>) -> Option<OnnxType> {
    let narrow = NarrowType::from_data_type(tensor.element);
    let element = narrow.map(NarrowType::carried_as).or_else(|| element(tensor.element))?;
    Some(OnnxType::Tensor { kind: TensorKind { elements: element.into(), shape, layout: None }, narrow })
}
