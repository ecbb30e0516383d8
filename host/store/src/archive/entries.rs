//! Which files an archive has, and where. Nothing is unpacked, and no content is read but that of extended headers.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};

use tar::EntryType;

use super::{BLOCK, header};
use crate::bundle_fault::BundleFault;
use crate::manifest::MAX_FILES;

/// Room for other pipelines and for folders beside the files of the largest one.
const MAX_ENTRIES: usize = 3 * MAX_FILES;
/// The most bytes of an extended header.
const MAX_EXTENDED: u64 = 64 << 10;
/// The most that programs fill an archive up with.
const MAX_PADDING: u64 = 4 << 20;
/// The longest name of an entry in an error.
const SHOWN: usize = 200;

/// The beginning and the size of each file, by its name.
pub(crate) type Entries = BTreeMap<String, (u64, u64)>;

/// Whether a file begins as an archive does.
pub(crate) fn is_archive(head: &[u8]) -> bool {
    head.get(..BLOCK as usize)
        .and_then(|block| block.try_into().ok())
        .is_some_and(|block| header::parse(block).is_some())
}

/// A fault of the archive, or the system's.
pub(crate) enum ReadError {
    Fault(BundleFault),
    Io(io::Error),
}

impl From<BundleFault> for ReadError {
    fn from(fault: BundleFault) -> Self {
        Self::Fault(fault)
    }
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Finds the files of an archive.
pub(crate) fn find(file: &File) -> Result<Entries, ReadError> {
    let mut reader = HeaderReader { file, size: file.metadata()?.len(), at: 0 };
    let mut entries = Entries::new();
    let mut extended_size = None;
    for _ in 0..=MAX_ENTRIES {
        let begin = reader.at;
        let block = reader.block()?;
        if block.iter().all(|byte| *byte == 0) {
            reader.check_end()?;
            return Ok(entries);
        }
        let header = header::parse(&block).ok_or(BundleFault::Header { at: begin })?;
        let raw_name = header.path_bytes();
        let shown = || String::from_utf8_lossy(&raw_name[..raw_name.len().min(SHOWN)]).into_owned();
        let own_size = header.entry_size().map_err(|_| BundleFault::Header { at: begin })?;
        let entry_type = header.entry_type();
        if entry_type == EntryType::XHeader {
            extended_size = extended(&reader.content(own_size)?, &shown())?;
            continue;
        }
        if entry_type == EntryType::XGlobalHeader {
            if extended(&reader.content(own_size)?, &shown())?.is_some() {
                let kind = "a header that gives all entries a size";
                return Err(BundleFault::EntryKind { name: shown(), kind }.into());
            }
            continue;
        }
        let size = extended_size.take().unwrap_or(own_size);
        let is_folder = match entry_type {
            EntryType::Regular => false,
            EntryType::Directory if size == 0 => true,
            other => return Err(BundleFault::EntryKind { name: shown(), kind: header::kind(other) }.into()),
        };
        let name = std::str::from_utf8(&raw_name).ok().and_then(plain_name);
        let name = name.ok_or_else(|| BundleFault::EntryName { name: shown() })?;
        let start = reader.at;
        reader.skip(size)?;
        // The folder of everything has no name.
        if is_folder {
            continue;
        }
        if name.is_empty() || entries.insert(name.to_owned(), (start, size)).is_some() {
            return Err(BundleFault::DuplicateEntry { name: shown() }.into());
        }
    }
    Err(BundleFault::TooManyEntries { limit: MAX_ENTRIES }.into())
}

/// The name without what some programs put before and after it, if it stays where it is.
fn plain_name(name: &str) -> Option<&str> {
    let name = name.strip_suffix('/').unwrap_or(name);
    if name == "." {
        return Some("");
    }
    let name = name.strip_prefix("./").unwrap_or(name);
    let is_part = |part: &str| !["", ".", ".."].contains(&part);
    let is_plain = name.split('/').all(is_part) && !name.chars().any(|c| c.is_control() || matches!(c, '\\' | ':'));
    is_plain.then_some(name)
}

/// The size that an extended header (PAX) gives the next entry. What would change its name or its kind is refused.
fn extended(mut bytes: &[u8], name: &str) -> Result<Option<u64>, BundleFault> {
    let refuse = |kind| BundleFault::EntryKind { name: name.to_owned(), kind };
    let mut size = None;
    while !bytes.is_empty() {
        let (record, rest) = first_record(bytes).ok_or_else(|| refuse("an extended header that cannot be read"))?;
        bytes = rest;
        match record {
            ("size", value) if size.is_none() => {
                let value = std::str::from_utf8(value).ok().and_then(|value| value.parse().ok());
                size = Some(value.ok_or_else(|| refuse("an extended header with a size that is no number"))?);
            }
            ("atime" | "ctime" | "mtime" | "uid" | "gid" | "uname" | "gname" | "comment", _) => {}
            (key, _) if key.starts_with("SCHILY.xattr.") || key.starts_with("LIBARCHIVE.") => {}
            (key, _) if key.starts_with("GNU.sparse.") => return Err(refuse("a sparse file")),
            _ => return Err(refuse("an extended header that changes more than times, owners and sizes")),
        }
    }
    Ok(size)
}

/// A key of an extended header with its value.
type Record<'a> = (&'a str, &'a [u8]);

/// The first `LENGTH KEY=VALUE\n`, and what follows.
fn first_record(bytes: &[u8]) -> Option<(Record<'_>, &[u8])> {
    let space = bytes.iter().take(8).position(|byte| *byte == b' ')?;
    let length: usize = std::str::from_utf8(&bytes[..space]).ok()?.parse().ok()?;
    let (record, rest) = bytes.split_at_checked(length)?;
    let record = record.get(space + 1..)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|byte| *byte == b'=')?;
    Some(((std::str::from_utf8(&record[..equals]).ok()?, &record[equals + 1..]), rest))
}

struct HeaderReader<'a> {
    file: &'a File,
    size: u64,
    at: u64,
}

impl HeaderReader<'_> {
    fn block(&mut self) -> Result<[u8; BLOCK as usize], ReadError> {
        if self.size.saturating_sub(self.at) < BLOCK {
            return Err(BundleFault::Truncated { at: self.size }.into());
        }
        let mut block = [0; BLOCK as usize];
        self.file.seek(SeekFrom::Start(self.at))?;
        self.file.read_exact(&mut block)?;
        self.at += BLOCK;
        Ok(block)
    }

    /// The content of an extended header.
    fn content(&mut self, size: u64) -> Result<Vec<u8>, ReadError> {
        if size > MAX_EXTENDED {
            return Err(BundleFault::TooLarge { what: "an extended header", size, limit: MAX_EXTENDED }.into());
        }
        let begin = self.at;
        self.skip(size)?;
        let mut bytes = vec![0; size as usize];
        self.file.seek(SeekFrom::Start(begin))?;
        self.file.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Goes on behind a content of `size` bytes.
    fn skip(&mut self, size: u64) -> Result<(), BundleFault> {
        let end = size.checked_next_multiple_of(BLOCK).and_then(|size| self.at.checked_add(size));
        self.at = end.filter(|end| *end <= self.size).ok_or(BundleFault::Truncated { at: self.size })?;
        Ok(())
    }

    /// Checks that after the first empty block nothing else follows.
    fn check_end(&mut self) -> Result<(), ReadError> {
        let left = self.size - self.at;
        if left > MAX_PADDING {
            return Err(BundleFault::TrailingBytes.into());
        }
        if left < BLOCK {
            return Err(BundleFault::Truncated { at: self.size }.into());
        }
        let mut rest = Vec::new();
        self.file.take(left).read_to_end(&mut rest)?;
        if rest.iter().any(|byte| *byte != 0) {
            return Err(BundleFault::TrailingBytes.into());
        }
        Ok(())
    }
}
