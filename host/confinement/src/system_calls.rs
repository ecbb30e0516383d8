//! seccomp: system calls that fail.
//!
//! A table of denials, not of permissions: native libraries use nearly everything else, and no list of it would hold
//! for the next version of a driver. Nothing is killed, because libraries try calls and do without them. Calls that
//! are newer than this table fail like on an older kernel.

use std::collections::BTreeMap;
use std::io;

#[allow(clippy::wildcard_imports, reason = "a hundred constants with a prefix")]
use libc::*;
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{Eq, MaskedEq, Ne};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter_all_threads, sock_filter,
};

/// The first system call that this table does not know (`setxattrat`, Linux 6.13). Above it are also the numbers of
/// x32, a second set of the same calls on x86-64, which would evade the table.
const FIRST_UNKNOWN: c_uint = 463;

/// `fchmodat2`, which the `libc` crate does not name on every processor.
const FCHMODAT2: c_long = 452;

/// Denied with any arguments.
const DENIED: &[c_long] = &[
    // Other processes: their memory, descriptors and control flow.
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_process_madvise,
    SYS_process_mrelease,
    SYS_pidfd_getfd,
    SYS_kcmp,
    // Out of the group that the parent kills.
    SYS_setsid,
    SYS_setpgid,
    // The kernel: its code, its settings, and parts with a history of errors.
    SYS_kexec_load,
    SYS_kexec_file_load,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_reboot,
    SYS_syslog,
    SYS_acct,
    SYS_swapon,
    SYS_swapoff,
    SYS_quotactl,
    SYS_quotactl_fd,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_clock_adjtime,
    SYS_adjtimex,
    SYS_vhangup,
    SYS_nfsservctl,
    // Mounts and namespaces: other views of the system.
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fspick,
    SYS_open_tree,
    SYS_move_mount,
    SYS_mount_setattr,
    SYS_unshare,
    SYS_setns,
    // Keys of the user.
    SYS_add_key,
    SYS_request_key,
    SYS_keyctl,
    // Files without their paths, or only their names: Landlock does not see these.
    SYS_open_by_handle_at,
    SYS_name_to_handle_at,
    SYS_fanotify_init,
    SYS_inotify_add_watch,
    // Owners, modes, times and attributes of any file, which Landlock does not restrict. Not of open files either: one
    // that is open for reading may be a program, a library or a model of others.
    SYS_fchmod,
    SYS_fchmodat,
    FCHMODAT2,
    SYS_fchown,
    SYS_fchownat,
    SYS_setxattr,
    SYS_lsetxattr,
    SYS_fsetxattr,
    SYS_removexattr,
    SYS_lremovexattr,
    SYS_fremovexattr,
    SYS_utimensat,
    // Memory that no process is seen to have: buffers of sockets, and of descriptors on their way through them.
    SYS_socketpair,
    SYS_sendmsg,
    SYS_sendmmsg,
    SYS_memfd_secret,
    // Memory and queues of System V and POSIX, which any process of the same user can open.
    SYS_shmget,
    SYS_shmat,
    SYS_shmctl,
    SYS_semget,
    SYS_semop,
    SYS_semtimedop,
    SYS_semctl,
    SYS_msgget,
    SYS_msgsnd,
    SYS_msgrcv,
    SYS_msgctl,
    SYS_mq_open,
    SYS_mq_unlink,
    // The same as above, under numbers that only x86-64 has; and ports and descriptor tables of the processor.
    #[cfg(target_arch = "x86_64")]
    SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    SYS_chown,
    #[cfg(target_arch = "x86_64")]
    SYS_lchown,
    #[cfg(target_arch = "x86_64")]
    SYS_utime,
    #[cfg(target_arch = "x86_64")]
    SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    SYS_futimesat,
    #[cfg(target_arch = "x86_64")]
    SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    SYS_modify_ldt,
];

/// Starts of programs, of which [`Confinement`](crate::Confinement) denies all or none.
const PROGRAMS: &[c_long] = &[SYS_execve, SYS_execveat];

/// Denied if the argument of this index compares so. Only the low 32 bits of an `int` count.
const CONDITIONS: &[(c_long, u8, SeccompCmpArgLen, SeccompCmpOp, u64)] = &[
    // Sockets other than Unix, and those that send to an address without `connect`.
    (SYS_socket, 0, Dword, Ne, AF_UNIX as u64),
    (SYS_socket, 1, Dword, MaskedEq(SOCKET_TYPE), SOCK_DGRAM as u64),
    (SYS_socket, 1, Dword, MaskedEq(SOCKET_TYPE), SOCK_RAW as u64),
    // Namespaces; for `clone3` see `restrict`.
    (SYS_clone, 0, Qword, MaskedEq(CLONE_NEWCGROUP as u64), CLONE_NEWCGROUP as u64),
    (SYS_clone, 0, Qword, MaskedEq(CLONE_NEWIPC as u64), CLONE_NEWIPC as u64),
    (SYS_clone, 0, Qword, MaskedEq(CLONE_NEWNET as u64), CLONE_NEWNET as u64),
    (SYS_clone, 0, Qword, MaskedEq(CLONE_NEWNS as u64), CLONE_NEWNS as u64),
    (SYS_clone, 0, Qword, MaskedEq(CLONE_NEWPID as u64), CLONE_NEWPID as u64),
    (SYS_clone, 0, Qword, MaskedEq(CLONE_NEWUSER as u64), CLONE_NEWUSER as u64),
    (SYS_clone, 0, Qword, MaskedEq(CLONE_NEWUTS as u64), CLONE_NEWUTS as u64),
    // Input to the terminal that the operator started gpux from.
    (SYS_ioctl, 1, Dword, Eq, TIOCSTI),
    (SYS_ioctl, 1, Dword, Eq, TIOCLINUX),
    // Marks of files that are open for reading, among them that nobody may write them again.
    (SYS_ioctl, 1, Dword, Eq, FS_IOC_SETFLAGS),
    (SYS_ioctl, 1, Dword, Eq, FS_IOC_FSSETXATTR),
    (SYS_ioctl, 1, Dword, Eq, FS_IOC_ENABLE_VERITY),
    (SYS_ioctl, 1, Dword, Eq, FS_IOC_SET_ENCRYPTION_POLICY),
    // Those that delay others who open a file, tell what others do, and have the kernel send signals.
    (SYS_fcntl, 1, Dword, Eq, F_SETLEASE as u64),
    (SYS_fcntl, 1, Dword, Eq, F_NOTIFY as u64),
    (SYS_fcntl, 1, Dword, Eq, F_SETOWN as u64),
    (SYS_fcntl, 1, Dword, Eq, F_SETOWN_EX),
    (SYS_ioctl, 1, Dword, Eq, FIOSETOWN),
    (SYS_ioctl, 1, Dword, Eq, SIOCSPGRP),
    // The death with its parent, which the process began with.
    (SYS_prctl, 0, Dword, Eq, PR_SET_PDEATHSIG as u64),
    // Limits, priority and processors of other processes, and of groups of them. A thread changes its own by 0: the
    // numbers of the others cannot be told from those of strangers.
    (SYS_prlimit64, 0, Dword, Ne, 0),
    (SYS_setpriority, 0, Dword, Ne, 0),
    (SYS_setpriority, 1, Dword, Ne, 0),
    (SYS_ioprio_set, 0, Dword, Ne, IOPRIO_WHO_PROCESS),
    (SYS_ioprio_set, 1, Dword, Ne, 0),
    (SYS_sched_setaffinity, 0, Dword, Ne, 0),
    (SYS_sched_setscheduler, 0, Dword, Ne, 0),
    (SYS_sched_setparam, 0, Dword, Ne, 0),
    (SYS_sched_setattr, 0, Dword, Ne, 0),
];

/// Numbers that the `libc` crate does not name.
const FS_IOC_SETFLAGS: u64 = 0x4008_6602;
const FS_IOC_FSSETXATTR: u64 = 0x401c_5820;
const FS_IOC_ENABLE_VERITY: u64 = 0x4080_6685;
const FS_IOC_SET_ENCRYPTION_POLICY: u64 = 0x800c_6613;
const FIOSETOWN: u64 = 0x8901;
const SIOCSPGRP: u64 = 0x8902;
const F_SETOWN_EX: u64 = 15;
const IOPRIO_WHO_PROCESS: u64 = 1;

/// Mappings of memory that stays when no process maps a page of it, also at the end of a fork.
const SHARED_MEMORY: u64 = (MAP_SHARED | MAP_ANONYMOUS) as u64;

/// The bits of a socket's type beside its flags (`SOCK_TYPE_MASK` of the kernel).
const SOCKET_TYPE: u64 = 0xf;

/// Restricts every thread of this process; a sentence on why, if it cannot. Drivers of accelerators may share memory,
/// with `accelerators`, while they are loaded.
pub(crate) fn restrict(forbid_programs: bool, accelerators: bool) -> Result<(), String> {
    let apply = || {
        let mut denied = rules(DENIED);
        if forbid_programs {
            denied.extend(rules(PROGRAMS));
        }
        for (call, index, length, operator, value) in CONDITIONS {
            let condition = SeccompCondition::new(*index, length.clone(), operator.clone(), *value)?;
            denied.entry(*call).or_default().push(SeccompRule::new(vec![condition])?);
        }
        if !accelerators {
            denied.insert(SYS_mmap, shared_memory()?);
        }
        apply_filter_all_threads(&filter(denied, EPERM)?)?;
        // A filter cannot read the flags of `clone3`, which lie in memory; the C library then uses `clone`.
        let mut absent = rules(&[SYS_clone3]);
        if !accelerators {
            // Of files in memory the same holds as of shared memory. Wasmtime goes on without after this error.
            absent.extend(rules(&[SYS_memfd_create]));
        }
        apply_filter_all_threads(&filter(absent, ENOSYS)?)?;
        // Unix sockets are not bound to Landlock's paths before Linux 7.1. Libraries that look for a daemon (NVML)
        // go on without it after this error, and give up after others.
        apply_filter_all_threads(&filter(rules(&[SYS_connect]), ECONNREFUSED)?)?;
        apply_filter_all_threads(&unknown_calls())
    };
    apply().map_err(|error: seccompiler::Error| format!("seccomp is not available: {error}"))
}

/// See [`crate::forbid_new_processes`].
pub(crate) fn forbid_new_processes() -> io::Result<()> {
    let apply = || {
        let mut denied = rules(PROGRAMS);
        // Memory of such a file, unless it is mapped, belongs to no process that could be killed for it.
        denied.extend(rules(&[SYS_memfd_create]));
        denied.insert(SYS_mmap, shared_memory()?);
        // On x86-64 alone.
        #[cfg(target_arch = "x86_64")]
        denied.extend(rules(&[SYS_fork, SYS_vfork]));
        let starts_process = SeccompCondition::new(0, Qword, MaskedEq(CLONE_THREAD as u64), 0)?;
        denied.insert(SYS_clone, vec![SeccompRule::new(vec![starts_process])?]);
        apply_filter_all_threads(&filter(denied, EPERM)?)
    };
    apply().map_err(|error| match error {
        seccompiler::Error::Seccomp(error) | seccompiler::Error::Prctl(error)
            if matches!(error.raw_os_error(), Some(ENOSYS | EINVAL)) =>
        {
            io::Error::new(io::ErrorKind::Unsupported, format!("this kernel has no seccomp: {error}"))
        }
        error => io::Error::other(error),
    })
}

/// Rules that match `mmap` of [`SHARED_MEMORY`].
fn shared_memory() -> seccompiler::Result<Vec<SeccompRule>> {
    let condition = SeccompCondition::new(3, Dword, MaskedEq(SHARED_MEMORY), SHARED_MEMORY)?;
    Ok(vec![SeccompRule::new(vec![condition])?])
}

/// Rules that match each call with any arguments.
fn rules(calls: &[c_long]) -> BTreeMap<c_long, Vec<SeccompRule>> {
    calls.iter().map(|&call| (call, Vec::new())).collect()
}

/// A filter that has the calls of `rules` fail with an error number.
fn filter(rules: BTreeMap<c_long, Vec<SeccompRule>>, error: c_int) -> seccompiler::Result<BpfProgram> {
    let action = SeccompAction::Errno(error as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, std::env::consts::ARCH.try_into()?)?;
    Ok(filter.try_into()?)
}

/// A filter that has system calls from [`FIRST_UNKNOWN`] on fail with `ENOSYS`; seccompiler compares no ranges.
fn unknown_calls() -> BpfProgram {
    let instruction = |code: u32, jt, jf, k| sock_filter { code: code as u16, jt, jf, k };
    vec![
        // The number is the first field of `seccomp_data`.
        instruction(BPF_LD | BPF_W | BPF_ABS, 0, 0, 0),
        instruction(BPF_JMP | BPF_JGE | BPF_K, 0, 1, FIRST_UNKNOWN),
        instruction(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | ENOSYS as u32),
        instruction(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_is_denied_both_always_and_on_a_condition() {
        // The second would replace the first: the call would be permitted.
        let always = rules(DENIED);
        for (call, ..) in CONDITIONS {
            assert!(!always.contains_key(call), "{call}");
        }
        assert_eq!(always.len(), DENIED.len(), "a call is listed twice");
        assert!(DENIED.iter().all(|call| (*call as c_uint) < FIRST_UNKNOWN));
    }
}
