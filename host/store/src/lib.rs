//! The store: files by their digests, and pipelines by name.

#![forbid(unsafe_code)]

mod digest;
mod error;
mod file_name;
mod names;
mod store;
mod stored_folder;
mod upkeep;

pub use digest::{FileDigest, Hasher};
pub use error::StoreError;
pub use file_name::is_safe;
pub use names::{DIGEST_SCHEME, is_name};
pub use store::{PartFile, Store, StoredFile, StoredPipeline};
pub use stored_folder::StoredFolder;
pub use upkeep::{CheckReport, FileDetails, PruneMode, PruneReport, StoreDetails, StoreEntry};
