//! Writing a bundle as an archive, or as a folder.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::archive::ArchiveWriter;
use crate::bundle_plan::{BlobSink, BundlePlan};
use crate::copy_hashed::{CopyError, copy_hashed};
use crate::error::{StoreError, file_error};
use crate::manifest::{BLOBS, Documents, INDEX_FILE, Index, LAYOUT, LAYOUT_FILE, NAME_KEY, json};
use crate::pipeline::StoredPipeline;

impl BundlePlan {
    /// Reads the files, and gives the pipeline with its digests.
    pub fn digest(&self, progress: &mut dyn FnMut(u64)) -> Result<StoredPipeline, StoreError> {
        Ok(self.write(&mut DigestSink, progress)?.pipeline)
    }

    /// Writes the bundle as an archive into `file`, which lies at `path` and is empty. The same files give the same bytes.
    pub fn write_archive(
        &self,
        file: &mut File,
        path: &Path,
        progress: &mut dyn FnMut(u64),
    ) -> Result<StoredPipeline, StoreError> {
        let draft = self.draft();
        let sizes = first_entries(&draft, &self.name()).map(|(_, bytes)| bytes.len());
        let mut sink = ArchiveSink { writer: ArchiveWriter::new(file, sizes), names: BTreeSet::new(), path };
        let documents = self.write(&mut sink, progress)?;
        let first = first_entries(&documents, &self.name());
        let first: Vec<_> = first.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
        let finished = sink.writer.finish(&first).and_then(|()| file.sync_all());
        finished.map_err(file_error("write", path))?;
        Ok(documents.pipeline)
    }

    /// Writes the bundle as an OCI layout into a folder, which is empty.
    pub fn write_folder(&self, folder: &Path, progress: &mut dyn FnMut(u64)) -> Result<StoredPipeline, StoreError> {
        let blobs = folder.join(BLOBS);
        std::fs::create_dir_all(&blobs).map_err(file_error("make", &blobs))?;
        let mut sink = FolderSink::new(blobs.clone(), blobs);
        let documents = self.write(&mut sink, progress)?;
        for (name, bytes) in first_entries(&documents, &self.name()) {
            let path = folder.join(name);
            let written = std::fs::write(&path, bytes).and_then(|()| File::open(&path)?.sync_all());
            written.map_err(file_error("write", &path))?;
        }
        Ok(documents.pipeline)
    }

    /// Its name with its version, by which an index knows it.
    pub fn name(&self) -> String {
        let info = self.info();
        info.version.as_ref().map_or_else(|| info.name.clone(), |version| format!("{}:{version}", info.name))
    }
}

/// What comes before the files, so that a reader knows the bundle before it reads them.
fn first_entries(documents: &Documents, name: &str) -> [(String, Vec<u8>); 4] {
    let mut entry = documents.entry.clone();
    entry.annotations.insert(NAME_KEY.to_owned(), name.to_owned());
    let config = crate::digest::sha256(&documents.config);
    [
        (LAYOUT_FILE.to_owned(), LAYOUT.as_bytes().to_owned()),
        (INDEX_FILE.to_owned(), json(&Index::new(vec![entry]))),
        (format!("{BLOBS}/{}", documents.pipeline.manifest), documents.manifest.clone()),
        (format!("{BLOBS}/{config}"), documents.config.clone()),
    ]
}

struct DigestSink;

impl BlobSink for DigestSink {
    fn write(
        &mut self,
        source: &mut dyn Read,
        size: u64,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(String, u64), CopyError> {
        copy_hashed(source, size, &mut io::sink(), progress)
    }

    fn keep(&mut self, _: &str, _: &str, _: u64) -> Result<(), StoreError> {
        Ok(())
    }

    fn error(&self, file: &str, _: u64, _: u64, source: io::Error) -> StoreError {
        file_error("read", Path::new(file))(source)
    }
}

struct ArchiveSink<'a> {
    writer: ArchiveWriter<'a>,
    names: BTreeSet<String>,
    path: &'a Path,
}

impl BlobSink for ArchiveSink<'_> {
    fn write(
        &mut self,
        source: &mut dyn Read,
        size: u64,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(String, u64), CopyError> {
        self.writer.write(source, size, progress)
    }

    fn keep(&mut self, file: &str, sha256: &str, size: u64) -> Result<(), StoreError> {
        let name = format!("{BLOBS}/{sha256}");
        if self.names.contains(&name) {
            // The next file is written in its place.
            return Ok(());
        }
        self.writer.name(&name, size).map_err(|source| self.error(file, size, size, source))?;
        self.names.insert(name);
        Ok(())
    }

    fn error(&self, _: &str, _: u64, _: u64, source: io::Error) -> StoreError {
        file_error("write", self.path)(source)
    }
}

/// A folder of files by their digests, and one on the same disk for what is not whole.
pub(crate) struct FolderSink {
    staging: PathBuf,
    blobs: PathBuf,
    pub(crate) last: Option<tempfile::NamedTempFile>,
}

impl FolderSink {
    pub(crate) const fn new(staging: PathBuf, blobs: PathBuf) -> Self {
        Self { staging, blobs, last: None }
    }

    /// Gives the file that was written last its digest's name.
    pub(crate) fn persist(&mut self, sha256: &str) -> io::Result<()> {
        let Some(last) = self.last.take() else { return Ok(()) };
        last.as_file().sync_all()?;
        last.persist(self.blobs.join(sha256))?;
        Ok(())
    }
}

impl BlobSink for FolderSink {
    fn write(
        &mut self,
        source: &mut dyn Read,
        size: u64,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(String, u64), CopyError> {
        let failed = |source| CopyError::Write { source, done: 0 };
        let mut builder = tempfile::Builder::new();
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let file = self.last.insert(builder.tempfile_in(&self.staging).map_err(failed)?);
        copy_hashed(source, size, file, progress)
    }

    fn keep(&mut self, file: &str, sha256: &str, size: u64) -> Result<(), StoreError> {
        self.persist(sha256).map_err(|source| self.error(file, size, size, source))
    }

    fn error(&self, _: &str, _: u64, _: u64, source: io::Error) -> StoreError {
        file_error("write into", &self.blobs)(source)
    }
}
