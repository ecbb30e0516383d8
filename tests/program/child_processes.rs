//! The processes in which gpux tries what may bring a process down.

use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::child::{StartWithLimit as _, program};
use crate::digits::{gpux, onnxruntime_is_there, root, stdout};

fn vet(model: &str, library: Option<&str>, memory: Option<u64>) -> Child {
    let model = root().join("tests/models").join(model);
    let request = json!({ "model": model, "library": library, "providers": "auto", "memory": memory });
    program()
        .args(["__vet-model", &request.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .start()
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
    let verdict: Json = serde_json::from_str(&stdout(&sound.wait_with_output().unwrap())).unwrap();
    assert_eq!(verdict, json!({ "Sound": { "misdeclared": [], "batch": null } }));
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

/// Bytes of function bodies from which gpux keeps the functions of a component.
const LARGE: usize = 1 << 20;

/// A section of the binary format of WebAssembly.
fn section(id: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len() as u32;
    // LEB128, at its full length.
    let length = [length | 0x80, length >> 7 | 0x80, length >> 14 | 0x80, length >> 21 | 0x80, length >> 28 & 0xf];
    [&[id], length.map(|byte| byte as u8).as_slice(), content].concat()
}

/// A step with a further module, whose one function has so many bytes, and with a note.
fn with_large_function(size: usize, note: u8) -> Vec<u8> {
    let body = [&[0], vec![0x01; size - 2].as_slice(), &[0x0b]].concat();
    // The length of a body is written as that of a section.
    let code = [&[1], &section(0, &body)[1..]].concat();
    let sections = [section(1, &[1, 0x60, 0, 0]), section(3, &[1, 0]), section(10, &code)].concat();
    let module = [b"\0asm\x01\0\0\0", sections.as_slice()].concat();
    let step = std::fs::read(root().join("guest-examples/rust/center-ink.wasm")).unwrap();
    [step, section(1, &module), section(0, &[1, b'n', note])].concat()
}

/// What a child compiled of one component, another takes for a component of the same functions, if nobody else wrote it.
#[test]
fn components_of_the_same_functions_share_their_code() {
    let folder = tempfile::tempdir().unwrap();
    let (component, cache) = (folder.path().join("step.wasm"), folder.path().join("cache"));
    let compile = |bytes: &[u8]| {
        std::fs::write(&component, bytes).unwrap();
        let mut inspect = program();
        let inspected = inspect.arg("inspect").arg(&component).env("GPUX_CACHE_DIR", &cache).run();
        assert!(stdout(&inspected).contains("image"));
    };
    let kept = || {
        let entries = cache.join("steps").read_dir().unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.extension().is_some_and(|ending| ending == "functions")).collect::<Vec<_>>()
    };
    compile(&std::fs::read(root().join("guest-examples/rust/center-ink.wasm")).unwrap());
    assert_eq!(kept().len(), 0, "it is small");
    compile(&with_large_function(LARGE, b'1'));
    let first = kept();
    assert_eq!(first.len(), 1);
    let size = first[0].metadata().unwrap().len();
    compile(&with_large_function(LARGE, b'2'));
    assert_eq!(kept(), first);
    assert!(first[0].metadata().unwrap().len() < size * 3 / 2, "it was not used");
    std::fs::write(&first[0], vec![0; size as usize]).unwrap();
    compile(&with_large_function(LARGE, b'3'));
    assert_eq!(kept(), first);
    assert!(std::fs::read(&first[0]).unwrap().iter().any(|byte| *byte != 0), "it is made again");
    compile(&with_large_function(LARGE + 1, b'1'));
    assert_eq!(kept().len(), 2);
}
