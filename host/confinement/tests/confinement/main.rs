//! Confined processes from inside. Each test is this program again, which confines itself in its `main`, as a worker
//! does: confinement cannot be undone, and a test harness has threads.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

#[cfg(target_os = "linux")]
mod enforcement;
#[cfg(target_os = "linux")]
mod files;
#[cfg(target_os = "linux")]
mod namespaces;
#[cfg(target_os = "linux")]
mod network;
#[cfg(target_os = "linux")]
mod programs;
#[cfg(target_os = "linux")]
mod system_calls;

#[cfg(not(target_os = "linux"))]
fn main() {
    let enforcement = gpux_confinement::Confinement::default().apply();
    for (name, protection) in enforcement.protections() {
        assert!(matches!(protection, gpux_confinement::Protection::Missing(_)), "{name}: {protection}");
    }
    assert_eq!(gpux_confinement::forbid_new_processes().unwrap_err().kind(), std::io::ErrorKind::Unsupported);
}

#[cfg(target_os = "linux")]
pub(crate) use linux::{EACCES, ECONNREFUSED, EPERM, Setting, Test, confine, errno, require, try_programs};

#[cfg(target_os = "linux")]
fn main() {
    linux::main();
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::io;
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;
    use std::path::{Path, PathBuf};
    use std::process::{Command, exit};

    use gpux_confinement::{Confinement, Enforcement, Protection};

    /// The variables that tell this program which test to be, and where.
    const TEST: &str = "GPUX_CONFINEMENT_TEST";
    const FOLDER: &str = "GPUX_CONFINEMENT_FOLDER";
    const PORT: &str = "GPUX_CONFINEMENT_PORT";

    pub(crate) const EACCES: Option<i32> = Some(libc::EACCES);
    pub(crate) const ECONNREFUSED: Option<i32> = Some(libc::ECONNREFUSED);
    pub(crate) const EPERM: Option<i32> = Some(libc::EPERM);

    /// A test by its name.
    pub(crate) type Test = (&'static str, fn(&Setting));

    /// What a test finds.
    pub(crate) struct Setting {
        /// `read/`, `write/` and `secret/` lie here.
        pub(crate) folder: PathBuf,
        /// Where somebody listens on 127.0.0.1; `secret/socket` is a Unix socket of theirs.
        pub(crate) port: u16,
    }

    impl Setting {
        pub(crate) fn path(&self, path: &str) -> PathBuf {
            self.folder.join(path)
        }

        /// Reads `read/` and `read-one`, writes `write/`, starts `programs`.
        pub(crate) fn confinement(&self, programs: &[&str]) -> Confinement {
            Confinement {
                read: ["read", "read-one", "missing"].map(|path| self.path(path)).to_vec(),
                write: vec![self.path("write")],
                execute: programs.iter().map(PathBuf::from).collect(),
                accelerators: false,
            }
        }
    }

    /// Confines this process, or ends it if the system has nothing to confine its files with.
    pub(crate) fn confine(confinement: Confinement) -> Enforcement {
        let enforcement = confinement.apply();
        require("files", &enforcement.files);
        enforcement
    }

    /// Ends this process, as skipped, if a protection is missing.
    pub(crate) fn require(name: &str, protection: &Protection) {
        if matches!(protection, Protection::Missing(_)) {
            println!("skipped: {name} {protection}");
            exit(0);
        }
    }

    pub(crate) fn errno<T>(result: io::Result<T>) -> Option<i32> {
        result.err().and_then(|error| error.raw_os_error())
    }

    /// What comes of each program: its output if it succeeds.
    pub(crate) fn try_programs<const N: usize>(programs: [&[&str]; N]) -> [io::Result<Option<String>>; N] {
        programs.map(|program| {
            let output = Command::new(program[0]).args(&program[1..]).env_remove("LD_PRELOAD").output()?;
            Ok(output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned()))
        })
    }

    pub(crate) fn main() {
        let tests: Vec<Test> = [
            super::enforcement::TESTS,
            super::files::TESTS,
            super::namespaces::TESTS,
            super::network::TESTS,
            super::programs::TESTS,
            super::system_calls::TESTS,
        ]
        .concat();
        if let Ok(name) = std::env::var(TEST) {
            let port = std::env::var(PORT).unwrap().parse().unwrap();
            let setting = Setting { folder: std::env::var_os(FOLDER).unwrap().into(), port };
            return tests.iter().find(|(test, _)| *test == name).unwrap().1(&setting);
        }
        let arguments: Vec<_> = std::env::args().skip(1).collect();
        let filters: Vec<_> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
        let is_chosen = |name: &str| filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str()));
        let chosen = tests.iter().map(|(name, _)| *name).filter(|name| is_chosen(name));
        if arguments.iter().any(|argument| argument == "--list") {
            return chosen.for_each(|name| println!("{name}: test"));
        }
        let failures: Vec<_> = chosen.filter(|name| !passes(name)).collect();
        assert!(failures.is_empty(), "failed: {failures:?}");
    }

    /// Runs this program as a test.
    fn passes(name: &str) -> bool {
        let folder = tempfile::tempdir().unwrap();
        fill(folder.path());
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let _unix = UnixListener::bind(folder.path().join("secret/socket")).unwrap();
        let output = Command::new(std::env::current_exe().unwrap())
            .env(TEST, name)
            .env(FOLDER, folder.path())
            .env(PORT, tcp.local_addr().unwrap().port().to_string())
            .output()
            .unwrap();
        let texts = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        let passed = output.status.success();
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        if !passed || texts[0].starts_with("skipped") {
            println!("{}{}{}", texts[0], texts[1], output.status);
        }
        passed
    }

    fn fill(folder: &Path) {
        for path in ["read/deep", "write/deep", "secret"] {
            fs::create_dir_all(folder.join(path)).unwrap();
        }
        for path in ["read/model", "read/deep/labels", "read-one", "read-other", "secret/key", "write/old"] {
            fs::write(folder.join(path), path).unwrap();
        }
        std::os::unix::fs::symlink("../secret/key", folder.join("read/link")).unwrap();
        std::os::unix::fs::symlink("../read/model", folder.join("secret/link")).unwrap();
    }
}
