//! What the store takes in: files that become a pipeline, and bundles that somebody made.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::Path;

use crate::bundle_fault::BundleFault;
use crate::bundle_plan::{BlobSink, BundlePlan};
use crate::bundle_reader::BundleReader;
use crate::bundle_writer::FolderSink;
use crate::copy_hashed::{CopyError, copy_hashed};
use crate::digest::sha256;
use crate::error::{StoreError, io};
use crate::manifest::{MAX_CONFIG, check_config};
use crate::pipeline::StoredPipeline;
use crate::store::{Store, make_read_only};

impl Store {
    /// Keeps files as a pipeline, which `name` means from then on.
    pub fn add_files(
        &self,
        plan: &BundlePlan,
        name: Option<&str>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<StoredPipeline, StoreError> {
        self.must_be_writable()?;
        let documents = plan.write(&mut StoreSink::new(self), progress)?;
        self.add_document(&sha256(&documents.config), &documents.config)?;
        self.add_document(&documents.pipeline.manifest, &documents.manifest)?;
        if let Some(name) = name {
            self.set_name(name, documents.entry)?;
        }
        Ok(documents.pipeline)
    }

    /// Keeps the pipeline of a bundle: an archive, or a folder with an OCI layout. `name` means it from then on. Files
    /// that the store has are read and not copied. `progress` gets the bytes of each piece that was read.
    pub fn add_bundle(
        &self,
        bundle: &Path,
        name: Option<&str>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<StoredPipeline, StoreError> {
        self.must_be_writable()?;
        let bundle = BundleReader::open(bundle)?;
        let (layout, pipeline) = (&bundle.layout, &bundle.manifest.pipeline);
        bundle.check_files()?;
        let missing: Vec<_> = pipeline.files.iter().filter(|file| !self.has_blob(&file.sha256, file.size)).collect();
        let sizes: BTreeMap<_, _> = missing.iter().map(|file| (&file.sha256, file.size)).collect();
        let needed = sizes.into_values().fold(0, u64::saturating_add);
        if let Some(free) = free_bytes(self.root()).map_err(io("read", self.root()))?
            && needed > free
        {
            return Err(layout.fault(BundleFault::NoRoom { needed, free }));
        }

        let (mut sink, mut read) = (StoreSink::new(self), BTreeSet::new());
        for file in &pipeline.files {
            if !read.insert(&file.sha256) {
                continue;
            }
            let section = layout.blob(&file.sha256, file.size, &file.path)?;
            let mut reader = section.reader(0, file.size).map_err(|error| layout.unreadable(error))?;
            let written = if self.has_blob(&file.sha256, file.size) {
                // Who knows the digest of another's file does not get it by that alone.
                copy_hashed(&mut reader, file.size, &mut io::sink(), progress)
            } else {
                sink.write(&mut reader, file.size, progress)
            };
            let written = written.map_err(|error| match error {
                CopyError::Read(error) => layout.unreadable(error),
                CopyError::Write { source, done } => sink.error(&file.path, file.size, done, source),
            });
            let (digest, copied) = written?;
            if copied != file.size {
                return Err(layout.fault(BundleFault::Changed { path: file.path.clone() }));
            }
            if digest != file.sha256 {
                let (path, digest) = (file.path.clone(), file.sha256.clone());
                return Err(layout.fault(BundleFault::WrongDigest { path, digest }));
            }
            sink.keep(&file.path, &digest, copied)?;
        }
        let (config, what) = (&bundle.manifest.config, "its configuration");
        let digest = config.sha256().map_err(|fault| layout.fault(fault))?;
        let bytes = layout.blob(&digest, config.size, what)?.bytes(0, MAX_CONFIG);
        let bytes = bytes.map_err(|error| layout.unreadable(error))?;
        if sha256(&bytes) != digest {
            return Err(layout.fault(BundleFault::WrongDigest { path: what.to_owned(), digest }));
        }
        check_config(&bytes).map_err(|fault| layout.fault(fault))?;
        self.add_document(&digest, &bytes)?;
        self.add_document(&pipeline.manifest, &bundle.bytes)?;
        if let Some(name) = name {
            self.set_name(name, bundle.entry)?;
        }
        Ok(bundle.manifest.pipeline)
    }
}

/// The files of the store.
struct StoreSink<'a> {
    store: &'a Store,
    files: FolderSink,
}

impl<'a> StoreSink<'a> {
    fn new(store: &'a Store) -> Self {
        Self { store, files: FolderSink::new(store.ingest(), store.blobs()) }
    }
}

impl BlobSink for StoreSink<'_> {
    fn write(
        &mut self,
        source: &mut dyn Read,
        size: u64,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(String, u64), CopyError> {
        self.files.write(source, size, progress)
    }

    fn keep(&mut self, file: &str, sha256: &str, size: u64) -> Result<(), StoreError> {
        if self.store.has_blob(sha256, size) {
            self.files.last = None;
            return self.store.verify_blob(sha256, &mut |_| {});
        }
        self.files.persist(sha256).map_err(|source| self.error(file, size, size, source))?;
        make_read_only(&self.store.blob(sha256))
    }

    fn error(&self, file: &str, size: u64, done: u64, source: io::Error) -> StoreError {
        let root = self.store.root().to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                StoreError::Full { file: file.to_owned(), root, done, size }
            }
            _ => StoreError::Io { action: "write into", path: root, source },
        }
    }
}

/// The bytes that a disk has left for this user, where the system tells.
#[cfg(unix)]
fn free_bytes(folder: &Path) -> io::Result<Option<u64>> {
    let disk = rustix::fs::statvfs(folder)?;
    Ok(Some(disk.f_bavail.saturating_mul(disk.f_frsize)))
}

#[cfg(not(unix))]
fn free_bytes(_: &Path) -> io::Result<Option<u64>> {
    Ok(None)
}
