//! Models of the Hugging Face hub: a repository's files by commit, checked against their digests, into the store.

#![forbid(unsafe_code)]

mod client;
mod download;
mod error;
mod http;
mod hub_cache;
mod hub_repository;
mod lock;
mod reference;
mod remote_file;
mod repository;
mod restore;
mod settings;
mod transfer;

pub use error::HubError;
pub use http::{HttpLimits, http_agent, read_body};
pub use lock::{LOCK_FILE, LockError, LockedFile, LockedSource, lock_text, read_lock};
pub use reference::{HubReference, ReferenceError};
pub use repository::Repository;
pub use restore::{RestoreOptions, RestoreReport, replace_files, restore};
pub use settings::HubSettings;
pub use transfer::{FileProgress, RepositoryFacts, TransferProgress};
