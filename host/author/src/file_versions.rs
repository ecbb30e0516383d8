//! Which files there are, and when each was changed: enough to see that something is new.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Names that builds and tools write, and nobody edits.
const NOT_WATCHED: [&str; 5] = ["target", "node_modules", "__pycache__", "Cargo.lock", "package-lock.json"];
/// The most files that are looked at.
const MAX_FILES: usize = 20_000;
const MAX_DEPTH: usize = 32;
const INTERVAL: Duration = Duration::from_millis(250);

/// The files in some places, at some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileVersions {
    places: Vec<PathBuf>,
    /// what is written by whoever asks
    ignored: Option<PathBuf>,
    files: BTreeMap<PathBuf, (Option<SystemTime>, u64)>,
}

impl FileVersions {
    /// The files in these folders, and these files, but for `ignored`. Hidden files are left out.
    pub fn of(places: Vec<PathBuf>, ignored: Option<PathBuf>) -> Self {
        let mut versions = Self { places, ignored, files: BTreeMap::new() };
        for place in versions.places.clone() {
            versions.add(&place, 0);
        }
        versions
    }

    /// Waits for a change, and until nothing more follows at once. The first file that is new, changed or gone.
    pub fn wait_for_change(&self) -> PathBuf {
        loop {
            std::thread::sleep(INTERVAL);
            let mut now = self.now();
            let Some(changed) = self.difference(&now) else { continue };
            loop {
                std::thread::sleep(INTERVAL);
                let next = self.now();
                if next == now {
                    return changed;
                }
                now = next;
            }
        }
    }

    fn now(&self) -> Self {
        Self::of(self.places.clone(), self.ignored.clone())
    }

    fn difference(&self, now: &Self) -> Option<PathBuf> {
        let new = now.files.iter().find(|(path, version)| self.files.get(*path) != Some(version));
        let gone = || self.files.keys().find(|path| !now.files.contains_key(*path));
        new.map(|(path, _)| path).or_else(gone).cloned()
    }

    fn add(&mut self, path: &Path, depth: usize) {
        let Ok(metadata) = path.metadata() else { return };
        if self.ignored.as_deref() == Some(path) || self.files.len() >= MAX_FILES || depth > MAX_DEPTH {
            return;
        }
        if !metadata.is_dir() {
            self.files.insert(path.to_owned(), (metadata.modified().ok(), metadata.len()));
            return;
        }
        for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if !name.starts_with('.') && !NOT_WATCHED.contains(&&*name) {
                self.add(&path.join(&*name), depth + 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_new_changed_and_removed_files() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        std::fs::create_dir_all(at("src")).unwrap();
        std::fs::create_dir_all(at("target")).unwrap();
        std::fs::write(at("src/a"), "1").unwrap();
        let before = FileVersions::of(vec![folder.path().to_owned()], Some(at("x.wasm")));
        let difference = || before.difference(&before.now());
        for path in ["x.wasm", "target/a", ".hidden", "Cargo.lock"] {
            std::fs::write(at(path), "new").unwrap();
        }
        assert_eq!(difference(), None);
        std::fs::write(at("src/a"), "22").unwrap();
        assert_eq!(difference(), Some(at("src/a")));
        assert_eq!(before.wait_for_change(), at("src/a"));
        std::fs::remove_file(at("src/a")).unwrap();
        assert_eq!(difference(), Some(at("src/a")));
        std::fs::write(at("src/0"), "").unwrap();
        assert_eq!(difference(), Some(at("src/0")));
    }
}
