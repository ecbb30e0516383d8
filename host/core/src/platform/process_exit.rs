//! The end of the process, and what goes with it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tempfile::TempDir;

/// The folders of every [`Scratch`] that there is.
static SCRATCH: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A folder for temporary files. It is removed when this is dropped, or at process exit: its owner may
/// never be dropped.
#[derive(Debug)]
pub struct Scratch(TempDir);

impl Scratch {
    /// A new one in the system's folder for such files.
    pub fn new() -> io::Result<Self> {
        Self::new_in(&std::env::temp_dir())
    }

    /// A new one in `parent`.
    pub fn new_in(parent: &Path) -> io::Result<Self> {
        Self::with_prefix("gpux-", parent)
    }

    /// A new one in `parent` whose name begins with `prefix`.
    pub fn with_prefix(prefix: &str, parent: &Path) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix(prefix).tempdir_in(parent)?;
        scratch(|folders| folders.push(folder.path().to_owned()));
        Ok(Self(folder))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        scratch(|folders| folders.retain(|folder| folder != self.0.path()));
    }
}

fn scratch(change: impl FnOnce(&mut Vec<PathBuf>)) {
    change(&mut SCRATCH.lock().unwrap_or_else(PoisonError::into_inner));
}

/// Ends the process without the exit handlers of native libraries: they free memory that a driver's
/// threads may still use, which would crash the process. Any thread may call it, at any
/// time: it does not wait, not even for a thread that writes to standard output.
pub fn exit(code: u8) -> ! {
    remove_scratch();
    signal_hook::low_level::exit(code.into())
}

/// What cannot be removed stays: that costs room, no more.
fn remove_scratch() {
    if let Ok(folders) = SCRATCH.try_lock() {
        for folder in folders.iter() {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}
