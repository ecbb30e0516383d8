//! System calls, limits and capabilities.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use gpux_confinement::limit_resources;
use libc::{EBADF, EINVAL, ENOSYS, EPERM, c_int, c_long};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, prlimit, setrlimit};

use crate::{Setting, Test, errno, require};

pub(crate) const TESTS: &[Test] = &[
    ("system_calls::fail_without_killing", fail_without_killing),
    ("system_calls::keep_limits", keep_limits),
    ("system_calls::drop_capabilities_of_root", drop_capabilities_of_root),
];

/// Calls system calls with small integers; prints their error numbers.
const PERL: &str = r#"for (@ARGV) { my @a = map { $_ + 0 } split /,/; push @a, 0 while @a < 7; $! = 0; syscall($a[0], @a[1..6]); print $! + 0, "\n" }"#;

fn fail_without_killing(setting: &Setting) {
    if !Path::new("/usr/bin/perl").exists() {
        return println!("skipped: no perl to call with");
    }
    let enforcement = setting.confinement(&["/usr/bin/perl"]).apply();
    require("system calls", &enforcement.system_calls);
    let (unix, stream, datagram) = (libc::AF_UNIX, libc::SOCK_STREAM, libc::SOCK_DGRAM);
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let thread = libc::CLONE_THREAD;
    let calls: &[(c_long, &[c_int], c_int)] = &[
        (libc::SYS_ptrace, &[], EPERM),
        (libc::SYS_process_vm_readv, &[1], EPERM),
        (libc::SYS_process_vm_writev, &[1], EPERM),
        (libc::SYS_pidfd_getfd, &[], EPERM),
        (libc::SYS_bpf, &[], EPERM),
        (libc::SYS_perf_event_open, &[], EPERM),
        (libc::SYS_userfaultfd, &[1], EPERM),
        (libc::SYS_io_uring_setup, &[1], EPERM),
        (libc::SYS_io_uring_enter, &[-1], EPERM),
        (libc::SYS_mount, &[], EPERM),
        (libc::SYS_open_tree, &[-1], EPERM),
        (libc::SYS_move_mount, &[-1], EPERM),
        (libc::SYS_chroot, &[], EPERM),
        (libc::SYS_unshare, &[libc::CLONE_NEWUSER], EPERM),
        (libc::SYS_setns, &[-1], EPERM),
        (libc::SYS_keyctl, &[], EPERM),
        (libc::SYS_add_key, &[], EPERM),
        (libc::SYS_request_key, &[], EPERM),
        (libc::SYS_kexec_load, &[], EPERM),
        (libc::SYS_finit_module, &[-1], EPERM),
        (libc::SYS_open_by_handle_at, &[-1], EPERM),
        (libc::SYS_fanotify_init, &[], EPERM),
        (libc::SYS_inotify_add_watch, &[-1], EPERM),
        (libc::SYS_shmget, &[0, 4096, 0o1600], EPERM),
        (libc::SYS_msgget, &[0, 0o1600], EPERM),
        (libc::SYS_fchmodat, &[-1], EPERM),
        (452, &[-1], EPERM),
        // By arguments: the first of each is denied, the others reach the kernel.
        (libc::SYS_clone, &[libc::CLONE_NEWUSER | thread], EPERM),
        (libc::SYS_clone, &[libc::CLONE_NEWNET | thread], EPERM),
        (libc::SYS_clone, &[thread], EINVAL),
        (libc::SYS_socket, &[unix, datagram | flags], EPERM),
        (libc::SYS_socket, &[libc::AF_INET, stream], EPERM),
        (libc::SYS_socket, &[99, stream], EPERM),
        (libc::SYS_socket, &[unix, stream | flags], 0),
        (libc::SYS_socketpair, &[unix, stream | flags], EPERM),
        (libc::SYS_sendmsg, &[-1], EPERM),
        (libc::SYS_memfd_create, &[], ENOSYS),
        (libc::SYS_mmap, &[0, 4096, 3, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1], EPERM),
        (libc::SYS_mmap, &[0, 4096, 3, libc::MAP_SHARED_VALIDATE | libc::MAP_ANONYMOUS, -1], EPERM),
        (libc::SYS_mmap, &[0, 0, 3, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1], EINVAL),
        (libc::SYS_mmap, &[0, 4096, 3, libc::MAP_SHARED, -1], EBADF),
        (libc::SYS_fchmod, &[-1], EPERM),
        (libc::SYS_fchown, &[-1], EPERM),
        (libc::SYS_fsetxattr, &[-1], EPERM),
        (libc::SYS_fremovexattr, &[-1], EPERM),
        (libc::SYS_fcntl, &[-1, libc::F_SETLEASE], EPERM),
        (libc::SYS_fcntl, &[-1, libc::F_SETOWN], EPERM),
        (libc::SYS_fcntl, &[-1, libc::F_GETFL], EBADF),
        (libc::SYS_ioctl, &[-1, 0x4008_6602], EPERM),
        (libc::SYS_ioctl, &[-1, 0x4080_6685], EPERM),
        (libc::SYS_prctl, &[libc::PR_SET_PDEATHSIG], EPERM),
        (libc::SYS_sched_setaffinity, &[1], EPERM),
        (libc::SYS_sched_setaffinity, &[0], EINVAL),
        (libc::SYS_setpriority, &[0, 1], EPERM),
        (libc::SYS_setpriority, &[0, 0, 19], 0),
        (libc::SYS_ioprio_set, &[3, 0], EPERM),
        (libc::SYS_ioprio_set, &[1, 1], EPERM),
        (libc::SYS_ioctl, &[-1, libc::TIOCSTI as c_int], EPERM),
        (libc::SYS_ioctl, &[-1, libc::TIOCLINUX as c_int], EPERM),
        (libc::SYS_ioctl, &[-1, libc::TIOCGWINSZ as c_int], EBADF),
        (libc::SYS_prlimit64, &[1], EPERM),
        (libc::SYS_prlimit64, &[0], 0),
        (libc::SYS_utimensat, &[-1, 1], EPERM),
        (libc::SYS_utimensat, &[-1, 0], EPERM),
        (libc::SYS_connect, &[-1], libc::ECONNREFUSED),
        (libc::SYS_clone3, &[], ENOSYS),
        // After the table, and the second numbers of the same calls on x86-64.
        (463, &[-1], ENOSYS),
        (470, &[], ENOSYS),
        (0x4000_0000 + libc::SYS_socket, &[libc::AF_INET, stream], ENOSYS),
        (0x4000_0000 + 521, &[], ENOSYS),
    ];
    let arguments = calls.iter().map(|(call, arguments, _)| {
        std::iter::once(call.to_string()).chain(arguments.iter().map(ToString::to_string)).collect::<Vec<_>>().join(",")
    });
    let output = Command::new("/usr/bin/perl").args(["-e", PERL]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let errors: Vec<c_int> = text.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(errors.len(), calls.len());
    for ((call, arguments, expected), error) in calls.iter().zip(errors) {
        assert_eq!(error, *expected, "call {call} with {arguments:?}");
    }
}

fn keep_limits(setting: &Setting) {
    limit_resources(40).unwrap();
    assert_eq!(getrlimit(Resource::Nofile).maximum, Some(40));
    limit_resources(5000).unwrap();
    assert_eq!(getrlimit(Resource::Nofile), Rlimit { current: Some(40), maximum: Some(40) }, "it was lower");
    assert!(getrlimit(Resource::Core).maximum.unwrap() <= 1);
    let enforcement = setting.confinement(&[]).apply();
    require("files", &enforcement.files);
    let mut files = Vec::new();
    let error = loop {
        match File::open(setting.path("read/model")) {
            Ok(file) => files.push(file),
            Err(error) => break error,
        }
    };
    assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
    assert!((25..40).contains(&files.len()), "{}", files.len());
    drop(files);
    // Not even root can raise them, because it is no more than another user.
    let more = || Rlimit { current: Some(41), maximum: Some(41) };
    assert_eq!(setrlimit(Resource::Nofile, more()), Err(Errno::PERM));
    assert!(setrlimit(Resource::Nofile, Rlimit { current: Some(39), maximum: Some(39) }).is_ok());
    require("system calls", &enforcement.system_calls);
    assert_eq!(prlimit(rustix::process::getppid(), Resource::Cpu, more()).err(), Some(Errno::PERM));
    assert_eq!(errno(std::thread::Builder::new().spawn(|| ())), None);
}

fn drop_capabilities_of_root(setting: &Setting) {
    let capabilities = |name: &str| {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let value = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        u64::from_str_radix(value.trim(), 16).unwrap()
    };
    let enforcement = setting.confinement(&[]).apply();
    for name in ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:"] {
        // CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH
        assert_eq!(capabilities(name) & !0b110, 0, "{name}");
    }
    assert_eq!(capabilities("NoNewPrivs:"), 1);
    require("system calls", &enforcement.system_calls);
    assert_eq!(capabilities("Seccomp:"), 2);
}
