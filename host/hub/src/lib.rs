//! Models of the Hugging Face hub: a repository's files by commit, checked against their digests, into the store.

#![forbid(unsafe_code)]

mod client;
mod error;
mod hub_cache;
mod hub_repository;
mod lock;
mod reference;
mod remote_file;
mod repository;
mod settings;
mod transfer;

pub use error::HubError;
pub use lock::{LockedFile, LockedSource, lock_text};
pub use reference::{HubReference, ReferenceError};
pub use repository::Repository;
pub use settings::HubSettings;
pub use transfer::{RepositoryFacts, TransferProgress};
