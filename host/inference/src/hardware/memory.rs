//! Memory, and how much of it this process may have.

use std::path::{Path, PathBuf};

use serde::Serialize;

/// Memory in bytes; `None` where the system does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// the machine's memory
    pub total: Option<u64>,
    /// what programs could still get
    pub available: Option<u64>,
    /// the container's limit
    pub limit: Option<u64>,
}

impl Memory {
    pub(super) fn read(root: &Path) -> Self {
        let info = super::read_text(root.join("proc/meminfo")).unwrap_or_default();
        let field = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name))?;
            let kibibytes: u64 = line.strip_prefix(':')?.trim().strip_suffix("kB")?.trim().parse().ok()?;
            kibibytes.checked_mul(1024)
        };
        Self { total: field("MemTotal"), available: field("MemAvailable"), limit: limit(root) }
    }
}

/// The least that the process's group, or one around it, may have.
fn limit(root: &Path) -> Option<u64> {
    let files = groups(root).map(|group| group.join("memory.max"));
    let older = root.join("sys/fs/cgroup/memory/memory.limit_in_bytes");
    let limits = files.chain([older]).filter_map(|file| super::read_text(file)?.parse::<u64>().ok());
    // The older file says "no limit" with a number near 2^63.
    limits.filter(|limit| *limit < 1 << 60).min()
}

/// The folders of the process's control group (version 2) and those around it, innermost first.
pub(super) fn groups(root: &Path) -> impl Iterator<Item = PathBuf> {
    let mounted = root.join("sys/fs/cgroup");
    let named = super::read_text(root.join("proc/self/cgroup")).unwrap_or_default();
    let group = named.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    // A group above the mounted ones shows as `../…`; then only the mounted ones can be read.
    let group = if group.split('/').any(|part| part == "..") { "" } else { group };
    let innermost = mounted.join(group);
    let within = mounted.clone();
    let folders: Vec<_> =
        innermost.ancestors().take_while(move |folder| folder.starts_with(&within)).map(Path::to_owned).collect();
    folders.into_iter()
}
