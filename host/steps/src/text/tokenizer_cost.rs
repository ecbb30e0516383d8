//! The cost of a tokenizer: how much longer it makes a text, and whether its time is linear.
//!
//! Judged by the parsed tokenizer, not by the file, of which the crate may read another part.

use serde_json::Value;
use tokenizers::{ModelWrapper, Tokenizer};

use super::charsmap_check;
use super::tokenizer_parts::parts;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenizerCost {
    /// how many times longer a text can get
    pub(crate) growth: usize,
    /// the part of the growth that depends on more than single letters, so that a text cannot be measured in pieces
    pub(crate) contextual_growth: usize,
    /// whether its time is known to be linear; otherwise a pattern may backtrack, and seconds become hours
    pub(crate) is_linear: bool,
}

/// Bytes of a token of a Unigram model, characters of a word of a WordPiece model: both are tried at each
/// character. Usual are 50, and 100.
const LONGEST: usize = 128;

impl TokenizerCost {
    /// The cost of making tokens.
    pub(crate) fn for_encoding(tokenizer: &Tokenizer) -> Self {
        let (normalizer, cuts) = (parts(tokenizer.get_normalizer()), parts(tokenizer.get_pre_tokenizer()));
        let is_linear = normalizer.iter().chain(&cuts).all(is_linear);
        let growth = |part: &Value| growth(part, tokenizer);
        // The first pre-tokenizer that writes bytes or spaces as letters makes no more tokens than bytes; the next does.
        let most = cuts.iter().map(growth).max().unwrap_or(1);
        let cuts = product(cuts.iter().map(growth)) / most;
        let model = match tokenizer.get_model() {
            ModelWrapper::WordPiece(model) => model.max_input_chars_per_word <= LONGEST,
            ModelWrapper::Unigram(model) => model.iter().all(|(token, _)| token.len() <= LONGEST),
            // With dropout, merges are tried again.
            ModelWrapper::BPE(model) => model.dropout.is_none_or(|dropout| dropout == 0.0),
            ModelWrapper::WordLevel(_) => true,
        };
        Self {
            growth: product(normalizer.iter().map(growth)).saturating_mul(cuts),
            contextual_growth: product(normalizer.iter().filter(|part| !is_by_letter(part)).map(growth))
                .saturating_mul(cuts),
            is_linear: is_linear && model,
        }
    }

    /// The cost of making text, without the space before each token.
    pub(crate) fn for_decoding(tokenizer: &Tokenizer) -> Self {
        let parts = parts(tokenizer.get_decoder());
        let growth = product(parts.iter().map(|part| match part["type"].as_str() {
            // Maps letters back to bytes; others become U+FFFD.
            Some("ByteLevel") => 2,
            Some("Metaspace") => 1,
            _ => growth(part, tokenizer),
        }));
        Self { growth, contextual_growth: growth, is_linear: parts.iter().all(is_linear) }
    }
}

fn product(factors: impl Iterator<Item = usize>) -> usize {
    factors.fold(1, usize::saturating_mul)
}

/// How many times longer a part can make a text. For the Unicode forms see UAX #15, expansion factors in UTF-8.
fn growth(part: &Value, tokenizer: &Tokenizer) -> usize {
    let text = |name: &str| part[name].as_str().unwrap_or_default();
    match text("type") {
        "Replace" => match literal_pattern(part) {
            Some(pattern) => text("content").len().div_ceil(pattern.len()).max(1),
            // A pattern may match nothing, before each byte.
            None => text("content").len().saturating_add(1),
        },
        "Prepend" => 1 + text("prepend").len().div_ceil(between_added_tokens(tokenizer)),
        "Precompiled" => charsmap_check::longest(text("precompiled_charsmap")),
        "NFKC" | "NFKD" => 11,
        // The last: of a byte two, and a space in front.
        "NFC" | "NFD" | "BertNormalizer" | "Lowercase" | "ByteLevel" => 3,
        // A letter for a space, and another in front.
        "Metaspace" => 8,
        "BPEDecoder" if !text("suffix").is_empty() => 1,
        // Spaces are put between letters where there is nothing to look for.
        "BPEDecoder" | "CTC" => 3,
        // A space in front.
        "WordPiece" => 2,
        _ => 1,
    }
}

/// Bytes from one place where something is put in front to the next, at least: texts begin there, and what follows an
/// added token.
fn between_added_tokens(tokenizer: &Tokenizer) -> usize {
    let shortest = tokenizer.get_added_tokens_decoder().values().map(|token| token.content.len()).min();
    // A prefix of a whole text counts relative to the length of the text.
    shortest.map_or(usize::MAX, |shortest| shortest + 1)
}

/// The text that a `Replace` or a `Split` looks for; `None` for a pattern that may go back and forth, or match nothing.
fn literal_pattern(part: &Value) -> Option<&str> {
    part["pattern"]["String"].as_str().filter(|pattern| !pattern.is_empty())
}

/// Whether it changes each letter independently of the others.
fn is_by_letter(part: &Value) -> bool {
    match part["type"].as_str() {
        Some("Replace") => literal_pattern(part).is_some_and(|pattern| pattern.chars().count() == 1),
        kind => kind != Some("Prepend"),
    }
}

fn is_linear(part: &Value) -> bool {
    match part["type"].as_str() {
        Some("Replace" | "Split") => literal_pattern(part).is_some(),
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

    fn normalizing(normalizer: Value) -> TokenizerCost {
        TokenizerCost::for_encoding(&tokenizer(&json!({ "normalizer": normalizer })))
    }

    fn replace(content: &str) -> Value {
        json!({ "type": "Replace", "pattern": { "String": "a" }, "content": content })
    }

    #[test]
    fn growth_of_sequences_multiplies() {
        assert_eq!(normalizing(Value::Null).growth, 1);
        assert_eq!(normalizing(replace("b")).growth, 1);
        // The crate accepts parts without a type.
        assert_eq!(normalizing(json!({ "pattern": { "String": "a" }, "content": "bbbb" })).growth, 4);
        let bomb: Vec<_> = (0..6).map(|_| replace(&"a".repeat(100))).collect();
        assert_eq!(normalizing(json!({ "type": "Sequence", "normalizers": bomb })).growth, 1_000_000_000_000);
        let mixed = json!({ "type": "Sequence", "normalizers": [{ "type": "NFKC" }, { "type": "Lowercase" }] });
        assert_eq!(normalizing(mixed), TokenizerCost { growth: 33, contextual_growth: 1, is_linear: true });
        let several = json!({ "type": "Replace", "pattern": { "String": "ab" }, "content": "cccc" });
        assert_eq!(normalizing(several), TokenizerCost { growth: 2, contextual_growth: 2, is_linear: true });
        let llama = json!([{ "type": "Prepend", "prepend": "▁" },
            { "type": "Replace", "pattern": { "String": " " }, "content": "▁" }]);
        let llama = normalizing(json!({ "type": "Sequence", "normalizers": llama }));
        assert_eq!(llama, TokenizerCost { growth: 6, contextual_growth: 2, is_linear: true });
        let cuts = json!({ "pre_tokenizer": { "type": "Sequence", "pretokenizers":
            vec![json!({ "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true }); 3] } });
        assert_eq!(
            TokenizerCost::for_encoding(&tokenizer(&cuts)),
            TokenizerCost { growth: 9, contextual_growth: 9, is_linear: true }
        );
        let decoder = json!({ "decoder": { "type": "Sequence", "decoders": [replace("aaaa")] } });
        assert_eq!(TokenizerCost::for_decoding(&tokenizer(&decoder)).growth, 4);
        let decoders = json!([{ "type": "ByteFallback" }, { "type": "Fuse" },
            { "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true }]);
        let decoder = json!({ "decoder": { "type": "Sequence", "decoders": decoders } });
        assert_eq!(
            TokenizerCost::for_decoding(&tokenizer(&decoder)),
            TokenizerCost { growth: 1, contextual_growth: 1, is_linear: true }
        );
        for (suffix, growth) in [("", 3), ("</w>", 1)] {
            let decoder = json!({ "decoder": { "type": "BPEDecoder", "suffix": suffix } });
            assert_eq!(TokenizerCost::for_decoding(&tokenizer(&decoder)).growth, growth);
        }
    }

    #[test]
    fn last_of_duplicate_parts_wins() {
        let twice = r#"{"version":"1.0","added_tokens":[],"normalizer":null,
            "normalizer":{"type":"Prepend","prepend":"xyz"},"model":{"type":"WordLevel","vocab":{},"unk_token":"a"}}"#;
        assert_eq!(TokenizerCost::for_encoding(&Tokenizer::from_bytes(twice).unwrap()).growth, 2);
    }

    #[test]
    fn usual_tokenizers_are_linear() {
        for name in ["wordpiece", "bpe", "unigram"] {
            let read = Tokenizer::from_bytes(reference::read(&format!("tokenize/{name}.json"))).unwrap();
            assert!(TokenizerCost::for_encoding(&read).is_linear, "{name}");
            assert!(TokenizerCost::for_decoding(&read).is_linear, "{name}");
        }
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
            assert!(!TokenizerCost::for_encoding(&tokenizer(&parts)).is_linear, "{parts}");
        }
        assert!(TokenizerCost::for_encoding(&tokenizer(&words(100))).is_linear);
        let decoder = json!({ "decoder": { "type": "Replace", "pattern": { "Regex": "a+" }, "content": "" } });
        assert!(!TokenizerCost::for_decoding(&tokenizer(&decoder)).is_linear);
    }
}
