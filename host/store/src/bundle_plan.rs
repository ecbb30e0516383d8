//! What becomes a bundle, and where its files go.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use gpux_core::files::{FileVersion, open_canonical};

use crate::bundle_fault::BundleFault;
use crate::copy_hashed::CopyError;
use crate::error::{StoreError, file_error};
use crate::file_section::FileSection;
use crate::forbidden_content::Sample;
use crate::manifest::{BundleInfo, Documents, MAX_FILES, MAX_MANIFEST, PIPELINE_FILE, check_paths};
use crate::pipeline::{FileRole, StoredFile};

/// A file that goes into a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleFile {
    /// its path there
    pub path: String,
    /// what it is for
    pub role: FileRole,
    /// where its bytes are
    pub source: FileSource,
}

/// Where the bytes of a file are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileSource {
    /// in a file, by its [resolved](gpux_core::files::resolve_path) path: whatever it is replaced by, no link is followed
    Path(PathBuf),
    /// here
    Bytes(Vec<u8>),
}

/// The files of a bundle and what it says of them, checked.
#[derive(Clone, Debug)]
pub struct BundlePlan {
    files: Vec<BundleFile>,
    sizes: Vec<u64>,
    info: BundleInfo,
}

/// Where files of a bundle go.
pub(crate) trait BlobSink {
    /// Takes a file of `size` bytes; gives its SHA-256 and what was there.
    fn write(
        &mut self,
        source: &mut dyn Read,
        size: u64,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(String, u64), CopyError>;

    /// Keeps what was written last, the file `file` of the pipeline.
    fn keep(&mut self, file: &str, sha256: &str, size: u64) -> Result<(), StoreError>;

    /// The error of writing a file.
    fn error(&self, file: &str, size: u64, done: u64, source: io::Error) -> StoreError;
}

impl BundlePlan {
    /// Checks paths, kinds and number of the files. No file is read but its beginning and its end.
    pub fn new(mut files: Vec<BundleFile>, info: BundleInfo) -> Result<Self, StoreError> {
        let fault = StoreError::Contents;
        files.sort_by(|one, other| one.path.cmp(&other.path));
        if files.len() > MAX_FILES {
            return Err(fault(BundleFault::TooManyFiles { files: files.len(), limit: MAX_FILES }));
        }
        check_paths(files.iter().map(|file| file.path.as_str())).map_err(fault)?;
        if !files.iter().any(|file| file.path == PIPELINE_FILE) {
            return Err(fault(BundleFault::ModelAlone));
        }
        let mut sizes = Vec::with_capacity(files.len());
        for file in &files {
            let (sample, size) = match &file.source {
                FileSource::Bytes(bytes) => (Sample::of_bytes(bytes), bytes.len() as u64),
                FileSource::Path(path) => {
                    let opened = open(path).and_then(FileSection::whole);
                    let section = opened.map_err(file_error("read", path))?;
                    (Sample::of_file(&section).map_err(file_error("read", path))?, section.size)
                }
            };
            sample.check(&file.path).map_err(fault)?;
            sizes.push(size);
        }
        let plan = Self { files, sizes, info };
        let (size, limit) = (plan.draft().manifest.len() as u64, MAX_MANIFEST);
        if size > limit {
            return Err(fault(BundleFault::TooLarge {
                what: "the manifest, with the paths of all files,",
                size,
                limit,
            }));
        }
        Ok(plan)
    }

    /// Its files, by their paths, and the size of each.
    pub fn files(&self) -> impl Iterator<Item = (&BundleFile, u64)> {
        self.files.iter().zip(self.sizes.iter().copied())
    }

    /// What it says of itself.
    pub const fn info(&self) -> &BundleInfo {
        &self.info
    }

    /// The bytes of all files.
    pub fn size(&self) -> u64 {
        self.sizes.iter().sum()
    }

    /// The documents, as long as they will be, before any digest is known.
    pub(crate) fn draft(&self) -> Documents {
        Documents::new(self.stored(|_| "0".repeat(64)), &self.info)
    }

    /// Writes each file, in the order of their paths; gives the documents.
    pub(crate) fn write(
        &self,
        sink: &mut dyn BlobSink,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Documents, StoreError> {
        let mut digests = Vec::with_capacity(self.files.len());
        for (file, size) in self.files() {
            let mut is_changed = false;
            let written = match &file.source {
                FileSource::Bytes(bytes) => sink.write(&mut bytes.as_slice(), size, progress),
                FileSource::Path(path) => {
                    let mut opened = open(path).map_err(file_error("read", path))?;
                    let before = FileVersion::of(path);
                    let written = sink.write(&mut opened, size, progress);
                    is_changed = FileVersion::of(path) != before;
                    written
                }
            };
            let (sha256, found) = written.map_err(|error| match (error, &file.source) {
                (CopyError::Read(error), FileSource::Path(path)) => file_error("read", path)(error),
                (CopyError::Read(source), FileSource::Bytes(_)) => sink.error(&file.path, size, 0, source),
                (CopyError::Write { source, done }, _) => sink.error(&file.path, size, done, source),
            })?;
            if found != size || is_changed {
                return Err(StoreError::Contents(BundleFault::Changed { path: file.path.clone() }));
            }
            sink.keep(&file.path, &sha256, size)?;
            digests.push(sha256);
        }
        Ok(Documents::new(self.stored(|index| digests[index].clone()), &self.info))
    }

    fn stored(&self, digest: impl Fn(usize) -> String) -> Vec<StoredFile> {
        let stored = |(index, (file, size)): (usize, (&BundleFile, u64))| StoredFile {
            path: file.path.clone(),
            sha256: digest(index),
            size,
            role: file.role,
        };
        self.files().enumerate().map(stored).collect()
    }
}

fn open(path: &Path) -> io::Result<File> {
    let file = open_canonical(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a file")) }
}
