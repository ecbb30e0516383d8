//! What a hub says about a file.

use gpux_store::FileDigest;

/// What the hub says about a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemoteFile {
    pub(crate) size: u64,
    pub(crate) digest: FileDigest,
}
