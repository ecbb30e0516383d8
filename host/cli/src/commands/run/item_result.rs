//! The result of one item, and the error of writing it.

use std::path::PathBuf;

use crate::printer::OutputError;
use gpux::GpuxError;
use gpux_core::{Outputs, RunTrace};

/// The result of one item of a run.
pub(super) struct ItemResult {
    pub(super) source: String,
    pub(super) result: Result<Outputs, GpuxError>,
    pub(super) trace: Option<RunTrace>,
}

/// The results cannot be written.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    /// the file cannot be made or written to
    #[error("cannot write `{path}`: {source}", path = path.display())]
    File { path: PathBuf, source: std::io::Error },
    /// standard output does not take it
    #[error(transparent)]
    Stdout(#[from] OutputError),
}
