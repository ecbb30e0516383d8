//! Memory that the process may use: the limit of its control groups, or the machine's memory.

use std::path::{Path, PathBuf};

/// The memory limit of this process, in bytes: the least of the machine's memory and the limits of its control groups
/// (versions 1 and 2, including all parent groups). `None` if the system does not report it.
pub(crate) fn available() -> Option<usize> {
    available_in(Path::new("/"))
}

/// The memory limit of a system whose files are below `root`.
fn available_in(root: &Path) -> Option<usize> {
    let limit = cgroup_limits(root).into_iter().chain(total(root)).min()?;
    Some(usize::try_from(limit).unwrap_or(usize::MAX))
}

/// The machine's memory, in bytes.
fn total(root: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1 << 10)
}

/// The limits of the process's control groups. Version 1 reports a huge number if there is no limit.
fn cgroup_limits(root: &Path) -> Vec<u64> {
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    let (groups, mounts) = (read("proc/self/cgroup"), read("proc/self/mountinfo"));
    let mut limits = Vec::new();
    for line in groups.lines() {
        // `hierarchy:controllers:path`
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else { continue };
        let is_first_version = controllers.split(',').any(|name| name == "memory");
        if !is_first_version && !controllers.is_empty() {
            continue;
        }
        let file = if is_first_version { "memory.limit_in_bytes" } else { "memory.max" };
        let Some(mount) = mounts.lines().find_map(|line| Mount::parse(line, is_first_version)) else { continue };
        let mut folder = mount.folder(group);
        // The limits of parent groups apply, too.
        while folder.starts_with(&mount.point) {
            let path = root.join(folder.strip_prefix("/").unwrap_or(&folder)).join(file);
            limits.extend(std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u64>().ok()));
            if !folder.pop() {
                break;
            }
        }
    }
    limits
}

/// The mount of a control group hierarchy.
struct Mount {
    /// the group at the root of the mount: a container may see only its own
    group: PathBuf,
    point: PathBuf,
}

impl Mount {
    /// Parses a line of `/proc/self/mountinfo`; `None` unless it mounts the memory controller of this version.
    fn parse(line: &str, is_first_version: bool) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        let kind = after.next()?;
        let mut holds_memory = || after.nth(1).is_some_and(|options| options.split(',').any(|name| name == "memory"));
        let is_it = if is_first_version { kind == "cgroup" && holds_memory() } else { kind == "cgroup2" };
        let mut before = before.split(' ').skip(3);
        is_it.then_some(Self { group: before.next()?.into(), point: before.next()?.into() })
    }

    /// The folder of a group. A group outside the mounted hierarchy is represented by the mount point.
    fn folder(&self, group: &str) -> PathBuf {
        match Path::new(group).strip_prefix(&self.group) {
            Ok(below) => self.point.join(below),
            Err(_) => self.point.clone(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// The limit of a system with these files.
    fn system(files: &[(&str, &str)]) -> Option<usize> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        available_in(root.path())
    }

    const MACHINE: (&str, &str) = ("proc/meminfo", "MemTotal:       8388608 kB\nMemFree: 1 kB\n");

    #[test]
    fn reads_the_limit_of_version_2_and_of_the_groups_above() {
        let mounts = ("proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n");
        let group = ("proc/self/cgroup", "0::/kubepods/pod7/gpux\n");
        let inner = |limit| ("sys/fs/cgroup/kubepods/pod7/gpux/memory.max", limit);
        let outer = ("sys/fs/cgroup/kubepods/pod7/memory.max", "2147483648\n");
        assert_eq!(system(&[MACHINE, mounts, group, inner("1073741824\n"), outer]), Some(1 << 30));
        assert_eq!(system(&[MACHINE, mounts, group, inner("max\n"), outer]), Some(2 << 30));
        assert_eq!(system(&[MACHINE, mounts, group]), Some(8 << 30));
        // In a cgroup namespace, a container's group appears as the root.
        let own = ("proc/self/cgroup", "0::/\n");
        assert_eq!(system(&[MACHINE, mounts, own, ("sys/fs/cgroup/memory.max", "536870912\n")]), Some(512 << 20));
    }

    #[test]
    fn reads_the_limit_of_version_1() {
        let mounts = (
            "proc/self/mountinfo",
            "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
             35 31 0:32 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
             41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
        );
        let limit = |text| ("sys/fs/cgroup/memory/memory.limit_in_bytes", text);
        for group in ["4:memory:/docker/abc\n0::/\n", "4:cpu,memory:/elsewhere\n0::/\n"] {
            let group = ("proc/self/cgroup", group);
            assert_eq!(system(&[MACHINE, mounts, group, limit("1073741824\n")]), Some(1 << 30));
            assert_eq!(system(&[MACHINE, mounts, group, limit("9223372036854771712\n")]), Some(8 << 30));
        }
    }

    #[test]
    fn returns_none_without_system_information() {
        assert_eq!(system(&[]), None);
        assert_eq!(system(&[("proc/meminfo", "MemTotal: lots\n")]), None);
    }
}
