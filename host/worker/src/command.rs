//! How workers are started, and what they find around them.

use std::ffi::OsString;
use std::fs::{DirBuilder, File, Metadata};
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags};
use rustix::process::{PidfdFlags, geteuid, getpid, pidfd_open};

use crate::channel::ChannelMemory;
use crate::environment_error;
use crate::memory_watch::MemoryWatch;
use crate::process::WorkerOptions;
use crate::templates::{Environment, Templates};
use gpux::GpuxError;
use gpux::internal::Definition;
use gpux_core::files::remove_tree;
use gpux_core::{CacheDir, authenticated_file};

/// How workers are started.
#[derive(Clone, Debug)]
pub struct WorkerCommand {
    /// the `gpux` program
    pub program: PathBuf,
    /// how they load their pipelines
    pub options: WorkerOptions,
    /// the variables of this process that they get
    pub environment: Vec<(OsString, OsString)>,
    /// how long a worker may take until its pipeline is warm
    pub load_timeout: Duration,
    /// how long after its deadline a request may run before its worker is killed
    pub kill_after: Duration,
    /// bounds the memory of all of them
    pub memory: Arc<MemoryWatch>,
    /// where they write their temporary files, each in a folder of its own
    pub temporary: Arc<TemporaryFiles>,
    /// the processes that they are copied from, which costs less time and memory; `None`: each is started anew, with an
    /// address layout of its own
    pub templates: Option<Arc<Templates>>,
    /// whether it was said that the system lacks namespaces for them
    pub has_reported_namespaces: Arc<AtomicBool>,
}

/// The folder of temporary files of all workers, made for the first.
#[derive(Debug, Default)]
pub struct TemporaryFiles {
    root: Mutex<Option<TemporaryRoot>>,
    /// where it is made; `None`: under a name of its own
    path: Option<PathBuf>,
}

impl TemporaryFiles {
    /// Files in the folder `path`, which is made when it is needed.
    pub fn at(path: PathBuf) -> Self {
        Self { root: Mutex::default(), path: Some(path) }
    }

    fn make_folder(&self) -> io::Result<TemporaryFolder> {
        let mut root = self.root.lock().unwrap_or_else(PoisonError::into_inner);
        // Something may clean up what is old there.
        let root = match &mut *root {
            Some(root) if root.folder.0.is_dir() => root,
            root => root.insert(self.make_root()?),
        };
        Ok(TemporaryFolder(tempfile::tempdir_in(&root.folder.0)?.keep()))
    }

    fn make_root(&self) -> io::Result<TemporaryRoot> {
        const ONLY_OWN: u32 = 0o700;
        let path = self.path.clone().unwrap_or_else(|| {
            let random = RandomState::new().hash_one(std::process::id());
            std::env::temp_dir().join(format!("{FOLDER_PREFIX}{random:016x}"))
        });
        let failed = |error: &io::Error| {
            let shown = path.display();
            let reason = format!("`{shown}`, for temporary files, cannot be made: {error}; TMPDIR moves it");
            io::Error::new(error.kind(), reason)
        };
        path.parent().into_iter().for_each(remove_abandoned);
        let make = || {
            DirBuilder::new().mode(ONLY_OWN).create(&path)?;
            let lock = lock_folder(&path)?;
            Ok::<_, io::Error>(TemporaryRoot { folder: TemporaryFolder(path.clone()), lock })
        };
        // Another server that starts now may take one that is not locked yet for abandoned, and remove it.
        let mut made = make();
        for _ in 0..ATTEMPTS {
            match made {
                Ok(root) if root.is_there() => return Ok(root),
                Err(error) if !RACES.contains(&error.kind()) => return Err(failed(&error)),
                Ok(_) | Err(_) => std::thread::sleep(PAUSE),
            }
            made = make();
        }
        made.map_err(|error| failed(&error))
    }

    /// Removes all of them, which the end of the process does not.
    pub fn remove(&self) {
        self.root.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// How often the folder is made, if other servers remove it.
const ATTEMPTS: usize = 10;

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(5);

/// What it comes to meanwhile.
const RACES: [io::ErrorKind; 3] = [io::ErrorKind::AlreadyExists, io::ErrorKind::NotFound, io::ErrorKind::WouldBlock];

/// How the names of such folders begin, also those that the supervisor names.
const FOLDER_PREFIX: &str = "gpux-workers-";

/// The folder of a server, locked as long as the server lives.
#[derive(Debug)]
struct TemporaryRoot {
    folder: TemporaryFolder,
    lock: File,
}

impl TemporaryRoot {
    /// Whether the locked folder is the one at its path.
    fn is_there(&self) -> bool {
        let identity = |metadata: Metadata| (metadata.dev(), metadata.ino());
        let locked = self.lock.metadata().map(identity).ok();
        locked.is_some() && locked == self.folder.0.symlink_metadata().map(identity).ok()
    }
}

/// Locks a folder of this user for this process; fails if another has it.
fn lock_folder(path: &Path) -> io::Result<File> {
    let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits().cast_signed();
    let folder = File::options().read(true).custom_flags(flags).open(path)?;
    if folder.metadata()?.uid() != geteuid().as_raw() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive)?;
    Ok(folder)
}

/// Removes the folders of servers that were killed with their supervisors: nobody holds their locks.
fn remove_abandoned(within: &Path) {
    for entry in within.read_dir().into_iter().flatten().flatten() {
        let is_one = entry.file_name().as_encoded_bytes().starts_with(FOLDER_PREFIX.as_bytes());
        if is_one && let Ok(_lock) = lock_folder(&entry.path()) {
            let _ = remove_tree(&entry.path());
        }
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

/// What such a process finds, and where it writes temporary files. Dropped, that folder is removed.
#[derive(Debug)]
pub struct PipelineEnvironment {
    /// every variable
    pub variables: Vec<(OsString, OsString)>,
    /// how it loads the pipeline: with a cache of its own
    pub options: WorkerOptions,
    pub(crate) temporary: TemporaryFolder,
}

impl WorkerCommand {
    /// The variables that every worker gets, whatever its pipeline may read: none that the operator names for some.
    pub(crate) fn shared_environment(&self) -> Environment {
        let policy = &self.options.load_options.policy;
        let named = policy.env.iter().chain(&policy.grants.env);
        let named: Vec<_> = named.cloned().collect();
        let is_shared = |(name, _): &&(OsString, OsString)| {
            let name = name.to_string_lossy();
            !name.starts_with("GPUX_") && !named.iter().any(|named| *named == name)
        };
        self.environment.iter().filter(is_shared).cloned().collect()
    }

    /// Fails if no worker can be started here: the system lacks shared memory, references to processes or a folder for
    /// temporary files, or forbids them.
    pub fn check_support(&self) -> io::Result<()> {
        self.temporary.make_folder()?;
        ChannelMemory::create()?;
        pidfd_open(getpid(), PidfdFlags::empty())?;
        Ok(())
    }

    /// What a process that runs the pipeline finds: a cache and a folder for temporary files that nobody else
    /// uses, and nothing that it does not need.
    ///
    /// # Errors
    ///
    /// The folder cannot be made.
    pub fn environment_of(&self, definition: &Definition) -> Result<PipelineEnvironment, GpuxError> {
        let temporary = self.temporary.make_folder().map_err(cannot_start)?;
        let mut variables = self.environment.clone();
        // Those that the pipeline does not read may be keys of the server.
        let text = definition.text();
        let is_read = |name: &str| !name.starts_with("GPUX_") || name == CacheDir::VARIABLE || text.contains(name);
        variables.retain(|(name, _)| is_read(&name.to_string_lossy()));
        variables.push(("TMPDIR".into(), temporary.0.clone().into()));
        let mut options = self.options.clone();
        options.load_options.cache = options.load_options.cache.map(|cache| {
            let file = definition.source().path();
            let own = cache.of_pipeline(&std::path::absolute(file).unwrap_or_else(|_| file.to_owned()));
            CacheDir::within(&cache, own, authenticated_file::public_key(&cache).ok())
        });
        Ok(PipelineEnvironment { variables, options, temporary })
    }
}

/// The machine has no process, thread or memory for it.
pub(crate) fn cannot_start(error: io::Error) -> GpuxError {
    environment_error(format!("the process of the pipeline cannot be started: {error}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn removes_folders_of_servers_that_are_gone() {
        let folder = tempfile::tempdir().unwrap();
        let root = |name: &str| folder.path().join(format!("{FOLDER_PREFIX}{name}"));
        let living = TemporaryFiles::at(root("living"));
        let own = living.make_folder().unwrap();
        for name in ["killed", "other"] {
            std::fs::create_dir_all(root(name).join("sub")).unwrap();
        }
        std::fs::rename(root("other"), folder.path().join("other")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("other"), root("link")).unwrap();
        let next = TemporaryFiles::at(root("next"));
        let _next = next.make_folder().unwrap();
        assert!(own.0.is_dir() && root("next").is_dir());
        assert!(!root("killed").exists());
        assert!(folder.path().join("other/sub").is_dir() && root("link").is_symlink());
        drop(own);
        living.remove();
        assert!(!root("living").exists());
    }
}
