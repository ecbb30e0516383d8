//! The store: an OCI image layout of files by their SHA-256, and of pipelines by name. Whatever ends a process, a name
//! means a whole pipeline or nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpux_core::files::open_file;
use gpux_core::process_exit::Scratch;
use serde::{Deserialize, Serialize};

use crate::digest::{FileDigest, Hasher, sha256};
use crate::error::StoreError;
use crate::file_name::is_safe;
use crate::names::DIGEST_SCHEME;
use crate::stored_folder::PIPELINES;

/// The variable that moves the store.
const VARIABLE: &str = "GPUX_STORE";
const LAYOUT: &str = "{\"imageLayoutVersion\":\"1.0.0\"}";
const INDEX: &str = "index.json";
const STORE_LOCK: &str = "store.lock";
const BLOBS: &str = "blobs/sha256";
pub(crate) const INGEST: &str = "ingest";
/// What the names of files end with that are fetched, and that the next attempt goes on with.
pub(crate) const PART: &str = ".part";
/// The most bytes of the index, and of a manifest.
const MAX_INDEX: u64 = 64 << 20;
const MAX_MANIFEST: u64 = 4 << 20;
/// The most files of a pipeline.
const MAX_LAYERS: usize = 10_000;

const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
const ARTIFACT_TYPE: &str = "application/vnd.cncf.model.manifest.v1+json";
const CONFIG_TYPE: &str = "application/vnd.cncf.model.config.v1+json";
pub(crate) const NAME_KEY: &str = "org.opencontainers.image.ref.name";
pub(crate) const TITLE_KEY: &str = "org.opencontainers.image.title";
pub(crate) const VERSION_KEY: &str = "org.opencontainers.image.version";
const PATH_KEY: &str = "org.cncf.model.filepath";

/// The folder with the files of pulled pipelines. It is data: nothing in it is run as code of the machine.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
    is_writable: bool,
    /// held, with others, while this is used; a folder that cannot be written to may have none
    used: Option<Arc<File>>,
}

/// A file of a pipeline in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFile {
    /// its path in the pipeline's folder
    pub path: String,
    /// the SHA-256 of its bytes
    pub sha256: String,
    /// its size in bytes
    pub size: u64,
}

/// A pipeline in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPipeline {
    /// the SHA-256 of its manifest
    pub manifest: String,
    /// its files, by their paths
    pub files: Vec<StoredFile>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    pub(crate) media_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    artifact_type: Option<String>,
    pub(crate) digest: String,
    pub(crate) size: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Index {
    schema_version: u8,
    media_type: Option<String>,
    pub(crate) manifests: Vec<Descriptor>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Manifest {
    schema_version: u8,
    media_type: String,
    artifact_type: Option<String>,
    pub(crate) config: Descriptor,
    pub(crate) layers: Vec<Descriptor>,
    #[serde(default)]
    pub(crate) annotations: BTreeMap<String, String>,
}

pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io { action, path, source }
}

impl Store {
    /// `$GPUX_STORE`, else `gpux/store` in the platform's folder for data; made if it is not there.
    pub fn from_environment() -> Result<Self, StoreError> {
        Self::open(Self::default_root().ok_or(StoreError::NoFolder)?)
    }

    /// The same; `None` if it is not there.
    pub fn existing() -> Result<Option<Self>, StoreError> {
        let root = Self::default_root().filter(|root| root.join(INDEX).exists());
        root.map(Self::open).transpose()
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
                    && root.join(INDEX).is_file() =>
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
        let layout = store.root.join("oci-layout");
        if !layout.is_file() {
            store.write(&layout, LAYOUT.as_bytes())?;
        }
        if !store.index().is_file() {
            let locked = store.lock()?;
            if !store.index().is_file() {
                let empty = Index { schema_version: 2, media_type: Some(INDEX_TYPE.to_owned()), manifests: Vec::new() };
                store.write(&store.index(), &json(&empty))?;
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

    fn ingest(&self) -> PathBuf {
        self.root.join(INGEST)
    }

    pub(crate) fn index(&self) -> PathBuf {
        self.root.join(INDEX)
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
            let mut file = tempfile::NamedTempFile::new_in(self.ingest())?;
            file.write_all(bytes)?;
            file.as_file().sync_all()?;
            file.persist(path)?;
            Ok(())
        };
        write().map_err(io("write", path))
    }

    /// Held while the index changes.
    pub(crate) fn lock(&self) -> Result<File, StoreError> {
        let path = self.root.join("index.lock");
        let opened = File::options().write(true).create(true).truncate(false).open(&path);
        opened.and_then(|file| file.lock().map(|()| file)).map_err(io("lock", &path))
    }

    pub(crate) fn read_index(&self) -> Result<Index, StoreError> {
        let path = self.index();
        let bytes = read(&path, MAX_INDEX)?;
        serde_json::from_slice(&bytes).map_err(|error| StoreError::Damaged { path, reason: error.to_string() })
    }

    /// Keeps bytes, and gives their SHA-256.
    fn add_bytes(&self, bytes: &[u8]) -> Result<Descriptor, StoreError> {
        let (digest, size) = (sha256(bytes), bytes.len() as u64);
        let path = self.blob(&digest);
        if !self.has_blob(&digest, size) {
            self.write(&path, bytes)?;
            make_read_only(&path)?;
        }
        Ok(Descriptor {
            media_type: String::new(),
            artifact_type: None,
            digest: format!("sha256:{digest}"),
            size,
            annotations: BTreeMap::new(),
        })
    }

    /// Keeps a file, and gives its SHA-256 and size.
    fn add_file(&self, path: &Path) -> Result<Descriptor, StoreError> {
        let mut file = open_file(path, "it").map_err(io("read", path))?;
        let size = file.metadata().map_err(io("read", path))?.len();
        let (digest, _) = digest_of(&mut file, size).map_err(io("read", path))?;
        if !self.has_blob(&digest, size) {
            let copy = || {
                let part = tempfile::NamedTempFile::new_in(self.ingest())?;
                // Shares the bytes where the file system can.
                fs::copy(path, part.path())?;
                part.as_file().sync_all()?;
                part.persist(self.blob(&digest))?;
                Ok(())
            };
            copy().map_err(io("copy", path))?;
            make_read_only(&self.blob(&digest))?;
        }
        let annotations = BTreeMap::new();
        Ok(Descriptor {
            media_type: String::new(),
            artifact_type: None,
            digest: format!("sha256:{digest}"),
            size,
            annotations,
        })
    }

    /// Keeps the files of a folder as a pipeline that `name` means from then on.
    pub fn add_folder(
        &self,
        folder: &Path,
        files: &[String],
        name: &str,
        title: &str,
    ) -> Result<StoredPipeline, StoreError> {
        self.must_be_writable()?;
        let mut layers = Vec::new();
        let mut files = files.to_vec();
        files.sort();
        for path in &files {
            let mut layer = self.add_file(&folder.join(path))?;
            layer.media_type = format!("application/vnd.cncf.model.{}.v1.raw", role(path));
            layer.annotations = [TITLE_KEY, PATH_KEY].map(|key| (key.to_owned(), path.clone())).into();
            layers.push(layer);
        }
        let digests: Vec<_> = layers.iter().map(|layer| &layer.digest).collect();
        let config = serde_json::json!({
            "descriptor": { "name": title },
            "config": { "format": "onnx" },
            "modelfs": { "type": "layers", "diffIds": digests },
        });
        let mut config = self.add_bytes(&json(&config))?;
        CONFIG_TYPE.clone_into(&mut config.media_type);
        let annotations = [("dev.gpux.bundle", "1"), ("dev.gpux.contract", "gpux:pipeline@0.1.0"), (TITLE_KEY, title)];
        let manifest = Manifest {
            schema_version: 2,
            media_type: MANIFEST_TYPE.to_owned(),
            artifact_type: Some(ARTIFACT_TYPE.to_owned()),
            config,
            layers,
            annotations: annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        };
        let mut entry = self.add_bytes(&json(&manifest))?;
        MANIFEST_TYPE.clone_into(&mut entry.media_type);
        entry.artifact_type = Some(ARTIFACT_TYPE.to_owned());

        let digest = entry.digest.clone();
        self.put_name(name, entry)?;
        self.pipeline(&digest)
    }

    /// Has a name mean the manifest from now on. Returns the digits of the one that it meant before.
    pub(crate) fn put_name(&self, name: &str, mut entry: Descriptor) -> Result<Option<String>, StoreError> {
        self.must_be_writable()?;
        entry.annotations.insert(NAME_KEY.to_owned(), name.to_owned());
        let locked = self.lock()?;
        let mut index = self.read_index()?;
        let is_named = |other: &Descriptor| other.annotations.get(NAME_KEY).is_some_and(|other| other == name);
        let before = index.manifests.iter().find(|other| is_named(other)).and_then(|other| hex(&other.digest));
        index.manifests.retain(|other| !is_named(other));
        index.manifests.push(entry);
        self.write(&self.index(), &json(&index))?;
        drop(locked);
        Ok(before)
    }

    /// What the index says of a manifest that the store has.
    pub(crate) fn entry_of(&self, digits: &str) -> Result<Descriptor, StoreError> {
        self.manifest(digits)?;
        let path = self.blob(digits);
        let size = path.metadata().map_err(io("read", &path))?.len();
        Ok(Descriptor {
            media_type: MANIFEST_TYPE.to_owned(),
            artifact_type: Some(ARTIFACT_TYPE.to_owned()),
            digest: format!("sha256:{digits}"),
            size,
            annotations: BTreeMap::new(),
        })
    }

    /// The pipeline that a name means.
    pub fn find(&self, name: &str) -> Result<Option<StoredPipeline>, StoreError> {
        let index = self.read_index()?;
        let mut named = index.manifests.iter();
        let entry = named.find(|entry| entry.annotations.get(NAME_KEY).is_some_and(|other| other == name));
        entry.map(|entry| self.pipeline(&entry.digest)).transpose()
    }

    /// Reads a manifest, and checks that its files are there.
    fn pipeline(&self, digest: &str) -> Result<StoredPipeline, StoreError> {
        let digits = hex(digest).ok_or_else(|| damaged(&self.index(), "it has a digest that is no SHA-256"))?;
        self.pipeline_of(&digits)
    }

    /// The pipeline whose manifest has this digest, if all of it is there.
    pub(crate) fn pipeline_of(&self, digits: &str) -> Result<StoredPipeline, StoreError> {
        let manifest = self.manifest(digits)?;
        let mut files = self.files_of(digits, &manifest)?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        for file in &files {
            if !self.has_blob(&file.sha256, file.size) {
                return Err(StoreError::Missing { file: file.path.clone(), path: self.blob(&file.sha256) });
            }
        }
        Ok(StoredPipeline { manifest: digits.to_owned(), files })
    }

    /// The manifest with this digest.
    pub(crate) fn manifest(&self, digits: &str) -> Result<Manifest, StoreError> {
        let path = self.blob(digits);
        let bytes = read(&path, MAX_MANIFEST)?;
        if sha256(&bytes) != digits {
            return Err(damaged(&path, "it is not what its name says"));
        }
        let manifest: Manifest = serde_json::from_slice(&bytes).map_err(|error| damaged(&path, &error.to_string()))?;
        if manifest.layers.len() > MAX_LAYERS {
            return Err(damaged(&path, &format!("it has more than {MAX_LAYERS} files")));
        }
        Ok(manifest)
    }

    /// The files of a manifest, in its order.
    pub(crate) fn files_of(&self, digits: &str, manifest: &Manifest) -> Result<Vec<StoredFile>, StoreError> {
        let path = self.blob(digits);
        let mut names = BTreeSet::new();
        let file = |layer: &Descriptor| {
            let name = layer.annotations.get(PATH_KEY).filter(|name| is_safe(name)).cloned();
            let (Some(name), Some(sha256)) = (name, hex(&layer.digest)) else {
                return Err(damaged(&path, "one of its files has no path or no SHA-256"));
            };
            if !names.insert(name.clone()) {
                return Err(damaged(&path, "two of its files have one path"));
            }
            Ok(StoredFile { path: name, sha256, size: layer.size })
        };
        manifest.layers.iter().map(file).collect()
    }
}

fn damaged(path: &Path, reason: &str) -> StoreError {
    StoreError::Damaged { path: path.to_owned(), reason: reason.to_owned() }
}

/// The digits of a digest `sha256:…`.
pub(crate) fn hex(digest: &str) -> Option<String> {
    match digest.strip_prefix(DIGEST_SCHEME).and_then(FileDigest::from_hex) {
        Some(FileDigest::Sha256(digits)) => Some(digits),
        _ => None,
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

/// What part of a model a file is, in the words of CNCF ModelPack.
fn role(path: &str) -> &'static str {
    let name = path.rsplit('/').next().unwrap_or(path);
    let extension = name.rsplit('.').next().unwrap_or_default();
    if name.contains(".onnx") || ["data", "bin"].contains(&extension) {
        "weight"
    } else if name.starts_with("gpux.") {
        "code"
    } else if ["README", "LICENSE", "NOTICE"].iter().any(|doc| name.starts_with(doc)) {
        "doc"
    } else {
        "weight.config"
    }
}

pub(crate) fn json(value: &impl Serialize) -> Vec<u8> {
    // Maps of texts cannot fail to be written.
    serde_json::to_vec(value).unwrap_or_default()
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

pub(crate) fn digest_of(file: &mut File, size: u64) -> std::io::Result<(String, String)> {
    let mut hasher = Hasher::new(size);
    let mut piece = vec![0; 1 << 16];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(hasher.finish()),
            read => hasher.update(&piece[..read]),
        }
    }
}

fn make_read_only(path: &Path) -> Result<(), StoreError> {
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
        assert_eq!(store.find("hf:a/p@main").unwrap(), Some(kept.clone()));
        assert_eq!(store.find("hf:a/other@main").unwrap(), None);

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
        assert!(matches!(store.find("p"), Err(StoreError::Damaged { .. })));
        // By its own digest, it still names a path that leads elsewhere.
        let digest = sha256(text.as_bytes());
        fs::write(store.blob(&digest), &text).unwrap();
        let index = fs::read_to_string(store.index()).unwrap().replace(&kept.manifest, &digest);
        fs::write(store.index(), index).unwrap();
        assert!(store.find("p").unwrap_err().to_string().contains("no path"));
        fs::write(store.index(), "{").unwrap();
        assert!(matches!(store.find("p"), Err(StoreError::Damaged { .. })));
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
