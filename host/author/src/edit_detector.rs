//! Tells what a user edits during a build from what the build writes.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::watched_files::WatchedFiles;

/// Learns from one build to the next which files builds write.
#[derive(Debug, Default)]
pub struct EditDetector {
    /// files that came into being during a build
    built: BTreeSet<PathBuf>,
    /// files that changed during the last build
    changed_before: BTreeSet<PathBuf>,
}

impl EditDetector {
    /// The first file that was edited during a build, given the files `before` and `after` it. A file counts if it was
    /// there before the build, no build has made it, and it did not change during the last build as well: a build that
    /// writes into its own folder would else never end.
    pub fn edited(&mut self, before: &WatchedFiles, after: &WatchedFiles) -> Option<PathBuf> {
        self.built.extend(before.added(after));
        let changed = before.changed(after);
        let edited = changed.iter().find(|path| !self.built.contains(*path) && !self.changed_before.contains(*path));
        let edited = edited.cloned();
        self.changed_before = changed;
        edited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignores_build_outputs_and_sees_edits() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        let mut length = 0;
        let mut write = |path: &str| {
            length += 1;
            std::fs::write(at(path), "x".repeat(length)).unwrap();
        };
        write("a.c");
        write("old.o");
        let mut detector = EditDetector::default();
        let mut before = WatchedFiles::of(vec![folder.path().to_owned()], None);
        let mut build = |write: &mut dyn FnMut()| {
            write();
            let after = before.now();
            let edited = detector.edited(&before, &after);
            before = after;
            edited
        };
        assert_eq!(build(&mut || write("new.o")), None, "a file that the build made");
        assert_eq!(build(&mut || write("new.o")), None);
        assert_eq!(build(&mut || write("a.c")), Some(at("a.c")));
        assert_eq!(build(&mut || ()), None);
        // Made by a build before: known from the second time on.
        assert_eq!(build(&mut || write("old.o")), Some(at("old.o")));
        assert_eq!(build(&mut || write("old.o")), None);
        assert_eq!(build(&mut || ["old.o", "a.c"].into_iter().for_each(&mut write)), Some(at("a.c")));
    }
}
