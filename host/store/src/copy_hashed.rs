//! Copying with a digest of what was copied.

use std::io::{self, Read, Write};
use std::path::Path;

use gpux_core::files::open_file;
use ring::digest::{Context, SHA256};

use crate::digest::hex;

/// Bytes at a time.
const PIECE: usize = 1 << 20;

/// Copies all that there is, at most one byte more than `size`; gives the SHA-256 and how much it was. `progress` is
/// told the bytes of each piece.
pub(crate) fn copy_hashed(
    source: impl Read,
    size: u64,
    target: &mut impl Write,
    progress: &mut dyn FnMut(u64),
) -> Result<(String, u64), CopyError> {
    let mut source = source.take(size.saturating_add(1));
    let mut context = Context::new(&SHA256);
    let mut piece = vec![0; usize::try_from(size.saturating_add(1)).map_or(PIECE, |size| size.min(PIECE))];
    let mut copied = 0;
    loop {
        let read = match source.read(&mut piece) {
            Ok(0) => return Ok((hex(context.finish().as_ref()), copied)),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(CopyError::Read(error)),
        };
        context.update(&piece[..read]);
        target.write_all(&piece[..read]).map_err(|source| CopyError::Write { source, done: copied })?;
        copied += read as u64;
        progress(read as u64);
    }
}

/// The SHA-256 of a file.
pub fn file_digest(path: &Path) -> io::Result<String> {
    match copy_hashed(open_file(path, "it")?, u64::MAX, &mut io::sink(), &mut |_| {}) {
        Ok((digest, _)) => Ok(digest),
        Err(CopyError::Read(error) | CopyError::Write { source: error, .. }) => Err(error),
    }
}

/// Which side failed.
#[derive(Debug)]
pub(crate) enum CopyError {
    Read(io::Error),
    Write { source: io::Error, done: u64 },
}
