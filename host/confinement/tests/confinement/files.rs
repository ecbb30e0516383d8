//! Files that a confined process can reach.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::SystemTime;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::{EACCES, EPERM, Setting, Test, confine, errno, require};

pub(crate) const TESTS: &[Test] = &[
    ("files::reads_permitted_files_alone", reads_permitted_files_alone),
    ("files::reads_what_every_program_needs", reads_what_every_program_needs),
    ("files::writes_beneath_permitted_folders_alone", writes_beneath_permitted_folders_alone),
    ("files::makes_only_files_and_folders", makes_only_files_and_folders),
    ("files::changes_no_attributes", changes_no_attributes),
    (
        "files::reaches_shared_memory_only_with_drivers_that_need_it",
        reaches_shared_memory_only_with_drivers_that_need_it,
    ),
    ("files::narrows_when_applied_again", narrows_when_applied_again),
];

fn reads_permitted_files_alone(setting: &Setting) {
    let parent = rustix::process::getppid().unwrap().as_raw_nonzero();
    let _ = confine(setting.confinement(&[]));
    for path in ["read/model", "read/deep/labels", "read-one", "write/old", "read/deep/../model"] {
        let expected = path.replace("deep/../", "");
        assert_eq!(fs::read_to_string(setting.path(path)).unwrap(), expected);
    }
    assert_eq!(fs::read_to_string(setting.path("secret/link")).unwrap(), "read/model", "it is the target that counts");
    assert_eq!(fs::read_dir(setting.path("read")).unwrap().count(), 3);
    for path in ["secret/key", "read/link", "read/../secret/key", "read-other"] {
        assert_eq!(errno(File::open(setting.path(path))), EACCES, "{path}");
    }
    let others = format!("/proc/{parent}/status");
    for path in ["/etc/passwd", "/proc/1/status", "/proc/self/root/etc/passwd", &others] {
        assert_eq!(errno(File::open(path)), EACCES, "{path}");
    }
    for path in
        ["/", "/etc", "/root", "/home", "/tmp", "/proc", "/dev"].map(Path::new).into_iter().chain([&*setting.folder])
    {
        assert!(!path.exists() || errno(fs::read_dir(path)) == EACCES, "{}", path.display());
    }
    assert!(!setting.path("missing").exists());
}

fn reads_what_every_program_needs(setting: &Setting) {
    let _ = confine(setting.confinement(&[]));
    let task = format!("/proc/self/task/{}/stat", rustix::thread::gettid().as_raw_nonzero());
    let paths = ["/proc/self/maps", "/proc/self/status", &task, "/proc/cpuinfo", "/proc/meminfo", "/etc/ld.so.cache"];
    let more = ["/sys/devices/system/cpu/online", "/proc/sys/vm/overcommit_memory", "/etc/localtime"];
    for path in paths.iter().chain(&more).filter(|path| Path::new(path).exists()) {
        assert!(fs::read(path).is_ok_and(|text| !text.is_empty()), "{path}");
    }
    for path in ["/dev/urandom", "/dev/random"] {
        let mut bytes = [1; 64];
        File::open(path).unwrap().read_exact(&mut bytes).unwrap();
        assert_ne!(bytes, [1; 64], "{path}");
    }
    assert!(fs::read_dir("/usr/lib").unwrap().count() > 0);
    File::create("/dev/null").unwrap().write_all(b"nothing").unwrap();
    assert!(std::thread::available_parallelism().is_ok());
    assert_eq!(std::thread::Builder::new().spawn(|| 7).unwrap().join().unwrap(), 7);
}

fn writes_beneath_permitted_folders_alone(setting: &Setting) {
    let path = |path: &str| setting.path(path);
    let _ = confine(setting.confinement(&[]));
    fs::write(path("write/new"), "1").unwrap();
    File::options().append(true).open(path("write/new")).unwrap().write_all(b"2").unwrap();
    assert_eq!(fs::read_to_string(path("write/new")).unwrap(), "12");
    fs::write(path("write/old"), "").unwrap();
    fs::create_dir_all(path("write/a/b")).unwrap();
    fs::rename(path("write/new"), path("write/a/b/moved")).unwrap();
    fs::hard_link(path("write/a/b/moved"), path("write/deep/linked")).unwrap();
    fs::remove_dir_all(path("write/a")).unwrap();

    let writable = |path: &Path| File::options().write(true).open(path);
    for file in ["read/model", "read/deep/labels", "read-one", "read-other", "secret/key", "read/link"] {
        let file = path(file);
        assert_eq!(errno(writable(&file)), EACCES, "{}", file.display());
        assert_eq!(errno(File::create(&file)), EACCES, "{}", file.display());
        assert_eq!(errno(fs::remove_file(&file)), EACCES, "{}", file.display());
        assert!(fs::rename(&file, path("write/taken")).is_err(), "{}", file.display());
        assert!(fs::hard_link(&file, path("write/taken")).is_err(), "{}", file.display());
        assert!(fs::rename(path("write/old"), &file).is_err(), "{}", file.display());
    }
    let name = format!("gpux-confinement-{}", std::process::id());
    for folder in [path("read"), path("secret"), path(""), "/tmp".into(), "/dev/shm".into(), "/usr/lib".into()] {
        assert_eq!(errno(File::create(folder.join(&name))), EACCES, "{}", folder.display());
        assert_eq!(errno(fs::create_dir(folder.join(&name))), EACCES, "{}", folder.display());
    }
    assert_eq!(errno(fs::remove_dir(path("read/deep"))), EACCES);
    assert_eq!(errno(writable(Path::new("/proc/self/oom_score_adj"))), EACCES);
}

fn makes_only_files_and_folders(setting: &Setting) {
    let path = |name: &str| setting.path("write").join(name);
    let _ = confine(setting.confinement(&[]));
    let node = |kind, number| mknodat(CWD, path("node"), kind, Mode::RUSR, number).map_err(io::Error::from);
    assert_eq!(errno(symlink("/etc/passwd", path("link"))), EACCES);
    assert_eq!(errno(UnixListener::bind(path("socket"))), EACCES);
    assert_eq!(errno(node(FileType::Fifo, 0)), EACCES);
    assert_eq!(errno(node(FileType::Socket, 0)), EACCES);
    // The kernel's log. Without root's rights the call fails already.
    assert!([EACCES, EPERM].contains(&errno(node(FileType::CharacterDevice, rustix::fs::makedev(1, 11)))));
    assert!([EACCES, EPERM].contains(&errno(node(FileType::BlockDevice, rustix::fs::makedev(7, 0)))));
    assert_eq!(fs::read_dir(path("")).unwrap().count(), 2);
}

fn changes_no_attributes(setting: &Setting) {
    let enforcement = confine(setting.confinement(&[]));
    require("system calls", &enforcement.system_calls);
    for path in ["read/model", "secret/key", "write/old", "write"].map(|path| setting.path(path)) {
        assert_eq!(errno(fs::set_permissions(&path, fs::Permissions::from_mode(0o777))), EPERM);
        assert_eq!(errno(std::os::unix::fs::chown(&path, Some(65534), None)), EPERM);
        assert_eq!(errno(std::os::unix::fs::lchown(&path, Some(65534), None)), EPERM);
        let times = rustix::fs::Timestamps { last_access: now(), last_modification: now() };
        let changed = rustix::fs::utimensat(CWD, &path, &times, rustix::fs::AtFlags::empty());
        assert_eq!(errno(changed.map_err(io::Error::from)), EPERM);
        let changed = rustix::fs::setxattr(&path, c"user.gpux", b"1", rustix::fs::XattrFlags::empty());
        assert_eq!(errno(changed.map_err(io::Error::from)), EPERM);
    }
    let file = File::options().write(true).open(setting.path("write/old")).unwrap();
    assert_eq!(errno(file.set_modified(SystemTime::UNIX_EPOCH)), EPERM);
    assert_eq!(errno(file.set_permissions(fs::Permissions::from_mode(0o600))), EPERM);
    assert_eq!(errno(std::os::unix::fs::fchown(&file, Some(65534), None)), EPERM);
    let changed = rustix::fs::fsetxattr(&file, c"user.gpux", b"1", rustix::fs::XattrFlags::empty());
    assert_eq!(errno(changed.map_err(io::Error::from)), EPERM);
}

fn now() -> rustix::fs::Timespec {
    rustix::time::clock_gettime(rustix::time::ClockId::Realtime)
}

fn reaches_shared_memory_only_with_drivers_that_need_it(setting: &Setting) {
    let mut confinement = setting.confinement(&[]);
    confinement.accelerators = true;
    let _ = confine(confinement);
    if Path::new("/dev/shm").exists() {
        let path = format!("/dev/shm/gpux-confinement-{}", std::process::id());
        let has_driver = ["/dev/nvidiactl", "/dev/kfd"].iter().any(|node| Path::new(node).exists());
        assert_eq!(fs::write(&path, "shared").is_ok(), has_driver);
        let _ = fs::remove_file(&path);
    }
    // As `cuInit` does.
    let name = format!("/proc/self/task/{}/comm", rustix::thread::gettid().as_raw_nonzero());
    File::options().write(true).open(&name).unwrap().write_all(b"cuda-thread").unwrap();
    assert_eq!(fs::read_to_string(name).unwrap(), "cuda-thread\n");
    // Not all of /dev and /proc.
    for path in ["/dev/tty", "/dev/kmsg", "/dev/fuse", "/dev/mem", "/dev/vda", "/proc/kallsyms", "/proc/1/maps"] {
        assert!(!Path::new(path).exists() || errno(File::open(path)) == EACCES, "{path}");
    }
    assert_eq!(errno(File::options().write(true).open("/proc/self/oom_score_adj")), EACCES);
}

fn narrows_when_applied_again(setting: &Setting) {
    let mut second = setting.confinement(&[]);
    second.read = vec![setting.path("read/deep"), setting.path("secret")];
    second.write.clear();
    let _ = confine(setting.confinement(&[]));
    let _ = confine(second);
    assert!(fs::read(setting.path("read/deep/labels")).is_ok());
    assert_eq!(errno(fs::read(setting.path("read/model"))), EACCES, "not the second time");
    assert_eq!(errno(fs::read(setting.path("secret/key"))), EACCES, "not the first time");
    assert_eq!(errno(fs::write(setting.path("write/new"), "")), EACCES);
}
