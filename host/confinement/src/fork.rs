//! Copies of a process that has only one thread.
#![allow(unsafe_code, reason = "`fork` and the environment are sound while no other thread exists, which is checked")]

use std::ffi::OsString;
use std::io;

use rustix::process::Pid;

/// Copies this process, which must have no other thread: a lock that another holds would stay locked in the copy. Returns
/// the copy's id, and `None` in the copy.
///
/// # Errors
///
/// This process has other threads, or the system starts no process.
pub fn fork() -> io::Result<Option<Pid>> {
    require_single_thread()?;
    // SAFETY: this is the only thread, so that the copy is whole, and goes on as this process does.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        id => Ok(Pid::from_raw(id)),
    }
}

/// Gives this process, which must have no other thread, these environment variables and no others.
///
/// # Errors
///
/// This process has other threads.
pub fn replace_environment(variables: impl IntoIterator<Item = (OsString, OsString)>) -> io::Result<()> {
    require_single_thread()?;
    let before: Vec<_> = std::env::vars_os().map(|(name, _)| name).collect();
    // SAFETY: this is the only thread, so that nothing reads the environment meanwhile.
    unsafe {
        for name in before {
            std::env::remove_var(name);
        }
        for (name, value) in variables {
            std::env::set_var(name, value);
        }
    }
    Ok(())
}

/// Fails if this process has other threads.
///
/// # Errors
///
/// It has, or `/proc` does not tell.
pub fn require_single_thread() -> io::Result<()> {
    match std::fs::read_dir("/proc/self/task")?.count() {
        1 => Ok(()),
        threads => Err(io::Error::other(format!("the process has {threads} threads and may have one"))),
    }
}
