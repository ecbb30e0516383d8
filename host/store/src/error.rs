//! Why nothing was kept, or read.

use std::path::{Path, PathBuf};

use gpux_core::Size;

use crate::bundle_fault::BundleFault;

/// Why something cannot be kept in the store, or read there; or why a bundle cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// no home folder
    #[error("there is no folder for the store: set GPUX_STORE")]
    NoFolder,
    /// the disk is full
    #[error("no room for `{file}` in the store `{}`: {} of {} are there; make room, or set GPUX_STORE to another disk", root.display(), Size(*done), Size(*size))]
    Full {
        /// the file
        file: String,
        /// the store
        root: PathBuf,
        /// what could be written
        done: u64,
        /// its size
        size: u64,
    },
    /// the system refuses
    #[error("cannot {action} `{}`: {source}; GPUX_STORE moves the store", path.display())]
    Io {
        /// what was done, as a verb
        action: &'static str,
        /// the file or folder
        path: PathBuf,
        /// the system's reason
        source: std::io::Error,
    },
    /// a file of the store that is not what it should be
    #[error("the store's `{}` is damaged: {reason}; `gpux store check` sets it aside, then add or pull it again", path.display())]
    Damaged {
        /// the file
        path: PathBuf,
        /// what is wrong
        reason: String,
    },
    /// a file of a pipeline that the store does not have
    #[error("`{file}` of the pipeline is not in the store (`{}`); add or pull the pipeline again", path.display())]
    Missing {
        /// its path in the pipeline's folder
        file: String,
        /// where the store would have it
        path: PathBuf,
    },
    /// the store cannot be added to
    #[error("the store `{}` is another user's or cannot be written to, so it is only read; GPUX_STORE moves the store", .0.display())]
    ReadOnly(PathBuf),
    /// no name for a pipeline
    #[error(
        "`{0}` can be no name in the store: at most 255 letters, digits and `-._:@+/`, with a letter or digit first and last, no digest, and no model of a hub. A pipeline whose own name or version has `:`, `@` or `/` needs `--name`"
    )]
    Name(String),
    /// more names than the index can hold
    #[error("the store has {0} names, and no room for another; `gpux store rm` takes names away")]
    TooManyNames(usize),
    /// nothing is called so
    #[error("the store has no `{name}`{}", similar.as_ref().map(|similar| format!(". Did you mean `{similar}`?")).unwrap_or_default())]
    NoSuchName {
        /// what was asked for
        name: String,
        /// the most similar name
        similar: Option<String>,
    },
    /// a digest that has no name to take away
    #[error("`{0}` has no name; `gpux store prune` removes it")]
    Unnamed(String),
    /// several pipelines may be meant
    #[error("`{wanted}` may be {} in the store: say which", gpux_core::list(names, "or"))]
    Ambiguous {
        /// what was asked for
        wanted: String,
        /// the names, or digests
        names: Vec<String>,
    },
    /// too few digits of a digest
    #[error("`{wanted}`: give at least {least} digits of the digest")]
    ShortDigest {
        /// what was asked for
        wanted: String,
        /// the fewest digits
        least: usize,
    },
    /// a bundle that cannot be used
    #[error("`{}` cannot be used as a bundle: {fault}", path.display())]
    Bundle {
        /// the archive or the folder
        path: PathBuf,
        /// what is wrong
        fault: BundleFault,
    },
    /// files that cannot become a bundle
    #[error("these files cannot be a bundle: {0}")]
    Contents(BundleFault),
    /// the system refuses what is done with a bundle
    #[error("cannot {action} `{}`: {source}", path.display())]
    File {
        /// what was done, as a verb
        action: &'static str,
        /// the file or folder
        path: PathBuf,
        /// the system's reason
        source: std::io::Error,
    },
}

impl StoreError {
    /// Whether another name, file or folder would do.
    pub const fn is_about_name(&self) -> bool {
        matches!(
            self,
            Self::Name(_)
                | Self::NoSuchName { .. }
                | Self::Unnamed(_)
                | Self::TooManyNames(_)
                | Self::Ambiguous { .. }
                | Self::ShortDigest { .. }
                | Self::Bundle { .. }
                | Self::Contents(_)
                | Self::File { .. }
        )
    }

    /// Whether the machine is at fault, rather than what is in the store.
    pub const fn is_environment(&self) -> bool {
        matches!(
            self,
            Self::NoFolder
                | Self::Full { .. }
                | Self::Io { .. }
                | Self::ReadOnly(_)
                | Self::Bundle { fault: BundleFault::NoRoom { .. }, .. }
        )
    }
}

/// The error of an action in the store.
pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io { action, path, source }
}

/// The error of an action elsewhere.
pub(crate) fn file_error(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::File { action, path, source }
}
