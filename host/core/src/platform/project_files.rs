//! The files a pipeline may name: those in its own folder.

use std::fs::File;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::platform::files::{
    FileVersion, FileVersions, digest, explain_proc_link, lies_in, open_canonical, resolve_path, similar_file,
};
use crate::platform::hub::hub_blobs;

/// The folder that the paths in a pipeline's options are relative to and must stay in.
#[derive(Clone, Debug)]
pub struct ProjectFiles {
    root: PathBuf,
    allow_outside: bool,
    /// the versions of the requested files before they were read
    named: Arc<Mutex<FileVersions>>,
    warnings: Arc<Mutex<Vec<String>>>,
    /// digests of what was read
    contents: Arc<Mutex<Vec<String>>>,
}

/// A path that a pipeline may not use.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// no such file
    #[error("no file at `{shown}`{}", did_you_mean(similar.as_deref()), shown = path.display())]
    NotFound {
        /// the path as written
        path: PathBuf,
        /// the path with the most similar name of a file there
        similar: Option<String>,
    },
    /// a folder or a device where a file is needed
    #[error("`{shown}` is not a file", shown = .0.display())]
    NotAFile(PathBuf),
    /// a file where a folder is needed
    #[error("`{shown}` is not a folder", shown = .0.display())]
    NotAFolder(PathBuf),
    /// the path leads out of the pipeline's folder
    #[error("`{shown}` leads out of the pipeline's folder; pass `--allow-outside` to permit that", shown = .0.display())]
    Outside(PathBuf),
    /// the file cannot be read
    #[error("cannot read `{shown}`: {source}", shown = path.display())]
    Io {
        /// the path as written
        path: PathBuf,
        /// the system's reason
        source: std::io::Error,
    },
    /// the file is larger than it may be
    #[error("`{shown}` is {size} bytes; at most {limit} are read", shown = path.display())]
    TooLarge {
        /// the path as written
        path: PathBuf,
        /// its size in bytes
        size: u64,
        /// the bound in bytes
        limit: u64,
    },
    /// no file may be named here: the options come from a component
    #[error("a component may not name files")]
    Forbidden,
}

impl ProjectFiles {
    /// Files below `root`; with `allow_outside` (the operator's word), anywhere.
    pub fn new(root: impl Into<PathBuf>, allow_outside: bool) -> Self {
        Self {
            root: root.into(),
            allow_outside,
            named: Arc::default(),
            warnings: Arc::default(),
            contents: Arc::default(),
        }
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The file that `path`, as written in gpux.yml, names. Links are followed before the check.
    pub fn resolve(&self, path: &Path) -> Result<PathBuf, FileError> {
        self.open(path).map(|(found, _)| found)
    }

    /// [`Self::resolve`] with the open file: the opened file was checked, even if the path leads elsewhere by now.
    pub fn open(&self, path: &Path) -> Result<(PathBuf, File), FileError> {
        if self.allow_outside || !escapes(path) {
            let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
            named.entry(self.root.join(path)).or_insert_with_key(|path| FileVersion::of(path));
        }
        let found = self.find(path)?;
        // Merely opening a device may do something.
        let file = if found.is_file() { Some(opened(path, &found)?) } else { None };
        match file {
            Some(file) if file.metadata().is_ok_and(|metadata| metadata.is_file()) => Ok((found, file)),
            _ => Err(FileError::NotAFile(path.to_owned())),
        }
    }

    /// The folder that `path`, as written in gpux.yml, names, and where it lies. Whatever the path leads to later,
    /// this is the folder that was checked.
    pub fn open_folder(&self, path: &Path) -> Result<(PathBuf, File), FileError> {
        let found = self.find(path)?;
        let folder = if found.is_dir() { Some(opened(path, &found)?) } else { None };
        match folder {
            Some(folder) if folder.metadata().is_ok_and(|metadata| metadata.is_dir()) => Ok((found, folder)),
            _ => Err(FileError::NotAFolder(path.to_owned())),
        }
    }

    /// Every file that was asked for so far, whether it is there or not, as it was when that was done first; by
    /// its path before any link is followed.
    pub fn named(&self) -> FileVersions {
        self.named.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds a warning for the user who opens the pipeline: the file may not be the intended one.
    pub fn warn(&self, warning: String) {
        let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        // Two steps may name the same file.
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }

    /// The warnings so far.
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn find(&self, path: &Path) -> Result<PathBuf, FileError> {
        let io = |source: std::io::Error| match source.kind() {
            _ if let Some(reason) = explain_proc_link(&self.root.join(path)) => {
                FileError::Io { path: path.to_owned(), source: std::io::Error::other(reason) }
            }
            std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => {
                FileError::NotFound { path: path.to_owned(), similar: self.similar(path) }
            }
            _ => FileError::Io { path: path.to_owned(), source },
        };
        if !self.allow_outside && escapes(path) {
            return Err(FileError::Outside(path.to_owned()));
        }
        let root = resolve_path(&self.root).map_err(io)?;
        let found = resolve_path(&root.join(path)).map_err(io)?;
        if !self.allow_outside
            && !lies_in(&found, &root)
            && !hub_blobs(&root).is_some_and(|blobs| lies_in(&found, &blobs))
        {
            return Err(FileError::Outside(path.to_owned()));
        }
        Ok(found)
    }

    /// Whether files may lie outside of the folder.
    pub const fn allows_outside(&self) -> bool {
        self.allow_outside
    }

    /// Where `path`, as written in gpux.yml, lies: as [`Self::resolve`] if it is no link, else the link itself.
    pub fn location(&self, path: &Path) -> Option<PathBuf> {
        let wanted = self.root.join(path);
        Some(resolve_path(wanted.parent()?).ok()?.join(wanted.file_name()?))
    }

    /// `path` with the most similar name in its folder, if that is one whose names may be told.
    fn similar(&self, path: &Path) -> Option<String> {
        let wanted = self.root.join(path);
        let folder = resolve_path(wanted.parent()?).ok()?;
        if !self.allow_outside && !lies_in(&folder, &resolve_path(&self.root).ok()?) {
            return None;
        }
        let similar = similar_file(&wanted)?;
        Some(path.with_file_name(Path::new(&similar).file_name()?).display().to_string())
    }

    /// The bytes of the file that `path` names, at most `limit` of them.
    pub fn read(&self, path: &Path, limit: u64) -> Result<Vec<u8>, FileError> {
        let bytes = self.read_unnoted(path, limit)?;
        self.note_content(&bytes);
        Ok(bytes)
    }

    /// Counts `content` among what a step is made of, as files that were [read](Self::read) are.
    pub fn note_content(&self, content: impl AsRef<[u8]>) {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner).push(digest(content));
    }

    /// The digests of the contents since this was asked last.
    pub fn take_contents(&self) -> Vec<String> {
        std::mem::take(&mut *self.contents.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// [`Self::read`] for a file that may be left unused; the caller [notes](Self::note_content) what it uses.
    pub fn read_unnoted(&self, path: &Path, limit: u64) -> Result<Vec<u8>, FileError> {
        let (_, file) = self.open(path)?;
        let io = |source| FileError::Io { path: path.to_owned(), source };
        let too_large = |size| FileError::TooLarge { path: path.to_owned(), size, limit };
        let size = file.metadata().map_err(io)?.len();
        if size > limit {
            return Err(too_large(size));
        }
        let mut bytes = Vec::with_capacity(size as usize);
        file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(io)?;
        // It may have grown since.
        if bytes.len() as u64 > limit { Err(too_large(bytes.len() as u64)) } else { Ok(bytes) }
    }
}

fn did_you_mean(similar: Option<&str>) -> String {
    similar.map(|similar| format!("; did you mean `{similar}`?")).unwrap_or_default()
}

/// Opens what `path` led to when it was checked.
fn opened(path: &Path, found: &Path) -> Result<File, FileError> {
    open_canonical(found).map_err(|source| FileError::Io { path: path.to_owned(), source })
}

/// Whether the path as written leaves its folder, before any link is followed.
fn escapes(path: &Path) -> bool {
    let mut depth = 0_i64;
    path.components().any(|component| {
        match component {
            Component::Normal(_) => depth += 1,
            Component::ParentDir => depth -= 1,
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return true,
        }
        depth < 0
    })
}

#[cfg(test)]
mod tests {
    #[cfg(unix)]
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn finds_only_files_inside_the_project() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("project");
        std::fs::create_dir(&root).unwrap();
        std::fs::write(root.join("labels.txt"), "one").unwrap();
        std::fs::write(folder.path().join("secret"), "x").unwrap();
        let files = ProjectFiles::new(&root, false);
        assert_eq!(files.read(Path::new("./labels.txt"), 10).unwrap(), b"one");
        assert_eq!(files.take_contents(), [digest("one")]);
        assert!(matches!(files.read(Path::new("labels.txt"), 2), Err(FileError::TooLarge { .. })));
        let before = files.named();
        std::fs::write(root.join("labels.txt"), "one\ntwo").unwrap();
        assert_eq!(files.read(Path::new("./labels.txt"), 10).unwrap().len(), 7);
        assert_eq!(files.named(), before, "what was first there counts, if another was read than at another time");
        assert!(files.named().keys().eq([&root.join("./labels.txt")]), "asked for twice, named once");
        assert!(matches!(files.resolve(Path::new("../secret")), Err(FileError::Outside(_))));
        assert!(matches!(files.resolve(Path::new("a/../../secret")), Err(FileError::Outside(_))));
        assert!(matches!(files.resolve(&folder.path().join("secret")), Err(FileError::Outside(_))));
        assert!(matches!(files.resolve(Path::new("none")), Err(FileError::NotFound { .. })));
        assert!(matches!(files.resolve(Path::new(".")), Err(FileError::NotAFile(_))));
        assert_eq!(files.open_folder(Path::new(".")).unwrap().0, root.canonicalize().unwrap());
        // Files that a step writes there do not change the pipeline.
        std::fs::create_dir(root.join("granted")).unwrap();
        files.open_folder(Path::new("granted")).unwrap();
        assert!(!files.named().contains_key(&root.join("granted")), "{:?}", files.named());
        assert!(matches!(files.open_folder(Path::new("labels.txt")), Err(FileError::NotAFolder(_))));
        assert!(matches!(files.open_folder(Path::new("..")), Err(FileError::Outside(_))));
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(folder.path().join("secret"), root.join("link")).unwrap();
            assert!(matches!(files.resolve(Path::new("link")), Err(FileError::Outside(_))));
            let (_, mut opened) = files.open(Path::new("labels.txt")).unwrap();
            std::fs::rename(root.join("link"), root.join("labels.txt")).unwrap();
            let mut text = String::new();
            opened.read_to_string(&mut text).unwrap();
            assert_eq!(text, "one\ntwo", "what was checked is read, whatever lies there now");
        }
        assert!(ProjectFiles::new(&root, true).resolve(Path::new("../secret")).is_ok());
    }

    #[test]
    #[cfg(unix)]
    fn never_reads_outside_while_links_are_swapped() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("project");
        for (name, text) in [("project/a", "inside"), ("project/b", "inside"), ("outside", "secret")] {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
            std::fs::write(folder.path().join(name).join("file"), text).unwrap();
        }
        let files = ProjectFiles::new(&root, false);
        // At the worst moment: after the check.
        let checked = files.find(Path::new("b/file")).unwrap();
        std::fs::rename(root.join("b"), root.join("aside")).unwrap();
        std::os::unix::fs::symlink("../outside", root.join("b")).unwrap();
        assert!(opened(Path::new("b/file"), &checked).is_err());
        std::fs::remove_file(root.join("b")).unwrap();
        std::fs::rename(root.join("aside"), root.join("b")).unwrap();

        // At any moment.
        let is_done = AtomicBool::new(false);
        let rounds = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let swapper = scope.spawn(|| {
                let link = |target: &str| {
                    std::os::unix::fs::symlink(target, root.join("new")).unwrap();
                    std::fs::rename(root.join("new"), root.join("link")).unwrap();
                };
                while !is_done.load(Ordering::Relaxed) {
                    ["a", "../outside", "b", "/proc/self/cwd", "a/file"].into_iter().for_each(link);
                    // A folder that was checked becomes a link, and is one again.
                    std::fs::rename(root.join("a"), root.join("aside")).unwrap();
                    std::os::unix::fs::symlink("../outside", root.join("a")).unwrap();
                    std::fs::remove_file(root.join("a")).unwrap();
                    std::fs::rename(root.join("aside"), root.join("a")).unwrap();
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
            let mut read = std::collections::BTreeSet::new();
            let mut tries = 0;
            while tries < 2000 || rounds.load(Ordering::Relaxed) < 100 && !swapper.is_finished() {
                read.extend(
                    ["link/file", "a/file"].into_iter().filter_map(|path| files.read(Path::new(path), 100).ok()),
                );
                tries += 1;
            }
            is_done.store(true, Ordering::Relaxed);
            assert!(read.iter().eq([b"inside"]), "{read:?}");
        });
    }
}
