//! A digest of everything that a build reads: where it is the same, the result is.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use super::build::BuildOptions;
use super::case::CASES_FOLDER;
use gpux_core::files::digest;

/// Names in a step's folder that no build reads: cases, and what builds leave.
const NOT_BUILT_FROM: [&str; 4] = [CASES_FOLDER, "target", "node_modules", "__pycache__"];
/// The most files of a step that are read; one with more is built each time.
const MAX_FILES: usize = 20_000;
/// The deepest folder that is looked at: a link may lead back to a folder around it.
const MAX_DEPTH: usize = 32;

/// The digest, as it grows.
pub(crate) struct Fingerprint {
    text: String,
    files: usize,
}

impl Fingerprint {
    pub(crate) fn new(options: BuildOptions) -> Self {
        let text = format!("gpux {}, strip {}\n", env!("CARGO_PKG_VERSION"), options.strip);
        Self { text, files: 0 }
    }

    /// With these bytes.
    pub(crate) fn with(mut self, name: &str, bytes: &[u8]) -> Self {
        let _ = writeln!(self.text, "{name:?} {}", digest(bytes));
        self
    }

    /// With the files of a step's folder that a build can read, but for `output`. `None` if they are too many, or one
    /// cannot be read.
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
            let name = path.file_name()?.to_string_lossy().into_owned();
            let inside = inside.join(&name);
            if name.starts_with('.') || NOT_BUILT_FROM.contains(&&*name) || inside == output {
                continue;
            }
            let Ok(metadata) = path.metadata() else { continue };
            if metadata.is_dir() {
                self.add(&path, &inside, output, depth + 1)?;
                continue;
            }
            self.files += 1;
            if self.files > MAX_FILES || !metadata.is_file() {
                return None;
            }
            let _ = writeln!(self.text, "{} {}", inside.display(), digest(std::fs::read(&path).ok()?));
        }
        Some(())
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
        let options = BuildOptions { strip: true, force: false, describe: false };
        let print = || Fingerprint::new(options).with_sources(folder.path(), Path::new("x.wasm")).unwrap().finish();
        write("src/a.c", "1");
        let first = print();
        for path in ["x.wasm", "tests/one/case.yml", ".hidden", "target/a.o", "src/__pycache__/a.pyc"] {
            write(path, "new");
        }
        assert_eq!(print(), first);
        write("src/a.c", "2");
        let second = print();
        assert_ne!(second, first);
        write("src/b.h", "");
        assert_ne!(print(), second);
        std::fs::remove_file(folder.path().join("src/b.h")).unwrap();
        assert_eq!(print(), second);
        let unstripped = BuildOptions { strip: false, ..options };
        let unstripped = Fingerprint::new(unstripped).with_sources(folder.path(), Path::new("x.wasm")).unwrap();
        assert_ne!(unstripped.finish(), second);
    }

    #[cfg(unix)]
    #[test]
    fn gives_up_on_links_that_lead_back() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(folder.path(), folder.path().join("again")).unwrap();
        let options = BuildOptions { strip: true, force: false, describe: false };
        assert!(Fingerprint::new(options).with_sources(folder.path(), Path::new("x.wasm")).is_none());
    }
}
