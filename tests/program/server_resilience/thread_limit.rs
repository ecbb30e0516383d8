//! Where the system lets the process start no more threads (`RLIMIT_NPROC`, as `pids.max` of a container).

use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::Command;
use std::time::Duration;

use rustix::process::{Signal, getuid};

use super::{SCORES, Server, command, scaling};

/// The limit does not apply to root: a user without other processes then runs the server.
fn as_user(mut command: Command) -> (Command, tempfile::TempDir) {
    let cache = tempfile::tempdir().unwrap();
    command.env("GPUX_CACHE_DIR", cache.path());
    if getuid().is_root() {
        let user = user(0);
        chown(cache.path(), Some(user), None).unwrap();
        command.uid(user);
    }
    (command, cache)
}

/// A user without processes; each run of a test has its own.
fn user(number: u32) -> u32 {
    100_000 + std::process::id() % 100_000 * 100 + number
}

/// From now on the process starts no thread.
fn limit(server: &Server) {
    let mut limit = Command::new("prlimit");
    limit.arg("--nproc=1:1").arg("--pid").arg(server.process().to_string());
    if getuid().is_root() {
        limit.uid(user(0));
    }
    assert!(limit.status().unwrap().success());
}

#[test]
fn reloads_and_drains_at_the_thread_limit() {
    let folder = tempfile::tempdir().unwrap();
    scaling(folder.path(), "scaling", 2.0);
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let (command, _cache) = as_user(command(&[folder.path().to_str().unwrap(), "--workers", "2", "--model-control"]));
    let mut server = Server::of(command);
    // Threads that tokio keeps for blocking work end after ten idle seconds, if nothing keeps them.
    std::thread::sleep(Duration::from_secs(11));
    limit(&server);
    let scaled = || server.post("/predict", "", "{\"x\": [1, 2]}").read()["tensor"][1].as_f64();
    assert_eq!(scaled(), Some(4.0));
    for factor in [3.0, 4.0] {
        scaling(folder.path(), "scaling", factor);
        server.signal(Signal::HUP);
        server.line("scaling was loaded again");
        assert_eq!(scaled(), Some(2.0 * factor));
    }
    // Background work and client requests that start threads.
    for path in ["/metrics", "/openapi.json", "/pipelines"] {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
    assert_eq!(server.post("/v2/repository/models/scaling/load", "", "").status, 200);
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| assert_eq!(scaled(), Some(8.0)));
        }
    });
    server.signal(Signal::TERM);
    assert_eq!(server.ended().code(), Some(0));
}

#[test]
fn reports_missing_threads_at_start() {
    // Of another user than root, other processes count as well.
    if !getuid().is_root() {
        return;
    }
    let is_ready = |line: &str| line.contains("ready on");
    let mut outcomes = Vec::new();
    for threads in 1..14 {
        let mut limited = Command::new("prlimit");
        limited.arg(format!("--nproc={threads}")).arg("setpriv").args(["--clear-groups", "--reuid"]);
        let program = command(&[SCORES, "--workers", "2"]);
        limited.arg(user(threads).to_string()).arg(program.get_program()).args(program.get_args());
        let cache = tempfile::tempdir().unwrap();
        chown(cache.path(), Some(user(threads)), None).unwrap();
        limited
            .env("GPUX_CACHE_DIR", cache.path())
            .current_dir(program.get_current_dir().unwrap())
            .stdin(std::process::Stdio::null());
        let mut server = Server::spawn(limited);
        let line = loop {
            let line = server.line("");
            if is_ready(&line) || line.starts_with("error") {
                break line;
            }
        };
        if is_ready(&line) {
            server.signal(Signal::TERM);
        }
        let status = server.ended();
        assert_eq!(status.signal(), None, "{threads} threads: {line}");
        outcomes.push((threads, status.code(), line));
    }
    for (threads, code, line) in &outcomes {
        let expected = if is_ready(line) { 0 } else { 3 };
        assert!(*code == Some(expected) && (is_ready(line) || line.contains("thread")), "{threads} threads: {line}");
    }
    assert!(!is_ready(&outcomes[0].2) && is_ready(&outcomes.last().unwrap().2), "{outcomes:#?}");
}
