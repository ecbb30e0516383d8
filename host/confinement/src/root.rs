//! A root that holds only what a process may reach, at the same paths as before.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Component, Path, PathBuf};

use libc::{AT_RECURSIVE, MOUNT_ATTR_NODEV, MOUNT_ATTR_NOSUID, MOUNT_ATTR_RDONLY, MS_NODEV, MS_NOEXEC, MS_NOSUID};
use rustix::fs::{CWD, Mode, OFlags};

use crate::kernel::{attach_tree, clone_tree, mount_new, restrict_mount, unmount};
use crate::limits::limit_processes_of_namespace;

/// Links that are followed on the way to one path, as the kernel does.
const MAX_LINKS: usize = 40;

/// What may be done with a mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct MountAccess {
    is_writable: bool,
    has_devices: bool,
}

/// What the root holds. Paths are those of the system, without links on the way.
#[derive(Debug, Default)]
pub(crate) struct Root {
    folders: BTreeSet<PathBuf>,
    /// links with their targets
    links: BTreeMap<PathBuf, PathBuf>,
    mounts: BTreeMap<PathBuf, MountAccess>,
    /// the working directory
    current: PathBuf,
    is_proc_writable: bool,
}

impl Root {
    /// A root with these paths, and whether they can be written. What lies in `/proc` is that of the process's own.
    /// Paths that do not exist, or cannot be reached, are left out.
    pub(crate) fn of(paths: impl IntoIterator<Item = (PathBuf, bool)>) -> io::Result<Self> {
        let current = std::env::current_dir()?;
        let mut root = Self { current: current.clone(), ..Self::default() };
        root.resolve(&current);
        root.folders.insert(current);
        for (path, is_writable) in paths {
            // Where a path is relative, it is relative to this.
            let path = std::path::absolute(path)?;
            if path.starts_with("/proc") {
                root.is_proc_writable |= is_writable;
            } else if let Some(real) = root.resolve(&path) {
                let access = root.mounts.entry(real).or_default();
                access.is_writable |= is_writable;
                access.has_devices |= path.starts_with("/dev");
            }
        }
        root.remove_covered();
        Ok(root)
    }

    /// The path that `path` leads to, once every folder and link on the way is noted.
    fn resolve(&mut self, path: &Path) -> Option<PathBuf> {
        let mut left: VecDeque<OsString> = VecDeque::new();
        let (mut real, mut links) = (PathBuf::from("/"), 0);
        left.extend(path.components().map(|part| part.as_os_str().to_owned()));
        while let Some(part) = left.pop_front() {
            match Path::new(&part).components().next()? {
                Component::RootDir | Component::Prefix(_) => real = "/".into(),
                Component::CurDir => {}
                Component::ParentDir => drop(real.pop()),
                Component::Normal(name) => {
                    self.folders.insert(real.clone());
                    let next = real.join(name);
                    if next.symlink_metadata().ok()?.is_symlink() {
                        links += 1;
                        if links > MAX_LINKS {
                            return None;
                        }
                        let target = next.read_link().ok()?;
                        for part in target.components().rev() {
                            left.push_front(part.as_os_str().to_owned());
                        }
                        self.links.insert(next, target);
                    } else {
                        real = next;
                    }
                }
            }
        }
        Some(real)
    }

    /// Removes what lies in a mount that permits the same.
    fn remove_covered(&mut self) {
        let mut kept: BTreeMap<PathBuf, MountAccess> = BTreeMap::new();
        // A folder comes before what lies in it.
        for (path, access) in std::mem::take(&mut self.mounts) {
            let around = path.ancestors().find_map(|folder| kept.get(folder));
            let is_covered = around.is_some_and(|around| {
                around.is_writable >= access.is_writable && around.has_devices >= access.has_devices
            });
            if !is_covered {
                kept.insert(path, access);
            }
        }
        let lies_in_mount = |path: &Path| path.ancestors().any(|folder| kept.contains_key(folder));
        self.folders.retain(|path| !lies_in_mount(path));
        self.links.retain(|path, _| !lies_in_mount(path));
        self.mounts = kept;
    }

    /// Makes it the root of this process, whose mounts must be its own; the outer result is an error if the process must
    /// end, the inner one if the root is the one before. Returns whether `/proc` shows this namespace's processes alone.
    pub(crate) fn enter(mut self) -> io::Result<io::Result<bool>> {
        let base = match std::env::temp_dir().canonicalize() {
            Ok(base) => base,
            Err(error) => return Ok(Err(error)),
        };
        let mounted = self.mount(&base);
        let Ok(has_own_proc) = mounted else {
            let _ = rustix::process::chdir(&self.current);
            let _ = unmount(&base);
            return Ok(mounted);
        };
        // The root before lies over the new one.
        unmount(Path::new("."))?;
        rustix::process::chdir("/")?;
        // It may be a folder that nobody may enter.
        let _ = rustix::process::chdir(&self.current);
        restrict_path(Path::new("/"), MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)?;
        Ok(Ok(has_own_proc))
    }

    /// Mounts all of it over `base`, and makes that the root.
    fn mount(&mut self, base: &Path) -> io::Result<bool> {
        let whole = self.mounts.remove(Path::new("/"));
        let whole = whole.map(|access| open(Path::new("/"), access)).transpose()?;
        let mut trees = Vec::new();
        for (path, access) in &self.mounts {
            match open(path, *access) {
                Ok(tree) => trees.push((path.as_path(), tree)),
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EACCES)) => {}
                Err(error) => return Err(error),
            }
        }
        // The copies are taken, so any folder can be covered.
        match whole {
            Some(tree) => attach_tree(&tree, base)?,
            None => mount_new(c"tmpfs", base, MS_NOSUID | MS_NODEV, c"mode=755")?,
        }
        let has_own_proc = self.fill(base, &trees)?;
        rustix::process::chdir(base)?;
        rustix::process::pivot_root(".", ".")?;
        Ok(has_own_proc)
    }

    fn fill(&self, base: &Path, trees: &[(&Path, OwnedFd)]) -> io::Result<bool> {
        let within = |path: &Path| base.join(path.strip_prefix("/").unwrap_or(path));
        for folder in &self.folders {
            make_folder(&within(folder))?;
        }
        for (link, target) in &self.links {
            std::os::unix::fs::symlink(target, within(link))?;
        }
        for (path, tree) in trees {
            let target = within(path);
            if !target.exists() {
                make_mount_point(tree, &target)?;
            }
            attach_tree(tree, &target)?;
        }
        self.mount_proc(&within(Path::new("/proc")))
    }

    /// Returns whether it shows this namespace's processes alone.
    fn mount_proc(&self, target: &Path) -> io::Result<bool> {
        make_folder(target)?;
        let has_own_proc = mount_new(c"proc", target, MS_NOSUID | MS_NODEV | MS_NOEXEC, c"").is_ok();
        if has_own_proc {
            limit_processes_of_namespace(target);
        } else {
            // A container hides parts of its own, and the kernel then gives no other.
            attach_tree(&clone_tree(Path::new("/proc"))?, target)?;
        }
        if !self.is_proc_writable {
            restrict_path(target, MOUNT_ATTR_RDONLY)?;
        }
        Ok(has_own_proc)
    }
}

/// A copy of what is mounted at `path`, with no more than this access.
fn open(path: &Path, access: MountAccess) -> io::Result<OwnedFd> {
    let tree = clone_tree(path)?;
    let mut attributes = MOUNT_ATTR_NOSUID;
    if !access.is_writable {
        attributes |= MOUNT_ATTR_RDONLY;
    }
    if !access.has_devices {
        attributes |= MOUNT_ATTR_NODEV;
    }
    restrict_mount(&tree, attributes, AT_RECURSIVE)?;
    Ok(tree)
}

/// Sets attributes of the mount at `path`, not of those beneath it.
fn restrict_path(path: &Path, attributes: u64) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    restrict_mount(&rustix::fs::openat(CWD, path, flags, Mode::empty())?, attributes, 0)
}

fn make_folder(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o755).create(path)
}

/// What `tree` can be mounted over: a folder or an empty file.
fn make_mount_point(tree: &OwnedFd, target: &Path) -> io::Result<()> {
    let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(tree)?.st_mode);
    if kind.is_dir() {
        return make_folder(target);
    }
    if let Some(folder) = target.parent() {
        make_folder(folder)?;
    }
    std::fs::File::create(target).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts<'a>(paths: impl IntoIterator<Item = &'a PathBuf>, folder: &Path) -> Vec<String> {
        let within = |path: &'a PathBuf| Some(path.strip_prefix(folder).ok()?.to_str()?.to_owned());
        paths.into_iter().filter_map(within).filter(|path| !path.is_empty()).collect()
    }

    #[test]
    fn notes_links_on_the_way_and_leaves_out_what_is_covered() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        for path in ["real/models", "real/out", "other"] {
            std::fs::create_dir_all(folder.join(path)).unwrap();
        }
        std::os::unix::fs::symlink("real/../real", folder.join("link")).unwrap();
        std::os::unix::fs::symlink(folder.join("link/models"), folder.join("other/deep")).unwrap();
        std::os::unix::fs::symlink("loop", folder.join("loop")).unwrap();
        let paths = [("other/deep", false), ("real/models/missing", false), ("loop", true), ("link", false)];
        let paths = paths.into_iter().chain([("real/out", true), ("real/models", false)]);
        let root = Root::of(paths.map(|(path, is_writable)| (folder.join(path), is_writable))).unwrap();
        assert_eq!(texts(root.mounts.keys(), &folder), ["real", "real/out"]);
        assert_eq!(root.mounts[&folder.join("real/out")], MountAccess { is_writable: true, has_devices: false });
        assert_eq!(texts(root.links.keys(), &folder), ["link", "loop", "other/deep"]);
        assert_eq!(texts(&root.folders, &folder), ["other"]);
        assert!(root.folders.contains(&folder) && root.folders.contains(&std::env::current_dir().unwrap()));
    }

    #[test]
    fn permits_devices_beneath_dev_alone() {
        let root = Root::of([("/dev/null".into(), true), ("/".into(), false), ("/proc/self".into(), true)]).unwrap();
        assert_eq!(root.mounts[Path::new("/dev/null")], MountAccess { is_writable: true, has_devices: true });
        assert_eq!(root.mounts[Path::new("/")], MountAccess::default());
        assert!(root.is_proc_writable && root.folders.is_empty() && root.links.is_empty());
    }
}
