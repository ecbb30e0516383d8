//! The table of a SentencePiece normalizer (`Precompiled`), in base64: the size of a trie, the trie, and what it
//! puts in, the pieces divided by zeros.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

/// Whether a table has the size in its header: the tokenizers crate allocates that size.
pub(super) fn is_whole(table: &str) -> bool {
    pieces(&read(table)).is_some()
}

/// The most bytes that this table puts in for one.
pub(super) fn longest(table: &str) -> usize {
    let longest = pieces(&read(table)).and_then(|pieces| pieces.split(|byte| *byte == 0).map(<[u8]>::len).max());
    longest.unwrap_or(usize::MAX).max(1)
}

fn read(table: &str) -> Vec<u8> {
    BASE64_STANDARD.decode(table).unwrap_or_default()
}

/// The pieces behind the trie.
fn pieces(table: &[u8]) -> Option<&[u8]> {
    let (size, rest) = table.split_first_chunk()?;
    rest.get(usize::try_from(u32::from_le_bytes(*size)).ok()?..)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(size: u32, rest: &[u8]) -> String {
        BASE64_STANDARD.encode([&size.to_le_bytes(), rest].concat())
    }

    #[test]
    fn returns_the_longest_piece() {
        assert_eq!(longest(&table(4, b"trieab\0abcdef\0a\0")), 6);
        assert_eq!(longest(&table(0, b"")), 1);
        for wrong in ["", "!", &table(5, b"trie")] {
            assert_eq!(longest(wrong), usize::MAX, "{wrong}");
        }
    }

    #[test]
    fn rejects_tables_of_wrong_size() {
        assert!(is_whole(&table(4, b"trieab\0")));
        for wrong in [table(u32::MAX, b"trie"), String::new(), "!".to_owned()] {
            assert!(!is_whole(&wrong), "{wrong}");
        }
    }
}
