//! Control groups, in which the kernel bounds all memory of a worker: also what belongs to none of its processes.
//!
//! One can be made where this process may write beneath its own group (root, of version 1), or beneath one that systemd
//! delegated to it (of version 2: `Delegate=memory` with `DelegateSubgroup=`). Elsewhere the server counts alone.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How the names of groups begin; the id of the server and a number follow.
const PREFIX: &str = "gpux-worker-";

/// Between two attempts to remove a group.
const PAUSE: Duration = Duration::from_millis(5);

/// A control group, without processes at first. Dropped, it is removed, unless processes are in it.
#[derive(Debug)]
pub(crate) struct ControlGroup(PathBuf);

impl ControlGroup {
    /// A new group that may take this many bytes.
    pub(crate) fn create(limit: u64) -> Option<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let name = format!("{PREFIX}{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        parents(&groups).into_iter().find_map(|parent| Self::create_in(&parent, &name, limit).ok())
    }

    fn create_in(parent: &Path, name: &str, limit: u64) -> io::Result<Self> {
        remove_abandoned(parent);
        let group = Self(parent.join(name));
        fs::create_dir(&group.0)?;
        let set = |file: &str, value: &str| write_existing(&group.0.join(file), value);
        let limit = limit.to_string();
        if set("memory.limit_in_bytes", &limit).is_ok() {
            // With swap, where the kernel counts it.
            let _ = set("memory.memsw.limit_in_bytes", &limit);
            return Ok(group);
        }
        if !group.0.join("memory.max").exists() {
            write_existing(&parent.join("cgroup.subtree_control"), "+memory")?;
        }
        set("memory.max", &limit)?;
        // All processes of it together.
        let _ = set("memory.oom.group", "1");
        Ok(group)
    }

    /// Moves a process here, whose memory counts from now on; its children begin here.
    pub(crate) fn add(&self, process: u32) -> io::Result<()> {
        write_existing(&self.0.join("cgroup.procs"), &process.to_string())
    }

    /// Whether the kernel has ended one of its processes because the group had too much.
    pub(crate) fn has_killed(&self) -> bool {
        // Of version 2, and of version 1.
        ["memory.events", "memory.oom_control"].iter().any(|file| {
            let text = fs::read_to_string(self.0.join(file)).unwrap_or_default();
            text.lines().any(|line| line.strip_prefix("oom_kill ").is_some_and(|count| count.trim() != "0"))
        })
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // Processes that were killed are still ending.
        for _ in 0..20 {
            match fs::remove_dir(&self.0) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => std::thread::sleep(PAUSE),
                _ => return,
            }
        }
    }
}

/// Writes a file that must be there: another file system than that of control groups would take any.
fn write_existing(path: &Path, text: &str) -> io::Result<()> {
    io::Write::write_all(&mut fs::File::options().write(true).open(path)?, text.as_bytes())
}

/// The groups beneath which this process, by its `/proc/self/cgroup`, may make some.
fn parents(groups: &str) -> Vec<PathBuf> {
    let of = |controller: &str, mount: &str| {
        let path = groups.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            controllers.split(',').any(|one| one == controller).then_some(path)
        })?;
        let group = Path::new(mount).join(path.trim_start_matches('/'));
        // A container may see a part of the tree alone, under other names.
        let own = fs::read_to_string(group.join("cgroup.procs")).ok()?;
        own.lines().any(|id| id == std::process::id().to_string()).then_some(group)
    };
    let first = of("memory", "/sys/fs/cgroup/memory");
    let unified = of("", "/sys/fs/cgroup");
    // A group with processes in it has none beneath it that count memory: systemd has put this one beneath its own.
    let delegated = unified.as_deref().and_then(Path::parent).filter(|group| is_delegated(group)).map(Path::to_owned);
    [first, delegated, unified].into_iter().flatten().collect()
}

/// Whether systemd leaves the group to a service: others belong to systemd.
fn is_delegated(group: &Path) -> bool {
    let mut value = [0; 1];
    rustix::fs::getxattr(group, c"user.delegate", &mut value).is_ok_and(|len| value.get(..len) == Some(b"1"))
}

/// Removes the groups of a server's workers. To be called after its end, which ends them.
pub fn remove_control_groups(server: u32) {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let prefix = format!("{PREFIX}{server}-");
    for parent in parents(&groups) {
        let entries = fs::read_dir(parent).into_iter().flatten().flatten();
        let own = entries.filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix)));
        own.for_each(|entry| drop(ControlGroup(entry.path())));
    }
}

/// Whether the process runs: it may have ended, and nobody has waited for it.
fn is_running(process: &str) -> bool {
    let status = fs::read_to_string(Path::new("/proc").join(process).join("stat")).unwrap_or_default();
    status.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
}

/// Removes groups of servers that were killed, with their supervisors.
fn remove_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let server = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split_once('-'));
        if server.is_some_and(|(server, _)| !is_running(server)) {
            // Not while a process is in it.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn bounds_a_process_where_the_system_permits() {
        let Some(group) = ControlGroup::create(64 << 20) else { return };
        assert!(!group.has_killed());
        let mut child = std::process::Command::new("/bin/cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        group.add(child.id()).unwrap();
        let groups = fs::read_to_string(format!("/proc/{}/cgroup", child.id())).unwrap();
        assert!(groups.contains(PREFIX), "{groups}");
        child.kill().unwrap();
        child.wait().unwrap();
        let folder = group.0.clone();
        drop(group);
        assert!(!folder.exists());
    }

    #[test]
    fn makes_none_in_folders_of_other_file_systems() {
        let folder = tempfile::tempdir().unwrap();
        assert!(ControlGroup::create_in(folder.path(), "gpux-worker-1-1", 1 << 20).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn removes_groups_of_servers_that_are_gone() {
        let folder = tempfile::tempdir().unwrap();
        let own = format!("{PREFIX}{}-0", std::process::id());
        for name in ["gpux-worker-4194305-0", own.as_str(), "gpux-worker-x", "other"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        remove_abandoned(folder.path());
        let mut left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [own.as_str(), "gpux-worker-x", "other"]);
    }
}
