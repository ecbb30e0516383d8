//! Where a path leads, also into another mount namespace.
//!
//! `/proc/PID/root` and its like are links in name only: the kernel goes to the root of that process, whatever their text
//! says. Kubernetes shares folders of other containers in this way (a modelcar of KServe). [`Path::canonicalize`] reads
//! their text, which is a path in the other namespace, and so finds nothing or another file of this one.

use std::io;
use std::path::{Path, PathBuf};

/// The absolute path of the file that `path` leads to, without `..` and without links, except those of procfs that lead
/// where no other path does.
///
/// # Errors
///
/// Nothing lies there, or it cannot be reached.
#[cfg(target_os = "linux")]
pub fn resolve_path(path: &Path) -> io::Result<PathBuf> {
    let wanted = linux::identity(path)?;
    let found = path.canonicalize();
    if let Ok(found) = &found
        && linux::identity(found).is_ok_and(|found| found == wanted)
    {
        return Ok(found.clone());
    }
    let found = linux::resolve_by_component(path)?;
    if linux::identity(&found)? == wanted {
        Ok(found)
    } else {
        Err(io::Error::other("it was replaced meanwhile, or a `..` follows a link of /proc"))
    }
}

/// [`Path::canonicalize`], where there is no such link.
#[cfg(not(target_os = "linux"))]
pub fn resolve_path(path: &Path) -> io::Result<PathBuf> {
    path.canonicalize()
}

/// Whether a file lies in a folder; both paths were [resolved](resolve_path). What the folder's owner reaches through a link
/// of procfs within it lies outside.
pub fn lies_in(file: &Path, folder: &Path) -> bool {
    file.starts_with(folder) && file.ancestors().take_while(|part| *part != folder).all(|part| !part.is_symlink())
}

/// Whether a [resolved](resolve_path) path leads through a link of procfs, so that it means another file to other processes.
pub fn is_behind_proc(path: &Path) -> bool {
    path.starts_with("/proc") && path.ancestors().any(Path::is_symlink)
}

/// Why nothing is reached at `path`, if a link on the way leads to files of another process, and cannot be followed.
pub fn explain_proc_link(path: &Path) -> Option<String> {
    path.ancestors().find_map(|part| {
        let target = part.read_link().ok().filter(|target| target.starts_with("/proc"))?;
        let error = part.metadata().err()?;
        Some(format!(
            "it leads to `{}`, which cannot be reached ({error}); that process must be running, as the same user as \
             gpux, and with `--isolation pipeline` only a pipeline's own folder may lie there",
            target.display()
        ))
    })
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::VecDeque;
    use std::ffi::OsString;
    use std::io;
    use std::path::{Component, Path, PathBuf};

    use rustix::fs::{AtFlags, CWD, PROC_SUPER_MAGIC, StatxFlags, statfs, statx};
    use rustix::io::Errno;

    /// Links that are followed on the way, as the kernel does.
    const MAX_LINKS: usize = 40;

    /// Device, inode and mount of what a path leads to; before Linux 5.8, all mounts are 0.
    #[derive(PartialEq, Eq)]
    pub(super) struct FileIdentity((u32, u32), u64, u64);

    pub(super) fn identity(path: &Path) -> io::Result<FileIdentity> {
        let found = statx(CWD, path, AtFlags::empty(), StatxFlags::INO | StatxFlags::MNT_ID)?;
        let mount = if found.stx_mask & StatxFlags::MNT_ID.bits() == 0 { 0 } else { found.stx_mnt_id };
        Ok(FileIdentity((found.stx_dev_major, found.stx_dev_minor), found.stx_ino, mount))
    }

    /// Follows all links but those whose text does not lead where the kernel goes.
    pub(super) fn resolve_by_component(path: &Path) -> io::Result<PathBuf> {
        // A working directory may have no path in this namespace.
        let path = Path::new("/proc/self/cwd").join(path);
        let mut left: VecDeque<OsString> = path.components().map(|part| part.as_os_str().to_owned()).collect();
        let (mut real, mut links) = (PathBuf::new(), 0);
        while let Some(part) = left.pop_front() {
            match Path::new(&part).components().next() {
                Some(Component::Normal(name)) => {
                    let next = real.join(name);
                    if !next.symlink_metadata()?.is_symlink() {
                        real = next;
                        continue;
                    }
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(Errno::LOOP.into());
                    }
                    let target = next.read_link()?;
                    if is_magic(&real, &next, &target) {
                        real = next;
                    } else {
                        for part in target.components().rev() {
                            left.push_front(part.as_os_str().to_owned());
                        }
                    }
                }
                Some(Component::ParentDir) => drop(real.pop()),
                Some(Component::RootDir) => real = "/".into(),
                Some(Component::CurDir | Component::Prefix(_)) | None => {}
            }
        }
        Ok(real)
    }

    fn is_magic(folder: &Path, link: &Path, target: &Path) -> bool {
        statfs(folder).is_ok_and(|found| found.f_type == PROC_SUPER_MAGIC)
            && match (identity(link), identity(&folder.join(target))) {
                (Ok(reached), Ok(named)) => reached != named,
                _ => true,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn resolves_as_the_system_does() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::write(root.join("a/b/file"), "").unwrap();
        let link = |target: &Path, name: &str| std::os::unix::fs::symlink(target, root.join(name)).unwrap();
        link(Path::new("a/../a/b"), "relative");
        link(&root.join("a"), "absolute");
        link(Path::new("loop"), "loop");
        link(Path::new("missing"), "dangling");
        for path in ["a/./b/../b/file", "relative/file", "absolute/b/file", "relative/../b/file", "."] {
            let path = root.join(path);
            assert_eq!(resolve_path(&path).unwrap(), path.canonicalize().unwrap());
        }
        for path in ["loop", "dangling", "a/b/file/", "a/b/file/x", "none/.."] {
            let path = root.join(path);
            let (ours, theirs) = (resolve_path(&path).unwrap_err(), path.canonicalize().unwrap_err());
            assert_eq!(ours.kind(), theirs.kind(), "{}", path.display());
        }
        assert_eq!(resolve_path(Path::new(".")).unwrap(), std::env::current_dir().unwrap().canonicalize().unwrap());
        assert!(lies_in(&root.join("a/b/file"), &root.join("a")) && lies_in(&root, &root));
        assert!(!lies_in(&root.join("ab"), &root.join("a")) && !lies_in(&root, &root.join("a")));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn follows_links_of_proc_that_their_text_leads_to() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::write(root.join("file"), "").unwrap();
        let file = std::fs::File::open(root.join("file")).unwrap();
        let through_root = Path::new("/proc/self/root").join(root.join("file").strip_prefix("/").unwrap());
        let descriptor = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        for path in [through_root, descriptor.clone().into()] {
            assert_eq!(resolve_path(&path).unwrap(), root.join("file"), "{}", path.display());
        }

        // The text of a link to a deleted file leads nowhere, and then to another file.
        std::fs::rename(root.join("file"), root.join("other")).unwrap();
        std::fs::remove_file(root.join("other")).unwrap();
        for name in ["none", "other (deleted)"] {
            std::fs::write(root.join(name), "").unwrap();
            let found = resolve_path(Path::new(&descriptor)).unwrap();
            assert!(is_behind_proc(&found) && found.is_symlink(), "{}", found.display());
            assert!(!lies_in(&found, Path::new("/proc")) && lies_in(&found, &found));
        }
        assert!(!is_behind_proc(&resolve_path(Path::new("/proc/self/status")).unwrap()));
        assert!(resolve_path(Path::new(&descriptor).join("..").as_path()).is_err());
    }
}
