//! A pipeline in another mount namespace, such as a modelcar's: its path leads through `/proc/PID/root`, which a confined
//! process neither sees nor may follow. A descriptor that was opened before stays a way to it.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};
use serde::Serialize;
use serde::de::DeserializeOwned;

use gpux_core::files::{is_behind_proc, resolve_path};

/// The folder of such a pipeline, open as long as this lives.
#[derive(Debug)]
pub(crate) struct ForeignFolder {
    path: PathBuf,
    opened: OwnedFd,
}

impl ForeignFolder {
    /// Opens the folder of the file at `pipeline` if it lies in another mount namespace.
    pub(crate) fn open(pipeline: &Path) -> io::Result<Option<Self>> {
        let folder = pipeline.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // What cannot be resolved is reported when it is loaded.
        if !resolve_path(folder).is_ok_and(|found| is_behind_proc(&found)) {
            return Ok(None);
        }
        let opened = openat(CWD, folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Some(Self { path: folder.to_owned(), opened }))
    }

    /// The folder, for this process alone.
    pub(crate) fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.opened.as_raw_fd()).into()
    }

    /// The message with the path that the server and the user know.
    pub(crate) fn with_known_path<T: Serialize + DeserializeOwned>(&self, message: T) -> T {
        let number = self.opened.as_raw_fd();
        // The number of this process, as that /proc has it.
        let own = Path::new("/proc/self").read_link().unwrap_or_default();
        let names = [Path::new("self"), &own].map(|own| format!("/proc/{}/fd/{number}/", own.display()));
        let replace = || {
            let known = serde_json::to_string(&self.path.join("")).ok()?;
            let text = serde_json::to_string(&message).ok()?;
            let text = names.iter().fold(text, |text, own| text.replace(own, known.trim_matches('"')));
            serde_json::from_str(&text).ok()
        };
        replace().unwrap_or(message)
    }
}
