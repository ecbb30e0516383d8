//! How much a tokenizer's own file can make of a text before there are tokens.

use serde_json::Value;

/// The most that the normalizer of this `tokenizer.json` can lengthen a text: 1 for none, the
/// product of the steps of a sequence. Only `Replace` and `Prepend` can put more than a few bytes
/// for one; the Unicode forms at most treble a text (UAX #15, expansion factors in UTF-8).
pub(super) fn growth(file: &[u8]) -> usize {
    #[derive(serde::Deserialize)]
    struct File {
        normalizer: Option<Value>,
    }
    let file: Option<File> = serde_json::from_slice(file).ok();
    file.and_then(|file| file.normalizer).map_or(1, |normalizer| of(&normalizer))
}

fn of(normalizer: &Value) -> usize {
    let text = |value: &Value| value.as_str().map_or(0, str::len);
    match normalizer["type"].as_str() {
        Some("Sequence") => normalizer["normalizers"]
            .as_array()
            .into_iter()
            .flatten()
            .fold(1, |product: usize, normalizer| product.saturating_mul(of(normalizer))),
        Some("Replace") => {
            let content = text(&normalizer["content"]);
            match normalizer["pattern"]["String"].as_str() {
                Some(pattern) if !pattern.is_empty() => content.div_ceil(pattern.len()).max(1),
                // A pattern may match nothing, before each byte.
                _ => content + 1,
            }
        }
        Some("Prepend") => text(&normalizer["prepend"]) + 1,
        Some("NFC" | "NFD" | "NFKC" | "NFKD" | "Precompiled" | "BertNormalizer" | "Lowercase" | "ByteLevel") => 3,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_multiply() {
        let replace =
            |content: &str| serde_json::json!({ "type": "Replace", "pattern": { "String": "a" }, "content": content });
        let file = |normalizer: Value| growth(serde_json::json!({ "normalizer": normalizer }).to_string().as_bytes());
        assert_eq!(file(Value::Null), 1);
        assert_eq!(file(replace("b")), 1);
        let bomb: Vec<_> = (0..6).map(|_| replace(&"a".repeat(100))).collect();
        assert_eq!(file(serde_json::json!({ "type": "Sequence", "normalizers": bomb })), 1_000_000_000_000);
        assert_eq!(
            file(
                serde_json::json!({ "type": "Sequence", "normalizers": [{ "type": "NFKC" }, { "type": "Lowercase" }] })
            ),
            9
        );
        assert_eq!(growth(b"not json"), 1);
    }
}
