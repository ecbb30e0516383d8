//! Why nothing was kept, or read.

use std::path::PathBuf;

use gpux_core::Size;

/// Why something cannot be kept in the store, or read there.
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
    #[error("the store's `{}` is damaged: {reason}; remove it, and pull again", path.display())]
    Damaged {
        /// the file
        path: PathBuf,
        /// what is wrong
        reason: String,
    },
}
