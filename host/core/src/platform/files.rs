//! Files that are written whole, and what tells them and their contents apart.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

pub use super::resolved_path::{explain_proc_link, is_behind_proc, lies_in, resolve_path};
use crate::spelling::misspelled;

/// What tells one version of a file from another: when it was written, how long it is, and which it is; or that
/// there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileVersion(Option<(SystemTime, u64, u64)>);

/// Files, as they were.
pub type FileVersions = BTreeMap<PathBuf, FileVersion>;

impl FileVersion {
    /// The version of the current file. Follows links: a new target is a new version.
    pub fn of(path: &Path) -> Self {
        Self(path.metadata().ok().map(|metadata| {
            #[cfg(unix)]
            let inode = std::os::unix::fs::MetadataExt::ino(&metadata);
            #[cfg(not(unix))]
            let inode = 0;
            (metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH), metadata.len(), inode)
        }))
    }
}

/// The most entries of a folder that are compared with a name.
const MAX_COMPARED: usize = 1000;

/// `path` with the name in its folder that is the most like its own; `None` if there is a file of its own name.
pub fn similar_file(path: &Path) -> Option<String> {
    // A link that leads nowhere has its name, too.
    if path.symlink_metadata().is_ok() {
        return None;
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let names = folder.read_dir().ok()?.take(MAX_COMPARED).flatten();
    let names: Vec<_> = names.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let similar = misspelled(path.file_name()?.to_str()?, names.iter().map(String::as_str))?;
    Some(path.with_file_name(similar).display().to_string())
}

/// The first bytes of a regular file, at most `limit`; `None` if there is none that can be read.
pub fn read_head(path: &Path, limit: usize) -> Option<Vec<u8>> {
    use std::io::Read as _;

    let mut head = Vec::new();
    open_file(path, "it").ok()?.take(limit as u64).read_to_end(&mut head).ok()?;
    Some(head)
}

/// The bytes of a regular file.
pub fn read_file(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read as _;

    let mut bytes = Vec::new();
    open_file(path, "it")?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens `what` if it is a regular file: opening a pipe would block until another process writes to it.
pub fn open_file(path: &Path, what: &str) -> std::io::Result<File> {
    // Merely opening a device may do something; and the path may lead elsewhere by the time it is opened.
    if path.metadata()?.is_file() {
        let mut options = File::options();
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::custom_flags(
            &mut options,
            rustix::fs::OFlags::NONBLOCK.bits().cast_signed(),
        );
        let file = options.read(true).open(path)?;
        if file.metadata()?.is_file() {
            return Ok(file);
        }
    }
    Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, format!("{what} is a file, and this is not one")))
}

/// Opens the file or folder at `path`, which [`resolve_path`] returned, without following links, except those of procfs,
/// which nobody swaps: checks of the path hold for the opened file, even if a folder is swapped for a link meanwhile. It
/// never waits for the other end of a pipe.
#[cfg(unix)]
pub fn open_canonical(path: &Path) -> std::io::Result<File> {
    #[cfg(target_os = "linux")]
    use rustix::fs::PROC_SUPER_MAGIC;
    use rustix::fs::{CWD, Mode, OFlags, openat};
    // To pass through a folder takes no right to list it, where the system can be told so.
    #[cfg(target_os = "linux")]
    let passing = OFlags::PATH;
    #[cfg(not(target_os = "linux"))]
    let passing = OFlags::RDONLY;
    let open = |folder: &dyn std::os::fd::AsFd, name: &std::ffi::OsStr, flags| {
        let opened = openat(folder.as_fd(), name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
        #[cfg(target_os = "linux")]
        if opened.is_err() && rustix::fs::fstatfs(folder).is_ok_and(|found| found.f_type == PROC_SUPER_MAGIC) {
            return openat(folder.as_fd(), name, flags | OFlags::CLOEXEC, Mode::empty());
        }
        opened
    };
    let passing = passing | OFlags::DIRECTORY;
    let opening = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let Some((parent, name)) = path.parent().zip(path.file_name()) else { return File::open(path) };
    let mut folder = open(&CWD, "/".as_ref(), passing)?;
    for component in parent.components() {
        if let std::path::Component::Normal(name) = component {
            folder = open(&folder, name, passing)?;
        }
    }
    Ok(open(&folder, name, opening)?.into())
}

/// The same where nothing can be opened relative to a folder.
#[cfg(windows)]
pub fn open_canonical(path: &Path) -> std::io::Result<File> {
    /// `FILE_FLAG_BACKUP_SEMANTICS`, without which no folder is opened.
    const FOLDERS: u32 = 0x0200_0000;
    let mut options = File::options();
    std::os::windows::fs::OpenOptionsExt::custom_flags(&mut options, FOLDERS);
    options.read(true).open(path)
}

/// Identifies an open file or folder: device and inode number. On systems other than Unix,
/// all are equal.
pub fn identity(file: &File) -> std::io::Result<(u64, u64)> {
    let metadata = file.metadata()?;
    #[cfg(unix)]
    let identity = (std::os::unix::fs::MetadataExt::dev(&metadata), std::os::unix::fs::MetadataExt::ino(&metadata));
    #[cfg(not(unix))]
    let identity = (0, u64::from(metadata.is_dir()));
    Ok(identity)
}

/// Whether two paths lead to one file, by whichever links; elsewhere than on Unix, hard links are not seen.
pub fn is_same(one: &Path, other: &Path) -> bool {
    #[cfg(unix)]
    let identity = |path: &Path| {
        use std::os::unix::fs::MetadataExt as _;
        path.metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()))
    };
    #[cfg(not(unix))]
    let identity = |path: &Path| path.canonicalize().ok();
    identity(one).is_some_and(|one| identity(other) == Some(one))
}

/// Read permission of a new file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ReadAccess {
    /// its owner alone
    Owner,
    /// the user's default
    Usual,
}

/// Writes a file atomically, also if other processes write it and if the
/// machine fails. Creates the folder if it is missing. Keeps the permissions of an existing file. A file for its owner
/// replaces whatever lies there, also a pipe.
pub fn write_whole(path: &Path, bytes: &[u8], readers: ReadAccess) -> std::io::Result<()> {
    write_parts(path, &[bytes], readers)
}

/// The same of bytes that lie in several places.
pub(crate) fn write_parts(path: &Path, parts: &[&[u8]], readers: ReadAccess) -> std::io::Result<()> {
    // Replaces the target of a link; the link stays.
    let path = &resolve_path(path).unwrap_or_else(|_| path.to_owned());
    let before = path.metadata().ok();
    let is_other = before.as_ref().is_some_and(|before| !before.is_file() && !before.is_dir());
    if readers == ReadAccess::Usual && (is_other || (before.is_none() && path.is_symlink())) {
        // A device or a pipe that the user names is written to, and so is where a link leads to nothing.
        let mut file = File::options().write(true).create(true).truncate(false).open(path)?;
        return parts.iter().try_for_each(|part| file.write_all(part));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    if readers == ReadAccess::Usual {
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    }
    let mut draft = builder.prefix(".gpux-").tempfile_in(folder).map_err(|error| without_path(&error))?;
    if let Some(before) = before.filter(|_| readers == ReadAccess::Usual) {
        // Not every file system has any.
        let _ = draft.as_file().set_permissions(before.permissions());
    }
    parts.iter().try_for_each(|part| draft.write_all(part))?;
    draft.as_file().sync_all()?;
    draft.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Free bytes that a usable folder has.
const ROOM: usize = 64 << 10;

/// Whether files can be written in a folder: there is room, quota and leave. Where something has failed that writes
/// there, this tells the disk's fault from its own.
pub fn check_room(folder: &Path) -> std::io::Result<()> {
    // A disk that is full takes files, as long as they are empty.
    tempfile::tempfile_in(folder).map_err(|error| without_path(&error))?.write_all(&vec![0; ROOM])
}

/// The system's reason without the path, which names a temporary file that the user does not know.
pub fn without_path(error: &std::io::Error) -> std::io::Error {
    // tempfile gives its reason in words alone, with the path after it.
    let text = error.to_string();
    match (error.raw_os_error(), text.split_once(" at path \"")) {
        (Some(code), _) => std::io::Error::from_raw_os_error(code),
        (None, Some((reason, _))) => std::io::Error::new(error.kind(), reason),
        (None, None) => std::io::Error::new(error.kind(), text),
    }
}

/// SHA-256 in hexadecimal.
pub fn digest(bytes: impl AsRef<[u8]>) -> String {
    hex(&Sha256::digest(bytes))
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Removes a folder with everything in it, however deep: code that is not trusted may have made it. Links are removed, not
/// what they lead to. Gives up after ten seconds, since somebody may still write to it.
pub fn remove_tree(folder: &Path) -> std::io::Result<()> {
    const LONGEST: Duration = Duration::from_secs(10);
    let begun = Instant::now();
    let mut moved = 0_u64;
    loop {
        let mut is_empty = true;
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            is_empty = false;
            if begun.elapsed() > LONGEST {
                return Err(std::io::ErrorKind::TimedOut.into());
            }
            if !entry.file_type()?.is_dir() {
                std::fs::remove_file(entry.path())?;
                continue;
            }
            // What is in it comes to lie beside it, so that no path is longer than this.
            for inner in std::fs::read_dir(entry.path())? {
                let inner = inner?;
                if inner.file_type()?.is_dir() {
                    let free = loop {
                        moved += 1;
                        let name = folder.join(format!("gpux-removed-{moved}"));
                        if name.symlink_metadata().is_err() {
                            break name;
                        }
                    };
                    std::fs::rename(inner.path(), free)?;
                } else {
                    std::fs::remove_file(inner.path())?;
                }
            }
            std::fs::remove_dir(entry.path())?;
        }
        if is_empty {
            return std::fs::remove_dir(folder);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn replaces_files_atomically_with_the_given_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/file");
        for (bytes, readers) in [(&b"first"[..], ReadAccess::Usual), (b"second", ReadAccess::Owner)] {
            write_whole(&path, bytes, readers).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), bytes);
        }
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no draft is left");
        assert!(write_whole(&path.join("below"), b"", ReadAccess::Owner).is_err());
    }

    #[test]
    fn io_errors_omit_the_path() {
        let nowhere = Path::new("/nowhere/at/all");
        let error = tempfile::Builder::new().tempdir_in(nowhere).unwrap_err();
        assert!(error.to_string().contains("nowhere"), "{error}");
        let plain = without_path(&error);
        assert!(!plain.to_string().contains("nowhere"), "{plain}");
        assert_eq!((plain.kind(), plain.to_string().is_empty()), (error.kind(), false));
        assert_eq!(without_path(&std::io::Error::other("words")).to_string(), "words");
    }

    #[test]
    #[cfg(unix)]
    fn rejects_paths_replaced_by_links() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::write(root.join("a/b/file"), "inside").unwrap();
        let canonical = root.join("a/b/file");
        assert_eq!(std::io::read_to_string(open_canonical(&canonical).unwrap()).unwrap(), "inside");
        let opened = open_canonical(&root.join("a/b")).unwrap();
        assert!(opened.metadata().unwrap().is_dir());
        // The last name, or one on the way, becomes a link to the same place.
        std::fs::rename(&canonical, root.join("a/b/other")).unwrap();
        std::os::unix::fs::symlink("other", &canonical).unwrap();
        assert!(open_canonical(&canonical).is_err());
        std::fs::rename(root.join("a/b"), root.join("c")).unwrap();
        std::os::unix::fs::symlink("../c", root.join("a/b")).unwrap();
        assert!(open_canonical(&root.join("a/b/other")).is_err());
        assert!(open_canonical(&root.join("a/b")).is_err());
        let moved = open_canonical(&root.join("c")).unwrap();
        assert_eq!(identity(&opened).unwrap(), identity(&moved).unwrap(), "moved, it is the same");
        assert!(open_canonical(Path::new("/")).unwrap().metadata().unwrap().is_dir());
        // No process writes to this pipe.
        assert!(std::process::Command::new("mkfifo").arg(root.join("pipe")).status().unwrap().success());
        assert!(!open_canonical(&root.join("pipe")).unwrap().metadata().unwrap().is_file());
        assert!(open_file(&root.join("pipe"), "it").is_err());
    }

    #[test]
    fn reports_folders_that_cannot_be_written() {
        let folder = tempfile::tempdir().unwrap();
        check_room(folder.path()).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(check_room(&folder.path().join("none")).is_err());
        // Linux has a device that is always full, but no folder.
        #[cfg(target_os = "linux")]
        assert!(check_room(Path::new("/proc/self")).is_err());
    }

    #[test]
    fn digests_are_lowercase_hexadecimal() {
        assert_eq!(digest(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }

    #[test]
    #[cfg(unix)]
    fn preserves_links_permissions_and_pipes() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        std::fs::write(&file, "before").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        write_whole(&link, b"after", ReadAccess::Usual).unwrap();
        assert!(link.is_symlink() && is_same(&link, &file));
        assert_eq!(std::fs::read(&file).unwrap(), b"after");
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o640);
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let read = std::thread::spawn({
            let pipe = pipe.clone();
            move || std::fs::read(pipe).unwrap()
        });
        write_whole(&pipe, b"through", ReadAccess::Usual).unwrap();
        assert_eq!(read.join().unwrap(), b"through");
        assert!(!pipe.metadata().unwrap().is_file());
    }

    #[test]
    fn replaced_files_have_different_marks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.onnx");
        assert_eq!(FileVersion::of(&path), FileVersion(None));
        std::fs::write(&path, "one").unwrap();
        let first = FileVersion::of(&path);
        assert_eq!(first, FileVersion::of(&path));
        std::fs::write(&path, "three").unwrap();
        assert_ne!(first, FileVersion::of(&path));
        #[cfg(unix)]
        {
            // As a ConfigMap changes: the target of a link is replaced by another of the same size.
            for name in ["a", "b"] {
                std::fs::create_dir(folder.path().join(name)).unwrap();
                std::fs::write(folder.path().join(name).join("gpux.yml"), "name: x").unwrap();
            }
            let link = folder.path().join("data");
            std::os::unix::fs::symlink("a", &link).unwrap();
            let through = link.join("gpux.yml");
            let first = FileVersion::of(&through);
            std::fs::remove_file(&link).unwrap();
            std::os::unix::fs::symlink("b", &link).unwrap();
            assert_ne!(first, FileVersion::of(&through));
        }
    }

    #[cfg(unix)]
    #[test]
    fn removes_folders_of_any_depth() {
        let root = tempfile::tempdir().unwrap();
        let kept = root.path().join("kept");
        std::fs::write(&kept, "").unwrap();
        let folder = root.path().join("folder");
        let mut deep = folder.clone();
        for _ in 0..20 {
            deep = deep.join("x".repeat(100));
        }
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(deep.join("file"), "").unwrap();
        std::fs::create_dir(folder.join("gpux-removed-1")).unwrap();
        std::os::unix::fs::symlink(root.path(), folder.join("link")).unwrap();
        // Deeper than any path is long.
        for _ in 0..100 {
            let above = root.path().join("above");
            std::fs::create_dir(&above).unwrap();
            std::fs::rename(&folder, above.join("below")).unwrap();
            std::fs::rename(&above, &folder).unwrap();
        }
        remove_tree(&folder).unwrap();
        assert!(!folder.exists() && kept.is_file());
    }
}
