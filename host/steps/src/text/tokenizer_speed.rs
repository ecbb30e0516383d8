//! Whether a tokenizer is known to take linear time. Another one may backtrack, and seconds become hours.
//!
//! Judged by the parsed tokenizer, not by the file, of which the crate may read another part.

use serde::Serialize;
use serde_json::Value;
use tokenizers::{ModelWrapper, Tokenizer};

/// Bytes of a token of a Unigram model, characters of a word of a WordPiece model: both are tried at each
/// character. Usual are 50, and 100.
const LONGEST: usize = 128;

/// Whether making tokens is known to take linear time.
pub(crate) fn encodes_in_linear_time(tokenizer: &Tokenizer) -> bool {
    let is_model_linear = match tokenizer.get_model() {
        ModelWrapper::WordPiece(model) => model.max_input_chars_per_word <= LONGEST,
        ModelWrapper::Unigram(model) => model.iter().all(|(token, _)| token.len() <= LONGEST),
        // With dropout, merges are tried again.
        ModelWrapper::BPE(model) => model.dropout.is_none_or(|dropout| dropout == 0.0),
        ModelWrapper::WordLevel(_) => true,
    };
    is_model_linear && is_linear(tokenizer.get_normalizer()) && is_linear(tokenizer.get_pre_tokenizer())
}

/// Whether making text is known to take linear time.
pub(crate) fn decodes_in_linear_time(tokenizer: &Tokenizer) -> bool {
    is_linear(tokenizer.get_decoder())
}

/// Whether every part of a normalizer, pre-tokenizer or decoder is.
fn is_linear(part: Option<&impl Serialize>) -> bool {
    part.is_none_or(|part| serde_json::to_value(part).is_ok_and(|part| is_part_linear(&part)))
}

fn is_part_linear(part: &Value) -> bool {
    let of_sequence = || ["normalizers", "pretokenizers", "decoders"].iter().find_map(|kind| part[*kind].as_array());
    match part["type"].as_str() {
        Some("Sequence") => of_sequence().is_some_and(|parts| parts.iter().all(is_part_linear)),
        // A pattern may go back and forth, or match nothing.
        Some("Replace" | "Split") => part["pattern"]["String"].as_str().is_some_and(|pattern| !pattern.is_empty()),
        Some(
            // normalizers
            "BertNormalizer" | "Lowercase" | "NFC" | "NFD" | "NFKC" | "NFKD" | "Nmt" | "Precompiled" | "Prepend"
            | "Strip" | "StripAccents"
            // what cuts into words; the pattern of ByteLevel is its own, and looks one letter ahead
            | "BertPreTokenizer" | "ByteLevel" | "CharDelimiterSplit" | "Digits" | "Metaspace" | "Punctuation"
            | "UnicodeScripts" | "Whitespace" | "WhitespaceSplit"
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
    use crate::reference;

    fn tokenizer(parts: &Value) -> Tokenizer {
        let mut file = json!({
            "version": "1.0",
            "added_tokens": [],
            "model": { "type": "WordLevel", "vocab": { "a": 0 }, "unk_token": "a" },
        });
        file.as_object_mut().unwrap().extend(parts.as_object().unwrap().clone());
        Tokenizer::from_bytes(file.to_string()).unwrap()
    }

    #[test]
    fn usual_tokenizers_are_linear() {
        for name in ["wordpiece", "bpe", "unigram"] {
            let read = Tokenizer::from_bytes(reference::read(&format!("tokenize/{name}.json"))).unwrap();
            assert!(encodes_in_linear_time(&read) && decodes_in_linear_time(&read), "{name}");
        }
        // The crate accepts parts without a type.
        let untyped = json!({ "normalizer": { "pattern": { "String": "a" }, "content": "b" } });
        assert!(encodes_in_linear_time(&tokenizer(&untyped)));
    }

    #[test]
    fn unusual_tokenizers_are_not_linear() {
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
            json!({ "model": { "type": "BPE", "vocab": { "a": 0 }, "merges": [], "dropout": 0.5 } }),
            words(100_000),
            json!({ "model": { "type": "Unigram", "vocab": long, "unk_id": 1 } }),
        ] {
            assert!(!encodes_in_linear_time(&tokenizer(&parts)), "{parts}");
        }
        assert!(encodes_in_linear_time(&tokenizer(&words(100))));
        let decoder = json!({ "decoder": { "type": "Replace", "pattern": { "Regex": "a+" }, "content": "" } });
        assert!(!decodes_in_linear_time(&tokenizer(&decoder)));
    }
}
