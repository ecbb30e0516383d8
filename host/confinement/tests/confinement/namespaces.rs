//! What a process sees in namespaces of its own.

use std::fs;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};

use gpux_confinement::{Confinement, Protection};
use libc::EPERM;

use crate::enforcement::lack;
use crate::{Setting, Test, errno};

pub(crate) const TESTS: &[Test] = &[
    ("namespaces::hold_only_what_is_permitted", hold_only_what_is_permitted),
    ("namespaces::hold_everything_with_the_root", hold_everything_with_the_root),
    ("namespaces::are_reported_where_there_are_none", are_reported_where_there_are_none),
];

/// Enters them; ends this process, as skipped, if the system gives none.
fn enter(confinement: &Confinement) -> Protection {
    let entered = confinement.enter_namespaces().unwrap();
    if !matches!(entered, Protection::Full) {
        println!("skipped: {entered}");
        std::process::exit(0);
    }
    assert_eq!((std::process::id(), rustix::process::getppid()), (1, None));
    entered
}

fn processes() -> usize {
    let entries = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().file_name());
    entries.filter(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit)).count()
}

fn hold_only_what_is_permitted(setting: &Setting) {
    std::os::unix::fs::symlink("read/deep", setting.path("link")).unwrap();
    let mut confinement = setting.confinement(&[]);
    confinement.read.extend([setting.path("link/labels"), "relative".into()]);
    std::env::set_current_dir(setting.path("secret")).unwrap();
    fs::write("relative", "relative").unwrap();
    enter(&confinement);

    assert_eq!(fs::read_to_string(setting.path("read/model")).unwrap(), "read/model");
    assert_eq!(fs::read_to_string(setting.path("link/labels")).unwrap(), "read/deep/labels");
    assert_eq!(fs::read_to_string("relative").unwrap(), "relative", "the working directory is the same");
    assert_eq!(fs::read(setting.path("secret/key")).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(fs::read(setting.path("read-other")).unwrap_err().kind(), ErrorKind::NotFound);
    fs::write(setting.path("write/new"), "new").unwrap();
    for path in ["read/model", "read/new", "read-one", "new"] {
        assert_eq!(fs::write(setting.path(path), "x").unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem, "{path}");
    }
    let model = fs::File::open(setting.path("read/model")).unwrap();
    assert_eq!(errno(model.set_permissions(model.metadata().unwrap().permissions())), Some(libc::EROFS));

    fs::write("/dev/null", "x").unwrap();
    assert!(fs::read_to_string("/proc/self/status").unwrap().starts_with("Name:"));
    assert_eq!(processes(), 1);
    assert!(!Path::new("/etc/passwd").exists() && !Path::new("/home").exists());
    // Not even the loopback device is up.
    assert!(UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.send_to(b"x", "127.0.0.1:9")).is_err());
    assert!(std::thread::spawn(|| ()).join().is_ok());
    let _ = confinement.apply();
    assert!(fs::read(setting.path("read/model")).is_ok());
}

fn hold_everything_with_the_root(setting: &Setting) {
    let mut confinement = setting.confinement(&[]);
    confinement.read.push(PathBuf::from("/"));
    enter(&confinement);
    assert!(fs::read(setting.path("secret/key")).is_ok() && fs::read("/etc/passwd").is_ok());
    assert_eq!(fs::write(setting.path("secret/key"), "x").unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    fs::write(setting.path("write/new"), "new").unwrap();
    fs::write("/dev/null", "x").unwrap();
    assert_eq!(processes(), 1);
}

fn are_reported_where_there_are_none(setting: &Setting) {
    lack(&[(libc::SYS_unshare, EPERM)]);
    let before = std::process::id();
    let entered = setting.confinement(&[]).enter_namespaces().unwrap();
    assert!(matches!(&entered, Protection::Missing(lack) if lack.contains("not permitted")), "{entered}");
    assert_eq!(std::process::id(), before);
}
