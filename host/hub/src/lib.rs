//! Models of the Hugging Face hub: a repository's files by commit, checked against their digests, and the store where
//! they are kept.

#![forbid(unsafe_code)]

mod client;
mod digest;
mod error;
mod file_name;
mod hub_cache;
mod hub_repository;
mod lock;
mod reference;
mod repository;
mod settings;
mod store;
mod transfer;

pub use digest::FileDigest;
pub use error::{HubError, StoreError};
pub use lock::{LockedFile, LockedSource, lock_text};
pub use reference::{HubReference, ReferenceError};
pub use repository::Repository;
pub use settings::HubSettings;
pub use store::{Store, StoredFile, StoredPipeline};
pub use transfer::{RepositoryFacts, TransferProgress};
