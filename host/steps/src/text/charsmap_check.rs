//! The table of a SentencePiece normalizer (`Precompiled`), in base64: the size of a trie, the trie, and what it
//! puts in, the pieces divided by zeros.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

/// Whether a table has the size in its header: the tokenizers crate allocates that size.
pub(super) fn is_whole(table: &str) -> bool {
    let table = BASE64_STANDARD.decode(table).unwrap_or_default();
    let Some((size, rest)) = table.split_first_chunk() else { return false };
    usize::try_from(u32::from_le_bytes(*size)).is_ok_and(|size| size <= rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(size: u32, rest: &[u8]) -> String {
        BASE64_STANDARD.encode([&size.to_le_bytes(), rest].concat())
    }

    #[test]
    fn rejects_tables_of_wrong_size() {
        assert!(is_whole(&table(4, b"trieab\0")));
        for wrong in [table(u32::MAX, b"trie"), String::new(), "!".to_owned()] {
            assert!(!is_whole(&wrong), "{wrong}");
        }
    }
}
