//! Namespaces: a process that sees no others, no network, and only the files that it needs.
//!
//! A process cannot enter a namespace of processes itself, only what it starts: so it starts a copy that goes on in its
//! place, and becomes a monitor that waits for the copy and ends as that did. The copy is the first process of its
//! namespace, so the kernel ends everything in it with the copy; and it ends with the monitor.

use std::fs::write;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};

use libc::{CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUSER, CLONE_NEWUTS, c_int};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getegid, geteuid, set_parent_process_death_signal, waitpid};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use crate::Protection;
use crate::fork::fork;
use crate::kernel::{ABORTED, close_all, end_by_signal, exit_now, exit_on_abort, make_mounts_private, unshare};
use crate::limits::limit_processes_of_user;
use crate::root::Root;

const NAMESPACES: c_int = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWUTS;

/// See [`crate::Confinement::enter_namespaces`].
pub(crate) fn enter(root: impl FnOnce() -> io::Result<Root>) -> io::Result<Protection> {
    let is_new_user = match unshare_all() {
        Ok(is_new_user) => is_new_user,
        Err(error) => return Ok(Protection::Missing(format!("{error}"))),
    };
    let (released, release) = io::pipe()?;
    if let Some(child) = fork()? {
        drop(released);
        monitor(child, release)
    }
    drop(release);
    wait_for_release(released)?;
    exit_on_abort();
    if is_new_user {
        limit_processes_of_user()?;
    }
    let entered = match make_mounts_private().and_then(|()| root()) {
        Ok(root) => root.enter()?,
        Err(error) => Err(error),
    };
    if is_new_user {
        // Those of the new namespace: the process had none before.
        let none = CapabilitySet::empty();
        set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    }
    Ok(match entered {
        Ok(true) => Protection::Full,
        Ok(false) => Protection::Partial("`/proc` lists other processes, since this one may mount no other".to_owned()),
        Err(error) => Protection::Partial(format!("files are those of the system, since no root can be made: {error}")),
    })
}

/// Leaves the namespaces of this process; returns whether that of users is new as well. Root needs no new one, and in it
/// would lose the right to files of others.
fn unshare_all() -> io::Result<bool> {
    let is_admin = capabilities(None)?.effective.contains(CapabilitySet::SYS_ADMIN);
    if is_admin && unshare(NAMESPACES).is_ok() {
        return Ok(false);
    }
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    unshare(NAMESPACES | CLONE_NEWUSER)?;
    // The kernel lets a group be mapped only by who cannot leave its groups.
    write("/proc/self/setgroups", "deny")?;
    write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    Ok(true)
}

/// Waits for the copy, and ends as it does.
fn monitor(child: Pid, mut release: PipeWriter) -> ! {
    // Where this fails, the copy has ended already.
    let _ = release.write_all(&[1]);
    // What the copy closes is closed then.
    close_all();
    let none = CapabilitySet::empty();
    let _ = set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none });
    let status = loop {
        match waitpid(Some(child), WaitOptions::empty()) {
            Ok(Some((_, status))) => break status,
            Ok(None) | Err(Errno::INTR) => {}
            Err(_) => exit_now(1),
        }
    };
    match (status.exit_status(), status.terminating_signal()) {
        (Some(ABORTED), _) => end_by_signal(libc::SIGABRT),
        (Some(code), _) => exit_now(code),
        (None, signal) => end_by_signal(signal.unwrap_or(libc::SIGKILL)),
    }
}

/// Ends this process with the monitor, from now on; fails if that has ended already.
fn wait_for_release(mut released: PipeReader) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    released.read_exact(&mut [0])
}
