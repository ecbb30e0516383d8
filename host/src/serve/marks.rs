//! What tells one version of a pipeline's files from another.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// When a file was written, how long it is, and which it is; `None` where there is none, or where it
/// is not known which version was read.
type Mark = Option<(SystemTime, u64, u64)>;

/// The files of a pipeline, as they were.
pub(super) type Marks = Vec<(PathBuf, Mark)>;

/// The files of what has just been read, which was begun at `opened`: what was written since then may
/// not be what was read.
pub(super) fn read_since(files: &[PathBuf], opened: SystemTime) -> Marks {
    let known = |(path, mark): (PathBuf, Mark)| (path, mark.filter(|(time, ..)| *time <= opened));
    marks(files).into_iter().map(known).collect()
}

/// The files, as they are.
pub(super) fn marks(files: &[PathBuf]) -> Marks {
    files.iter().map(|path| (path.clone(), mark(path))).collect()
}

/// Links are followed: a new target is a new file.
fn mark(path: &Path) -> Mark {
    let metadata = path.metadata().ok()?;
    #[cfg(unix)]
    let inode = std::os::unix::fs::MetadataExt::ino(&metadata);
    #[cfg(not(unix))]
    let inode = 0;
    Some((metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH), metadata.len(), inode))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn another_file_has_another_mark() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.onnx");
        assert_eq!(mark(&path), None);
        std::fs::write(&path, "one").unwrap();
        let first = mark(&path);
        assert_eq!(first, mark(&path));
        std::fs::write(&path, "three").unwrap();
        assert_ne!(first, mark(&path));
        #[cfg(unix)]
        {
            // As a ConfigMap changes: what a link points to is swapped for another of the same size.
            for name in ["a", "b"] {
                std::fs::create_dir(folder.path().join(name)).unwrap();
                std::fs::write(folder.path().join(name).join("gpux.yml"), "name: x").unwrap();
            }
            let link = folder.path().join("data");
            std::os::unix::fs::symlink("a", &link).unwrap();
            let through = link.join("gpux.yml");
            let first = mark(&through);
            std::fs::remove_file(&link).unwrap();
            std::os::unix::fs::symlink("b", &link).unwrap();
            assert_ne!(first, mark(&through));
        }
    }
}
