//! The entries of the operator's cache that each pipeline uses, so that its process is given these and no others.
//!
//! Loading outside of isolation records them, sealed as other files of the cache: only the operator's gpux says what a
//! pipeline may read.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::platform::authenticated_file;
use crate::platform::cache::{SHARED_FOLDERS, SharedCache, UsedEntries};
use crate::platform::files::resolve_path;
use crate::{CacheDir, CacheFolder};

/// The name of the record of the pipeline at `path`.
fn record_name(path: &Path) -> String {
    let path = resolve_path(path).or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned());
    format!("{}.entries", CacheDir::pipeline_name(&path))
}

/// For gpux itself.
#[doc(hidden)]
impl CacheDir {
    /// Records the entries that were used since [`CacheDir::noting_use`], beside those that the pipeline at `path` used
    /// before. A record that cannot be written costs its process the time to make them again.
    pub fn record_entries(&self, path: &Path) {
        let Some(used) = self.used.as_ref().map(UsedEntries::take).filter(|used| !used.is_empty()) else { return };
        let name = record_name(path);
        let read = || authenticated_file::read(self, CacheFolder::Builds, &name);
        let before: BTreeSet<String> = read().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        let is_there = |entry: &&String| self.root().join(entry).exists();
        let all: BTreeSet<_> = before.iter().filter(is_there).chain(&used).cloned().collect();
        if all != before
            && let Ok(bytes) = serde_json::to_vec(&all)
        {
            let _ = authenticated_file::write(self, CacheFolder::Builds, &name, &bytes);
        }
    }
}

impl SharedCache {
    /// The entries that loading the pipeline at `path` used, outside of isolation.
    pub fn entries_of(&self, path: &Path) -> Vec<PathBuf> {
        let bytes = authenticated_file::read_shared(self, CacheFolder::Builds, &record_name(path));
        let entries: Vec<String> = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        let is_entry = |entry: &&String| {
            let parts = entry.split_once('/');
            parts.is_some_and(|(folder, name)| {
                SHARED_FOLDERS.iter().any(|known| known.name() == folder) && !name.contains(['/', '\\']) && name != ".."
            })
        };
        entries.iter().filter(is_entry).map(|entry| self.root().join(entry)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipeline_is_given_the_entries_that_it_used() {
        let folder = tempfile::tempdir().unwrap();
        let operator = CacheDir::at(folder.path().join("cache"));
        let (mine, other) = (folder.path().join("mine.yml"), folder.path().join("other.yml"));
        let write = |cache: &CacheDir, folder, name| authenticated_file::write(cache, folder, name, b"x").unwrap();
        write(&operator, CacheFolder::Steps, "unused");
        let noting = operator.clone().noting_use();
        write(&noting, CacheFolder::Steps, "made");
        write(&noting, CacheFolder::Work, "own");
        noting.record_entries(&mine);
        let noting = operator.clone().noting_use();
        assert!(authenticated_file::read(&noting, CacheFolder::Steps, "unused").is_some());
        assert!(authenticated_file::read(&noting, CacheFolder::Steps, "missing").is_none());
        noting.record_entries(&other);

        let key = authenticated_file::public_key(&operator).ok();
        let pipeline = CacheDir::within(&operator, folder.path().join("own"), key);
        let shared = pipeline.shared().unwrap();
        let path = |name: &str| operator.path(CacheFolder::Steps).join(name);
        assert_eq!(shared.entries_of(&mine), [path("made")]);
        assert_eq!(shared.entries_of(&other), [path("unused")]);
        assert!(shared.entries_of(folder.path()).is_empty());

        // Later loads add to it, and leave out what is gone.
        write(&operator, CacheFolder::Steps, "later");
        std::fs::remove_file(path("made")).unwrap();
        let noting = operator.clone().noting_use();
        assert!(authenticated_file::read(&noting, CacheFolder::Steps, "later").is_some());
        noting.record_entries(&mine);
        assert_eq!(shared.entries_of(&mine), [path("later")]);

        // A record that the operator did not seal says nothing.
        let record = operator.path(CacheFolder::Builds).join(record_name(&mine));
        let mut bytes = std::fs::read(&record).unwrap();
        bytes.extend(b" ");
        std::fs::write(&record, bytes).unwrap();
        assert!(shared.entries_of(&mine).is_empty());
    }
}
