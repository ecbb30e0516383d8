//! The header of an entry.

use tar::{EntryType, Header};

use super::BLOCK;

/// A header whose checksum is right.
pub(super) fn parse(block: &[u8; BLOCK as usize]) -> Option<&Header> {
    let header = Header::from_byte_slice(block);
    let is_right = header.cksum().is_ok_and(|sum| sum == checksum(block));
    (is_right && block[257..262] == *b"ustar").then_some(header)
}

/// The sum of all bytes, with spaces in the place of the sum.
fn checksum(block: &[u8]) -> u32 {
    let sum = |bytes: &[u8]| bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>();
    sum(&block[..148]) + 8 * u32::from(b' ') + sum(&block[156..])
}

/// The header of a plain file: the same for everybody, at any time.
pub(super) fn for_file(name: &str, size: u64) -> std::io::Result<Header> {
    let mut header = Header::new_ustar();
    header.set_path(name)?;
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    header.set_cksum();
    Ok(header)
}

/// What an entry is that is not taken.
pub(super) const fn kind(entry: EntryType) -> &'static str {
    match entry {
        EntryType::Symlink => "a symbolic link",
        EntryType::Link => "a hard link",
        EntryType::Char | EntryType::Block => "a device",
        EntryType::Fifo => "a pipe",
        EntryType::GNUSparse => "a sparse file",
        EntryType::GNULongName | EntryType::GNULongLink => "a name in a block of its own",
        EntryType::XGlobalHeader => "a header for all that follows",
        _ => "of a kind that is not known",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_beyond_eight_gibibytes_are_read_back() {
        for size in [0, 511, (8 << 30) - 1, 8 << 30, 3 << 40] {
            let header = for_file("blobs/sha256/x", size).unwrap();
            assert_eq!(parse(header.as_bytes()).unwrap().entry_size().unwrap(), size);
        }
        let mut wrong = *for_file("x", 1).unwrap().as_bytes();
        wrong[0] ^= 1;
        assert!(parse(&wrong).is_none());
    }
}
