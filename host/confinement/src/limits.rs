//! Limits of the system on one process.

use std::io;

/// Limits the files that this process, and each of its children, has open at a time, and turns core dumps off: they would
/// hold the data of requests. None of them can raise a limit again, and one that is lower already stays. To be called
/// before [`crate::Confinement::apply`], which takes root's right to raise limits.
///
/// # Errors
///
/// `Unsupported` on systems other than Unix.
#[cfg(unix)]
pub fn limit_resources(open_files: u64) -> io::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let lower = |resource, limit: u64| {
        let Rlimit { current, maximum } = getrlimit(resource);
        let lesser = |before: Option<u64>| Some(before.map_or(limit, |before| before.min(limit)));
        setrlimit(resource, Rlimit { current: lesser(current), maximum: lesser(maximum) })
    };
    // With 0, Linux still passes the memory to a crash handler in `core_pattern`; with 1 it does not, and a core
    // of one byte is not written (fs/coredump.c).
    lower(Resource::Core, u64::from(cfg!(target_os = "linux")))?;
    lower(Resource::Nofile, open_files)?;
    Ok(())
}

/// Nothing on this system, and says so.
#[cfg(not(unix))]
pub fn limit_resources(_open_files: u64) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this system has no resource limits"))
}

/// Processes and threads at a time: engines start a thread for each processor and session.
#[cfg(target_os = "linux")]
const MAX_TASKS: u64 = 4096;

/// From this kernel on, each namespace of processes has a `pid_max` of its own.
#[cfg(target_os = "linux")]
const OWN_PID_MAX: (u32, u32) = (6, 14);

/// Bounds the processes and threads of this user, in a namespace of users of its own; leaves some to the others of the
/// user. It does not hold for root.
#[cfg(target_os = "linux")]
pub(crate) fn limit_processes_of_user() -> io::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nproc);
    let limit = Some(maximum.map_or(MAX_TASKS, |maximum| MAX_TASKS.min(maximum / 2)));
    Ok(setrlimit(Resource::Nproc, Rlimit { current: limit, maximum: limit })?)
}

/// Bounds the processes and threads of the namespace that `proc` shows, where the kernel can: this holds for root too.
#[cfg(target_os = "linux")]
pub(crate) fn limit_processes_of_namespace(proc: &std::path::Path) {
    let release = std::fs::read_to_string(proc.join("sys/kernel/osrelease")).unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse().ok());
    // Before, it would be the limit of the whole system.
    if numbers.next().zip(numbers.next()).is_some_and(|version| version >= OWN_PID_MAX) {
        let _ = std::fs::write(proc.join("sys/kernel/pid_max"), MAX_TASKS.to_string());
    }
}
