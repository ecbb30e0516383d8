//! The store: files by their digests, and pipelines by name.

#![forbid(unsafe_code)]

mod digest;
mod error;
mod file_name;
mod store;

pub use digest::{FileDigest, Hasher};
pub use error::StoreError;
pub use file_name::is_safe;
pub use store::{PartFile, Store, StoredFile, StoredPipeline};
