//! Archives (tar) of an OCI image layout, as `skopeo` reads and writes them.

mod entries;
mod header;
mod writer;

pub(crate) use entries::{Entries, ReadError, find, is_archive};
pub(crate) use writer::ArchiveWriter;

/// Headers and contents begin at multiples of this.
const BLOCK: u64 = 512;
