//! Cache of prepared components, by a digest of component, options, limits and grants. Later starts skip the child
//! process.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::time::SystemTime;

use serde_json::json;
use wasmtime::Engine;

use super::super::native_code::NativeCode;
use super::{PrepareRequest, PreparedComponent};
use gpux_core::CacheDir;
use gpux_core::authenticated_file;
use gpux_core::files::digest;

/// Size of the whole cache in bytes; the oldest entries are evicted first.
const LIMIT: u64 = 1 << 30;
/// Version of this format; entries of other versions are not read.
const FORMAT: u32 = 3;
/// The folder of the cache.
const FOLDER: &str = "steps";
/// The files of an entry: what came of preparing, and the native code of the component or of its snapshot.
const ANSWER: &str = "json";
const CODE: &str = "code";

/// The place of one prepared component in the cache.
pub(crate) struct SnapshotCache {
    cache: CacheDir,
    /// SHA-256 of everything that decides what comes of preparing
    key: String,
}

impl SnapshotCache {
    /// Where this order's result is kept, if there is a cache; `engine` is what would run it.
    pub(crate) fn at(cache: Option<&CacheDir>, engine: &Engine, request: &PrepareRequest<'_>) -> Option<Self> {
        let cache = cache?.clone();
        // wasmtime's version and settings; with the same, this hasher gives the same.
        let mut hasher = DefaultHasher::new();
        engine.precompile_compatibility_hash().hash(&mut hasher);
        let decides =
            json!([FORMAT, env!("CARGO_PKG_VERSION"), hasher.finish(), digest(request.bytes), request.config]);
        Some(Self { cache, key: digest(decides.to_string().as_bytes()) })
    }

    fn name(&self, ending: &str) -> String {
        format!("{}.{ending}", self.key)
    }

    /// Reads a cached preparation without its native code. An entry that is truncated, changed or
    /// not sealed by gpux counts as missing.
    pub(crate) fn read(&self) -> Option<PreparedComponent> {
        let prepared = serde_json::from_slice(&self.read_file(ANSWER)?).ok()?;
        // Marks the entry as recently used.
        let folder = self.cache.folder(FOLDER).ok()?;
        for ending in [ANSWER, CODE] {
            if let Ok(file) = std::fs::File::options().append(true).open(folder.join(self.name(ending))) {
                let _ = file.set_modified(SystemTime::now());
            }
        }
        Some(prepared)
    }

    /// The native code of what [`read`](Self::read) gave.
    pub(crate) fn code(&self) -> Option<NativeCode> {
        self.read_file(CODE).map(NativeCode::from_bytes)
    }

    fn read_file(&self, ending: &str) -> Option<Vec<u8>> {
        authenticated_file::read(&self.cache, FOLDER, &self.name(ending))
    }

    /// Stores a success. A failed write only costs the next start some time.
    pub(crate) fn write(&self, prepared: &PreparedComponent) {
        let Ok(ready) = &prepared.ready else { return };
        let (Ok(text), Some(code)) = (serde_json::to_vec(prepared), &ready.code) else { return };
        let write =
            |ending, bytes: &[u8]| authenticated_file::write(&self.cache, FOLDER, &self.name(ending), bytes).is_ok();
        if write(CODE, code.as_bytes())
            && write(ANSWER, &text)
            && let Ok(folder) = self.cache.folder(FOLDER)
        {
            prune(&folder, LIMIT);
        }
    }
}

/// Removes the oldest files until those left have `limit` bytes at most.
fn prune(folder: &Path, limit: u64) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let facts = |entry: std::fs::DirEntry| {
        let metadata = entry.metadata().ok()?;
        Some((metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH), metadata.len(), entry.path()))
    };
    let mut files: Vec<_> = entries.flatten().filter_map(facts).collect();
    files.sort();
    let mut total: u64 = files.iter().map(|(_, size, _)| size).sum();
    for (_, size, path) in files {
        if total <= limit {
            break;
        }
        if std::fs::remove_file(path).is_ok() {
            total -= size;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evicts_the_oldest_entries() {
        let folder = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        for (name, age) in [("old", 3), ("older", 7), ("new", 1)] {
            let path = folder.path().join(name);
            std::fs::write(&path, [0; 100]).unwrap();
            let file = std::fs::File::options().write(true).open(path).unwrap();
            file.set_modified(now - std::time::Duration::from_secs(age)).unwrap();
        }
        prune(folder.path(), 200);
        let there = |name: &str| folder.path().join(name).exists();
        assert_eq!((there("older"), there("old"), there("new")), (false, true, true));
    }
}
