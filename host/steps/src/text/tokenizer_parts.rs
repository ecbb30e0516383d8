//! The parts of a tokenizer: sequences, nested ones too, become one list.

use serde::Serialize;
use serde_json::Value;

/// The parts of a normalizer, pre-tokenizer, post-processor or decoder, in order, as the tokenizers crate serializes
/// them.
pub(super) fn parts(part: Option<&impl Serialize>) -> Vec<Value> {
    let mut parts = Vec::new();
    gather(part.and_then(|part| serde_json::to_value(part).ok()), &mut parts);
    parts
}

fn gather(part: Option<Value>, parts: &mut Vec<Value>) {
    let Some(mut part) = part else { return };
    if part["type"] != "Sequence" {
        parts.push(part);
        return;
    }
    for kind in ["normalizers", "pretokenizers", "processors", "decoders"] {
        if let Some(Value::Array(inner)) = part.get_mut(kind).map(Value::take) {
            for part in inner {
                gather(Some(part), parts);
            }
        }
    }
}
