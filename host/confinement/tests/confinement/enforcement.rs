//! Whether a process learns what is in force.

use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;
use std::sync::mpsc::channel;

use gpux_confinement::{Enforcement, Protection, forbid_new_processes};
use libc::{EINVAL, ENOSYS, EOPNOTSUPP, EPERM, c_int, c_long};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

use crate::{Setting, Test, require};

pub(crate) const TESTS: &[Test] = &[
    ("enforcement::is_as_reported", is_as_reported),
    ("enforcement::reports_a_kernel_without_landlock", reports_a_kernel_without_landlock),
    ("enforcement::reports_landlock_that_is_not_enabled", reports_landlock_that_is_not_enabled),
    ("enforcement::reports_a_kernel_without_seccomp", reports_a_kernel_without_seccomp),
    ("enforcement::reports_a_container_that_forbids_both", reports_a_container_that_forbids_both),
    ("enforcement::reports_threads_that_came_before", reports_threads_that_came_before),
];

/// Compares what is reported with what happens, in both directions.
fn check(setting: &Setting, enforcement: &Enforcement) {
    let is_missing = |protection: &Protection| matches!(protection, Protection::Missing(_));
    assert_eq!(fs::read(setting.path("secret/key")).is_ok(), is_missing(&enforcement.files));
    assert_eq!(UdpSocket::bind("127.0.0.1:0").is_ok(), enforcement.network != Protection::Full);
    let parent = rustix::process::getppid();
    let can_signal = rustix::process::test_kill_process(parent.unwrap()).is_ok();
    assert_eq!(can_signal, is_missing(&enforcement.signals));
    let mine = rustix::process::prlimit(
        Some(rustix::process::getpid()),
        rustix::process::Resource::Core,
        rustix::process::Rlimit { current: Some(0), maximum: Some(0) },
    );
    assert_eq!(mine.is_ok(), is_missing(&enforcement.system_calls));
    assert!(fs::read(setting.path("read/model")).is_ok());
    for (name, protection) in enforcement.protections() {
        if let Protection::Partial(text) | Protection::Missing(text) = protection {
            assert!(text.len() > 20 && protection.to_string().ends_with(text), "{name}");
        }
    }
}

fn is_as_reported(setting: &Setting) {
    let enforcement = setting.confinement(&[]).apply();
    check(setting, &enforcement);
    let all = enforcement.protections().iter().all(|(_, protection)| protection.to_string() == "in force");
    assert_eq!(enforcement.is_complete(), all);
}

/// Has a system call fail from here on, as an older kernel has.
pub(crate) fn lack(calls: &[(c_long, c_int)]) {
    for &(call, error) in calls {
        let rules = BTreeMap::from([(call, Vec::new())]);
        let action = SeccompAction::Errno(error as u32);
        let architecture = std::env::consts::ARCH.try_into().unwrap();
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, architecture).unwrap();
        let program: BpfProgram = filter.try_into().unwrap();
        if apply_filter(&program).is_err() {
            println!("skipped: no seccomp to imitate an older kernel with");
            std::process::exit(0);
        }
    }
}

fn assert_missing(protection: &Protection, text: &str) {
    assert!(matches!(protection, Protection::Missing(lack) if lack.contains(text)), "{protection}");
}

fn reports_a_kernel_without_landlock(setting: &Setting) {
    lack(&[(libc::SYS_landlock_create_ruleset, ENOSYS)]);
    let enforcement = setting.confinement(&[]).apply();
    assert_missing(&enforcement.files, "no Landlock");
    assert_missing(&enforcement.signals, "no Landlock");
    assert_eq!([&enforcement.network, &enforcement.system_calls], [&Protection::Full; 2]);
    assert!(!enforcement.is_complete());
    check(setting, &enforcement);
}

fn reports_landlock_that_is_not_enabled(setting: &Setting) {
    lack(&[(libc::SYS_landlock_create_ruleset, EOPNOTSUPP)]);
    let enforcement = setting.confinement(&[]).apply();
    assert_missing(&enforcement.files, "lsm=landlock");
    check(setting, &enforcement);
}

fn reports_a_kernel_without_seccomp(setting: &Setting) {
    lack(&[(libc::SYS_seccomp, EINVAL)]);
    let enforcement = setting.confinement(&[]).apply();
    assert_missing(&enforcement.system_calls, "seccomp");
    require("files", &enforcement.files);
    check(setting, &enforcement);
    assert_eq!(forbid_new_processes().unwrap_err().kind(), std::io::ErrorKind::Unsupported);
    if enforcement.signals == Protection::Full {
        assert!(matches!(&enforcement.network, Protection::Partial(gap) if gap.contains("only TCP")));
        assert!(std::net::TcpListener::bind("127.0.0.1:0").is_err());
    }
}

fn reports_a_container_that_forbids_both(setting: &Setting) {
    lack(&[(libc::SYS_landlock_restrict_self, EPERM), (libc::SYS_seccomp, EPERM)]);
    let enforcement = setting.confinement(&[]).apply();
    for (name, protection) in enforcement.protections() {
        assert!(matches!(protection, Protection::Missing(_)), "{name}: {protection}");
    }
    check(setting, &enforcement);
}

fn reports_threads_that_came_before(setting: &Setting) {
    let (end, ended) = channel::<()>();
    let (tell, told) = channel();
    let secret = setting.path("secret/key");
    let earlier = std::thread::Builder::new().spawn(move || {
        ended.recv().unwrap_err();
        tell.send((fs::read(secret).is_ok(), UdpSocket::bind("127.0.0.1:0").is_ok())).unwrap();
    });
    let enforcement = setting.confinement(&[]).apply();
    drop(end);
    let (reads, has_network) = told.recv().unwrap();
    earlier.unwrap().join().unwrap();
    assert_eq!(reads, matches!(enforcement.files, Protection::Missing(_)));
    assert_eq!(has_network, enforcement.network != Protection::Full);
    if reads {
        require("system calls", &enforcement.system_calls);
        println!("{}", enforcement.files);
    }
}
