//! A digest of everything that a build reads: where it is the same, the result is.

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use sha2::{Digest as _, Sha256};

use super::case::CASES_FOLDER;
use super::generated_files::is_generated;
use gpux_core::files::{digest, hex, open_file};

/// The most files of a step that are read; one with more is built each time.
const MAX_FILES: usize = 20_000;
/// The most bytes of a step's files that are read; one with more is built each time.
const MAX_BYTES: u64 = 1 << 30;
/// The deepest folder that is looked at: a link may lead back to a folder around it.
const MAX_DEPTH: usize = 32;

/// The digest, as it grows.
pub(crate) struct Fingerprint {
    text: String,
    files: usize,
    /// bytes of files that may still be read
    bytes_left: u64,
}

impl Fingerprint {
    /// Of a component that is stripped, or not.
    pub(crate) fn new(strip: bool) -> Self {
        let text = format!("gpux {}, strip {strip}\n", env!("CARGO_PKG_VERSION"));
        Self { text, files: 0, bytes_left: MAX_BYTES }
    }

    /// With these bytes.
    pub(crate) fn with(mut self, name: &str, bytes: &[u8]) -> Self {
        let _ = writeln!(self.text, "{name:?} {}", digest(bytes));
        self
    }

    /// With the files of a step's folder that a build can read, but for `output`. `None` if they are too many or too
    /// large, or one cannot be read.
    pub(crate) fn with_sources(mut self, folder: &Path, output: &Path) -> Option<Self> {
        self.add(folder, Path::new(""), output, 0)?;
        Some(self)
    }

    /// With the names of a folder's entries and when each was changed: an installed package is an entry. A folder that
    /// is not there is an empty one.
    pub(crate) fn with_listing(mut self, folder: &Path) -> Self {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut lines: Vec<_> = entries
            .map(|entry| {
                let changed = entry.metadata().and_then(|metadata| metadata.modified()).ok();
                let age = changed.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
                format!("{} {age:?}", entry.file_name().display())
            })
            .collect();
        lines.sort();
        let _ = writeln!(self.text, "{} {}", folder.display(), lines.join(" "));
        self
    }

    pub(crate) fn finish(self) -> String {
        digest(self.text)
    }

    fn add(&mut self, folder: &Path, inside: &Path, output: &Path, depth: usize) -> Option<()> {
        if depth > MAX_DEPTH {
            return None;
        }
        let mut paths: Vec<PathBuf> = Vec::new();
        for entry in std::fs::read_dir(folder).ok()? {
            paths.push(entry.ok()?.path());
        }
        paths.sort();
        for path in paths {
            let inside = inside.join(path.file_name()?);
            let Ok(metadata) = path.metadata() else { continue };
            let is_cases_folder = metadata.is_dir() && inside == Path::new(CASES_FOLDER);
            if is_generated(&path, depth == 0) || is_cases_folder || inside == output {
                continue;
            }
            if metadata.is_dir() {
                self.add(&path, &inside, output, depth + 1)?;
                continue;
            }
            self.files += 1;
            if self.files > MAX_FILES || metadata.len() > self.bytes_left {
                return None;
            }
            let content = self.digest_file(&path)?;
            let _ = writeln!(self.text, "{} {content}", digest(inside.as_os_str().as_encoded_bytes()));
        }
        Some(())
    }

    /// `None` if the file cannot be read, or is longer than what is left.
    fn digest_file(&mut self, path: &Path) -> Option<String> {
        let mut file = open_file(path, "a source").ok()?;
        let mut hash = Sha256::new();
        let mut buffer = vec![0; 64 << 10];
        loop {
            let read = match file.read(&mut buffer) {
                Ok(0) => return Some(hex(&hash.finalize())),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                result => result.ok()?,
            };
            self.bytes_left = self.bytes_left.checked_sub(read as u64)?;
            hash.update(buffer.get(..read)?);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_with_sources_alone() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let print = || Fingerprint::new(true).with_sources(folder.path(), Path::new("x.wasm")).unwrap().finish();
        write("src/a.c", "1");
        let first = print();
        let generated = ["x.wasm", "tests/one/case.yml", ".hidden", "target/a.o", "node_modules/a.js"];
        for path in generated.into_iter().chain(["src/__pycache__/a.pyc"]) {
            write(path, "new");
        }
        assert_eq!(print(), first);
        let mut last = first.clone();
        for path in ["src/target/a.h", "src/tests/a.py", "src/node_modules/a.js", "src/x.wasm"] {
            write(path, "new");
            assert_ne!(print(), last, "{path}");
            last = print();
            std::fs::remove_file(folder.path().join(path)).unwrap();
        }
        assert_eq!(print(), first);
        write("src/a.c", "2");
        let second = print();
        assert_ne!(second, first);
        write("src/b.h", "");
        assert_ne!(print(), second);
        std::fs::remove_file(folder.path().join("src/b.h")).unwrap();
        assert_eq!(print(), second);
        let unstripped = Fingerprint::new(false).with_sources(folder.path(), Path::new("x.wasm")).unwrap();
        assert_ne!(unstripped.finish(), second);
    }

    #[test]
    fn files_named_like_build_folders_are_sources() {
        for name in ["target", "tests", "node_modules"] {
            let folder = tempfile::tempdir().unwrap();
            let print = || Fingerprint::new(true).with_sources(folder.path(), Path::new("x.wasm")).unwrap().finish();
            let empty = print();
            std::fs::write(folder.path().join(name), "1").unwrap();
            assert_ne!(print(), empty, "{name}");
        }
    }

    #[test]
    fn gives_up_on_more_bytes_than_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let print = || Fingerprint::new(true).with_sources(folder.path(), Path::new("x.wasm"));
        std::fs::write(folder.path().join("small"), vec![1; 100_000]).unwrap();
        assert_eq!(print().unwrap().bytes_left, MAX_BYTES - 100_000);
        // Of nothing but a hole.
        std::fs::File::create(folder.path().join("weights")).unwrap().set_len(MAX_BYTES).unwrap();
        assert!(print().is_none());
    }

    #[cfg(unix)]
    #[test]
    fn gives_up_on_links_that_lead_back() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(folder.path(), folder.path().join("again")).unwrap();
        assert!(Fingerprint::new(true).with_sources(folder.path(), Path::new("x.wasm")).is_none());
    }
}
