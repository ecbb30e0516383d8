//! The store: an OCI image layout of files by their SHA-256, and of pipelines by name. Whatever ends a process, a name
//! means a whole pipeline or nothing.

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpux_core::files::{open_file, resolve_path, without_path};
use gpux_core::process_exit::Scratch;

use crate::bundle_fault::BundleFault;
use crate::bundle_plan::{BundleFile, BundlePlan, FileSource};
use crate::error::{StoreError, file_error, io};
use crate::manifest::{
    BLOBS, BundleInfo, CheckedManifest, Descriptor, INDEX_FILE, Index, LAYOUT, LAYOUT_FILE, MAX_MANIFEST, NAME_KEY,
    json,
};
use crate::pipeline::{FileRole, StoredPipeline};

/// The variable that moves the store.
const VARIABLE: &str = "GPUX_STORE";
/// The folder with a folder for each pipeline that was run, by the digits of its manifest's digest.
pub(crate) const PIPELINES: &str = "pipelines";
const STORE_LOCK: &str = "store.lock";
const INGEST: &str = "ingest";
/// What the names of files end with that are fetched, and that the next attempt goes on with.
pub(crate) const PART: &str = ".part";
/// The most bytes of the store's own index, which has some 300 for a name.
const MAX_NAMES: u64 = 64 << 20;

/// The folder with the files of pulled pipelines. It is data: nothing in it is run as code of the machine.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
    is_writable: bool,
    /// held, with others, while this is used; a folder that cannot be written to may have none
    used: Option<Arc<File>>,
}

impl Store {
    /// `$GPUX_STORE`, else `gpux/store` in the platform's folder for data; made if it is not there.
    pub fn from_environment() -> Result<Self, StoreError> {
        Self::open(Self::default_root().ok_or(StoreError::NoFolder)?)
    }

    /// The same; `None` if it is not there.
    pub fn existing() -> Result<Option<Self>, StoreError> {
        Self::existing_root()?.map(Self::open).transpose()
    }

    /// The same, only to be read.
    pub fn existing_to_read() -> Result<Option<Self>, StoreError> {
        Self::existing_root()?.map(Self::open_to_read).transpose()
    }

    fn existing_root() -> Result<Option<PathBuf>, StoreError> {
        let Some(root) = Self::default_root() else { return Ok(None) };
        let index = root.join(INDEX_FILE);
        match index.try_exists() {
            Ok(is_there) => Ok(is_there.then_some(root)),
            // A file where a folder should be.
            Err(error) if error.kind() == ErrorKind::NotADirectory => Ok(None),
            Err(error) => Err(io("read", &index)(error)),
        }
    }

    /// The folder of [`Self::from_environment`], there or not.
    pub fn default_root() -> Option<PathBuf> {
        use etcetera::BaseStrategy as _;
        let named = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
        named.or_else(|| Some(etcetera::choose_base_strategy().ok()?.data_dir().join("gpux/store")))
    }

    /// A store at this path, made if it is not there. One that cannot be written to, or that another user has, is only
    /// read.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let root = root.into();
        let root = std::path::absolute(&root).unwrap_or(root);
        if is_of_another(&root) {
            return Self::open_to_read(root);
        }
        match Self::open_to_write(root.clone()) {
            Err(StoreError::Io { source, .. })
                if matches!(source.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)
                    && root.join(INDEX_FILE).is_file() =>
            {
                Self::open_to_read(root)
            }
            opened => opened,
        }
    }

    fn open_to_write(root: PathBuf) -> Result<Self, StoreError> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true);
        // Weights of a private repository are their reader's alone.
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        for folder in [root.join(BLOBS), root.join(INGEST), root.join(PIPELINES)] {
            builder.create(&folder).map_err(io("make", &folder))?;
        }
        let store = Self { used: Some(Arc::new(use_store(&root)?)), is_writable: true, root };
        let layout = store.root.join(LAYOUT_FILE);
        if !layout.is_file() {
            store.write(&layout, LAYOUT.as_bytes())?;
        }
        if !store.index().is_file() {
            let locked = store.lock()?;
            if !store.index().is_file() {
                store.write_index(&Index::new(Vec::new()))?;
            }
            drop(locked);
        }
        Ok(store)
    }

    fn open_to_read(root: PathBuf) -> Result<Self, StoreError> {
        let store = Self { is_writable: false, used: None, root };
        store.read_index()?;
        let locked = File::open(store.root.join(STORE_LOCK)).ok().filter(|lock| lock.lock_shared().is_ok());
        Ok(Self { used: locked.map(Arc::new), ..store })
    }

    /// Whether it can be added to.
    pub const fn is_writable(&self) -> bool {
        self.is_writable
    }

    pub(crate) fn must_be_writable(&self) -> Result<(), StoreError> {
        if self.is_writable { Ok(()) } else { Err(StoreError::ReadOnly(self.root.clone())) }
    }

    /// Works on the store while no other process adds to it, or begins to run a pipeline.
    pub(crate) fn alone<T>(
        &self,
        on_wait: impl FnOnce(),
        work: impl FnOnce() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.must_be_writable()?;
        let path = self.root.join(STORE_LOCK);
        let Some(lock) = &self.used else { return Err(StoreError::ReadOnly(self.root.clone())) };
        lock.unlock().map_err(io("lock", &path))?;
        if lock.try_lock().is_err() {
            on_wait();
            lock.lock().map_err(io("lock", &path))?;
        }
        let done = work();
        lock.unlock().and_then(|()| lock.lock_shared()).map_err(io("lock", &path))?;
        done
    }

    /// Its folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A new folder beside its files, so that they can be linked; gone when it is dropped.
    pub fn scratch(&self) -> Result<Scratch, StoreError> {
        self.must_be_writable()?;
        Scratch::with_prefix("making-", &self.ingest()).map_err(io("write into", &self.root))
    }

    pub(crate) fn blobs(&self) -> PathBuf {
        self.root.join(BLOBS)
    }

    pub(crate) fn ingest(&self) -> PathBuf {
        self.root.join(INGEST)
    }

    pub(crate) fn pipelines(&self) -> PathBuf {
        self.root.join(PIPELINES)
    }

    pub(crate) fn index(&self) -> PathBuf {
        self.root.join(INDEX_FILE)
    }

    /// Where the file with this SHA-256 is, if it is there.
    pub fn blob(&self, sha256: &str) -> PathBuf {
        self.blobs().join(sha256)
    }

    /// Whether that file is there, with this size.
    pub fn has_blob(&self, sha256: &str, size: u64) -> bool {
        self.blob(sha256).symlink_metadata().is_ok_and(|found| found.is_file() && found.len() == size)
    }

    /// The file that collects what is fetched under `key`, for this process alone: waits for another that has it.
    pub fn part(&self, key: &str) -> Result<PartFile, StoreError> {
        self.must_be_writable()?;
        let path = self.ingest().join(format!("{key}{PART}"));
        loop {
            let opened = File::options().read(true).write(true).create(true).truncate(false).open(&path);
            let file = opened.map_err(io("open", &path))?;
            file.lock().map_err(io("lock", &path))?;
            // The process that had it may have finished it meanwhile: then this is no longer the file at that path.
            if is_at(&file, &path) {
                return Ok(PartFile { file, path, store: self.clone() });
            }
        }
    }

    /// Writes a file whole or not at all.
    pub(crate) fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
        let write = || {
            let mut builder = tempfile::Builder::new();
            // Who may enter the store may read it.
            #[cfg(unix)]
            builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
            let mut file = builder.tempfile_in(self.ingest())?;
            file.write_all(bytes)?;
            file.as_file().sync_all()?;
            file.persist(path)?;
            Ok(())
        };
        write().map_err(|error: std::io::Error| io("write", path)(without_path(&error)))
    }

    /// Held while the index changes.
    pub(crate) fn lock(&self) -> Result<File, StoreError> {
        let path = self.root.join("index.lock");
        let opened = File::options().write(true).create(true).truncate(false).open(&path);
        opened.and_then(|file| file.lock().map(|()| file)).map_err(io("lock", &path))
    }

    pub(crate) fn read_index(&self) -> Result<Index, StoreError> {
        let path = self.index();
        let bytes = read(&path, MAX_NAMES)?;
        Index::parse_own(&bytes).map_err(|fault| StoreError::Damaged { path, reason: fault.to_string() })
    }

    /// Writes the index, which [`lock`](Self::lock) is held for.
    pub(crate) fn write_index(&self, index: &Index) -> Result<(), StoreError> {
        let bytes = json(index);
        if bytes.len() as u64 > MAX_NAMES {
            return Err(StoreError::TooManyNames(index.manifests.len()));
        }
        self.write(&self.index(), &bytes)
    }

    /// Keeps a document under its digest.
    pub(crate) fn add_document(&self, digest: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let path = self.blob(digest);
        if self.has_blob(digest, bytes.len() as u64) {
            return self.verify_blob(digest, &mut |_| {});
        }
        self.write(&path, bytes)?;
        make_read_only(&path)
    }

    /// Keeps the files of a folder as a pipeline that `name` means from then on.
    pub fn add_folder(
        &self,
        folder: &Path,
        files: &[String],
        name: &str,
        title: &str,
    ) -> Result<StoredPipeline, StoreError> {
        let file = |path: &String| {
            let found = resolve_path(&folder.join(path)).map_err(file_error("read", &folder.join(path)))?;
            Ok(BundleFile { path: path.clone(), role: FileRole::of(path), source: FileSource::Path(found) })
        };
        let files = files.iter().map(file).collect::<Result<_, StoreError>>()?;
        let info = BundleInfo { name: title.to_owned(), ..BundleInfo::default() };
        self.add_files(&BundlePlan::new(files, info)?, Some(name), &mut |_| {})
    }

    /// Has `name` mean the pipeline with this manifest. Returns the digits of the one that it meant before.
    pub(crate) fn set_name(&self, name: &str, mut entry: Descriptor) -> Result<Option<String>, StoreError> {
        self.must_be_writable()?;
        entry.annotations.insert(NAME_KEY.to_owned(), name.to_owned());
        let locked = self.lock()?;
        let mut index = self.read_index()?;
        let before =
            index.manifests.iter().find(|other| other.name() == Some(name)).and_then(|other| other.sha256().ok());
        index.manifests.retain(|other| other.name() != Some(name));
        index.manifests.push(entry);
        self.write_index(&index)?;
        drop(locked);
        Ok(before)
    }

    /// The pipeline whose manifest has this digest, if all of it is there.
    pub fn pipeline(&self, digits: &str) -> Result<StoredPipeline, StoreError> {
        let pipeline = self.manifest(digits)?.pipeline;
        match pipeline.files.iter().find(|file| !self.has_blob(&file.sha256, file.size)) {
            Some(file) => Err(StoreError::Missing { file: file.path.clone(), path: self.blob(&file.sha256) }),
            None => Ok(pipeline),
        }
    }

    /// The manifest with this digest. Its files may be missing.
    pub(crate) fn manifest(&self, digits: &str) -> Result<CheckedManifest, StoreError> {
        self.read_manifest(digits, CheckedManifest::parse)
    }

    /// The digits of the files that a manifest needs, also of one that others put there.
    pub(crate) fn references(&self, digits: &str) -> Result<Vec<String>, StoreError> {
        self.read_manifest(digits, CheckedManifest::references)
    }

    fn read_manifest<T>(
        &self,
        digits: &str,
        parse: impl FnOnce(&str, &[u8]) -> Result<T, BundleFault>,
    ) -> Result<T, StoreError> {
        let path = self.blob(digits);
        let bytes = read(&path, MAX_MANIFEST).map_err(|error| match error {
            StoreError::Io { source, path, .. } if source.kind() == ErrorKind::NotFound => {
                StoreError::Missing { file: "manifest".to_owned(), path }
            }
            error => error,
        })?;
        parse(digits, &bytes).map_err(|fault| StoreError::Damaged { path: path.clone(), reason: fault.to_string() })
    }
}

/// Whether the folder is there, and another user has it.
#[cfg(unix)]
fn is_of_another(root: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    root.metadata().is_ok_and(|metadata| metadata.uid() != rustix::process::geteuid().as_raw())
}

#[cfg(not(unix))]
const fn is_of_another(_: &Path) -> bool {
    false
}

/// A file that is fetched, held by this process alone.
#[derive(Debug)]
pub struct PartFile {
    /// what was fetched so far
    pub file: File,
    path: PathBuf,
    store: Store,
}

impl PartFile {
    /// Moves it to the files that are whole.
    pub fn publish(self, sha256: &str) -> Result<(), StoreError> {
        let target = self.store.blob(sha256);
        self.file.sync_all().map_err(io("write", &self.path))?;
        fs::rename(&self.path, &target).map_err(io("write", &target))?;
        make_read_only(&target)
    }

    /// Removes it: the next attempt begins anew.
    pub fn discard(&self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The lock that those who use a store share. The first of them removes what killed processes left, but for what can be
/// gone on with.
fn use_store(root: &Path) -> Result<File, StoreError> {
    let path = root.join(STORE_LOCK);
    let file =
        File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(io("open", &path))?;
    if file.try_lock().is_ok() {
        for entry in root.join(INGEST).read_dir().into_iter().flatten().flatten() {
            if !entry.file_name().to_string_lossy().ends_with(PART) {
                // What cannot be removed costs room, no more.
                let _ = fs::remove_dir_all(entry.path()).or_else(|_| fs::remove_file(entry.path()));
            }
        }
        file.unlock().map_err(io("lock", &path))?;
    }
    file.lock_shared().map_err(io("lock", &path))?;
    Ok(file)
}

fn read(path: &Path, limit: u64) -> Result<Vec<u8>, StoreError> {
    let mut bytes = Vec::new();
    let file = open_file(path, "it").map_err(io("read", path))?;
    file.take(limit + 1).read_to_end(&mut bytes).map_err(io("read", path))?;
    if bytes.len() as u64 > limit {
        return Err(StoreError::Damaged { path: path.to_owned(), reason: format!("it is larger than {limit} bytes") });
    }
    Ok(bytes)
}

pub(crate) fn make_read_only(path: &Path) -> Result<(), StoreError> {
    let change = || {
        let mut permissions = fs::metadata(path)?.permissions();
        #[cfg(unix)]
        std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o444);
        #[cfg(not(unix))]
        permissions.set_readonly(true);
        fs::set_permissions(path, permissions)
    };
    change().map_err(io("write", path))
}

/// Whether the open file is the one at the path.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let identity = |metadata: &fs::Metadata| (metadata.dev(), metadata.ino());
    matches!((file.metadata(), path.metadata()), (Ok(open), Ok(there)) if identity(&open) == identity(&there))
}

#[cfg(not(unix))]
fn is_at(_: &File, path: &Path) -> bool {
    path.exists()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::sha256;

    fn store() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().join("store")).unwrap();
        (folder, store)
    }

    #[test]
    fn keeps_a_folder_and_lays_it_out_again() {
        let (folder, store) = store();
        fs::create_dir_all(folder.path().join("p/sub")).unwrap();
        fs::write(folder.path().join("p/gpux.yml"), "name: p\n").unwrap();
        fs::write(folder.path().join("p/sub/model.onnx"), "weights").unwrap();
        let files = ["gpux.yml".to_owned(), "sub/model.onnx".to_owned()];
        let kept = store.add_folder(&folder.path().join("p"), &files, "hf:a/p@main", "p").unwrap();
        assert_eq!(store.resolve("hf:a/p@main").unwrap(), Some(kept.clone()));
        assert_eq!(store.resolve("hf:a/other@main").unwrap(), None);

        let laid = store.lay_out(&kept).unwrap();
        assert_eq!(fs::read_to_string(laid.path().join("sub/model.onnx")).unwrap(), "weights");
        assert_eq!(store.lay_out(&kept).unwrap(), laid);
        // The same content has the same manifest, whoever keeps it.
        let (_other, second) = self::store();
        assert_eq!(second.add_folder(&folder.path().join("p"), &files, "x", "p").unwrap().manifest, kept.manifest);
    }

    #[test]
    fn tells_damage() {
        let (folder, store) = store();
        fs::write(folder.path().join("gpux.yml"), "name: p\n").unwrap();
        let kept = store.add_folder(folder.path(), &["gpux.yml".to_owned()], "p", "p").unwrap();
        let manifest = store.blob(&kept.manifest);
        let text = fs::read_to_string(&manifest).unwrap().replace("\"gpux.yml\"", "\"../x.yml\"");
        fs::remove_file(&manifest).unwrap();
        fs::write(&manifest, &text).unwrap();
        assert!(matches!(store.resolve("p"), Err(StoreError::Damaged { .. })));
        // By its own digest, it still names a path that leads elsewhere.
        let digest = sha256(text.as_bytes());
        fs::write(store.blob(&digest), &text).unwrap();
        let index = fs::read_to_string(store.index()).unwrap().replace(&kept.manifest, &digest);
        fs::write(store.index(), index).unwrap();
        assert!(store.resolve("p").unwrap_err().to_string().contains("leads out of the folder"));
        fs::write(store.index(), "{").unwrap();
        assert!(matches!(store.resolve("p"), Err(StoreError::Damaged { .. })));
    }

    #[test]
    fn removes_what_killed_processes_left() {
        let (folder, store) = store();
        let root = store.root().to_owned();
        fs::write(root.join("ingest/.tmp1"), "half").unwrap();
        fs::write(root.join("ingest/ab.part"), "half").unwrap();
        fs::create_dir_all(root.join("ingest/making-1/m")).unwrap();
        let count = || root.join("ingest").read_dir().unwrap().count();
        // Not while somebody else may be at work.
        drop(Store::open(&root).unwrap());
        assert_eq!(count(), 3);
        drop(store);
        drop(Store::open(&root).unwrap());
        assert_eq!(count(), 1);
        drop(folder);
    }

    #[test]
    fn a_part_is_for_one_at_a_time() {
        let (_folder, store) = store();
        let mut part = store.part("ab").unwrap();
        let other = File::open(&part.path).unwrap();
        assert!(matches!(other.try_lock(), Err(fs::TryLockError::WouldBlock)));
        let second = std::thread::spawn({
            let store = store.clone();
            move || store.part("ab").unwrap().file.metadata().unwrap().len()
        });
        part.file.write_all(b"whole").unwrap();
        part.publish(&sha256(b"whole")).unwrap();
        assert!(store.has_blob(&sha256(b"whole"), 5));
        assert_eq!(second.join().unwrap(), 0);
    }
}
