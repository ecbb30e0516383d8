//! Rewrites where a model says that its weights lie.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use prost::Message as _;
use prost::encoding::{self, WireType};

use super::proto::Entry;
use super::rewrite::Fields;

/// A message that holds tensors, or is one.
#[derive(Clone, Copy)]
enum Holder {
    Model,
    Graph,
    Function,
    Node,
    Attribute,
    Sparse,
    Tensor,
}

impl Holder {
    /// What the field of this number holds, if that may hold a tensor.
    const fn field(self, tag: u32) -> Option<Self> {
        Some(match (self, tag) {
            (Self::Model, 7) | (Self::Attribute, 6 | 11) => Self::Graph,
            (Self::Model, 25) => Self::Function,
            (Self::Graph, 1) | (Self::Function, 7) => Self::Node,
            (Self::Node, 5) | (Self::Function, 11) => Self::Attribute,
            (Self::Graph, 5) | (Self::Attribute, 5 | 10) | (Self::Sparse, 1 | 2) => Self::Tensor,
            (Self::Graph, 15) | (Self::Attribute, 22 | 23) => Self::Sparse,
            _ => return None,
        })
    }
}

/// `TensorProto.external_data`.
const EXTERNAL_DATA: u32 = 13;

/// The bytes of a model with other locations of its weights, by those that it has. `None` where it cannot be read. Its nesting was bounded
/// when it was checked.
pub(crate) fn relocate_weights(model: &[u8], locations: &BTreeMap<PathBuf, String>) -> Option<Vec<u8>> {
    relocate(model, Holder::Model, locations)
}

fn relocate(message: &[u8], holder: Holder, locations: &BTreeMap<PathBuf, String>) -> Option<Vec<u8>> {
    let mut rewritten = Vec::with_capacity(message.len() + 256);
    for field in Fields(message) {
        let (tag, whole, payload) = field?;
        let changed = match (holder, holder.field(tag)) {
            (_, Some(inner)) => relocate(payload, inner, locations)?,
            (Holder::Tensor, None) if tag == EXTERNAL_DATA => {
                let mut entry = Entry::decode(payload).ok()?;
                if let Some(location) = Some(&entry).filter(|entry| entry.key == "location") {
                    let parts = Path::new(&location.value).components();
                    let place: PathBuf = parts.filter(|part| *part != Component::CurDir).collect();
                    entry.value.clone_from(locations.get(&place)?);
                }
                entry.encode_to_vec()
            }
            _ => {
                rewritten.extend_from_slice(whole);
                continue;
            }
        };
        encoding::encode_key(tag, WireType::LengthDelimited, &mut rewritten);
        encoding::encode_varint(changed.len() as u64, &mut rewritten);
        rewritten.extend_from_slice(&changed);
    }
    Some(rewritten)
}
