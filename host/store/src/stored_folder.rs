//! Folders of hard links to the files of pipelines in the store, from which they are run.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpux_core::{CacheDir, CacheFolder};

use crate::digest::FileDigest;
use crate::error::{StoreError, io};
use crate::pipeline::StoredPipeline;
use crate::store::{PIPELINES, Store};

/// What the names of the locks of those folders end with.
pub(crate) const LOCK: &str = ".lock";

/// A folder with the files of a pipeline. It is kept while this exists, in any process.
#[derive(Clone, Debug)]
pub struct StoredFolder {
    path: PathBuf,
    manifest: String,
    _used: Option<Arc<File>>,
}

impl StoredFolder {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The digest of the pipeline's manifest, as `sha256:…`.
    pub fn digest(&self) -> String {
        format!("sha256:{}", self.manifest)
    }
}

/// Two are equal if they are the same pipeline at the same place.
impl PartialEq for StoredFolder {
    fn eq(&self, other: &Self) -> bool {
        (&self.path, &self.manifest) == (&other.path, &other.manifest)
    }
}

impl Eq for StoredFolder {}

/// Whether a pipeline's folder is one of these, by its path.
pub fn is_laid_out(folder: &Path) -> bool {
    let name = |path: &Path| path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    let is_parent = |parent: &Path| name(parent).is_some_and(|name| [PIPELINES, "unpacked"].contains(&&*name));
    folder.parent().is_some_and(is_parent)
        && name(folder)
            .and_then(|name| FileDigest::from_hex(&name))
            .is_some_and(|found| matches!(found, FileDigest::Sha256(_)))
}

impl Store {
    /// The folder of a pipeline: links to the files of the store where the file system can, else copies. Of a store that
    /// cannot be written to, it is in the cache, unless it is there already.
    pub fn lay_out(&self, pipeline: &StoredPipeline) -> Result<StoredFolder, StoreError> {
        let digits = &pipeline.manifest;
        let folder = |path: PathBuf, used: Option<File>| StoredFolder {
            path,
            manifest: digits.clone(),
            _used: used.map(Arc::new),
        };
        let (parent, target) = (self.pipelines(), self.pipelines().join(digits));
        let lock = parent.join(format!("{digits}{LOCK}"));
        if !self.is_writable() {
            if target.is_dir() {
                let used = File::open(&lock).ok().filter(|lock| lock.lock_shared().is_ok());
                return Ok(folder(target, used));
            }
            let target = self.lay_out_in_cache(pipeline)?;
            // Its own lock: `gpux cache clean` leaves it there.
            let used = File::open(&target).ok().filter(|used| used.lock_shared().is_ok());
            return Ok(folder(target, used));
        }

        fs::create_dir_all(&parent).map_err(io("make", &parent))?;
        let opened = File::options().read(true).write(true).create(true).truncate(false).open(&lock);
        let used = opened.and_then(|file| file.lock_shared().map(|()| file)).map_err(io("lock", &lock))?;
        if !target.is_dir() {
            let staging = self.scratch()?;
            self.link_files(pipeline, staging.path())?;
            move_folder(staging.path(), &target)?;
        }
        Ok(folder(target, Some(used)))
    }

    fn lay_out_in_cache(&self, pipeline: &StoredPipeline) -> Result<PathBuf, StoreError> {
        let error = |source| StoreError::Io { action: "lay out a pipeline of", path: self.root().to_owned(), source };
        let none = || std::io::Error::new(ErrorKind::NotFound, "there is no folder for a cache");
        let cache = CacheDir::from_environment().ok_or_else(|| error(none()))?;
        let parent = cache.folder(CacheFolder::Unpacked).map_err(error)?;
        let target = parent.join(&pipeline.manifest);
        if !target.is_dir() {
            let staging = tempfile::Builder::new().prefix(".laying-out-").tempdir_in(&parent).map_err(error)?;
            self.link_files(pipeline, staging.path())?;
            move_folder(staging.path(), &target)?;
            if !staging.path().exists() {
                let _ = staging.keep();
            }
        }
        Ok(target)
    }

    fn link_files(&self, pipeline: &StoredPipeline, folder: &Path) -> Result<(), StoreError> {
        for file in &pipeline.files {
            let (from, to) = (self.blob(&file.sha256), folder.join(&file.path));
            let parent = to.parent().unwrap_or(folder);
            let placed = fs::create_dir_all(parent).and_then(|()| place(&from, &to));
            placed.map_err(io("write", &to))?;
        }
        Ok(())
    }
}

/// Links a file, or copies it where there can be no link. Never over another one: two paths are one on some systems, and
/// the file that is there is a link to another file of the store.
fn place(from: &Path, to: &Path) -> std::io::Result<()> {
    match fs::hard_link(from, to) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            let mut copy = File::create_new(to)?;
            std::io::copy(&mut File::open(from)?, &mut copy)?;
            copy.set_permissions(fs::metadata(from)?.permissions())
        }
        linked => linked,
    }
}

fn move_folder(from: &Path, to: &Path) -> Result<(), StoreError> {
    match fs::rename(from, to) {
        // Another process was faster.
        Err(_) if to.is_dir() => Ok(()),
        moved => moved.map_err(io("write", to)),
    }
}
