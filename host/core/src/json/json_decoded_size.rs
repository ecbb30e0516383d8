//! Upper bounds of the memory that JSON takes once it is decoded: `0,` is two bytes, and eight as a 64-bit number.
//!
//! Commas and quotes alone decide, so an estimate takes a small part of the time of parsing.

use serde_json::Value as Json;

use super::bounded_json_tree::{LIST, MAX_MEMORY, NAME, OBJECT, VALUE};

/// Bytes of the tensors of a text whose numbers take `element` bytes each.
pub fn tensor_bytes(json: &[u8], element: usize) -> usize {
    (count(json, b',') + 1).saturating_mul(element).saturating_add(count(json, b'"') / 2 * size_of::<String>())
}

/// How often a byte occurs.
fn count(json: &[u8], sought: u8) -> usize {
    // In groups of 255, the largest count of a byte.
    let of = |chunk: &[u8]| usize::from(chunk.iter().map(|byte| u8::from(*byte == sought)).sum::<u8>());
    json.chunks(255).map(of).sum()
}

/// Bytes that [`BoundedJsonTree::parse`](crate::BoundedJsonTree::parse) counts at most for a text, with the text's own.
pub fn parsed_bytes(json: &[u8]) -> usize {
    let [commas, lists, objects, fields] = [b',', b'[', b'{', b':'].map(|sought| count(json, sought));
    let values = VALUE * (1 + commas + lists + fields);
    json.len() + values + LIST * lists + OBJECT * objects.min(fields) + NAME * fields
}

/// Bytes of the tree of a text. The parser rejects larger ones than this can be.
pub fn tree_bytes(json: &[u8]) -> usize {
    tensor_bytes(json, size_of::<Json>()).min(MAX_MEMORY)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde::de::DeserializeSeed as _;

    use super::*;
    use crate::{BoundedJsonTree, ElementType, Tensor, TensorSeed};

    #[test]
    fn tensors_never_exceed_the_estimate() {
        let read = |element: ElementType, text: &str| -> Tensor {
            let mut json = serde_json::Deserializer::from_str(text);
            TensorSeed { element, room: 0 }.deserialize(&mut json).unwrap()
        };
        for text in ["[0]", "[[0],[0]]", "[ 1 , 2,3]", "[[1,2],[3,4],[5,6]]"] {
            let tensor = read(ElementType::Int64, text);
            assert_eq!(tensor_bytes(text.as_bytes(), 8), tensor.len() * 8, "{text}");
        }
        let long = format!("[{}0]", "0,".repeat(70_000));
        assert_eq!(tensor_bytes(long.as_bytes(), 1), 70_001);
        for text in [r#"["",""]"#, r#"[["a"],["\"b"]]"#] {
            let tensor = read(ElementType::String, text);
            assert!(tensor_bytes(text.as_bytes(), 0) >= tensor.len() * size_of::<String>(), "{text}");
        }
    }

    #[test]
    fn parsed_trees_never_exceed_the_estimate() {
        for text in
            ["1", "[]", "{}", "[[],[[]],{}]", r#"[1,"a,b",null]"#, r#"{"a":{"b":[1,2]},"c":"d:e"}"#, r#"[{"a":1}]"#]
        {
            let (_, bytes) = BoundedJsonTree::parse(text, 8, 1 << 20).unwrap();
            assert!(bytes <= parsed_bytes(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn json_trees_never_exceed_the_estimate() {
        let list = format!("[{}0]", "0,".repeat(MAX_MEMORY / size_of::<Json>()));
        let rejected = serde_json::from_str::<BoundedJsonTree>(&list).unwrap_err().to_string();
        assert!(rejected.contains(&format!("more than {} MiB", MAX_MEMORY >> 20)), "{rejected}");
    }
}
