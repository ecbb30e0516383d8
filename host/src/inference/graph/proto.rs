//! The part of `onnx.proto` that gpux reads. Fields left out (raw weights, documentation of
//! nodes) are skipped without being copied.

#[derive(Clone, PartialEq, prost::Message)]
#[expect(clippy::struct_field_names, reason = "`model_version` is the name in the format")]
pub(super) struct Model {
    #[prost(int64, tag = "1")]
    pub(super) ir_version: i64,
    #[prost(string, tag = "2")]
    pub(super) producer_name: String,
    #[prost(string, tag = "3")]
    pub(super) producer_version: String,
    #[prost(string, tag = "4")]
    pub(super) domain: String,
    #[prost(int64, tag = "5")]
    pub(super) model_version: i64,
    #[prost(string, tag = "6")]
    pub(super) doc_string: String,
    #[prost(message, optional, tag = "7")]
    pub(super) graph: Option<Graph>,
    #[prost(message, repeated, tag = "8")]
    pub(super) opset_import: Vec<Opset>,
    #[prost(message, repeated, tag = "14")]
    pub(super) metadata_props: Vec<Entry>,
    #[prost(message, repeated, tag = "25")]
    pub(super) functions: Vec<Function>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Opset {
    #[prost(string, tag = "1")]
    pub(super) domain: String,
    #[prost(int64, tag = "2")]
    pub(super) version: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Entry {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Function {
    #[prost(message, repeated, tag = "7")]
    pub(super) nodes: Vec<Node>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Graph {
    #[prost(message, repeated, tag = "1")]
    pub(super) nodes: Vec<Node>,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(message, repeated, tag = "5")]
    pub(super) initializers: Vec<Tensor>,
    #[prost(message, repeated, tag = "11")]
    pub(super) inputs: Vec<ValueInfo>,
    #[prost(message, repeated, tag = "12")]
    pub(super) outputs: Vec<ValueInfo>,
    #[prost(message, repeated, tag = "15")]
    pub(super) sparse_initializers: Vec<SparseTensor>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Node {
    #[prost(string, repeated, tag = "1")]
    pub(super) inputs: Vec<String>,
    #[prost(string, tag = "4")]
    pub(super) op_type: String,
    #[prost(message, repeated, tag = "5")]
    pub(super) attributes: Vec<Attribute>,
    #[prost(string, tag = "7")]
    pub(super) domain: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Attribute {
    #[prost(message, optional, boxed, tag = "5")]
    pub(super) tensor: Option<Box<Tensor>>,
    #[prost(message, optional, boxed, tag = "6")]
    pub(super) graph: Option<Box<Graph>>,
    #[prost(message, repeated, tag = "10")]
    pub(super) tensors: Vec<Tensor>,
    #[prost(message, repeated, tag = "11")]
    pub(super) graphs: Vec<Graph>,
    #[prost(message, optional, boxed, tag = "22")]
    pub(super) sparse_tensor: Option<Box<SparseTensor>>,
    #[prost(message, repeated, tag = "23")]
    pub(super) sparse_tensors: Vec<SparseTensor>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct SparseTensor {
    #[prost(message, optional, tag = "1")]
    pub(super) values: Option<Tensor>,
    #[prost(message, optional, tag = "2")]
    pub(super) indices: Option<Tensor>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Tensor {
    #[prost(int64, repeated, tag = "1")]
    pub(super) dims: Vec<i64>,
    #[prost(int32, tag = "2")]
    pub(super) data_type: i32,
    #[prost(string, tag = "8")]
    pub(super) name: String,
    #[prost(message, repeated, tag = "13")]
    pub(super) external_data: Vec<Entry>,
    /// 1 = the data lies in another file
    #[prost(int32, tag = "14")]
    pub(super) data_location: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ValueInfo {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, optional, tag = "2")]
    pub(super) kind: Option<Type>,
    #[prost(string, tag = "3")]
    pub(super) doc_string: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Type {
    #[prost(oneof = "TypeValue", tags = "1, 4, 5, 8, 9")]
    pub(super) value: Option<TypeValue>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum TypeValue {
    #[prost(message, tag = "1")]
    Tensor(TensorType),
    #[prost(message, tag = "4")]
    Sequence(Box<Inner>),
    #[prost(message, tag = "5")]
    Map(Box<MapType>),
    #[prost(message, tag = "8")]
    SparseTensor(TensorType),
    #[prost(message, tag = "9")]
    Optional(Box<Inner>),
}

/// The element of a sequence or an optional.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Inner {
    #[prost(message, optional, boxed, tag = "1")]
    pub(super) element: Option<Box<Type>>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct MapType {
    #[prost(int32, tag = "1")]
    pub(super) key: i32,
    #[prost(message, optional, boxed, tag = "2")]
    pub(super) value: Option<Box<Type>>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TensorType {
    #[prost(int32, tag = "1")]
    pub(super) element: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) shape: Option<Shape>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Shape {
    #[prost(message, repeated, tag = "1")]
    pub(super) dims: Vec<Dimension>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Dimension {
    #[prost(oneof = "DimensionValue", tags = "1, 2")]
    pub(super) value: Option<DimensionValue>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum DimensionValue {
    #[prost(int64, tag = "1")]
    Size(i64),
    #[prost(string, tag = "2")]
    Name(String),
}
