//! Servers that listen on Unix sockets.

use std::io::BufReader;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};

use super::{ONE, SCORES, Server};
use crate::child::{StartWithLimit as _, program};
use crate::digits::root;
use crate::test_server::{Answer, Connection, PATIENCE, RESTARTED};

/// A server that listens at `gpux.sock` in this folder, once it is ready.
fn start(folder: &Path, arguments: &[&str]) -> (Server, PathBuf) {
    let path = folder.join("gpux.sock");
    let mut command = program();
    command.args(["serve", SCORES, "--engine", "embedded", "--host"]).arg(format!("unix:{}", path.display()));
    let server = Server::spawn({
        command.args(arguments).current_dir(root());
        command
    });
    server.line(&format!("ready on unix:{}", path.display()));
    (server, path)
}

fn predict(path: &Path, head: &[&str]) -> Answer {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Connection(BufReader::new(stream)).send("POST", "/predict", head, ONE.as_bytes()).unwrap()
}

#[test]
fn serves_on_unix_sockets_and_removes_them() {
    for isolation in ["none", "pipeline"] {
        if isolation == "pipeline" && !cfg!(target_os = "linux") {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let grpc = folder.path().join("grpc.sock");
        let second = format!("unix:{}", grpc.display());
        let arguments = ["--grpc-port", &second, "--socket-mode", "600", "--access-log", "--isolation", isolation];
        let (mut server, path) = start(folder.path(), &arguments);
        for path in [&path, &grpc] {
            assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
            assert_eq!(predict(path, &[]).status, 200);
            assert!(server.line("answered").contains("client=\"unix\""));
        }

        server.signal(Signal::HUP);
        server.line("was loaded again");
        assert_eq!(predict(&path, &[]).status, 200);

        server.signal(Signal::TERM);
        assert!(server.ended().success());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "sockets are removed");
    }
}

#[test]
fn replaces_the_socket_of_a_killed_server_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, path) = start(folder.path(), &[]);
    let mut other = program();
    other.args(["serve", SCORES, "--host"]).arg(format!("unix:{}", path.display()));
    let refused = other.current_dir(root()).run();
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(text.contains("gpux.sock: another program listens there"), "{text}");
    assert_eq!((refused.status.code(), predict(&path, &[]).status), (Some(3), 200));

    server.child.kill().unwrap();
    server.ended();
    assert!(path.exists(), "nobody was left to remove it");
    let (_server, path) = start(folder.path(), &[]);
    assert_eq!(predict(&path, &[]).status, 200);
}

#[cfg(target_os = "linux")]
#[test]
fn a_killed_server_keeps_its_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, path) = start(folder.path(), &[]);
    kill_process(Pid::from_raw(server.process().cast_signed()).unwrap(), Signal::KILL).unwrap();
    // Waits at the supervisor's socket until the next server accepts it.
    let answer = predict(&path, &[]);
    assert!(answer.status == 200 || answer.status == 503, "{answer:?}");
    server.line_after_restarts(RESTARTED);
    server.line_after_restarts("ready on unix:");
    assert_eq!(predict(&path, &[]).status, 200);
    server.signal(Signal::TERM);
    server.ended();
    assert!(!path.exists());
}
