//! The supervisor of a server: it keeps the sockets when native code ends the server.

use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::child::{StartWithLimit as _, program};
use crate::digits::{onnxruntime_is_there, root};
use crate::test_server::{RESTARTED, Server, command, until};

/// A pipeline without a model.
const SCORES: &str = "tests/cases/pipelines/scores.yml";
/// Ends its process by SIGFPE for the least number divided by -1.
const DIVIDE: &str = "tests/models/divide.onnx";
const GOOD: &str = r#"{"a": [6], "b": [3]}"#;
const FATAL: &str = r#"{"a": [-9223372036854775808], "b": [-1]}"#;

/// Like [`command`], on ONNX Runtime, whose kernels crash.
fn on_onnxruntime(arguments: &[&str]) -> Command {
    let mut command = program();
    command.args(["serve", "--host", "127.0.0.1", "--port", "0", "--isolation", "none"]).args(arguments);
    command.current_dir(root());
    command
}

fn signal(process: u32, signal: Signal) {
    kill_process(Pid::from_raw(process.cast_signed()).unwrap(), signal).unwrap();
}

#[test]
fn a_crash_refuses_no_connection() {
    if !onnxruntime_is_there() {
        return;
    }
    let server = Server::of(on_onnxruntime(&[DIVIDE]));
    for _ in 0..2 {
        let process = server.process();
        server.connect().send("POST", "/predict", &[], FATAL.as_bytes()).unwrap_err();
        // Waits at the supervisor's socket until the next server accepts it.
        let answer = server.post("/predict", "", GOOD);
        assert!(answer.status == 200 || answer.status == 503, "{answer:?}");
        let line = server.line(RESTARTED);
        assert!(line.contains("the server ended: it was ended by signal 8 (arithmetic error)"), "{line}");
        server.line("ready on ");
        assert_eq!(server.post("/predict", "", GOOD).with_status(200), json!({ "y": [2] }));
        assert_ne!(server.process(), process);
    }
}

#[test]
fn a_server_that_was_never_ready_is_not_started_again() {
    if !onnxruntime_is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(root().join(DIVIDE), folder.path().join("divide.onnx")).unwrap();
    let file = format!("name: fatal\nversion: 1\nmodel: {{ source: divide.onnx }}\nserving: {{ warmup: [{FATAL}] }}\n");
    std::fs::write(folder.path().join("gpux.yml"), file).unwrap();
    let output = on_onnxruntime(&[folder.path().to_str().unwrap()]).run();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("it was ended by signal 8") && !error.contains(RESTARTED), "{error}");
}

#[test]
fn a_killed_supervisor_takes_its_server_along() {
    let folder = tempfile::tempdir().unwrap();
    let mut started = command(&[SCORES, "--isolation", "pipeline"]);
    started.env("TMPDIR", folder.path());
    let mut server = Server::of(started);
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    until("the server accepts no connections", || TcpStream::connect(server.address).is_err());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_signal_to_both_processes_counts_once() {
    // As a terminal and systemd do it. On a busy machine, the second may come so late that it counts.
    let counts_once = |_| {
        let mut server = Server::start(&[SCORES, "--drain-delay", "1s"]);
        signal(server.process(), Signal::TERM);
        server.line("ending: ");
        signal(server.child.id(), Signal::TERM);
        server.ended().code() == Some(0)
    };
    assert!((0..10).any(counts_once), "each time, the second signal counts");
}

#[test]
fn signals_in_quick_succession_count_again_after_a_while() {
    let mut server = Server::start(&[SCORES, "--drain-delay", "1h"]);
    until("a signal counts again", || {
        signal(server.child.id(), Signal::TERM);
        std::thread::sleep(Duration::from_millis(150));
        server.child.try_wait().unwrap().is_some()
    });
    assert_eq!(server.ended().code(), Some(130));
}

#[test]
fn the_end_is_not_forgotten_in_a_crash() {
    let mut server = Server::start(&[SCORES]);
    let (supervisor, process) = (server.child.id(), server.process());
    signal(supervisor, Signal::STOP);
    signal(process, Signal::KILL);
    signal(supervisor, Signal::TERM);
    signal(supervisor, Signal::CONT);
    assert_eq!(server.ended().code(), Some(1));
}

#[test]
fn a_server_that_cannot_start_again_is_tried_later() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gpux.yml");
    let text = std::fs::read_to_string(root().join(SCORES)).unwrap();
    std::fs::write(&file, &text).unwrap();
    let server = Server::start(&[folder.path().to_str().unwrap(), "--require-all"]);
    std::fs::write(&file, "name: [").unwrap();
    signal(server.process(), Signal::KILL);
    assert!(server.line(RESTARTED).contains("signal 9"));
    assert!(server.line(RESTARTED).contains("the server could not start (exit code 2)"));
    std::fs::write(&file, &text).unwrap();
    server.line_after_restarts("ready on ");
    assert_eq!(server.post("/predict", "", r#"{"x": [1, 2, 3, 4]}"#).status, 200);
}

#[test]
fn a_server_that_is_started_again_waits_for_its_pipeline() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gpux.yml");
    let text = std::fs::read_to_string(root().join(SCORES)).unwrap();
    std::fs::write(&file, &text).unwrap();
    let server = Server::start(&[folder.path().to_str().unwrap()]);
    let wrong = text.replace("softmax", "no-such-step");
    for (text, status) in [(wrong.as_str(), 503), ("name: [", 503), (&text, 200)] {
        std::fs::write(&file, text).unwrap();
        signal(server.process(), Signal::KILL);
        server.line(RESTARTED);
        if status == 200 {
            server.line("ready on ");
        } else {
            server.line("cannot be loaded");
        }
        for path in ["/predict", "/pipelines/scores/predict"] {
            assert_eq!(server.post(path, "", r#"{"x": [1, 2, 3, 4]}"#).status, status, "{path}");
        }
    }
}

#[test]
fn reloads_during_a_restart_are_no_end() {
    let server = Server::start(&[SCORES]);
    signal(server.process(), Signal::KILL);
    signal(server.child.id(), Signal::HUP);
    server.line(RESTARTED);
    server.line_after_restarts("ready on ");
    assert_eq!(server.get("/health/ready").status, 200);
}

#[test]
fn temporary_files_of_a_crashed_server_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let mut started = command(&[SCORES, "--isolation", "pipeline"]);
    started.env("TMPDIR", folder.path());
    let mut server = Server::of(started);
    let entries = || std::fs::read_dir(folder.path()).unwrap().count();
    signal(server.process(), Signal::KILL);
    server.line(RESTARTED);
    server.line("ready on ");
    assert_eq!(entries(), 1);
    signal(server.child.id(), Signal::TERM);
    assert_eq!(server.ended().code(), Some(0));
    assert_eq!(entries(), 0);
}

#[test]
fn pipelines_share_a_process_where_they_cannot_have_their_own() {
    let mut started = command(&[SCORES, "gpux.yml"]);
    started.args(["--isolation", "auto"]).env("TMPDIR", "/nonexistent");
    let strict = started.args(["--isolation-strict"]).run();
    assert_eq!(strict.status.code(), Some(3), "{strict:?}");
    let mut started = command(&[SCORES, "gpux.yml"]);
    started.args(["--isolation", "auto"]).env("TMPDIR", "/nonexistent");
    let mut server = Server::spawn(started);
    let warning = server.line("all pipelines run in one process");
    assert!(warning.contains("/nonexistent"), "{warning}");
    server.wait_until_ready();
}

#[test]
fn several_pipelines_or_tenants_are_isolated() {
    let folder = tempfile::tempdir().unwrap();
    let keys = |text: &str| {
        let path = folder.path().join("keys.yml");
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (one, other) = (SCORES, "gpux.yml");
    let tenants = [("admin", true), ("one", false), ("other", false)]
        .map(|(name, admin)| format!("  - {{ name: {name}, key: {}, admin: {admin} }}\n", name.repeat(16)));
    for (arguments, tenants, is_isolated) in [
        (&[one][..], &[][..], false),
        (&[one, other], &[], true),
        (&[one, other, "--isolation=none"], &[], false),
        (&[one], &tenants[..2], false),
        (&[one], &tenants[..], true),
    ] {
        let keys = (!tenants.is_empty()).then(|| keys(&format!("keys:\n{}", tenants.concat())));
        let keys: Vec<_> = keys.iter().flat_map(|path| ["--keys", path]).collect();
        let mut started = command(&[arguments, &keys].concat());
        if !arguments.contains(&"--isolation=none") {
            started.arg("--isolation=auto");
        }
        let mut server = Server::spawn(started);
        if is_isolated {
            server.line("each pipeline has a process of its own");
        }
        server.wait_until_ready();
        let process = server.process();
        let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
        let children: String = threads
            .filter_map(|thread| std::fs::read_to_string(thread.unwrap().path().join("children")).ok())
            .collect();
        assert_eq!(!children.is_empty(), is_isolated, "{arguments:?} {keys:?}");
    }
}
