//! The table of a SentencePiece normalizer (`Precompiled`), in base64: the size of a trie, the trie, and what it
//! puts in, the pieces divided by zeros.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// What a table is called in a `tokenizer.json`.
const NAME: &str = "precompiled_charsmap";

/// Refuses a `tokenizer.json` with a table that names a greater size than it has: the tokenizers crate sets memory
/// aside for what it names.
pub(super) fn check(file: &[u8]) -> Result<(), String> {
    Look { table: false }.deserialize(&mut serde_json::Deserializer::from_slice(file)).map_err(|why| why.to_string())
}

/// The most bytes that this table puts in for one.
pub(super) fn longest(table: &str) -> usize {
    let bytes = read(table).unwrap_or_default();
    let longest = pieces(&bytes).and_then(|pieces| pieces.split(|byte| *byte == 0).map(<[u8]>::len).max());
    longest.unwrap_or(usize::MAX).max(1)
}

fn read(table: &str) -> Option<Vec<u8>> {
    BASE64_STANDARD.decode(table).ok()
}

/// What lies behind the trie.
fn pieces(table: &[u8]) -> Option<&[u8]> {
    let (size, rest) = table.split_first_chunk()?;
    rest.get(usize::try_from(u32::from_le_bytes(*size)).ok()?..)
}

/// Goes through a file.
struct Look {
    /// whether what comes now is a table
    table: bool,
}

impl<'de> DeserializeSeed<'de> for Look {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, file: D) -> Result<(), D::Error> {
        file.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Look {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a tokenizer")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        if self.table && read(text).is_none_or(|bytes| pieces(&bytes).is_none()) {
            return Err(E::custom(format_args!("its `{NAME}` is not whole")));
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Self { table: false })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(key) = entries.next_key::<String>()? {
            entries.next_value_seed(Self { table: key == NAME })?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;

    fn table(size: u32, rest: &[u8]) -> String {
        BASE64_STANDARD.encode([&size.to_le_bytes(), rest].concat())
    }

    #[test]
    fn the_longest_piece_counts() {
        assert_eq!(longest(&table(4, b"trieab\0abcdef\0a\0")), 6);
        assert_eq!(longest(&table(0, b"")), 1);
        for wrong in ["", "!", &table(5, b"trie")] {
            assert_eq!(longest(wrong), usize::MAX, "{wrong}");
        }
    }

    #[test]
    fn a_table_is_as_large_as_it_says() {
        let file = |table: &str| {
            let normalizer = json!({ "type": "Precompiled", "precompiled_charsmap": table });
            check(json!({ "a": [1, 2.5, null, true, { "b": [normalizer] }] }).to_string().as_bytes())
        };
        assert_eq!(file(&table(4, b"trieab\0")), Ok(()));
        for wrong in [table(u32::MAX, b"trie"), String::new(), "!".to_owned()] {
            assert!(file(&wrong).unwrap_err().contains("its `precompiled_charsmap` is not whole"));
        }
        assert!(check(format!(r#"{{"\u0070recompiled_charsmap": "{}"}}"#, table(9, b"")).as_bytes()).is_err());
        assert!(check(b"{").is_err());
    }
}
