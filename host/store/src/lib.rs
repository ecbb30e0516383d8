//! The store: files by their digests, and pipelines by name; and bundles, which carry pipelines from one store to another.

#![forbid(unsafe_code)]

mod archive;
mod bundle_fault;
mod bundle_plan;
mod bundle_reader;
mod bundle_writer;
mod copy_hashed;
mod digest;
mod error;
mod file_name;
mod file_section;
mod forbidden_content;
mod ingest;
mod layout_reader;
mod manifest;
mod names;
mod pipeline;
mod store;
mod stored_folder;
mod upkeep;

pub use bundle_fault::BundleFault;
pub use bundle_plan::{BundleFile, BundlePlan, FileSource};
pub use bundle_reader::peek;
pub use copy_hashed::file_digest;
pub use digest::{FileDigest, Hasher};
pub use error::StoreError;
pub use file_name::is_safe;
pub use layout_reader::is_bundle;
pub use manifest::{BundleInfo, MAX_PORTABLE_FILES, PIPELINE_FILE};
pub use names::{DIGEST_SCHEME, is_name};
pub use pipeline::{FileRole, StoredFile, StoredPipeline};
pub use store::{PartFile, Store};
pub use stored_folder::{StoredFolder, is_laid_out};
pub use upkeep::{CheckReport, FileDetails, PruneMode, PruneReport, StoreDetails, StoreEntry};

#[cfg(test)]
mod tests;
