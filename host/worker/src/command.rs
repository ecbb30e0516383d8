//! How workers are started, and what they find around them.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{PidfdFlags, getpid, pidfd_open};

use crate::channel::ChannelMemory;
use crate::environment_error;
use crate::memory_watch::MemoryWatch;
use gpux::GpuxError;
use gpux_core::files::remove_tree;
use gpux_core::{CacheDir, authenticated_file};

/// How workers are started.
#[derive(Clone, Debug)]
pub struct WorkerCommand {
    /// the `gpux` program
    pub program: PathBuf,
    /// the operator's flags for loading pipelines
    pub arguments: Vec<OsString>,
    /// the variables of this process that they get
    pub environment: Vec<(OsString, OsString)>,
    /// how long after its deadline a request may run before its worker is killed
    pub kill_after: Duration,
    /// bounds the memory of all of them
    pub memory: Arc<MemoryWatch>,
    /// where they write their temporary files, each in a folder of its own
    pub temporary: Arc<TemporaryFiles>,
}

/// The folder of temporary files of all workers, made for the first.
#[derive(Debug, Default)]
pub struct TemporaryFiles(Mutex<Option<TemporaryFolder>>);

impl TemporaryFiles {
    fn make_folder(&self) -> io::Result<TemporaryFolder> {
        let mut root = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Something may clean up what is old there.
        let root = match &mut *root {
            Some(root) if root.0.is_dir() => root,
            root => {
                let mut builder = tempfile::Builder::new();
                builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700));
                root.insert(TemporaryFolder(builder.prefix("gpux-workers-").tempdir()?.keep()))
            }
        };
        Ok(TemporaryFolder(tempfile::tempdir_in(&root.0)?.keep()))
    }

    /// Removes all of them, which the end of the process does not.
    pub fn remove(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// A folder that is removed with this. `TempDir` would follow its depth on the stack.
#[derive(Debug)]
pub(crate) struct TemporaryFolder(PathBuf);

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let _ = remove_tree(&self.0);
    }
}

/// What the environment of such a process is, and where it writes temporary files. Dropped, that folder is removed.
#[derive(Debug)]
pub struct PipelineEnvironment {
    /// every variable
    pub variables: Vec<(OsString, OsString)>,
    pub(crate) temporary: TemporaryFolder,
}

impl WorkerCommand {
    /// Fails if no worker can be started here: the system lacks shared memory, references to processes or a folder for
    /// temporary files, or forbids them.
    pub fn check_support(&self) -> io::Result<()> {
        self.temporary.make_folder()?;
        ChannelMemory::create()?;
        pidfd_open(getpid(), PidfdFlags::empty())?;
        Ok(())
    }

    /// The environment of a process that runs the pipeline: a cache and a folder for temporary files that nobody else
    /// uses, and nothing that it does not need.
    ///
    /// # Errors
    ///
    /// There is no such pipeline, or the folder cannot be made.
    pub fn environment_of(&self, pipeline: &str) -> Result<PipelineEnvironment, GpuxError> {
        let temporary = self.temporary.make_folder().map_err(cannot_start)?;
        let file = gpux::pipeline_file(pipeline)?;
        let mut variables = self.environment.clone();
        // Those that the pipeline does not read may be keys of the server.
        let text = gpux::pipeline_text(pipeline);
        let is_read = |name: &str| !name.starts_with("GPUX_") || name == CacheDir::VARIABLE || text.contains(name);
        variables.retain(|(name, _)| is_read(&name.to_string_lossy()));
        variables.push(("TMPDIR".into(), temporary.0.clone().into()));
        if let Some(cache) = CacheDir::from_environment() {
            let own = cache.of_pipeline(&std::path::absolute(&file).unwrap_or(file));
            variables.push((CacheDir::PIPELINE_VARIABLE.into(), own.into()));
            if let Ok(key) = authenticated_file::public_key(&cache) {
                let digits = key.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
                variables.push((CacheDir::KEY_VARIABLE.into(), digits.into()));
            }
        }
        Ok(PipelineEnvironment { variables, temporary })
    }
}

/// The machine has no process, thread or memory for it.
pub(crate) fn cannot_start(error: io::Error) -> GpuxError {
    environment_error(format!("the process of the pipeline cannot be started: {error}"))
}
