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
