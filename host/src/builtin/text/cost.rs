//! What a tokenizer can cost: how much it makes of a text, and whether its time is in proportion to that.
//!
//! Judged by what the tokenizers crate has read, not by the file, of which it may read another part.

use serde::Serialize;
use serde_json::Value;
use tokenizers::{ModelWrapper, Tokenizer};

use super::charsmap;

/// What work on a text can cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::builtin) struct Cost {
    /// how many times longer a text can get
    pub(in crate::builtin) growth: usize,
    /// what of that hangs on more than the letters of the text, so that it cannot be measured in pieces of it
    pub(in crate::builtin) anywhere: usize,
    /// whether its time is known to be in proportion to the text. Where it is not, a pattern may go back and forth, and
    /// seconds become hours
    pub(in crate::builtin) linear: bool,
}

/// Parts of one kind, one after the other, that take time in proportion to the text. More may do as much as one that
/// does not.
const MOST_PARTS: usize = 16;

/// Bytes of a token of a Unigram model, characters of a word of a WordPiece model: both are tried at each
/// character. Usual are 50, and 100.
const LONGEST: usize = 256;

impl Cost {
    /// Of making tokens.
    pub(in crate::builtin) fn of_encoding(tokenizer: &Tokenizer) -> Self {
        let normalizer = Self::of(tokenizer.get_normalizer());
        let cuts = Self::of(tokenizer.get_pre_tokenizer());
        let model = match tokenizer.get_model() {
            ModelWrapper::WordPiece(model) => model.max_input_chars_per_word <= LONGEST,
            ModelWrapper::Unigram(model) => model.iter().all(|(token, _)| token.len() <= LONGEST),
            ModelWrapper::BPE(_) | ModelWrapper::WordLevel(_) => true,
        };
        Self { linear: normalizer.linear && cuts.linear && model, ..normalizer }
    }

    /// Of making text; a space before each token aside.
    pub(in crate::builtin) fn of_decoding(tokenizer: &Tokenizer) -> Self {
        Self::of(tokenizer.get_decoder())
    }

    fn of(part: Option<&impl Serialize>) -> Self {
        let Some(part) = part else { return Self { growth: 1, anywhere: 1, linear: true } };
        let Ok(part) = serde_json::to_value(part) else {
            return Self { growth: usize::MAX, anywhere: usize::MAX, linear: false };
        };
        let mut leaves = Vec::new();
        gather(&part, &mut leaves);
        let product = |leaves: &mut dyn Iterator<Item = &&Value>| {
            leaves.fold(1, |product: usize, leaf| product.saturating_mul(growth(leaf)))
        };
        Self {
            growth: product(&mut leaves.iter()),
            anywhere: product(&mut leaves.iter().filter(|leaf| !is_by_letter(leaf))),
            linear: leaves.len() <= MOST_PARTS && leaves.iter().all(|leaf| is_linear(leaf)),
        }
    }
}

/// The parts of a sequence, and of those in it.
fn gather<'v>(part: &'v Value, leaves: &mut Vec<&'v Value>) {
    if part["type"] != "Sequence" {
        leaves.push(part);
        return;
    }
    let parts = ["normalizers", "pretokenizers", "decoders"].iter().filter_map(|parts| part[parts].as_array());
    parts.flatten().for_each(|part| gather(part, leaves));
}

/// The most that a normalizer or a decoder can lengthen a text. For the Unicode forms see UAX #15, expansion factors in
/// UTF-8.
fn growth(part: &Value) -> usize {
    let text = |value: &Value| value.as_str().map_or(0, str::len);
    match part["type"].as_str() {
        Some("Replace") => match replaced(part) {
            Some(pattern) => text(&part["content"]).div_ceil(pattern.len()).max(1),
            // A pattern may match nothing, before each byte.
            None => text(&part["content"]).saturating_add(1),
        },
        Some("Prepend") => text(&part["prepend"]) + 1,
        Some("Precompiled") => charsmap::longest(part["precompiled_charsmap"].as_str().unwrap_or_default()),
        Some("NFKC" | "NFKD") => 11,
        Some("NFC" | "NFD" | "BertNormalizer" | "Lowercase" | "ByteLevel") => 3,
        _ => 1,
    }
}

/// The text that a `Replace` or a `Split` looks for; `None` for a pattern that may go back and forth, or match nothing.
fn replaced(part: &Value) -> Option<&str> {
    part["pattern"]["String"].as_str().filter(|pattern| !pattern.is_empty())
}

/// Whether what it makes of a text is what it makes of its letters, wherever they are.
fn is_by_letter(part: &Value) -> bool {
    match part["type"].as_str() {
        Some("Replace") => replaced(part).is_some(),
        kind => kind != Some("Prepend"),
    }
}

fn is_linear(part: &Value) -> bool {
    match part["type"].as_str() {
        Some("Replace" | "Split") => replaced(part).is_some(),
        Some(
            // normalizers
            "BertNormalizer" | "ByteLevel" | "Lowercase" | "NFC" | "NFD" | "NFKC" | "NFKD" | "Nmt" | "Precompiled"
            | "Prepend" | "Strip" | "StripAccents"
            // what cuts into words
            | "BertPreTokenizer" | "CharDelimiterSplit" | "Digits" | "Metaspace" | "Punctuation" | "UnicodeScripts"
            | "Whitespace" | "WhitespaceSplit"
            // decoders
            | "BPEDecoder" | "ByteFallback" | "CTC" | "Fuse" | "WordPiece",
        ) => true,
        _ => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::builtin::reference;

    fn tokenizer(parts: &Value) -> Tokenizer {
        let mut file = json!({
            "version": "1.0",
            "added_tokens": [],
            "model": { "type": "WordLevel", "vocab": { "a": 0 }, "unk_token": "a" },
        });
        file.as_object_mut().unwrap().extend(parts.as_object().unwrap().clone());
        Tokenizer::from_bytes(file.to_string()).unwrap()
    }

    fn normalizing(normalizer: Value) -> Cost {
        Cost::of_encoding(&tokenizer(&json!({ "normalizer": normalizer })))
    }

    fn replace(content: &str) -> Value {
        json!({ "type": "Replace", "pattern": { "String": "a" }, "content": content })
    }

    #[test]
    fn sequences_multiply() {
        assert_eq!(normalizing(Value::Null).growth, 1);
        assert_eq!(normalizing(replace("b")).growth, 1);
        // The crate takes parts that do not say what they are.
        assert_eq!(normalizing(json!({ "pattern": { "String": "a" }, "content": "bbbb" })).growth, 4);
        let bomb: Vec<_> = (0..6).map(|_| replace(&"a".repeat(100))).collect();
        assert_eq!(normalizing(json!({ "type": "Sequence", "normalizers": bomb })).growth, 1_000_000_000_000);
        let mixed = json!({ "type": "Sequence", "normalizers": [{ "type": "NFKC" }, { "type": "Lowercase" }] });
        assert_eq!(normalizing(mixed), Cost { growth: 33, anywhere: 1, linear: true });
        let llama = json!([{ "type": "Prepend", "prepend": "▁" },
            { "type": "Replace", "pattern": { "String": " " }, "content": "▁" }]);
        let llama = normalizing(json!({ "type": "Sequence", "normalizers": llama }));
        assert_eq!(llama, Cost { growth: 12, anywhere: 4, linear: true });
        let decoder = json!({ "decoder": { "type": "Sequence", "decoders": [replace("aaaa")] } });
        assert_eq!(Cost::of_decoding(&tokenizer(&decoder)).growth, 4);
    }

    #[test]
    fn the_last_of_two_parts_counts() {
        let twice = r#"{"version":"1.0","added_tokens":[],"normalizer":null,
            "normalizer":{"type":"Prepend","prepend":"xyz"},"model":{"type":"WordLevel","vocab":{},"unk_token":"a"}}"#;
        assert_eq!(Cost::of_encoding(&Tokenizer::from_bytes(twice).unwrap()).growth, 4);
    }

    #[test]
    fn usual_tokenizers_take_their_time_in_proportion() {
        for name in ["wordpiece", "bpe", "unigram"] {
            let read = Tokenizer::from_bytes(reference::read(&format!("tokenize/{name}.json"))).unwrap();
            assert!(Cost::of_encoding(&read).linear, "{name}");
            assert!(Cost::of_decoding(&read).linear, "{name}");
        }
    }

    #[test]
    fn others_may_take_longer() {
        let pattern = json!({ "type": "Split", "pattern": { "Regex": "a+" }, "behavior": "Isolated", "invert": false });
        let words = |longest: usize| {
            let vocab = json!({ "[UNK]": 0 });
            json!({ "model": { "type": "WordPiece", "vocab": vocab, "unk_token": "[UNK]",
                "continuing_subword_prefix": "##", "max_input_chars_per_word": longest } })
        };
        let long = json!([["a".repeat(1000), -1.0], ["b", -2.0]]);
        for parts in [
            json!({ "pre_tokenizer": pattern }),
            json!({ "pre_tokenizer": { "type": "Sequence", "pretokenizers": [{ "type": "Sequence", "pretokenizers": [pattern] }] } }),
            json!({ "normalizer": { "type": "Replace", "pattern": { "Regex": "a+" }, "content": "" } }),
            json!({ "normalizer": { "type": "Replace", "pattern": { "String": "" }, "content": "" } }),
            json!({ "normalizer": { "type": "Sequence", "normalizers": vec![json!({ "type": "NFC" }); 17] } }),
            words(100_000),
            json!({ "model": { "type": "Unigram", "vocab": long, "unk_id": 1 } }),
        ] {
            assert!(!Cost::of_encoding(&tokenizer(&parts)).linear, "{parts}");
        }
        assert!(Cost::of_encoding(&tokenizer(&words(100))).linear);
        let decoder = json!({ "decoder": { "type": "Replace", "pattern": { "Regex": "a+" }, "content": "" } });
        assert!(!Cost::of_decoding(&tokenizer(&decoder)).linear);
    }
}
