//! How much memory this process takes, as the kernel counts it.

use std::fs;

/// Resets the peak to the current resident memory, and returns that, in bytes.
///
/// `None` where the kernel does not say (it is Linux that does).
pub fn begin() -> Option<usize> {
    // "5" resets the peak of the resident set; proc(5), clear_refs.
    fs::write("/proc/self/clear_refs", "5").ok()?;
    now()
}

/// The resident memory, in bytes.
pub fn now() -> Option<usize> {
    field("VmRSS:")
}

/// The most that was resident since `begin`, in bytes.
pub fn peak() -> Option<usize> {
    field("VmHWM:")
}

/// A line of `/proc/self/status`, in bytes; proc(5).
pub fn field(name: &str) -> Option<usize> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: usize = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes << 10)
}
