//! What a step's component was built from, kept in the cache.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use gpux_core::files::{ReadAccess, digest, read_file, write_whole};
use gpux_core::{CacheDir, CacheFolder};

/// What a component was built from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BuildRecord {
    /// the fingerprint of its sources and tools, if they are known
    pub(super) sources: Option<String>,
    /// the fingerprint of what the language's build gave
    pub(super) module: String,
    /// SHA-256 of the component
    pub(super) component: String,
    /// bytes of the component before it was stripped
    pub(super) size_before: usize,
}

impl BuildRecord {
    /// Whether the component at `path` is still the one that was built.
    pub(super) fn describes(&self, path: &Path) -> bool {
        read_file(path).is_ok_and(|component| digest(component) == self.component)
    }
}

/// The place of a component's record.
pub(super) struct BuildRecords<'a> {
    cache: &'a CacheDir,
    name: String,
    file: PathBuf,
}

impl<'a> BuildRecords<'a> {
    /// That of the component at `path`, if there is a cache.
    pub(super) fn new(cache: Option<&'a CacheDir>, path: &Path) -> Option<Self> {
        let cache = cache?;
        let path = std::path::absolute(path).ok()?;
        let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
        let place = folder.unwrap_or_default().join(path.file_name()?);
        let name = format!("{}.json", digest(place.as_os_str().as_encoded_bytes()));
        Some(Self { cache, file: cache.folder(CacheFolder::Builds).ok()?.join(&name), name })
    }

    pub(super) fn read(&self) -> Option<BuildRecord> {
        serde_json::from_slice(&read_file(&self.file).ok()?).ok()
    }

    /// Keeps the record; without it the next build is a whole one.
    pub(super) fn write(&self, record: &BuildRecord) {
        let written = serde_json::to_vec(record).map(|text| write_whole(&self.file, &text, ReadAccess::Owner));
        if matches!(written, Ok(Ok(()))) {
            self.cache.touch_and_evict(CacheFolder::Builds, &self.name);
        }
    }
}
