//! Reading an OCI image layout, from an archive or a folder, within bounds.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use gpux_core::files::{lies_in, open_canonical, open_file, read_head, resolve_path};

use crate::archive::{self, Entries};
use crate::bundle_fault::BundleFault;
use crate::error::{StoreError, file_error};
use crate::file_section::FileSection;
use crate::manifest::{BLOBS, INDEX_FILE, LAYOUT_FILE};

/// The first bytes of what compressed an archive.
const COMPRESSIONS: [(&[u8], &str); 6] = [
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\xfd7zXZ\0", "xz"),
    (b"BZh", "bzip2"),
    (b"PK\x03\x04", "zip"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
];
/// The most bytes of the file that says that this is a layout.
const MAX_LAYOUT: u64 = 4096;

/// An OCI image layout that somebody made.
#[derive(Debug)]
pub(crate) struct LayoutReader {
    path: PathBuf,
    files: LayoutFiles,
}

#[derive(Debug)]
enum LayoutFiles {
    Archive { file: File, entries: Entries },
    Folder,
}

/// Whether this is an archive, or a folder with an OCI layout: something to take a bundle from. Of a file, only the first
/// bytes are read.
pub fn is_bundle(path: &Path) -> bool {
    if path.is_dir() {
        return path.join(LAYOUT_FILE).is_file();
    }
    read_head(path, 512).is_some_and(|head| archive::is_archive(&head) || compression(&head).is_some())
}

fn compression(head: &[u8]) -> Option<&'static str> {
    COMPRESSIONS.iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, name)| *name)
}

impl LayoutReader {
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let files = if path.is_dir() { LayoutFiles::Folder } else { Self::open_archive(path)? };
        let layout = Self { path: path.to_owned(), files };
        let text = layout.document(LAYOUT_FILE, LAYOUT_FILE, MAX_LAYOUT)?;
        let version: Option<serde_json::Value> = serde_json::from_slice(&text).ok();
        let version = version.as_ref().and_then(|json| json["imageLayoutVersion"].as_str());
        if version.is_none_or(|version| !version.starts_with("1.")) {
            let found = version.unwrap_or("none").chars().take(20).collect();
            return Err(layout.fault(BundleFault::LayoutVersion { found }));
        }
        Ok(layout)
    }

    fn open_archive(path: &Path) -> Result<LayoutFiles, StoreError> {
        let fault = |fault| StoreError::Bundle { path: path.to_owned(), fault };
        let file = open_file(path, "a bundle").map_err(file_error("read", path))?;
        let head = FileSection::whole(file).and_then(|file| file.bytes(0, 512)).map_err(file_error("read", path))?;
        if !archive::is_archive(&head) {
            return Err(fault(match compression(&head) {
                Some(name) => BundleFault::Compressed(name),
                None => BundleFault::NotAnArchive,
            }));
        }
        let file = open_file(path, "a bundle").map_err(file_error("read", path))?;
        let entries = archive::find(&file).map_err(|error| match error {
            archive::ReadError::Fault(found) => fault(found),
            archive::ReadError::Io(source) => file_error("read", path)(source),
        })?;
        Ok(LayoutFiles::Archive { file, entries })
    }

    /// A fault of what is read.
    pub(crate) fn fault(&self, fault: BundleFault) -> StoreError {
        StoreError::Bundle { path: self.path.clone(), fault }
    }

    /// The error of reading it.
    pub(crate) fn unreadable(&self, source: io::Error) -> StoreError {
        file_error("read", &self.path)(source)
    }

    /// The index.
    pub(crate) fn index(&self, limit: u64) -> Result<Vec<u8>, StoreError> {
        self.document(INDEX_FILE, INDEX_FILE, limit)
    }

    fn document(&self, name: &'static str, what: &'static str, limit: u64) -> Result<Vec<u8>, StoreError> {
        let section = self.section(name)?.ok_or_else(|| self.fault(BundleFault::NotALayout { missing: name }))?;
        if section.size > limit {
            return Err(self.fault(BundleFault::TooLarge { what, size: section.size, limit }));
        }
        section.bytes(0, limit).map_err(|error| self.unreadable(error))
    }

    /// The file of this digest, which has the size that was announced.
    pub(crate) fn blob(&self, sha256: &str, size: u64, path: &str) -> Result<FileSection, StoreError> {
        let section = self.section(&format!("{BLOBS}/{sha256}"))?;
        let missing = || BundleFault::MissingFile { path: path.to_owned(), digest: sha256.to_owned() };
        let section = section.ok_or_else(|| self.fault(missing()))?;
        if section.size != size {
            let path = path.to_owned();
            return Err(self.fault(BundleFault::WrongSize { path, found: section.size, expected: size }));
        }
        Ok(section)
    }

    fn section(&self, name: &str) -> Result<Option<FileSection>, StoreError> {
        match &self.files {
            LayoutFiles::Archive { file, entries } => {
                let Some((start, size)) = entries.get(name) else { return Ok(None) };
                let file = file.try_clone().map_err(|error| self.unreadable(error))?;
                Ok(Some(FileSection::new(file, *start, *size)))
            }
            LayoutFiles::Folder => {
                let path = self.path.join(name);
                match path.symlink_metadata() {
                    Ok(metadata) if metadata.is_file() => {
                        let inside = resolve_path(&self.path).and_then(|folder| {
                            let found = resolve_path(&path)?;
                            Ok(lies_in(&found, &folder).then_some(found))
                        });
                        let found = inside.map_err(file_error("read", &path))?;
                        let found = found.ok_or_else(|| {
                            self.fault(BundleFault::EntryKind { name: name.to_owned(), kind: "behind a symbolic link" })
                        })?;
                        let file = open_canonical(&found).and_then(FileSection::whole);
                        Ok(Some(file.map_err(file_error("read", &path))?))
                    }
                    Ok(metadata) => {
                        let kind = if metadata.is_symlink() { "a symbolic link" } else { "no plain file" };
                        Err(self.fault(BundleFault::EntryKind { name: name.to_owned(), kind }))
                    }
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                    Err(error) => Err(file_error("read", &path)(error)),
                }
            }
        }
    }
}
