//! Which files there are, and when each was changed: enough to see that something is new.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::generated_files::is_generated;
use super::step_file::StepFile;

/// Files that tools write beside the sources, and nobody edits.
const LOCK_FILES: [&str; 2] = ["Cargo.lock", "package-lock.json"];
/// The most files that are looked at.
const MAX_FILES: usize = 20_000;
const MAX_DEPTH: usize = 32;
const INTERVAL: Duration = Duration::from_millis(250);
/// How long further changes are waited for after the first, at most.
const SETTLE_LIMIT: Duration = Duration::from_secs(5);

/// The files in some places, at some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedFiles {
    places: Vec<PathBuf>,
    /// what is written by whoever asks
    ignored: Option<PathBuf>,
    files: BTreeMap<PathBuf, (Option<SystemTime>, u64)>,
}

impl WatchedFiles {
    /// The files in these folders, and these files, but for `ignored`. Hidden files and what builds leave are left out.
    pub fn of(places: Vec<PathBuf>, ignored: Option<PathBuf>) -> Self {
        let mut watched = Self { places, ignored, files: BTreeMap::new() };
        for place in watched.places.clone() {
            watched.add(&place, 0);
        }
        watched
    }

    /// The same places, as they are now.
    #[must_use]
    pub fn now(&self) -> Self {
        Self::of(self.places.clone(), self.ignored.clone())
    }

    /// Waits for a change, and a while for what follows it. The first file that is new, changed or gone.
    pub fn wait_for_change(&self) -> PathBuf {
        loop {
            std::thread::sleep(INTERVAL);
            let now = self.now();
            if let Some(changed) = self.difference(&now) {
                now.settle();
                return changed;
            }
        }
    }

    /// Waits until nothing changes any more, [`SETTLE_LIMIT`] at most: a file may be written to without an end.
    fn settle(mut self) {
        let start = Instant::now();
        while start.elapsed() < SETTLE_LIMIT {
            std::thread::sleep(INTERVAL);
            let next = self.now();
            if next == self {
                return;
            }
            self = next;
        }
    }

    /// The files of `self` that are others `later`, or gone.
    pub(crate) fn changed(&self, later: &Self) -> BTreeSet<PathBuf> {
        let changed = self.files.iter().filter(|(path, version)| later.files.get(*path) != Some(version));
        changed.map(|(path, _)| path.clone()).collect()
    }

    /// The files that are there only `later`.
    pub(crate) fn added(&self, later: &Self) -> BTreeSet<PathBuf> {
        later.files.keys().filter(|path| !self.files.contains_key(*path)).cloned().collect()
    }

    fn difference(&self, later: &Self) -> Option<PathBuf> {
        self.changed(later).into_iter().chain(self.added(later)).next()
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
        let is_root = depth == 0 || StepFile::exists_in(path);
        for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
            let is_lock_file = LOCK_FILES.iter().any(|name| entry.file_name() == *name);
            if !is_lock_file && !is_generated(&entry.path(), is_root) {
                self.add(&entry.path(), depth + 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn finds_new_changed_and_removed_files() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        write(&at("src/a"), "1");
        write(&at("inner/step.yml"), "");
        let before = WatchedFiles::of(vec![folder.path().to_owned()], Some(at("x.wasm")));
        let difference = || before.difference(&before.now());
        let generated = ["x.wasm", "target/a", ".hidden", "Cargo.lock", "src/__pycache__/a"];
        for path in generated.into_iter().chain(["inner/target/a", "inner/node_modules/a"]) {
            write(&at(path), "new");
        }
        assert_eq!(difference(), None);
        write(&at("src/a"), "22");
        assert_eq!(difference(), Some(at("src/a")));
        assert_eq!(before.wait_for_change(), at("src/a"));
        std::fs::remove_file(at("src/a")).unwrap();
        assert_eq!(difference(), Some(at("src/a")));
        write(&at("src/a"), "1");
        for path in ["src/0", "src/target/a.h", "inner/src/node_modules/a"] {
            let before = before.now();
            write(&at(path), "");
            assert_eq!(before.difference(&before.now()), Some(at(path)));
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn sees_names_that_are_not_unicode() {
        use std::os::unix::ffi::OsStrExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(std::ffi::OsStr::from_bytes(b"caf\xe9.txt"));
        let before = WatchedFiles::of(vec![folder.path().to_owned()], None);
        write(&path, "1");
        assert_eq!(before.difference(&before.now()), Some(path));
    }

    #[test]
    fn a_file_that_keeps_growing_is_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let before = WatchedFiles::of(vec![folder.path().to_owned()], None);
        let end = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut text = String::new();
                while !end.load(std::sync::atomic::Ordering::Relaxed) {
                    text.push('x');
                    write(&path, &text);
                    std::thread::sleep(INTERVAL / 10);
                }
            });
            assert_eq!(before.wait_for_change(), path);
            end.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }
}
