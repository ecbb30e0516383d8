//! What came of preparing, remembered: a second start asks no child.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::json;
use wasmtime::Engine;

use super::{Order, Prepared, Start};
use crate::config::CacheDir;
use crate::files::{Readers, digest, write_whole};

/// Bytes of all that is remembered; the oldest goes first.
const LIMIT: u64 = 1 << 30;
/// Of what is written here; another is not read.
const FORMAT: u32 = 1;

/// The place of one prepared component in the cache.
pub(in crate::sandbox) struct Kept {
    folder: PathBuf,
    /// SHA-256 of everything that decides what comes of preparing
    key: String,
}

impl Kept {
    /// Where this order's result is kept, if there is a cache; `engine` is what would run it.
    pub(in crate::sandbox) fn at(cache: Option<&CacheDir>, engine: &Engine, order: &Order<'_>) -> Option<Self> {
        let folder = cache?.folder("steps").ok()?;
        // wasmtime's version and settings; with the same, this hasher gives the same.
        let mut hasher = DefaultHasher::new();
        engine.precompile_compatibility_hash().hash(&mut hasher);
        let decides = json!([
            FORMAT,
            env!("CARGO_PKG_VERSION"),
            hasher.finish(),
            digest(order.bytes),
            order.options,
            order.limits,
            order.grants
        ]);
        Some(Self { folder, key: digest(decides.to_string().as_bytes()) })
    }

    fn path(&self, ending: &str) -> PathBuf {
        self.folder.join(&self.key).with_extension(ending)
    }

    /// What was remembered, if it is whole.
    pub(in crate::sandbox) fn read(&self) -> Option<Prepared> {
        let mut prepared: Prepared = serde_json::from_slice(&std::fs::read(self.path("json")).ok()?).ok()?;
        if let Ok(ready) = &mut prepared.ready
            && ready.start == Start::Snapshot
        {
            ready.snapshot = Some(std::fs::read(self.path("wasm")).ok()?);
        }
        // What is used is not the oldest.
        for ending in ["json", "wasm"] {
            if let Ok(file) = std::fs::File::options().append(true).open(self.path(ending)) {
                let _ = file.set_modified(SystemTime::now());
            }
        }
        Some(prepared)
    }

    /// Remembers a success. Not remembering costs the next start some time, no more.
    pub(in crate::sandbox) fn write(&self, prepared: &Prepared) {
        let Ok(ready) = &prepared.ready else { return };
        let Ok(text) = serde_json::to_vec(prepared) else { return };
        let place = |ending, bytes: &[u8]| write_whole(&self.path(ending), bytes, Readers::Owner).is_ok();
        // A snapshot that is cut off would fail each start.
        if ready.snapshot.as_ref().is_none_or(|snapshot| place("wasm", snapshot)) && place("json", &text) {
            prune(&self.folder, LIMIT);
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
    fn the_oldest_goes_first() {
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
