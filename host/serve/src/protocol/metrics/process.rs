//! Resources of the process.

use std::time::Duration;

/// Resident memory in bytes.
pub(crate) fn resident_memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// Open file descriptors.
pub(crate) fn open_fds() -> Option<u64> {
    // The listing itself holds one descriptor open.
    Some((std::fs::read_dir("/proc/self/fd").ok()?.count() as u64).saturating_sub(1))
}

/// CPU time of the process, in user and kernel mode.
#[cfg(unix)]
pub(crate) fn cpu_time() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
}

/// CPU time of the process: not available here.
#[cfg(not(unix))]
pub(crate) fn cpu_time() -> Option<Duration> {
    None
}

#[cfg(all(test, target_os = "linux"))]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn reads_the_resident_memory() {
        assert!(resident_memory_bytes().unwrap() > 1 << 20);
        assert!(open_fds().unwrap() >= 3);
        assert!(cpu_time().unwrap() > Duration::ZERO);
    }
}
