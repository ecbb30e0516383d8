//! Steps in C, JavaScript and Python, from their sources to what they give in a pipeline, against
//! what NumPy and plain Python give (`tests/reference/languages/make.py`).

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value as Json, json};

use crate::digits::{gpux, root, stdout};

/// An interpreter takes an unoptimized gpux half a minute to compile, more on a busy machine.
const PATIENCE: [&str; 2] = ["--limit", "compile_time=1200s"];

/// Whether one of `commands` succeeds; says what is missing, and insists where CI must have it.
fn tool_is_there(language: &str, commands: &[&[&str]], install: &str) -> bool {
    let works = |command: &&[&str]| {
        let quiet = Command::new(command[0]).args(&command[1..]).stdout(Stdio::null()).stderr(Stdio::null()).status();
        quiet.is_ok_and(|status| status.success())
    };
    let there = commands.iter().any(works);
    if !there {
        assert!(std::env::var_os("CI").is_none(), "CI builds steps in {language}, but cannot here: {install}");
        // Not `eprintln!`, which is kept back where a test succeeds.
        let line = format!("\nSKIPPED: steps in {language} were neither built nor run; to have them: {install}\n");
        std::io::stderr().write_all(line.as_bytes()).unwrap();
    }
    there
}

fn c_is_there() -> bool {
    let zig: [&[&str]; 2] = [&["zig", "version"], &["python3", "-m", "ziglang", "version"]];
    tool_is_there("C", &zig, "python3 -m pip install ziglang==0.17.0")
}

fn javascript_is_there() -> bool {
    tool_is_there("JavaScript", &[&["npm", "--version"]], "install Node.js 20 or newer")
}

fn python_is_there() -> bool {
    tool_is_there("Python", &[&["componentize-py", "--version"]], "python3 -m pip install componentize-py==0.25.1")
}

fn expected() -> Json {
    let text = std::fs::read_to_string(root().join("tests/reference/languages/expected.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Builds the step of a folder and runs its cases; all must pass.
fn test_step(folder: &str) {
    let mut arguments = vec!["test", folder];
    arguments.extend(PATIENCE);
    let tested = gpux(&arguments);
    let said = format!("{}{}", String::from_utf8_lossy(&tested.stdout), String::from_utf8_lossy(&tested.stderr));
    assert!(tested.status.success() && said.contains(" passed"), "{folder}: {said}");
}

fn run(pipeline: &str, arguments: &[&str]) -> Output {
    let pipeline = format!("tests/cases/languages/{pipeline}.yml");
    let mut all = vec!["run", &pipeline, "--allow-outside", "--json"];
    all.extend(PATIENCE);
    all.extend(arguments);
    gpux(&all)
}

fn outputs(pipeline: &str, input: &Json) -> Json {
    let json: Json = serde_json::from_str(&stdout(&run(pipeline, &["--input", &input.to_string()]))).unwrap();
    json["outputs"].clone()
}

/// A new step, as anyone gets it: what it carries along is enough to build it, and its cases pass.
fn scaffold(language: &str) {
    let folder = tempfile::tempdir().unwrap();
    let step = folder.path().join("my-step");
    let step = step.to_str().unwrap();
    stdout(&gpux(&["new", "step", "--lang", language, step]));
    test_step(step);
    let inspected = stdout(&gpux(&["inspect", &format!("{step}/my-step.wasm"), "--json"]));
    let json: Json = serde_json::from_str(&inspected).unwrap();
    let imports = json["imports"].as_array().unwrap();
    let ours = |import: &Json| ["types", "log"].iter().any(|name| import == &format!("gpux:pipeline/{name}@0.1.0"));
    assert!(imports.iter().all(ours), "{language}: {imports:?}");
}

/// The sums of the rows of a picture of one channel.
fn row_sums(image: &Json) -> Vec<u64> {
    let pixels = |row: &Json| row.as_array().unwrap().iter().map(|pixel| pixel[0].as_u64().unwrap()).sum();
    image.as_array().unwrap().iter().map(pixels).collect()
}

fn thresholded(method: &str) -> Vec<u64> {
    let output = Command::new(env!("CARGO_BIN_EXE_gpux"))
        .args(["run", "tests/cases/languages/threshold.yml", "--allow-outside", "--json"])
        .args(["--file", "models/samples/seven.png"])
        .env("GPUX_METHOD", method)
        .current_dir(root())
        .output()
        .unwrap();
    let json: Json = serde_json::from_str(&stdout(&output)).unwrap();
    row_sums(&json["outputs"]["image"])
}

#[test]
fn the_threshold_in_c_is_numpys() {
    for method in ["binary", "to-zero"] {
        let reference: Vec<u64> = serde_json::from_value(expected()["threshold"][method].clone()).unwrap();
        assert_eq!(thresholded(method), reference, "{method}");
    }
}

#[test]
fn c_is_built_from_its_sources() {
    if !c_is_there() {
        return;
    }
    test_step("guest-examples/c/threshold");
    scaffold("c");
}

#[test]
fn javascript_is_built_from_its_sources_and_formats_as_python_does() {
    if !javascript_is_there() {
        return;
    }
    test_step("guest-examples/js/format-output");
    let given = outputs("format-output", &json!({ "logits": [expected()["logits"]] }));
    assert_eq!(given["formatted"], expected()["formatted"]);
    scaffold("js");
}

#[test]
fn the_labels_in_python_are_numpys() {
    if !python_is_there() {
        return;
    }
    test_step("guest-examples/python/labels");
    let given = outputs("labels", &json!({ "logits": [expected()["logits"]] }));
    let (ours, reference) = (given["labels"].as_array().unwrap(), expected()["labels"].as_array().unwrap().clone());
    assert_eq!(ours.len(), reference.len());
    for (ours, reference) in ours.iter().zip(&reference) {
        assert_eq!((&ours["label"], &ours["index"]), (&reference["label"], &reference["index"]));
        assert!((ours["score"].as_f64().unwrap() - reference["score"].as_f64().unwrap()).abs() < 1e-6);
    }
}

#[test]
fn the_texts_cleaned_in_a_sandbox_are_those_of_plain_python() {
    if !python_is_there() {
        return;
    }
    test_step("guest-examples/python/clean-text");
    for case in expected()["texts"].as_array().unwrap() {
        assert_eq!(
            outputs("clean-text", &json!({ "text": case["text"] }))["text"],
            case["cleaned"],
            "{}",
            case["text"]
        );
    }
}

#[test]
fn a_new_step_in_python_passes_its_cases() {
    if python_is_there() {
        scaffold("python");
    }
}

#[test]
fn a_build_without_its_tool_says_how_to_get_it() {
    let folder = tempfile::tempdir().unwrap();
    let step = folder.path().join("my-step");
    for (language, install) in [("c", "ziglang==0.17.0"), ("js", "nodejs.org"), ("python", "componentize-py==0.25.1")] {
        stdout(&gpux(&["new", "step", "--lang", language, step.to_str().unwrap()]));
        let built = Command::new(env!("CARGO_BIN_EXE_gpux"))
            .args(["build", step.to_str().unwrap()])
            .env("PATH", Path::new("/nowhere"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&built.stderr).into_owned();
        assert_eq!(built.status.code(), Some(3), "{said}");
        assert!(said.contains(install), "{said}");
        std::fs::remove_dir_all(&step).unwrap();
    }
}
