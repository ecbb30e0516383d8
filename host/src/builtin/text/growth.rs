//! How much a tokenizer's own file can make of a text before there are tokens, or after.

use serde_json::Value;

/// The most that the normalizer of this `tokenizer.json` can lengthen a text: 1 for none, the
/// product of the steps of a sequence. Only `Replace` and `Prepend` can put more than a few bytes
/// for one; the Unicode forms at most treble a text (UAX #15, expansion factors in UTF-8).
pub(super) fn growth(file: &[u8]) -> usize {
    read(file).normalizer.map_or(1, |normalizer| of(&normalizer))
}

/// The most that its decoder can lengthen the tokens, a space before each aside.
pub(super) fn decoder_growth(file: &[u8]) -> usize {
    read(file).decoder.map_or(1, |decoder| of(&decoder))
}

#[derive(Default, serde::Deserialize)]
struct File {
    normalizer: Option<Value>,
    decoder: Option<Value>,
}

fn read(file: &[u8]) -> File {
    serde_json::from_slice(file).unwrap_or_default()
}

fn of(normalizer: &Value) -> usize {
    let text = |value: &Value| value.as_str().map_or(0, str::len);
    match normalizer["type"].as_str() {
        Some("Sequence") => ["normalizers", "decoders"]
            .iter()
            .filter_map(|parts| normalizer[parts].as_array())
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
        let decoder = serde_json::json!({ "decoder": { "type": "Sequence", "decoders": [replace("aaaa")] } });
        assert_eq!(decoder_growth(decoder.to_string().as_bytes()), 4);
    }
}
