//! `gpux run` with files, streams and interruptions.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value as Json;

use crate::child::{self, StartWithLimit as _, program};
use crate::digits::{gpux, root, stdout};

const SEVEN: &str = "models/samples/seven.png";
const SCORES: &str = "tests/cases/pipelines/scores.yml";

fn start(arguments: &[&str]) -> Child {
    program()
        .args(arguments)
        .current_dir(root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .start()
}

/// The program with `input` on its standard input.
fn fed(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = start(arguments);
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

fn label(json: &Json) -> &str {
    json["top"][0]["label"].as_str().unwrap()
}

#[test]
fn reads_image_json_or_lines_from_stdin() {
    let image = std::fs::read(root().join(SEVEN)).unwrap();
    let output = fed(&["run", "--engine", "embedded", "--file", "-"], &image);
    assert_eq!(label(&serde_json::from_str(&stdout(&output)).unwrap()), "seven");

    let one = stdout(&fed(&["run", SCORES, "--file", "-"], b"{\"x\": [1, 2, 3, 4]}"));
    assert!(serde_json::from_str::<Json>(&one).unwrap()["scores"].is_array());

    let lines = stdout(&fed(&["run", SCORES, "--file", "-"], b"{\"x\": [1, 2, 3, 4]}\n[5, 6, 7, 8]\n"));
    assert_eq!(lines.lines().count(), 2);
}

#[test]
fn reads_named_inputs_from_files() {
    let output = gpux(&["run", "--engine", "embedded", "--input", &format!("image=@{SEVEN}")]);
    assert_eq!(label(&serde_json::from_str(&stdout(&output)).unwrap()), "seven");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("request.json");
    std::fs::write(&file, "{\"x\": [1, 2, 3, 4]}").unwrap();
    stdout(&gpux(&["run", SCORES, "--input", &format!("@{}", file.display())]));
}

#[test]
fn output_extension_selects_the_format() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str| {
        let path = folder.path().join(name);
        let files = [SEVEN, "models/samples/two.jpg"];
        let output = ["--output", path.to_str().unwrap()];
        let arguments = ["run", "--engine", "embedded", "--file"].into_iter().chain(files).chain(output);
        let printed = stdout(&gpux(&arguments.collect::<Vec<_>>()));
        assert_eq!(printed, "", "{name}");
        std::fs::read_to_string(path).unwrap()
    };
    let list: Json = serde_json::from_str(&write("out.json")).unwrap();
    assert_eq!([label(&list[0]["outputs"]), label(&list[1]["outputs"])], ["seven", "two"]);
    let lines = write("out.jsonl");
    let lines: Vec<Json> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    let table = write("out.csv");
    let rows: Vec<_> = table.lines().collect();
    assert_eq!(rows[0], "source,top.label,top.index,top.score,error");
    assert!(rows[1].starts_with("models/samples/seven.png,seven,7,0.99"), "{table}");
    assert!(write("out.txt").lines().nth(1).unwrap().starts_with("models/samples/two.jpg: two"));
}

#[test]
fn rejects_unwritable_outputs_before_the_run() {
    let output = gpux(&["run", "--engine", "embedded", "--file", SEVEN, "--output", "nowhere/out.json"]);
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("cannot write `nowhere/out.json`"), "{message}");
}

#[cfg(unix)]
#[test]
fn rejects_overwriting_inputs() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (lines, linked, pipeline) = (path("a.jsonl"), path("b.jsonl"), path("scores.yml"));
    let requests = "{\"x\": [1, 2, 3, 4]}\n".repeat(3);
    std::fs::write(&lines, &requests).unwrap();
    std::fs::hard_link(&lines, &linked).unwrap();
    std::fs::copy(root().join(SCORES), &pipeline).unwrap();
    let refused = |arguments: &[&str], from: Stdio, to: Stdio| {
        let mut command = program();
        let output = command.arg("run").args(arguments).stdin(from).stdout(to).stderr(Stdio::piped()).run();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("writing the results to it would destroy it"), "{arguments:?}: {said}");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert_eq!(std::fs::read_to_string(&lines).unwrap(), requests, "{arguments:?}");
    };
    let read = || std::fs::File::open(&lines).unwrap().into();
    let append = std::fs::OpenOptions::new().append(true).open(&lines).unwrap();
    refused(&[&pipeline, "--file", &lines, "--output", &linked], Stdio::null(), Stdio::null());
    refused(&[&pipeline, "--file", &lines], Stdio::null(), append.into());
    refused(&[&pipeline, "--file", "-", "--output", &lines], read(), Stdio::null());
    refused(&[&pipeline, "--file", &lines, "--output", &pipeline], Stdio::null(), Stdio::null());
    let compared = ["--benchmark", "--runs", "1", "--provider", "cpu,embedded", "--output", &linked];
    refused(&[&[&pipeline, "--file", &lines][..], &compared].concat(), Stdio::null(), Stdio::null());
    let compared = ["--benchmark", "--runs", "1", "--provider", "cpu,embedded", "--output", &pipeline];
    refused(&[&[pipeline.as_str()][..], &compared].concat(), Stdio::null(), Stdio::null());
    std::fs::create_dir(path("results")).unwrap();
    let output = path("results/scores.json");
    std::fs::write(&output, "{\"x\": [1, 2, 3, 4]}").unwrap();
    let npy = ["--format", "npy", "--output", &path("results")];
    refused(&[&[&pipeline, "--file", &output][..], &npy].concat(), Stdio::null(), Stdio::null());
    // Beside them there is room, and what lies below is not theirs.
    let below = path("results/below/scores.json");
    std::fs::create_dir(path("results/below")).unwrap();
    std::fs::rename(&output, &below).unwrap();
    assert!(gpux(&[&["run", &pipeline, "--file", &below][..], &npy].concat()).status.success());
    assert!(std::path::Path::new(&path("results/scores.npy")).is_file());
    assert!(gpux(&["run", &pipeline, "--file", &lines, "--output", &path("c.jsonl")]).status.success());
    assert_eq!(std::fs::read_to_string(path("c.jsonl")).unwrap().lines().count(), 3);
}

#[test]
fn writes_large_tensors_equally_in_every_format() {
    let folder = tempfile::tempdir().unwrap();
    let pipeline = folder.path().join("gpux.yml");
    std::fs::write(&pipeline, "name: decode\nversion: 1.0.0\npipeline: [decode-image]\n").unwrap();
    let pipeline = pipeline.display().to_string();
    let run = |more: &[&str]| stdout(&gpux(&[&["run", &pipeline, "--file", SEVEN], more].concat()));
    let plain: Json = serde_json::from_str(&run(&["--format", "json"])).unwrap();
    let (_, image) = plain.as_object().unwrap().iter().next().unwrap();
    assert_eq!((image.as_array().unwrap().len(), image[0].as_array().unwrap().len()), (480, 640));
    let traced: Json = serde_json::from_str(&run(&["--json", "--trace"])).unwrap();
    assert_eq!((&traced["outputs"], &traced["trace"]["steps"][0]["name"]), (&plain, &"decode-image".into()));
    let batch: Vec<Json> = serde_json::from_str(&run(&["--file", SEVEN, "--format", "json"])).unwrap();
    assert_eq!((&batch[1]["outputs"], &batch[1]["source"]), (&plain, &SEVEN.into()));
    let lines = run(&["--file", SEVEN, "--format", "jsonl"]);
    assert!(lines.lines().all(|line| serde_json::from_str::<Json>(line).unwrap()["outputs"] == plain));
    let table = run(&["--format", "csv"]);
    let cell = table.lines().nth(1).unwrap().split('"').nth(1).unwrap();
    assert_eq!(serde_json::from_str::<Json>(cell).unwrap(), *image);
}

#[cfg(unix)]
#[test]
fn rejects_pipes_in_place_of_files() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["m.onnx", "c.wasm"] {
        let path = folder.path().join(name);
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        for command in ["inspect", "build"] {
            let output = gpux(&[command, path.to_str().unwrap()]);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains("is a file, and this is not one"), "{command} {name}: {said}");
        }
    }
}

#[test]
fn bounds_threads_of_all_sessions_together() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gpux.yml");
    let model = root().join("tests/models/adds.onnx");
    std::fs::copy(model, folder.path().join("adds.onnx")).unwrap();
    let text = "name: t\nversion: 1.0.0\nmodel: { source: adds.onnx, instances: 64, threads: 256 }\n";
    std::fs::write(&path, text).unwrap();
    let output = gpux(&["build", path.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("16384 threads of their own") && said.contains("gpux.yml:3"), "{said}");
}

#[test]
fn prints_traces_and_benchmarks_as_json() {
    let run = ["run", "--engine", "embedded", "--file", SEVEN, "--json"];
    let traced: Json = serde_json::from_str(&stdout(&gpux(&[&run[..], &["--trace"]].concat()))).unwrap();
    let steps = traced["trace"]["steps"].as_array().unwrap();
    let names: Vec<_> = steps.iter().map(|step| step["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["decode-image", "center-ink.wasm", "resize", "normalize", "model", "softmax", "top-k"]);
    assert!(steps[1]["sandbox_memory_bytes"].as_u64().unwrap() > 100_000);
    assert_eq!(steps[0]["bytes_out"].as_u64(), Some(640 * 480));

    let timed = gpux(&[&run[..], &["--benchmark", "--runs", "5", "--warmup", "1"]].concat());
    let timed: Json = serde_json::from_str(&stdout(&timed)).unwrap();
    assert_eq!(timed["runs"], 5);
    assert!(timed["fps"].as_f64().unwrap() > 0.0 && timed["p99"].as_f64() >= timed["p50"].as_f64());
    let steps = timed["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 7);
    let of_steps: f64 = steps.iter().map(|step| step["times_ms"]["avg_inference_time"].as_f64().unwrap()).sum();
    assert!(of_steps <= timed["avg_inference_time"].as_f64().unwrap(), "all of the same runs: {timed}");
}

#[test]
fn benchmarks_without_an_input() {
    let timed = |pipeline: &str| {
        let output = gpux(&["run", pipeline, "--engine", "embedded", "--benchmark", "--runs", "2", "--warmup", "0"]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let folder = tempfile::tempdir().unwrap();
    let case = folder.path().join("tests/one");
    std::fs::create_dir_all(&case).unwrap();
    std::fs::copy(root().join("tests/cases/pipelines/scores.yml"), folder.path().join("gpux.yml")).unwrap();
    std::fs::write(case.join("case.yml"), "inputs: { x: [1, 2, 3, 4] }\n").unwrap();
    for (pipeline, source) in [
        (".", "made-up inputs"),
        ("models/digits.onnx", "made-up inputs"),
        ("tests/cases/pipelines/sound.yml", "made-up inputs"),
        (folder.path().to_str().unwrap(), "one"),
    ] {
        let said = timed(pipeline);
        assert!(said.contains(&format!("no input is given; timed on: {source}")), "{pipeline}: {said}");
    }
    let json = gpux(&["run", "tests/cases/pipelines/draw-boxes.yml", "--benchmark"]);
    assert!(!json.status.success() && String::from_utf8_lossy(&json.stderr).contains("cannot be made up"), "{json:?}");
}

#[test]
fn closed_pipe_is_no_error() {
    let mut child = start(&["run", SCORES, "--file", "-"]);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&b"[1, 2, 3, 4]\n".repeat(20_000)).unwrap();
    drop(stdin);
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.contains("scores"), "{first}");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

/// A result that is lost is an error, whatever command gives it.
#[cfg(target_os = "linux")]
#[test]
fn reports_a_full_disk_behind_stdout() {
    for arguments in [
        ["run", SCORES, "--input", "{\"x\": [1, 2, 3, 4]}"].as_slice(),
        &["run", SCORES, "--json", "--input", "[{\"x\": [1, 2, 3, 4]}, {\"x\": [1, 2, 3, 4]}]"],
        &["inspect", SCORES],
        &["steps", "--json"],
        &["schema"],
    ] {
        let output = program()
            .args(arguments)
            .current_dir(root())
            .stdout(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap())
            .run();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("cannot write to standard output: No space left"), "{arguments:?}: {said}");
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    }
}

/// Finished results are kept, and the exit code reports the others.
#[cfg(unix)]
#[test]
fn interrupt_keeps_finished_results() {
    let folder = tempfile::tempdir().unwrap();
    let (stream, path) = (folder.path().join("endless.jsonl"), folder.path().join("out.jsonl"));
    assert!(Command::new("mkfifo").arg(&stream).status().unwrap().success());
    let mut child = start(&["run", SCORES, "--file", stream.to_str().unwrap(), "--output", path.to_str().unwrap()]);
    // The stream stays open, so only the interrupt can end the run.
    // Opened for reading too, so that opening does not wait for the run.
    let mut stream = std::fs::OpenOptions::new().read(true).write(true).open(&stream).unwrap();
    stream.write_all(b"[1, 2, 3, 4]\n[1, 2, 3, 4]\n").unwrap();
    while std::fs::read_to_string(&path).map_or(0, |text| text.lines().count()) < 2 {
        assert_eq!(child.try_wait().unwrap(), None, "the run ended early");
        std::thread::yield_now();
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let mut message = String::new();
    child.stderr.take().unwrap().read_to_string(&mut message).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{message}");
    let kept = std::fs::read_to_string(path).unwrap();
    assert!(kept.lines().all(|line| serde_json::from_str::<Json>(line).is_ok()), "{kept}");
    assert!(kept.lines().count() >= 2);
}

/// The first use of a model goes through a process of its own, and is remembered.
#[test]
fn vets_a_model_once_in_a_child_process() {
    let cache = tempfile::tempdir().unwrap();
    let run = || {
        let output = program()
            .args(["run", "--engine", "embedded", "--file", SEVEN])
            .env("GPUX_CACHE_DIR", cache.path())
            .current_dir(root())
            .run();
        stdout(&output);
        std::fs::read_dir(cache.path().join("verified")).unwrap().count()
    };
    assert_eq!([run(), run()], [1, 1]);
}

/// A failed run keeps the old content of the output file; the input is never overwritten.
#[test]
fn failed_items_keep_other_results() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept.json");
    std::fs::write(&kept, "precious").unwrap();
    let kept_name = kept.to_str().unwrap();
    let failed = gpux(&["run", "--engine", "embedded", "--file", "README.md", "--output", kept_name]);
    assert_eq!(failed.status.code(), Some(1));
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), "precious");

    let photo = folder.path().join("photo.png");
    std::fs::copy(root().join(SEVEN), &photo).unwrap();
    let name = photo.to_str().unwrap();
    for input in [["--file".to_owned(), name.to_owned()], ["--input".to_owned(), format!("image=@{name}")]] {
        let output = gpux(&["run", "--engine", "embedded", &input[0], &input[1], "--output", name]);
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(std::fs::read(&photo).unwrap(), std::fs::read(root().join(SEVEN)).unwrap());
    }
}

/// One bad entry of a list is reported in its place.
#[test]
fn reads_lists_of_objects_as_batches() {
    let output = fed(&["run", SCORES, "--file", "-"], b"[{\"x\": [1, 2, 3, 4]}, 5, {\"x\": [1, 2, 3, 4]}]");
    assert_eq!(output.status.code(), Some(1));
    let lines: Vec<Json> =
        String::from_utf8_lossy(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[1]["error"], "ValidationError");
    assert!(lines[2]["outputs"]["scores"].is_array());
}

/// A cache that cannot be written costs time, not the run.
#[test]
fn warns_of_an_unusable_cache() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a-file");
    std::fs::write(&file, "").unwrap();
    let output = program()
        .args(["run", "--engine", "embedded", "--file", SEVEN])
        .env("GPUX_CACHE_DIR", file.join("cache"))
        .current_dir(root())
        .run();
    assert_eq!(label(&serde_json::from_str(&stdout(&output)).unwrap()), "seven");
    assert!(String::from_utf8_lossy(&output.stderr).contains("GPUX_CACHE_DIR"));
}

/// A model that no process can try is no damaged model. On Linux what tries it needs no folder.
#[test]
fn vets_models_without_a_temporary_folder() {
    let cache = tempfile::tempdir().unwrap();
    let none = cache.path().join("none");
    let output = program()
        .args(["run", "--engine", "embedded", "--file", SEVEN])
        .env("GPUX_CACHE_DIR", cache.path())
        .env("TMPDIR", &none)
        .current_dir(root())
        .run();
    let said = String::from_utf8_lossy(&output.stderr);
    if cfg!(target_os = "linux") {
        assert_eq!(output.status.code(), Some(0), "{said}");
        return;
    }
    assert_eq!(output.status.code(), Some(3), "{said}");
    let reason = format!("cannot be tried before it is loaded: the folder for temporary files, `{}`", none.display());
    assert!(said.contains(&reason) && said.contains("TMPDIR"), "{said}");
}

/// A machine that cannot prepare a component is no mistake in gpux.yml.
#[test]
fn reports_component_setup_failures_as_environment_errors() {
    let cache = tempfile::tempdir().unwrap();
    std::fs::write(cache.path().join("work"), "in the way").unwrap();
    let component = "guest-examples/rust/center-ink.wasm";
    for arguments in [["build", component], ["inspect", component]] {
        let output = program()
            .args(arguments)
            .env("GPUX_CACHE_DIR", cache.path())
            .env("TMPDIR", cache.path().join("none"))
            .current_dir(root())
            .run();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {said}");
        assert!(said.starts_with("error: cannot use the cache for compiled components"), "{arguments:?}: {said}");
    }
    // If the cache has no space for a preparation, the system's folder for temporary files is used.
    let elsewhere =
        program().args(["inspect", component]).env("GPUX_CACHE_DIR", cache.path()).current_dir(root()).run();
    assert_eq!(elsewhere.status.code(), Some(0), "{}", String::from_utf8_lossy(&elsewhere.stderr));
}

/// Without address space for a pool of sandboxes components still run, and `inspect` reports it.
#[cfg(target_os = "linux")]
#[test]
fn reports_missing_address_space() {
    for arguments in ["build . --engine embedded", "inspect --engine embedded"] {
        let script = format!("ulimit -v 60000000; exec '{}' {arguments}", env!("CARGO_BIN_EXE_gpux"));
        let output = child::command("sh").args(["-c", &script]).current_dir(root()).run();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(output.status.success() && said.contains("refuses the address space"), "{arguments}: {said}");
    }
}

/// A file that is larger than a component may be is not worked on.
#[test]
fn checks_component_size_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.wasm");
    // A core module without its contract, which is found out when it is made a component.
    std::fs::write(&path, [&b"\0asm\x01\0\0\0\0\x80\x40"[..], &[0; 8192]].concat()).unwrap();
    for command in ["build", "inspect"] {
        let output = gpux(&[command, path.to_str().unwrap(), "--limit", "component_size=4KiB"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("its limit of 4 KiB (component_size)"), "{command}: {said}");
        assert_eq!(output.status.code(), Some(2));
    }
}

/// Waiting for input is nothing that a stop must wait for.
#[cfg(unix)]
#[test]
fn interrupt_ends_a_run_that_waits_for_input() {
    let mut child = start(&["run", SCORES, "--file", "-"]);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"[1, 2, 3, 4]").unwrap();
    let pid = child.id().to_string();
    // The handler may not be in place yet; then the signal itself ends the program, or the child that runs it.
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let status = child.wait().unwrap();
    assert!(matches!(status.code(), None | Some(130 | 143)), "{status}");
    drop(stdin);
}

/// Nor is a reader that has stopped reading.
#[cfg(unix)]
#[test]
fn interrupt_ends_a_run_with_unread_output() {
    let folder = tempfile::tempdir().unwrap();
    let stream = folder.path().join("endless.jsonl");
    assert!(Command::new("mkfifo").arg(&stream).status().unwrap().success());
    let mut child = start(&["run", SCORES, "--file", stream.to_str().unwrap()]);
    let mut stdout = child.stdout.take().unwrap();
    let fed = Arc::new(AtomicUsize::new(0));
    std::thread::spawn({
        let fed = fed.clone();
        move || {
            let mut stream = std::fs::OpenOptions::new().write(true).open(stream).unwrap();
            while stream.write_all(b"[1, 2, 3, 4]\n").is_ok() {
                fed.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    stdout.read_exact(&mut [0; 64]).unwrap();
    // Once it takes no more lines, it waits for its reader.
    let mut taken = 0;
    while std::mem::replace(&mut taken, fed.load(Ordering::Relaxed)) < fed.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(300));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let mut status = None;
    crate::test_server::until("the interrupt ends it", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().code(), Some(130));
}

/// The error of a failing run, with its exit code.
fn refused(arguments: &[&str]) -> (Option<i32>, String) {
    let output = gpux(arguments);
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn explains_a_tensor_input_given_an_image() {
    let (code, said) = refused(&["run", SCORES, "--input", &format!("x=@{SEVEN}")]);
    assert_eq!(code, Some(2));
    assert!(said.contains("x=@models/samples/seven.png") && said.contains(".npy") && said.contains("--file"), "{said}");
}

#[test]
fn names_empty_files() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("e.json");
    std::fs::write(&file, "").unwrap();
    let (code, said) = refused(&["run", SCORES, "--file", file.to_str().unwrap()]);
    assert_eq!(code, Some(1));
    assert!(said.contains("e.json`: there is nothing in it"), "{said}");
}

#[test]
fn rejects_json_output_into_image_files() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("d.PNG");
    let (code, said) = refused(&["run", SCORES, "--input", "[1, 2, 3, 4]", "-o", file.to_str().unwrap()]);
    assert_eq!(code, Some(2));
    assert!(said.contains("d.PNG` would be no .png file") && !file.exists(), "{said}");
    let name = file.to_str().unwrap();
    stdout(&gpux(&["run", SCORES, "--input", "[1, 2, 3, 4]", "-o", name, "--format", "json"]));
    serde_json::from_slice::<Json>(&std::fs::read(file).unwrap()).unwrap();
}

#[test]
fn reports_an_unwritable_record_as_failure() {
    let (code, said) = refused(&["run", "--engine", "embedded", "--file", SEVEN, "--record", "Cargo.toml/records"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("cannot record into `Cargo.toml/records`"), "{said}");
}

#[test]
fn reports_a_missing_path_as_missing() {
    let (code, said) = refused(&["run", "--config", "nosuch.yml"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("nosuch.yml") && !said.contains("name:"), "{said}");
}

#[test]
fn rejects_a_folder_as_model() {
    let (code, said) = refused(&["inspect", "--model", "models"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("`models` is a folder"), "{said}");
}

/// Runs the digits, with a component in them, where there is no cache.
fn without_a_cache(temporary: &std::path::Path) -> Output {
    let mut command = program();
    command.args(["run", "--engine", "embedded", "--file", SEVEN]).current_dir(root());
    command.env("GPUX_CACHE_DIR", "/dev/null/cache").env("TMPDIR", temporary).run()
}

#[cfg(unix)]
#[test]
fn keeps_no_compiled_code_without_a_cache() {
    let folder = tempfile::tempdir().unwrap();
    stdout(&without_a_cache(folder.path()));
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    let nowhere = without_a_cache(std::path::Path::new("/dev/null/temporary"));
    let said = String::from_utf8(nowhere.stderr).unwrap();
    assert_eq!(nowhere.status.code(), Some(3));
    assert!(said.contains("/dev/null/cache`") && said.contains("/dev/null/temporary`"), "{said}");
}
