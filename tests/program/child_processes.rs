//! The processes in which gpux tries what may bring a process down.

use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::digits::{gpux, onnxruntime_is_there, root, stdout};

fn vet(model: &str, library: Option<&str>, memory: Option<u64>) -> Child {
    let model = root().join("tests/models").join(model);
    let request = json!({ "model": model, "library": library, "providers": "auto", "memory": memory });
    Command::new(env!("CARGO_BIN_EXE_gpux"))
        .args(["__vet-model", &request.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The end of `child`, which must come by itself; a child that goes on is killed.
fn end_of(child: &mut Child) -> Option<ExitStatus> {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_mins(1) {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    None
}

/// The library that gpux would use.
fn library() -> String {
    let listed: Json = serde_json::from_str(&stdout(&gpux(&["engine", "list", "--json"]))).unwrap();
    let used = listed["engines"].as_array().unwrap().iter().find(|engine| engine["used"] == true).unwrap();
    used["library"].as_str().unwrap().to_owned()
}

#[test]
fn child_exits_with_its_parent() {
    let mut sound = vet("conv.onnx", None, None);
    let open = sound.stdin.take();
    assert_eq!(stdout(&sound.wait_with_output().unwrap()).trim(), "\"Sound\"");
    drop(open);
    if !onnxruntime_is_there() {
        return;
    }
    let mut endless = vet("endless.onnx", Some(&library()), None);
    assert_eq!(endless.try_wait().unwrap(), None);
    // What happens when the parent is gone, however it went.
    drop(endless.stdin.take());
    let status = end_of(&mut endless).unwrap();
    assert!(!status.success(), "{status}");
    assert_eq!(endless.wait_with_output().unwrap().stdout, b"");
}

#[cfg(target_os = "linux")]
#[test]
fn child_reports_its_memory_limit_when_out_of_memory() {
    if !onnxruntime_is_there() {
        return;
    }
    let mut greedy = vet("greedy.onnx", Some(&library()), Some(1 << 30));
    let open = greedy.stdin.take();
    let verdict: Json = serde_json::from_str(&stdout(&greedy.wait_with_output().unwrap())).unwrap();
    drop(open);
    assert_eq!(
        verdict["Refused"]["reason"], "its trial run took more than the 1024 MiB of memory that it may take",
        "{verdict}"
    );
}
