//! Memory of JSON once it is decoded: `0,` is two bytes, and eight as a 64-bit number.
//!
//! Known before it is read, from its commas and quotes alone, which takes a small part of the time of reading.

use serde_json::Value as Json;

use super::memory_budget::RequestBudget;
use super::memory_permit::MemoryPermit;
use crate::ServeError;
use gpux_core::{ElementType, Kind, Plan};

/// Texts up to this size, in bytes, are not counted: only executing requests hold their decoded form.
const SMALL: usize = 64 << 10;

/// The most that the JSON trees of one text may take, in bytes; the parser rejects more.
const TREES: usize = 64 << 20;

/// Whether a text is large enough to be counted.
pub(crate) const fn is_counted(json: &[u8]) -> bool {
    is_large(json.len())
}

/// Whether this many bytes are enough to be counted.
pub(crate) const fn is_large(bytes: usize) -> bool {
    bytes > SMALL
}

/// Reserves memory for a text that is parsed into a tree.
pub(crate) fn tree(json: &[u8], room: &RequestBudget) -> Result<MemoryPermit, ServeError> {
    room.reserve(bytes(json, size_of::<Json>()).min(TREES))
}

/// Reserves memory for tensors: of a text whose widest numbers take `widest` bytes, and of `raw` bytes, which are
/// copied.
pub(crate) fn tensors(
    json: &[u8],
    widest: usize,
    raw: usize,
    room: &RequestBudget,
) -> Result<MemoryPermit, ServeError> {
    let text = if is_counted(json) { bytes(json, widest) } else { 0 };
    room.reserve(text.saturating_add(raw))
}

/// Reserves memory for a pipeline's requests: tensors where an input has one element type, trees for all others.
pub(crate) fn requests(json: &[u8], room: &RequestBudget, plan: &Plan) -> Result<MemoryPermit, ServeError> {
    let element = |kind: &Kind| if let Kind::Tensor(kind) = kind { kind.element() } else { None };
    let elements = || plan.inputs().iter().map(|input| element(&input.port.kind));
    let widest = elements().flatten().filter_map(ElementType::size).max();
    let trees = if elements().any(|element| element.is_none()) { TREES } else { 0 };
    room.reserve(bytes(json, widest.unwrap_or(0)) + bytes(json, size_of::<Json>()).min(trees))
}

/// Bytes of memory for values of `each` bytes, and texts.
fn bytes(json: &[u8], each: usize) -> usize {
    // 255 at once: the most that a byte counts.
    let of = |chunk: &[u8], sought: u8| usize::from(chunk.iter().map(|byte| u8::from(*byte == sought)).sum::<u8>());
    let count = |sought: u8| json.chunks(255).map(|chunk| of(chunk, sought)).sum::<usize>();
    (count(b',') + 1).saturating_mul(each).saturating_add(count(b'"') / 2 * size_of::<String>())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde::de::DeserializeSeed as _;

    use super::*;
    use gpux_core::{JsonTree, Tensor, TensorSeed};

    #[test]
    fn tensors_never_exceed_the_estimate() {
        let read = |element: ElementType, text: &str| -> Tensor {
            let mut json = serde_json::Deserializer::from_str(text);
            TensorSeed { element, room: 0 }.deserialize(&mut json).unwrap()
        };
        for text in ["[0]", "[[0],[0]]", "[ 1 , 2,3]", "[[1,2],[3,4],[5,6]]"] {
            let tensor = read(ElementType::Int64, text);
            assert_eq!(bytes(text.as_bytes(), 8), tensor.len() * 8, "{text}");
        }
        let long = format!("[{}0]", "0,".repeat(70_000));
        assert_eq!(bytes(long.as_bytes(), 1), 70_001);
        for text in [r#"["",""]"#, r#"[["a"],["\"b"]]"#] {
            let tensor = read(ElementType::String, text);
            assert!(bytes(text.as_bytes(), 0) >= tensor.len() * size_of::<String>(), "{text}");
        }
    }

    #[test]
    fn json_trees_never_exceed_the_estimate() {
        let list = format!("[{}0]", "0,".repeat(TREES / size_of::<Json>()));
        let refused = serde_json::from_str::<JsonTree>(&list).unwrap_err().to_string();
        assert!(refused.contains(&format!("more than {} MiB", TREES >> 20)), "{refused}");
    }
}
