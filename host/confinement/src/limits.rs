//! Limits of the system on one process.

use std::io;

/// Limits of a process and each of its children, which neither can raise again. Core dumps are always off: they would
/// hold the data of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceLimits {
    /// Files open at a time.
    pub open_files: u64,
    /// Threads and processes at a time, of this user in the whole system: if others run as the same user, theirs count.
    /// Does not bind root. `None`: as before.
    pub processes: Option<u64>,
}

impl ResourceLimits {
    /// Limits this process. A limit that is lower already stays. To be called before [`crate::Confinement::apply`],
    /// which takes root's right to raise limits.
    ///
    /// # Errors
    ///
    /// `Unsupported` on systems other than Unix.
    #[cfg(unix)]
    pub fn apply(&self) -> io::Result<()> {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let lower = |resource, limit: u64| {
            let Rlimit { current, maximum } = getrlimit(resource);
            let lesser = |before: Option<u64>| Some(before.map_or(limit, |before| before.min(limit)));
            setrlimit(resource, Rlimit { current: lesser(current), maximum: lesser(maximum) })
        };
        // With 0, Linux still passes the memory to a crash handler in `core_pattern`; with 1 it does not, and a core
        // of one byte is not written (fs/coredump.c).
        lower(Resource::Core, u64::from(cfg!(target_os = "linux")))?;
        lower(Resource::Nofile, self.open_files)?;
        if let Some(processes) = self.processes {
            lower(Resource::Nproc, processes)?;
        }
        Ok(())
    }

    /// Nothing on this system, and says so.
    #[cfg(not(unix))]
    pub fn apply(&self) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "this system has no resource limits"))
    }
}
