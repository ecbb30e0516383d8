//! Memory, threads and children of a worker, seen from its parent.

use std::collections::HashMap;
use std::io;

/// What a process takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessUsage {
    /// Memory that only this process needs, in bytes: anonymous pages, in memory and in swap, and the tables of its
    /// pages. Pages of mapped files are left out: workers share them, and the system can take them back. Memory on a GPU
    /// is not counted either.
    pub own_memory: u64,
    /// Pages of shared memory that it maps, in bytes.
    pub shared_memory: u64,
    /// Its threads.
    pub threads: u64,
}

/// What a process takes, without its children. Nothing for one that has ended and was not waited for.
///
/// The caller keeps the process from being waited for, as the numbers may otherwise belong to another one.
///
/// # Errors
///
/// `NotFound` if there is no such process, `Unsupported` on systems other than Linux.
pub fn process_usage(pid: u32) -> io::Result<ProcessUsage> {
    if cfg!(not(target_os = "linux")) {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "only Linux reports the memory of other processes"));
    }
    Ok(parse_status(&std::fs::read_to_string(format!("/proc/{pid}/status"))?))
}

/// Parses `/proc/PID/status` (proc_pid_status(5)).
fn parse_status(text: &str) -> ProcessUsage {
    let field = |name: &str| Some(text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?.trim());
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let bytes = |name: &str| number(field(name)?.strip_suffix("kB")?)?.checked_mul(1 << 10);
    // gVisor reports only the whole, with files.
    let (resident, shared_memory) = match (bytes("RssAnon"), bytes("RssShmem")) {
        (Some(anonymous), Some(shared)) => (anonymous, shared),
        _ => (bytes("VmRSS").unwrap_or(0), 0),
    };
    // Tables of pages that were given back stay.
    let others = ["VmSwap", "VmPTE", "HugetlbPages"].map(|name| bytes(name).unwrap_or(0));
    let own_memory = others.into_iter().fold(resident, u64::saturating_add);
    ProcessUsage { own_memory, shared_memory, threads: field("Threads").and_then(number).unwrap_or(0) }
}

/// Which group each process of the system belongs to.
#[derive(Debug, Default)]
pub struct ProcessGroups {
    groups: HashMap<u32, u32>,
    /// how often it was read since all was forgotten
    rounds: u32,
}

impl ProcessGroups {
    /// Reads which processes there are. A process that was there before is taken to be in the same group for some rounds.
    pub fn refresh(&mut self) {
        /// Numbers of processes may be used again, and processes may change their group.
        const ROUNDS: u32 = 50;
        self.rounds = (self.rounds + 1) % ROUNDS;
        let mut before = std::mem::take(&mut self.groups);
        if self.rounds == 0 {
            before.clear();
        }
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        self.groups = ids.filter_map(|id| Some((id, before.get(&id).copied().or_else(|| group_of(id))?))).collect();
    }

    /// The processes of a group.
    pub fn members(&self, group: u32) -> impl Iterator<Item = u32> {
        self.groups.iter().filter(move |(_, of)| **of == group).map(|(id, _)| *id)
    }
}

/// The group of a process, by `/proc/PID/stat` (`proc_pid_stat(5)`): `pid (name) state ppid pgrp …`.
fn group_of(pid: u32) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may have anything in it.
    text.rsplit_once(')')?.1.split_whitespace().nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_only_this_process_needs() {
        let usage = |text| {
            let ProcessUsage { own_memory, shared_memory, threads } = parse_status(text);
            (own_memory >> 10, shared_memory >> 10, threads)
        };
        let status = "Name:\tgpux\nVmRSS:\t   900 kB\nRssAnon:\t     100 kB\nRssFile:\t     780 kB\nRssShmem:\t      20 kB\n\
                      VmPTE:\t       4 kB\nVmSwap:\t       3 kB\nThreads:\t7\n";
        assert_eq!(usage(status), (107, 20, 7));
        assert_eq!(usage("Name:\tRssAnon: 7 kB\nVmRSS:\t   900 kB\n"), (900, 0, 0), "gVisor");
        assert_eq!(usage("Name:\tgpux\nState:\tZ (zombie)\n"), (0, 0, 0));
        assert_eq!(usage("RssAnon:\t18446744073709551615 kB\nRssShmem:\t1 kB\n"), (0, 0, 0));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn sees_memory_of_a_process_grow() {
        let own = std::process::id();
        let before = process_usage(own).unwrap().own_memory;
        let block = vec![1_u8; 64 << 20];
        let after = process_usage(own).unwrap();
        assert!(block.iter().all(|byte| *byte == 1));
        assert!(after.own_memory >= before + (48 << 20) && after.threads > 0, "{before} {after:?}");
        assert_eq!(process_usage(u32::MAX).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn finds_the_processes_of_a_group() {
        use std::os::unix::process::CommandExt as _;
        let mut child = std::process::Command::new("/bin/cat")
            .process_group(0)
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut groups = ProcessGroups::default();
        groups.refresh();
        assert_eq!(groups.members(child.id()).collect::<Vec<_>>(), [child.id()]);
        let own = group_of(std::process::id()).unwrap();
        assert!(groups.members(own).any(|id| id == std::process::id()));
        child.kill().unwrap();
        child.wait().unwrap();
        groups.refresh();
        assert_eq!(groups.members(child.id()).count(), 0);
    }
}
