//! The cache directory: compiled components, verified models, engines. All of it can be made again.

use std::fs::{DirEntry, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use etcetera::BaseStrategy as _;

/// The operator's cache folder. Only its owner may enter it: what lies there is trusted as code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheDir {
    root: PathBuf,
}

/// Free bytes that a cache folder must have.
const MIN_FREE_DISK: usize = 64 << 10;

impl CacheDir {
    /// The variable that moves the cache.
    pub const VARIABLE: &str = "GPUX_CACHE_DIR";

    /// `$GPUX_CACHE_DIR`, else `gpux` in the platform's cache folder (`~/.cache` on Linux).
    /// `None` on a machine without a home.
    pub fn from_environment() -> Option<Self> {
        let named = std::env::var_os(Self::VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
        let platform = || Some(etcetera::choose_base_strategy().ok()?.cache_dir().join("gpux"));
        named.or_else(platform).map(Self::at)
    }

    /// A cache at this path, which need not exist.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
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
        tempfile::tempfile_in(self.folder("")?)?.write_all(&vec![0; MIN_FREE_DISK])
    }

    /// The folder `name` of the cache, made (with its parents, mode 0700) if it is not there.
    pub fn folder(&self, name: &str) -> std::io::Result<PathBuf> {
        let path = self.root.join(name);
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&path)?;
        #[cfg(unix)]
        for folder in [&self.root, &path] {
            use std::os::unix::fs::MetadataExt as _;
            let metadata = folder.metadata()?;
            let owner = metadata.uid();
            let others = owner != 0 && owner != rustix::process::geteuid().as_raw();
            if others || metadata.mode() & 0o022 != 0 {
                let message = format!("others may write to `{}`, and what lies there is run as code", folder.display());
                return Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, message));
            }
        }
        Ok(path)
    }

    /// Marks `entry` of the folder `name` as used now, and evicts the least recently used entries of that folder
    /// until the rest takes at most `limit` bytes. This entry is never evicted.
    /// Entries that cannot be removed stay.
    pub fn touch_and_evict(&self, name: &str, entry: &str, limit: u64) {
        let folder = self.root.join(name);
        let _ = File::open(folder.join(entry)).and_then(|entry| entry.set_modified(SystemTime::now()));
        let Ok(entries) = std::fs::read_dir(&folder) else { return };
        let mut entries: Vec<_> = entries.flatten().filter_map(|entry| Some((age(&entry)?, entry.path()))).collect();
        entries.sort();
        let mut left = limit;
        for (_, path) in entries.into_iter().rev() {
            let size = size(&path);
            let stays = path.file_name() == Some(entry.as_ref()) || size <= left;
            left = if stays { left.saturating_sub(size) } else { 0 };
            if !stays {
                let _ = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
            }
        }
    }
}

/// When an entry was last used.
fn age(entry: &DirEntry) -> Option<SystemTime> {
    entry.metadata().ok()?.modified().ok()
}

/// Bytes of a file, or of all files in a folder; links are not followed.
fn size(path: &Path) -> u64 {
    let Ok(metadata) = path.symlink_metadata() else { return 0 };
    let inside =
        || std::fs::read_dir(path).ok().map(|entries| entries.flatten().map(|entry| size(&entry.path())).sum());
    if metadata.is_dir() { inside().unwrap_or(0) } else { metadata.len() }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn evicts_least_recently_used_first() {
        let parent = tempfile::tempdir().unwrap();
        let cache = CacheDir::at(parent.path());
        let folder = cache.folder("kept").unwrap();
        let now = SystemTime::now();
        for (name, age) in [("a", 9), ("b", 7), ("c", 5), ("d", 3)] {
            std::fs::create_dir(folder.join(name)).unwrap();
            std::fs::write(folder.join(name).join("file"), [0; 100]).unwrap();
            let entry = File::open(folder.join(name)).unwrap();
            entry.set_modified(now - std::time::Duration::from_secs(age)).unwrap();
        }
        let there = || ["a", "b", "c", "d"].map(|name| folder.join(name).exists());
        cache.touch_and_evict("kept", "b", 400);
        assert_eq!(there(), [true; 4], "there is room");
        cache.touch_and_evict("kept", "d", 250);
        assert_eq!(there(), [false, true, false, true], "`b` was used after `c`");
        cache.touch_and_evict("kept", "b", 0);
        assert_eq!(there(), [false, true, false, false], "what is in use stays");
        cache.touch_and_evict("none", "b", 0);
    }

    #[test]
    fn rejects_folders_writable_by_others() {
        let parent = tempfile::tempdir().unwrap();
        let cache = CacheDir::at(parent.path().join("cache"));
        let folder = cache.folder("wasmtime").unwrap();
        assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        cache.check().unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(cache.folder("wasmtime").unwrap_err().to_string().contains("others may write"));
        // The owner of a folder can write to it at any time. Only root can change the owner.
        let given = CacheDir::at(parent.path().join("given"));
        if std::os::unix::fs::chown(given.folder("").unwrap(), Some(65_534), None).is_ok() {
            assert!(given.folder("").unwrap_err().to_string().contains("others may write"));
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
