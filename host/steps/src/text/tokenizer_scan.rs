//! Scans a `tokenizer.json` before the tokenizers crate reads it, and rejects files that would take memory, time or
//! stack without end there.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::charsmap_check;

/// Bytes of a text of the file; longer ones are tables. The tokens of Unigram models become a tree as deep as they are
/// long, which is taken down by recursion.
const MOST_BYTES: usize = 8 << 10;

/// Values of which a normalizer, what cuts into words, or a decoder is made. Each pattern takes some megabytes.
const MOST_VALUES: usize = 512;

/// Values of which other entries are made: templates, most of all.
const MOST_OTHERS: usize = 16 << 10;

/// Bytes of all tokens of a Unigram model: each becomes a node of a tree, of 250 bytes.
const MOST_PIECES: usize = 12 << 20;

/// Bytes of a table.
const MOST_TABLE: usize = 4 << 20;

/// The key of a table.
const TABLE: &str = "precompiled_charsmap";

/// What the scan counts.
#[derive(Debug, Default)]
struct TokenizerScan {
    /// bytes of the tokens of a Unigram model
    pieces: Cell<usize>,
    /// values that the entry may still have
    values: Cell<usize>,
}

/// Scans a file.
pub(super) fn scan(file: &[u8]) -> Result<(), String> {
    let scan = TokenizerScan::default();
    let mut json = serde_json::Deserializer::from_slice(file);
    let scanned = ScanVisitor { scan: &scan, section: Section::File }.deserialize(&mut json);
    scanned.map(drop).map_err(|why| why.to_string())
}

/// The section of the file that is scanned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    File,
    /// or the added tokens: there may be any number
    Vocabulary,
    Part,
    Table,
}

#[derive(Clone, Copy)]
struct ScanVisitor<'a> {
    scan: &'a TokenizerScan,
    section: Section,
}

/// The kind of a scanned value.
#[derive(Clone, Copy)]
enum ScannedValue {
    Text(usize),
    Number,
    Other,
}

impl ScanVisitor<'_> {
    fn value<E: Error>(self, seen: ScannedValue) -> Result<ScannedValue, E> {
        if matches!(self.section, Section::Part | Section::Table) {
            let left = self.scan.values.get().checked_sub(1);
            let too_many = || E::custom("a part of it is of more values than any usual one");
            self.scan.values.set(left.ok_or_else(too_many)?);
        }
        Ok(seen)
    }
}

impl<'de> DeserializeSeed<'de> for ScanVisitor<'_> {
    type Value = ScannedValue;

    fn deserialize<D: Deserializer<'de>>(self, file: D) -> Result<ScannedValue, D::Error> {
        file.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ScanVisitor<'_> {
    type Value = ScannedValue;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a tokenizer")
    }

    fn visit_unit<E: Error>(self) -> Result<ScannedValue, E> {
        self.value(ScannedValue::Other)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<ScannedValue, E> {
        self.value(ScannedValue::Other)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<ScannedValue, E> {
        self.value(ScannedValue::Number)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<ScannedValue, E> {
        self.value(ScannedValue::Number)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<ScannedValue, E> {
        self.value(ScannedValue::Number)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<ScannedValue, E> {
        match self.section {
            Section::Table if text.len() > MOST_TABLE || !charsmap_check::is_whole(text) => {
                return Err(E::custom(format_args!("its `{TABLE}` is not whole, or too large")));
            }
            Section::Table => {}
            _ if text.len() > MOST_BYTES => {
                let message = format_args!("a text in it is {} bytes; at most {MOST_BYTES} are taken", text.len());
                return Err(E::custom(message));
            }
            Section::File | Section::Vocabulary | Section::Part => {}
        }
        self.value(ScannedValue::Text(text.len()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<ScannedValue, A::Error> {
        let mut before = None;
        while let Some(item) = items.next_element_seed(self)? {
            // A token with its score.
            if let (Some(ScannedValue::Text(bytes)), ScannedValue::Number) = (before, item) {
                let pieces = self.scan.pieces.get().saturating_add(bytes);
                if pieces > MOST_PIECES {
                    let message =
                        format_args!("its tokens are over {MOST_PIECES} bytes together; no usual model's are");
                    return Err(A::Error::custom(message));
                }
                self.scan.pieces.set(pieces);
            }
            before = Some(item);
        }
        self.value(ScannedValue::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<ScannedValue, A::Error> {
        while let Some(key) = entries.next_key::<String>()? {
            ScanVisitor { scan: self.scan, section: Section::Vocabulary }.visit_str::<A::Error>(&key)?;
            let section = match (self.section, key.as_str()) {
                (Section::File, "model" | "added_tokens") => Section::Vocabulary,
                (Section::File, "normalizer" | "pre_tokenizer" | "decoder") => {
                    self.scan.values.set(MOST_VALUES);
                    Section::Part
                }
                (Section::File, _) => {
                    self.scan.values.set(MOST_OTHERS);
                    Section::Part
                }
                (Section::Part, TABLE) => Section::Table,
                (section, _) => section,
            };
            entries.next_value_seed(ScanVisitor { scan: self.scan, section })?;
        }
        self.value(ScannedValue::Other)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::reference;

    #[test]
    fn accepts_usual_files() {
        for name in ["wordpiece", "bpe", "unigram"] {
            let file = reference::read(&format!("tokenize/{name}.json"));
            assert_eq!(scan(&file), Ok(()), "{name}");
        }
    }

    #[test]
    fn rejects_unbounded_files() {
        let scanned = |file: &Value| scan(file.to_string().as_bytes());
        let long = "a".repeat(MOST_BYTES + 1);
        let pieces = vec![json!(["a".repeat(MOST_BYTES), -1.0]); MOST_PIECES / MOST_BYTES + 1];
        let parts = |count: usize| vec![json!({ "type": "NFC" }); count / 2];
        for (file, why) in [
            (json!({ "model": { "unk_token": long } }), "a text in it is 8193 bytes"),
            (json!({ "model": { "vocab": { long.as_str(): 1 } } }), "a text in it is 8193 bytes"),
            (json!({ "normalizer": { "type": "Prepend", "prepend": long } }), "a text in it is 8193 bytes"),
            (json!({ "model": { "vocab": pieces } }), "over 12582912 bytes together"),
            (json!({ "normalizer": { "type": "Sequence", "normalizers": parts(MOST_VALUES) } }), "more values"),
            (json!({ "padding": parts(MOST_OTHERS) }), "more values"),
            (json!({ "normalizer": { TABLE: "AAAA" } }), "is not whole"),
            (json!({ "normalizer": [{ "pretokenizers": [{ TABLE: "/////w==" }] }] }), "is not whole"),
        ] {
            let refused = scanned(&file).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
        assert!(scan(br#"{"normalizer": {"\u0070recompiled_charsmap": "AAAA"}}"#).is_err());
        assert!(scan(b"{").is_err());
        let vocabulary: serde_json::Map<_, _> = (0..50_000).map(|id| (id.to_string(), id.into())).collect();
        let large = json!({ "model": { "vocab": vocabulary, "merges": vec![["a", "b"]; 50_000] },
            "added_tokens": vec![json!({ "id": 1, "content": "a", "special": true }); 20_000] });
        assert_eq!(scanned(&large), Ok(()));
        assert_eq!(scanned(&json!({ "post_processor": parts(MOST_VALUES) })), Ok(()));
    }
}
