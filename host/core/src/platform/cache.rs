//! The cache directory: compiled components, verified models, engines. All of it can be made again.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use etcetera::BaseStrategy as _;
use serde::{Deserialize, Serialize};

use crate::lossless_path;

/// A folder of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CacheFolder {
    /// records of what components were built from
    Builds,
    /// packages of engines
    Downloads,
    /// engines and plug-ins
    Engines,
    /// models as the engine optimized them
    Optimized,
    /// caches of pipelines that run in processes of their own
    Pipelines,
    /// chosen precisions of models
    Precisions,
    /// what execution providers compile
    Providers,
    /// measured times of models on execution providers
    Rankings,
    /// compiled components
    Steps,
    /// environments of tools that build steps and change models
    Tools,
    /// folders of pipelines that lie in the store
    Unpacked,
    /// models that were tried in a child process
    Verified,
    /// files of running child processes
    Work,
}

impl CacheFolder {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Builds,
        Self::Downloads,
        Self::Engines,
        Self::Optimized,
        Self::Pipelines,
        Self::Precisions,
        Self::Providers,
        Self::Rankings,
        Self::Steps,
        Self::Tools,
        Self::Unpacked,
        Self::Verified,
        Self::Work,
    ];

    /// Its name in the cache.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Builds => "builds",
            Self::Downloads => "downloads",
            Self::Engines => "engines",
            Self::Optimized => "optimized",
            Self::Pipelines => "pipelines",
            Self::Precisions => "precision",
            Self::Providers => "providers",
            Self::Rankings => "fastest",
            Self::Steps => "steps",
            Self::Tools => "tools",
            Self::Unpacked => "unpacked",
            Self::Verified => "verified",
            Self::Work => "work",
        }
    }

    /// What lies in it, for people.
    pub const fn content(self) -> &'static str {
        match self {
            Self::Builds => "what components were built from",
            Self::Downloads => "packages of engines",
            Self::Engines => "engines of `gpux engine install`",
            Self::Optimized => "optimized models",
            Self::Pipelines => "caches of isolated pipelines",
            Self::Precisions => "chosen precisions",
            Self::Providers => "what execution providers compiled",
            Self::Rankings => "measured times of execution providers",
            Self::Steps => "compiled components",
            Self::Tools => "tools that build steps and change models",
            Self::Unpacked => "folders of pipelines in the store",
            Self::Verified => "models that were tried",
            Self::Work => "files of running processes",
        }
    }

    /// Bytes beyond which the least recently used entries are evicted; `None` for what only commands remove.
    pub const fn limit(self) -> Option<u64> {
        match self {
            Self::Steps => Some(1 << 30),
            Self::Optimized | Self::Pipelines | Self::Providers => Some(16 << 30),
            Self::Builds | Self::Precisions | Self::Rankings | Self::Verified => Some(16 << 20),
            Self::Downloads | Self::Engines | Self::Tools | Self::Unpacked | Self::Work => None,
        }
    }

    /// Whether only a command makes its content again: one that installs, or that measures a precision.
    pub const fn is_made_by_command(self) -> bool {
        matches!(self, Self::Downloads | Self::Engines | Self::Precisions | Self::Tools)
    }
}

/// Folders whose entries may hold a tenant's weights or options.
pub(crate) const SHARED_FOLDERS: [CacheFolder; 5] =
    [CacheFolder::Optimized, CacheFolder::Precisions, CacheFolder::Rankings, CacheFolder::Steps, CacheFolder::Verified];

/// Notes which entries of a cache are used. Its copies note in the same place, and all are equal.
#[derive(Clone, Debug, Default)]
pub(crate) struct UsedEntries(Arc<Mutex<BTreeSet<String>>>);

impl PartialEq for UsedEntries {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for UsedEntries {}

impl UsedEntries {
    /// Notes an entry, as `folder/name`.
    pub(crate) fn add(&self, folder: CacheFolder, name: &str) {
        if SHARED_FOLDERS.contains(&folder) {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(format!("{}/{name}", folder.name()));
        }
    }

    pub(crate) fn take(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What verifies the seals of a cache: the public half of an Ed25519 key.
pub type PublicKey = [u8; 32];

/// The operator's cache folder. Only its owner may enter it: what lies there is trusted as code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheDir {
    #[serde(with = "lossless_path")]
    root: PathBuf,
    /// the operator's cache, if this is that of one pipeline
    shared: Option<SharedCache>,
    /// which entries are used, if somebody wants to know
    #[serde(skip)]
    pub(crate) used: Option<UsedEntries>,
}

/// The operator's cache, as the process of one pipeline sees it: it can be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedCache {
    #[serde(with = "lossless_path")]
    root: PathBuf,
    pub(crate) public_key: Option<PublicKey>,
}

impl SharedCache {
    /// The cache's own folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The path of a folder that only its owner may write to.
    pub fn trusted_path(&self, folder: CacheFolder) -> Option<PathBuf> {
        let path = self.path(folder);
        check_owner(&self.root).and_then(|()| check_owner(&path)).ok().map(|()| path)
    }

    /// The path of a folder, which may not be there.
    pub fn path(&self, folder: CacheFolder) -> PathBuf {
        self.root.join(folder.name())
    }
}

/// The first line is the standard's.
const TAG_TEXT: &str = "Signature: 8a477f597d28d172789f06886806bc55\n# The cache of gpux, which can be made again.\n";
/// Free bytes that a cache folder must have.
const MIN_FREE_DISK: usize = 64 << 10;

impl CacheDir {
    /// The variable that moves the cache.
    pub const VARIABLE: &str = "GPUX_CACHE_DIR";

    /// `$GPUX_CACHE_DIR`, else `gpux` in the platform's cache folder (`~/.cache` on Linux). `None` on a machine without
    /// a home.
    pub fn from_environment() -> Option<Self> {
        let named = std::env::var_os(Self::VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
        named.or_else(Self::default_root).map(Self::at)
    }

    /// A cache at this path, which need not exist.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), shared: None, used: None }
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether files can be written in it; makes the folder if it is not there.
    pub fn check(&self) -> std::io::Result<()> {
        // The embedded engine takes no other.
        if std::path::absolute(&self.root)?.to_str().is_none() {
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidFilename, "its path is not UTF-8"));
        }
        // A disk that is full takes files, as long as they are empty.
        tempfile::tempfile_in(self.make_root()?)?.write_all(&vec![0; MIN_FREE_DISK])
    }
}

/// For gpux itself.
#[doc(hidden)]
impl CacheDir {
    /// The file that marks a cache, so that backups leave it out: <https://bford.info/cachedir/>
    pub const TAG: &str = "CACHEDIR.TAG";

    fn default_root() -> Option<PathBuf> {
        Some(etcetera::choose_base_strategy().ok()?.cache_dir().join("gpux"))
    }

    /// A cache at `root` that reads in `shared` what it lacks, if it knows that cache's key; and has its engines.
    pub fn within(shared: &Self, root: PathBuf, public_key: Option<PublicKey>) -> Self {
        Self { root, shared: Some(SharedCache { root: shared.root.clone(), public_key }), used: None }
    }

    /// The operator's cache, if this is that of one pipeline.
    pub const fn shared(&self) -> Option<&SharedCache> {
        self.shared.as_ref()
    }

    /// The folder for the own cache of the pipeline at `path`. Evicts those that were not used for longest.
    pub fn of_pipeline(&self, path: &Path) -> PathBuf {
        let name = Self::pipeline_name(path);
        self.touch_and_evict(CacheFolder::Pipelines, &name);
        self.path(CacheFolder::Pipelines).join(name)
    }

    /// A name for the pipeline at `path` in the cache.
    pub(crate) fn pipeline_name(path: &Path) -> String {
        let digest = ring::digest::digest(&ring::digest::SHA256, path.as_os_str().as_encoded_bytes());
        let start = digest.as_ref().first_chunk().copied().unwrap_or_default();
        format!("{:032x}", u128::from_be_bytes(start))
    }

    /// This cache, whose copies note from now on which entries they use; see [`Self::record_entries`].
    #[must_use]
    pub fn noting_use(self) -> Self {
        Self { used: Some(UsedEntries::default()), ..self }
    }

    /// Notes that an entry is used.
    pub fn note_use(&self, folder: CacheFolder, entry: &str) {
        if let Some(used) = &self.used {
            used.add(folder, entry);
        }
    }

    /// The path of a folder, which may not be there.
    pub fn path(&self, folder: CacheFolder) -> PathBuf {
        match &self.shared {
            Some(shared) if folder == CacheFolder::Engines => shared.path(folder),
            _ => self.root.join(folder.name()),
        }
    }

    /// The path of a folder whose content is run as code.
    ///
    /// # Errors
    ///
    /// It is not there, or others may write to it or to the cache.
    pub fn trusted_path(&self, folder: CacheFolder) -> std::io::Result<PathBuf> {
        let path = self.path(folder);
        check_owner(path.parent().unwrap_or(&self.root))?;
        check_owner(&path).map(|()| path)
    }

    /// A folder of the cache, made (with its parents, mode 0700) if it is not there.
    pub fn folder(&self, folder: CacheFolder) -> std::io::Result<PathBuf> {
        self.make(self.path(folder))
    }

    /// The cache's own folder, made if it is not there.
    pub fn make_root(&self) -> std::io::Result<PathBuf> {
        self.make(self.root.clone())
    }

    /// Whether it has [`Self::TAG`]: a folder that held other things before gpux used it has none, and what lies there
    /// is never evicted.
    pub fn is_tagged(&self) -> bool {
        self.root.join(Self::TAG).is_file()
    }

    fn make(&self, path: PathBuf) -> std::io::Result<PathBuf> {
        let is_own = self.is_own();
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&path)?;
        check_owner(&self.root)?;
        check_owner(&path)?;
        if let Some(shared) = self.shared.as_ref().filter(|shared| shared.root.exists()) {
            check_owner(&shared.root)?;
        }
        if is_own {
            // A cache that is only read needs none.
            let made = File::create_new(self.root.join(Self::TAG));
            let _ = made.and_then(|mut file| file.write_all(TAG_TEXT.as_bytes()));
        }
        Ok(path)
    }

    /// Whether the root has no tag yet, and is there for gpux alone: by its name, or because it is empty.
    fn is_own(&self) -> bool {
        if Self::default_root().is_some_and(|root| root == self.root) {
            return !self.is_tagged();
        }
        let Ok(mut entries) = self.root.read_dir() else { return true };
        entries.all(|entry| entry.is_ok_and(|entry| entry.file_name() == "lost+found"))
    }

    /// Marks `entry` of a folder as used now.
    pub fn touch(&self, folder: CacheFolder, entry: &str) {
        let path = self.path(folder).join(entry);
        let mut options = File::options();
        // What lies in the place of a file may be a pipe, which would wait for another process.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::custom_flags(
            &mut options,
            rustix::fs::OFlags::NONBLOCK.bits().cast_signed(),
        );
        // Windows wants the right to write; a folder cannot be opened for it.
        let opened = options.clone().append(true).open(&path).or_else(|_| options.read(true).open(&path));
        let _ = opened.and_then(|entry| entry.set_modified(SystemTime::now()));
    }

    /// Marks `entry` of a folder as used now, and evicts the least recently used entries of that folder until the rest
    /// keeps to its limit. This entry is never evicted. Entries that cannot be removed stay.
    pub fn touch_and_evict(&self, folder: CacheFolder, entry: &str) {
        self.touch(folder, entry);
        self.evict(folder, entry, folder.limit().unwrap_or(u64::MAX));
    }

    fn evict(&self, folder: CacheFolder, kept: &str, limit: u64) {
        if !self.is_tagged() {
            return;
        }
        // One that takes more than half goes alone, and counts as half where it is kept: others stay.
        let (mut left, half) = (limit, limit / 2);
        for entry in self.entries(folder) {
            let stays = entry.path.file_name() == Some(kept.as_ref()) || entry.bytes <= left.min(half);
            if stays {
                left = left.saturating_sub(entry.bytes.min(half));
            } else {
                left = if entry.bytes > half { left } else { 0 };
                let _ = entry.remove();
            }
        }
    }

    /// What lies in a folder, the last used first. A link in the place of the folder is not followed.
    pub fn entries(&self, folder: CacheFolder) -> Vec<CacheEntry> {
        let path = self.path(folder);
        let is_folder = path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir());
        let entries = is_folder.then(|| path.read_dir().ok()).flatten().into_iter().flatten().flatten();
        let mut entries: Vec<_> = entries.filter_map(|entry| CacheEntry::read(entry.path())).collect();
        entries.sort_by(|a, b| b.used.cmp(&a.used).then_with(|| a.path.cmp(&b.path)));
        entries
    }
}

/// Fails if others may write to the folder.
fn check_owner(folder: &Path) -> std::io::Result<()> {
    let metadata = folder.metadata()?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let owner = metadata.uid();
        let others = owner != 0 && owner != rustix::process::geteuid().as_raw();
        if others || metadata.mode() & 0o022 != 0 {
            let message = format!("others may write to `{}`, and what lies there is run as code", folder.display());
            return Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, message));
        }
    }
    #[cfg(not(unix))]
    let _ = metadata;
    Ok(())
}

/// A file or a folder in a folder of the cache.
#[derive(Clone, Debug)]
pub struct CacheEntry {
    /// where it lies
    pub path: PathBuf,
    /// what it takes, with what is in it
    pub bytes: u64,
    /// when it was last used
    pub used: SystemTime,
}

impl CacheEntry {
    fn read(path: PathBuf) -> Option<Self> {
        // A time of the future would keep it for ever.
        let used = path.symlink_metadata().ok()?.modified().ok()?.min(SystemTime::now());
        Some(Self { bytes: size(&path, &mut { MAX_FILES }), path, used })
    }

    /// Removes it; a link is removed, not what it leads to.
    pub fn remove(&self) -> std::io::Result<()> {
        if self.path.symlink_metadata()?.is_dir() {
            crate::platform::files::remove_tree(&self.path)
        } else {
            std::fs::remove_file(&self.path)
        }
    }
}

/// The most files of an entry that are counted.
const MAX_FILES: usize = 10_000;

/// Bytes of a file, or of all files in a folder, in whole blocks, but of at most `files` files; links are not followed.
fn size(path: &Path, files: &mut usize) -> u64 {
    let Some(left) = files.checked_sub(1) else { return 0 };
    *files = left;
    let Ok(metadata) = path.symlink_metadata() else { return 0 };
    if !metadata.is_dir() {
        return blocks(&metadata);
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut bytes = 0_u64;
    for entry in entries {
        bytes = bytes.saturating_add(size(&entry.path(), files));
        if *files == 0 {
            break;
        }
    }
    bytes
}

/// Bytes of a file on the disk: none for the holes in it.
#[cfg(unix)]
fn blocks(metadata: &std::fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(metadata).saturating_mul(512)
}

/// Bytes of a file, in whole blocks.
#[cfg(not(unix))]
fn blocks(metadata: &std::fs::Metadata) -> u64 {
    const BLOCK: u64 = 4096;
    metadata.len().next_multiple_of(BLOCK)
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn one_entry_does_not_evict_others() {
        let parent = tempfile::tempdir().unwrap();
        let cache = CacheDir::at(parent.path());
        let folder = cache.folder(CacheFolder::Steps).unwrap();
        let now = SystemTime::now();
        let put = |name: &str, bytes: usize, sparse: u64, age: i64| {
            std::fs::create_dir(folder.join(name)).unwrap();
            let file = File::create(folder.join(name).join("file")).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, &vec![1; bytes], 0).unwrap();
            file.set_len(sparse.max(bytes as u64)).unwrap();
            let age = std::time::Duration::from_secs(age.unsigned_abs());
            let used = if name == "future" { now + age } else { now - age };
            File::open(folder.join(name)).unwrap().set_modified(used).unwrap();
        };
        let names = || {
            let entries = cache.entries(CacheFolder::Steps);
            entries.iter().map(|entry| entry.path.file_name().unwrap().to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        put("future", 100, 0, 1000);
        put("large", 200_000, 0, 2);
        put("sparse", 100, 1 << 34, 3);
        put("old", 100, 0, 5);
        cache.evict(CacheFolder::Steps, "none", 100_000);
        assert_eq!(names(), ["future", "sparse", "old"]);
        assert!(cache.entries(CacheFolder::Steps)[0].used <= SystemTime::now());
        put("kept", 200_000, 0, 1);
        cache.evict(CacheFolder::Steps, "kept", 100_000);
        assert_eq!(names(), ["future", "kept", "sparse", "old"]);
        for number in 0..2 * MAX_FILES {
            File::create(folder.join("old").join(number.to_string())).unwrap();
        }
        let mut files = MAX_FILES;
        size(&folder.join("old"), &mut files);
        assert_eq!(files, 0, "the rest is not counted");
    }

    #[test]
    fn a_pipe_in_the_place_of_a_file_is_not_waited_for() {
        let parent = tempfile::tempdir().unwrap();
        let cache = CacheDir::at(parent.path());
        let pipe = cache.folder(CacheFolder::Builds).unwrap().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        cache.touch(CacheFolder::Builds, "pipe");
        assert!(crate::platform::files::read_file(&pipe).is_err());
        assert_eq!(crate::platform::files::read_head(&pipe, 1), None);
        crate::authenticated_file::write(&cache, CacheFolder::Builds, "pipe", b"content").unwrap();
        assert_eq!(crate::authenticated_file::read(&cache, CacheFolder::Builds, "pipe").unwrap(), b"content");
    }

    #[test]
    fn evicts_least_recently_used_first() {
        let parent = tempfile::tempdir().unwrap();
        let cache = CacheDir::at(parent.path());
        let folder = cache.folder(CacheFolder::Steps).unwrap();
        let now = SystemTime::now();
        for (name, age) in [("a", 9), ("b", 7), ("c", 5), ("d", 3)] {
            std::fs::create_dir(folder.join(name)).unwrap();
            std::fs::write(folder.join(name).join("file"), [0; 100]).unwrap();
            let entry = File::open(folder.join(name)).unwrap();
            entry.set_modified(now - std::time::Duration::from_secs(age)).unwrap();
        }
        let there = || ["a", "b", "c", "d"].map(|name| folder.join(name).exists());
        cache.touch(CacheFolder::Steps, "b");
        cache.evict(CacheFolder::Steps, "b", 4 << 12);
        assert_eq!(there(), [true; 4], "there is room");
        cache.touch(CacheFolder::Steps, "d");
        cache.evict(CacheFolder::Steps, "d", 2 << 12);
        assert_eq!(there(), [false, true, false, true], "`b` was used after `c`");
        cache.evict(CacheFolder::Steps, "b", 0);
        assert_eq!(there(), [false, true, false, false], "what is in use stays");
        cache.touch_and_evict(CacheFolder::Optimized, "b");
    }

    #[test]
    fn evicts_nothing_of_others() {
        let parent = tempfile::tempdir().unwrap();
        let theirs = parent.path().join("builds");
        std::fs::create_dir(&theirs).unwrap();
        std::fs::write(theirs.join("large"), vec![0; 17 << 20]).unwrap();
        let cache = CacheDir::at(parent.path());
        cache.folder(CacheFolder::Builds).unwrap();
        cache.touch_and_evict(CacheFolder::Builds, "other");
        assert!(!cache.is_tagged() && theirs.join("large").exists());

        std::os::unix::fs::symlink(&theirs, parent.path().join("steps")).unwrap();
        assert!(cache.entries(CacheFolder::Steps).is_empty(), "a link");
        let own = CacheDir::at(parent.path().join("own"));
        own.folder(CacheFolder::Builds).unwrap();
        assert!(own.is_tagged());
    }

    #[test]
    fn rejects_folders_writable_by_others() {
        let parent = tempfile::tempdir().unwrap();
        let cache = CacheDir::at(parent.path().join("cache"));
        let folder = cache.folder(CacheFolder::Steps).unwrap();
        assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        cache.check().unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(cache.folder(CacheFolder::Steps).unwrap_err().to_string().contains("others may write"));
        // The owner of a folder can write to it at any time. Only root can change the owner.
        let given = CacheDir::at(parent.path().join("given"));
        if std::os::unix::fs::chown(given.make_root().unwrap(), Some(65_534), None).is_ok() {
            assert!(given.make_root().unwrap_err().to_string().contains("others may write"));
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn rejects_paths_that_are_not_utf8() {
        use std::os::unix::ffi::OsStrExt as _;

        let parent = tempfile::tempdir().unwrap();
        let cache = CacheDir::at(parent.path().join(std::ffi::OsStr::from_bytes(b"caf\xe9")));
        assert!(cache.check().unwrap_err().to_string().contains("not UTF-8"));
    }
}
