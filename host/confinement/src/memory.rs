//! Memory of a worker, seen from its parent.

use std::io;

/// The memory of a process that nothing else would need: anonymous and shared pages, in memory and in swap, in bytes.
/// Pages of mapped files are left out: workers share them, and the system can take them back. Memory on a GPU and that
/// of the process's children is not counted. 0 for a process that has ended and was not waited for.
///
/// The caller keeps the process from being waited for, as the number may otherwise belong to another one.
///
/// # Errors
///
/// `NotFound` if there is no such process, `Unsupported` on systems other than Linux.
pub fn memory_bytes(pid: u32) -> io::Result<u64> {
    if cfg!(not(target_os = "linux")) {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "only Linux reports the memory of other processes"));
    }
    Ok(parse_status(&std::fs::read_to_string(format!("/proc/{pid}/status"))?))
}

/// Parses `/proc/PID/status` (proc_pid_status(5)).
fn parse_status(text: &str) -> u64 {
    let bytes = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1 << 10)
    };
    // gVisor reports only the whole, with files.
    let resident = match (bytes("RssAnon"), bytes("RssShmem")) {
        (Some(anonymous), Some(shared)) => anonymous.saturating_add(shared),
        _ => bytes("VmRSS").unwrap_or(0),
    };
    resident.saturating_add(bytes("VmSwap").unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_only_this_process_needs() {
        let status = "Name:\tgpux\nVmRSS:\t   900 kB\nRssAnon:\t     100 kB\nRssFile:\t     780 kB\nRssShmem:\t      20 kB\n\
                      VmSwap:\t       3 kB\n";
        assert_eq!(parse_status(status), 123 << 10);
        assert_eq!(parse_status("Name:\tRssAnon: 7 kB\nVmRSS:\t   900 kB\n"), 900 << 10, "gVisor");
        assert_eq!(parse_status("Name:\tgpux\nState:\tZ (zombie)\n"), 0);
        assert_eq!(parse_status("RssAnon:\t18446744073709551615 kB\nRssShmem:\t1 kB\n"), 0);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn sees_memory_of_a_process_grow() {
        let own = std::process::id();
        let before = memory_bytes(own).unwrap();
        let block = vec![1_u8; 64 << 20];
        let after = memory_bytes(own).unwrap();
        assert!(block.iter().all(|byte| *byte == 1));
        assert!(after >= before + (48 << 20), "{before} {after}");
        assert_eq!(memory_bytes(u32::MAX).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
