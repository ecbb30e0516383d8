//! Programs that a confined process can start, and what they inherit.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::sync::mpsc::channel;
use std::thread::Builder;

use gpux_confinement::forbid_new_processes;

use crate::{EACCES, EPERM, Setting, Test, confine, errno, require, try_programs};

pub(crate) const TESTS: &[Test] = &[
    ("programs::starts_permitted_programs_alone", starts_permitted_programs_alone),
    ("programs::starts_none_without_a_list", starts_none_without_a_list),
    ("programs::children_inherit", children_inherit),
    ("programs::loads_libraries_where_it_may_read", loads_libraries_where_it_may_read),
    ("programs::forbids_new_processes_in_all_threads", forbids_new_processes_in_all_threads),
];

fn starts_permitted_programs_alone(setting: &Setting) {
    let copy = setting.path("write/copy");
    fs::copy("/bin/true", &copy).unwrap();
    let script = setting.path("read/script");
    fs::write(&script, "#!/bin/sh\ntrue\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let (copy, script) = (copy.to_str().unwrap(), script.to_str().unwrap());
    let model = setting.path("read/model");
    let _ = confine(setting.confinement(&["/bin/true", "/bin/cat"]));
    let [yes, cat] = try_programs([&["/bin/true"], &["/bin/cat", model.to_str().unwrap()]]);
    assert_eq!(yes.unwrap().as_deref(), Some(""));
    assert_eq!(cat.unwrap().as_deref(), Some("read/model"));
    for result in try_programs([&["/bin/ls"], &["/bin/sh", "-c", "true"], &[copy], &[script]]) {
        assert_eq!(errno(result), EACCES);
    }
}

fn starts_none_without_a_list(setting: &Setting) {
    let enforcement = confine(setting.confinement(&[]));
    require("system calls", &enforcement.system_calls);
    for result in try_programs([&["/bin/true"], &["/bin/sh", "-c", "true"], &["/lib64/ld-linux-x86-64.so.2"]]) {
        assert_eq!(errno(result), EPERM);
    }
}

fn children_inherit(setting: &Setting) {
    let folder = setting.folder.to_str().unwrap();
    let enforcement = confine(setting.confinement(&["/bin/sh", "/bin/cat"]));
    let run = |script: &str| Command::new("/bin/sh").arg("-c").arg(script).current_dir("/").output().unwrap();
    assert_eq!(run(&format!("cat {folder}/read/model")).stdout, b"read/model");
    assert_eq!(run(&format!("(/bin/sh -c 'cat {folder}/read-one')")).stdout, b"read-one");
    assert!(run(&format!("echo x > {folder}/write/by-child")).status.success());
    for script in ["cat secret/key", "(/bin/sh -c 'cat secret/key')", "cat read/link", "echo x > read/new", "ls"] {
        let output = run(&format!("cd {folder} && {script}"));
        assert!(!output.status.success(), "{script}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("denied"), "{script}: {output:?}");
    }
    require("signals", &enforcement.signals);
    let parent = rustix::process::getppid().unwrap().as_raw_nonzero();
    assert!(!run(&format!("kill -0 {parent}")).status.success());
    assert!(run("kill -0 $$").status.success());
}

/// Libraries are mapped with the right to execute, which Landlock does not restrict.
fn loads_libraries_where_it_may_read(setting: &Setting) {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let Some(library) = maps.split_whitespace().find(|word| word.contains("/libgcc_s.so") || word.contains("/libm.so"))
    else {
        return println!("skipped: this program is linked with no library");
    };
    for folder in ["read", "secret", "write"] {
        fs::copy(library, setting.path(folder).join("library.so")).unwrap();
    }
    let _ = confine(setting.confinement(&["/bin/true"]));
    let loads = |library: &str| {
        let output = Command::new("/bin/true").env("LD_PRELOAD", library).output().unwrap();
        assert!(output.status.success());
        !String::from_utf8_lossy(&output.stderr).contains("cannot be preloaded")
    };
    let path = |folder: &str| setting.path(folder).join("library.so").to_str().unwrap().to_owned();
    assert!(loads(library) && loads(&path("read")) && loads(&path("write")));
    assert!(!loads(&path("secret")));
}

fn forbids_new_processes_in_all_threads(setting: &Setting) {
    let start = || Command::new("/bin/true").status().map(|status| status.success());
    let (ask, asked) = channel::<()>();
    let (answer, answers) = channel::<io::Result<bool>>();
    let spawn = |work: Box<dyn FnOnce() + Send>| Builder::new().spawn(work).unwrap();
    // The confinement comes first, in the only thread, as in a worker.
    let enforcement = confine(setting.confinement(&["/bin/true"]));
    require("system calls", &enforcement.system_calls);
    let earlier = spawn(Box::new(move || {
        while asked.recv().is_ok() {
            answer.send(start()).unwrap();
        }
    }));
    ask.send(()).unwrap();
    assert!(answers.recv().unwrap().unwrap() && start().unwrap());
    forbid_new_processes().unwrap();
    assert_eq!(errno(start()), EPERM);
    ask.send(()).unwrap();
    assert_eq!(errno(answers.recv().unwrap()), EPERM);
    let later = spawn(Box::new(move || assert_eq!(errno(start()), EPERM)));
    later.join().unwrap();
    drop(ask);
    earlier.join().unwrap();
    forbid_new_processes().expect("a second time");
}
