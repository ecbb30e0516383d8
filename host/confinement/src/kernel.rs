//! System calls that no library has in a safe form: for namespaces and mounts.

#![allow(unsafe_code, reason = "system calls whose arguments are checked by type here")]

use std::ffi::{CStr, CString, c_int, c_long};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// The exit code of [`exit_on_abort`]: 128 and the signal's number, as in a shell.
pub(crate) const ABORTED: c_int = 128 + libc::SIGABRT;

fn c_string(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

fn check(result: c_long) -> io::Result<c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Moves this process, which has one thread, into new namespaces: all of them or none.
pub(crate) fn unshare(namespaces: c_int) -> io::Result<()> {
    // SAFETY: without CLONE_FILES, no descriptor changes its meaning for other threads.
    check(unsafe { libc::unshare(namespaces) }.into()).map(drop)
}

/// Ends this process without its exit handlers.
pub(crate) fn exit_now(code: c_int) -> ! {
    // SAFETY: it does not return.
    unsafe { libc::_exit(code) }
}

/// Has SIGABRT end the process with [`ABORTED`]. The first process of a namespace does not get signals that it sends
/// itself, unless it handles them.
pub(crate) fn exit_on_abort() {
    extern "C" fn on_abort(_: c_int) {
        exit_now(ABORTED);
    }
    // SAFETY: the handler calls `_exit` alone, which a handler may.
    unsafe { libc::signal(libc::SIGABRT, on_abort as extern "C" fn(c_int) as libc::sighandler_t) };
}

/// Ends this process by a signal, or with a code where the signal cannot end it.
pub(crate) fn end_by_signal(signal: c_int) -> ! {
    // SAFETY: the default action needs no handler.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
    exit_now(128 + signal)
}

/// Closes every descriptor. What owns one must not be used any more.
pub(crate) fn close_all() {
    // SAFETY: the caller only waits for another process from now on.
    let _ = unsafe { libc::syscall(libc::SYS_close_range, 0, c_int::MAX, 0) };
}

/// Mounts a file system of this type without a source.
pub(crate) fn mount_new(kind: &CStr, target: &Path, flags: libc::c_ulong, options: &CStr) -> io::Result<()> {
    let target = c_string(target)?;
    // SAFETY: all texts end with a zero and outlive the call.
    let result = unsafe { libc::mount(kind.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast()) };
    check(result.into()).map(drop)
}

/// Keeps mounts of this namespace from reaching others, and theirs from reaching this one.
pub(crate) fn make_mounts_private() -> io::Result<()> {
    let flags = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: a change of propagation reads the target alone.
    let result = unsafe { libc::mount(std::ptr::null(), c"/".as_ptr(), std::ptr::null(), flags, std::ptr::null()) };
    check(result.into()).map(drop)
}

/// Detaches what is mounted at `target`, with everything beneath it.
pub(crate) fn unmount(target: &Path) -> io::Result<()> {
    let target = c_string(target)?;
    // SAFETY: the text ends with a zero and outlives the call.
    check(unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) }.into()).map(drop)
}

/// A copy of what is mounted at and beneath `path`, which is not mounted anywhere yet.
pub(crate) fn clone_tree(path: &Path) -> io::Result<OwnedFd> {
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | libc::AT_RECURSIVE as u32;
    let path = c_string(path)?;
    // SAFETY: the text ends with a zero and outlives the call.
    let tree = check(unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) })?;
    // SAFETY: the call has made this descriptor for nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(tree as RawFd) })
}

/// Mounts such a copy at `target`, over what lies there.
pub(crate) fn attach_tree(tree: &impl AsFd, target: &Path) -> io::Result<()> {
    let target = c_string(target)?;
    let tree = tree.as_fd().as_raw_fd();
    // SAFETY: both texts end with a zero and outlive the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree,
            c"".as_ptr(),
            libc::AT_FDCWD,
            target.as_ptr(),
            libc::MOVE_MOUNT_F_EMPTY_PATH,
        )
    };
    check(result).map(drop)
}

/// Sets attributes (`MOUNT_ATTR_…`) of a mount; with `AT_RECURSIVE`, also of those beneath it. What is set stays set.
pub(crate) fn restrict_mount(mount: &impl AsFd, attributes: u64, flags: c_int) -> io::Result<()> {
    let attributes = libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let (mount, flags) = (mount.as_fd().as_raw_fd(), flags | libc::AT_EMPTY_PATH);
    let size = size_of::<libc::mount_attr>();
    // SAFETY: the structure is of the size that is passed, and outlives the call.
    let result =
        unsafe { libc::syscall(libc::SYS_mount_setattr, mount, c"".as_ptr(), flags, &raw const attributes, size) };
    check(result).map(drop)
}
