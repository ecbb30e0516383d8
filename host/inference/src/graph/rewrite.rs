//! Rewrites models, and builds helper models, for values that an engine's API cannot pass directly.

use prost::Message;
use prost::encoding::{self, DecodeContext, WireType};

use super::narrow_type::NarrowType;
use super::proto::{self, Opset, Shape, Tensor, Type, TypeValue, ValueInfo};

/// `TensorProto.BOOL`.
const BOOL: i32 = 9;
/// ONNX's file format of the small models.
const IR_VERSION: i64 = 10;

/// Fields of `AttributeProto.AttributeType`.
mod attribute {
    pub(super) const INT: i32 = 2;
    pub(super) const TENSOR: i32 = 4;
    pub(super) const GRAPH: i32 = 5;
}

#[derive(Clone, PartialEq, prost::Message)]
struct Model {
    #[prost(int64, tag = "1")]
    ir_version: i64,
    #[prost(message, optional, tag = "7")]
    graph: Option<Graph>,
    #[prost(message, repeated, tag = "8")]
    opset_import: Vec<Opset>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Graph {
    #[prost(message, repeated, tag = "1")]
    nodes: Vec<Node>,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(message, repeated, tag = "11")]
    inputs: Vec<ValueInfo>,
    #[prost(message, repeated, tag = "12")]
    outputs: Vec<ValueInfo>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Node {
    #[prost(string, repeated, tag = "1")]
    inputs: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    outputs: Vec<String>,
    #[prost(string, tag = "4")]
    op_type: String,
    #[prost(message, repeated, tag = "5")]
    attributes: Vec<Attribute>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Attribute {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int64, tag = "3")]
    int: i64,
    #[prost(message, optional, tag = "5")]
    tensor: Option<Tensor>,
    #[prost(message, optional, tag = "6")]
    graph: Option<Graph>,
    #[prost(int32, tag = "20")]
    kind: i32,
}

fn node(op_type: &str, inputs: &[&str], output: &str, attributes: Vec<Attribute>) -> Node {
    let inputs = inputs.iter().map(|name| (*name).to_owned()).collect();
    Node { inputs, outputs: vec![output.to_owned()], op_type: op_type.to_owned(), attributes }
}

fn int(name: &str, int: i32) -> Attribute {
    Attribute { name: name.to_owned(), int: int.into(), kind: attribute::INT, ..Attribute::default() }
}

fn value(name: &str, kind: TypeValue) -> ValueInfo {
    ValueInfo { name: name.to_owned(), kind: Some(Type { value: Some(kind) }), ..ValueInfo::default() }
}

fn tensor_of(element: i32) -> TypeValue {
    TypeValue::Tensor(proto::TensorType { element, shape: None })
}

fn model(opset: i64, graph: Graph) -> Vec<u8> {
    let opset_import = vec![Opset { domain: String::new(), version: opset }];
    Model { ir_version: IR_VERSION, graph: Some(graph), opset_import }.encode_to_vec()
}

/// The model that casts its input from one element type to another, both by ONNX's numbers.
pub(crate) fn cast_model(from: i32, to: i32, narrow: NarrowType) -> Vec<u8> {
    let mut attributes = vec![int("to", to)];
    if (17..=20).contains(&to) {
        // One of the four signed 8-bit floats: infinity stays infinity.
        attributes.push(int("saturate", 0));
    }
    model(
        narrow.opset(),
        Graph {
            nodes: vec![node("Cast", &["x"], "y", attributes)],
            name: "cast".to_owned(),
            inputs: vec![value("x", tensor_of(from))],
            outputs: vec![value("y", tensor_of(to))],
        },
    )
}

/// The model that gives an empty sequence of tensors of an element type, by ONNX's number.
pub(crate) fn empty_sequence_model(element: i32) -> Vec<u8> {
    let inner = proto::ElementOf { element: Some(Box::new(Type { value: Some(tensor_of(element)) })) };
    model(
        11,
        Graph {
            nodes: vec![node("SequenceEmpty", &[], "s", vec![int("dtype", element)])],
            name: "empty".to_owned(),
            inputs: Vec::new(),
            outputs: vec![value("s", TypeValue::Sequence(Box::new(inner)))],
        },
    )
}

/// A model whose optional outputs are split into two each, after all others: the value (empty if
/// absent), and whether it is present. `None` when the model has no such
/// output, or cannot be changed.
pub(crate) fn expand_optional_outputs(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut added = Graph::default();
    let mut dropped = Vec::new();
    for output in outputs(bytes) {
        let output = output?;
        let Some(TypeValue::Optional(inner)) = output.kind.and_then(|kind| kind.value) else { continue };
        let inner = inner.element?.value?;
        split_optional(&output.name, inner, &mut added)?;
        dropped.push(output.name);
    }
    if dropped.is_empty() {
        return None;
    }
    let mut rewritten = Vec::with_capacity(bytes.len() + 1024);
    for field in Fields(bytes) {
        let (tag, whole, payload) = field?;
        if tag != 7 {
            rewritten.extend_from_slice(whole);
            continue;
        }
        let mut graph = without_outputs(payload, &dropped)?;
        // Fields that are there once are from the first graph; the rest of `added` is appended.
        added.encode(&mut graph).ok()?;
        added = Graph::default();
        encoding::encode_key(7, WireType::LengthDelimited, &mut rewritten);
        encoding::encode_varint(graph.len() as u64, &mut rewritten);
        rewritten.extend_from_slice(&graph);
    }
    Some(rewritten)
}

/// The outputs of a model; `None` where it cannot be read.
fn outputs(bytes: &[u8]) -> impl Iterator<Item = Option<ValueInfo>> {
    let of = |tag, message| {
        Fields(message).filter(move |field| field.is_none_or(|field| field.0 == tag)).map(|field| Some(field?.2))
    };
    of(7, bytes).flat_map(move |graph| of(12, graph.unwrap_or_default())).map(|output| ValueInfo::decode(output?).ok())
}

/// Adds the two outputs of an optional one, and the nodes that compute them.
fn split_optional(name: &str, inner: TypeValue, added: &mut Graph) -> Option<()> {
    let (has_name, value_name, then_name, else_name) =
        (format!("{name}:has"), format!("{name}:value"), format!("{name}:there"), format!("{name}:none"));
    let branch = |made: Node, output: &str| Graph {
        nodes: vec![made],
        name: output.to_owned(),
        inputs: Vec::new(),
        outputs: vec![value(output, inner.clone())],
    };
    let get = branch(node("OptionalGetElement", &[name], &then_name, Vec::new()), &then_name);
    let empty = branch(empty(&inner, &else_name)?, &else_name);
    let graph = |name: &str, graph| Attribute {
        name: name.to_owned(),
        graph: Some(graph),
        kind: attribute::GRAPH,
        ..Attribute::default()
    };
    added.nodes.push(node("OptionalHasElement", &[name], &has_name, Vec::new()));
    added.nodes.push(node(
        "If",
        &[&has_name],
        &value_name,
        vec![graph("then_branch", get), graph("else_branch", empty)],
    ));
    let scalar = TypeValue::Tensor(proto::TensorType { element: BOOL, shape: Some(Shape::default()) });
    added.outputs.push(value(&value_name, inner));
    added.outputs.push(value(&has_name, scalar));
    Some(())
}

/// A node that makes an empty value of a type.
fn empty(kind: &TypeValue, output: &str) -> Option<Node> {
    match kind {
        TypeValue::Tensor(tensor) => {
            let nothing = Tensor { dims: vec![0], data_type: tensor.element, ..Tensor::default() };
            let value = Attribute {
                name: "value".to_owned(),
                tensor: Some(nothing),
                kind: attribute::TENSOR,
                ..Attribute::default()
            };
            Some(node("Constant", &[], output, vec![value]))
        }
        TypeValue::Sequence(inner) => match inner.element.as_ref()?.value.as_ref()? {
            TypeValue::Tensor(tensor) => Some(node("SequenceEmpty", &[], output, vec![int("dtype", tensor.element)])),
            _ => None,
        },
        _ => None,
    }
}

/// The bytes of a graph without some of its outputs.
fn without_outputs(graph: &[u8], names: &[String]) -> Option<Vec<u8>> {
    let mut kept = Vec::with_capacity(graph.len() + 1024);
    for field in Fields(graph) {
        let (tag, whole, payload) = field?;
        let dropped = tag == 12 && names.contains(&ValueInfo::decode(payload).ok()?.name);
        if !dropped {
            kept.extend_from_slice(whole);
        }
    }
    Some(kept)
}

/// The fields of an encoded message: tag, the whole field, its payload if it has a length. `None`
/// where the bytes are no message.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Option<(u32, &'a [u8], &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Option<(u32, &'a [u8], &'a [u8])> {
        let start = self.0;
        let mut rest = start;
        let (tag, wire) = encoding::decode_key(&mut rest).ok()?;
        let payload = if wire == WireType::LengthDelimited {
            let length = usize::try_from(encoding::decode_varint(&mut rest).ok()?).ok()?;
            let (payload, after) = rest.split_at_checked(length)?;
            rest = after;
            payload
        } else {
            encoding::skip_field(wire, tag, &mut rest, DecodeContext::default()).ok()?;
            &[]
        };
        self.0 = rest;
        Some((tag, &start[..start.len() - rest.len()], payload))
    }
}
