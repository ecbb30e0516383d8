//! Models that give every value of their graph.

use std::collections::BTreeSet;

use prost::Message as _;
use prost::encoding::{self, WireType};

use super::proto::ValueInfo;
use super::rewrite::Fields;

/// Fields of `ModelProto` and `GraphProto`.
mod field {
    pub(super) const GRAPH: u32 = 7;
    pub(super) const NODE: u32 = 1;
    pub(super) const OUTPUT: u32 = 12;
}

/// A graph of more nodes is not looked into.
const MAX_NODES: usize = 20_000;

/// A node of the graph, without its attributes.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct GraphNode {
    /// the values that it gives
    #[prost(string, repeated, tag = "2")]
    pub outputs: Vec<String>,
    /// its name, which may be empty
    #[prost(string, tag = "3")]
    pub name: String,
    /// its operator
    #[prost(string, tag = "4")]
    pub op_type: String,
}

/// The model with every value that its nodes give among the outputs, behind the `known` ones; and the nodes in their
/// order. `None` where the bytes are no model.
pub(crate) fn with_all_outputs(model: &[u8], known: &[&str]) -> Option<(Vec<u8>, Vec<GraphNode>)> {
    let mut nodes = Vec::new();
    let mut rewritten = Vec::with_capacity(model.len() + 4096);
    for part in Fields(model) {
        let (tag, whole, payload) = part?;
        if tag != field::GRAPH {
            rewritten.extend_from_slice(whole);
            continue;
        }
        let mut graph = payload.to_vec();
        let mut named: BTreeSet<String> = known.iter().map(|name| (*name).to_owned()).collect();
        for part in Fields(payload) {
            let (tag, _, payload) = part?;
            if tag != field::NODE {
                continue;
            }
            let mut node = GraphNode::decode(payload).ok()?;
            // Outputs that are left out have no name.
            node.outputs.retain(|name| !name.is_empty());
            for name in &node.outputs {
                if named.insert(name.clone()) {
                    let value = ValueInfo { name: name.clone(), ..ValueInfo::default() };
                    encoding::message::encode(field::OUTPUT, &value, &mut graph);
                }
            }
            nodes.push(node);
            if nodes.len() > MAX_NODES {
                return None;
            }
        }
        encoding::encode_key(field::GRAPH, WireType::LengthDelimited, &mut rewritten);
        encoding::encode_varint(graph.len() as u64, &mut rewritten);
        rewritten.extend_from_slice(&graph);
    }
    Some((rewritten, nodes))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::testing::path;

    #[test]
    fn adds_each_value_once() {
        let model = std::fs::read(path("embedding.onnx")).unwrap();
        let file = std::io::Cursor::new(model.as_slice());
        let info = super::super::inspect(&path("embedding.onnx"), file, super::super::WeightLinks::Inside).unwrap();
        let known: Vec<_> = info.outputs.iter().map(|output| output.name.as_str()).collect();
        let (rewritten, nodes) = with_all_outputs(&model, &known).unwrap();
        let given: usize = nodes.iter().map(|node| node.outputs.len()).sum();
        let (again, same_nodes) = with_all_outputs(&rewritten, &known).unwrap();
        assert_eq!(nodes, same_nodes);
        assert!(nodes.len() > 2 && nodes.iter().all(|node| !node.op_type.is_empty()), "{nodes:?}");
        assert_eq!(again.len() - rewritten.len(), rewritten.len() - model.len(), "as many outputs");
        assert!(given > known.len());
        assert_eq!(with_all_outputs(b"\x3a\x7f", &[]), None);
    }
}
