//! Writing files atomically.

use std::path::Path;

use super::build_error::BuildError;
use gpux_core::files::{ReadAccess, write_whole};

/// Writes a file whole or not at all.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), BuildError> {
    write_whole(path, bytes, ReadAccess::Usual).map_err(|source| BuildError::Io {
        what: "write",
        path: path.to_owned(),
        source,
    })
}
