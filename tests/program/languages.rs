//! Steps in C, JavaScript and Python, from their sources to their results in a pipeline, compared with
//! NumPy and plain Python (`tests/reference/languages/make.py`).

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value as Json, json};

use crate::child::{self, StartWithLimit as _, program};
use crate::digits::{gpux, root, stdout};

/// An unoptimized gpux takes half a minute to compile an interpreter, and more on a busy machine: so
/// the pipelines and cases here ask for as much, and the operator allows it.
const PATIENCE: [&str; 2] = ["--limit", "compile_time=1200s"];
const PATIENT: &str = "\nlimits: { compile_time: 1200s }\n";

/// Whether one of `commands` succeeds; prints what is missing, and fails in CI, which must have it.
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
    tool_is_there("C", &zig, "install zig 0.17.0, or `pipx install ziglang==0.17.0`")
}

fn javascript_is_there() -> bool {
    tool_is_there("JavaScript", &[&["npm", "--version"]], "install Node.js 20 or newer")
}

fn python_is_there() -> bool {
    tool_is_there("Python", &[&["componentize-py", "--version"]], "`pipx install componentize-py==0.25.1`")
}

fn expected() -> Json {
    let text = std::fs::read_to_string(root().join("tests/reference/languages/expected.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn patiently(arguments: &[&str]) -> Output {
    gpux(&[arguments, &PATIENCE].concat())
}

/// Builds the step of a folder and runs its cases; all must pass.
fn test_step(folder: &Path) {
    stdout(&patiently(&["build", folder.to_str().unwrap()]));
    let name = folder.file_name().unwrap().to_str().unwrap();
    let component = folder.join(format!("{name}.wasm"));
    let cases = tempfile::tempdir().unwrap();
    for case in folder.join("tests").read_dir().unwrap() {
        let case = case.unwrap();
        let text = std::fs::read_to_string(case.path().join("case.yml")).unwrap();
        let copy = cases.path().join(case.file_name());
        std::fs::create_dir(&copy).unwrap();
        for file in case.path().read_dir().unwrap().map(Result::unwrap) {
            std::fs::copy(file.path(), copy.join(file.file_name())).unwrap();
        }
        std::fs::write(copy.join("case.yml"), text + PATIENT).unwrap();
    }
    let component = component.to_str().unwrap();
    let tested = patiently(&["test", "--component", component, cases.path().to_str().unwrap()]);
    let said = format!("{}{}", String::from_utf8_lossy(&tested.stdout), String::from_utf8_lossy(&tested.stderr));
    assert!(tested.status.success() && said.contains(" passed"), "{component}: {said}");
}

fn run(pipeline: &str, arguments: &[&str]) -> Output {
    let pipeline = format!("tests/cases/languages/{pipeline}.yml");
    patiently(&[&["run", &pipeline, "--allow-outside"], arguments].concat())
}

fn outputs(pipeline: &str, input: &Json) -> Json {
    serde_json::from_str(&stdout(&run(pipeline, &["--input", &input.to_string()]))).unwrap()
}

/// A new step builds with the files of its template alone, and its cases pass.
fn scaffold(language: &str) {
    let folder = tempfile::tempdir().unwrap();
    let step = folder.path().join("my-step");
    stdout(&gpux(&["new", "step", "--lang", language, step.to_str().unwrap()]));
    test_step(&step);
    let inspected = stdout(&patiently(&["inspect", step.join("my-step.wasm").to_str().unwrap(), "--json"]));
    let json: Json = serde_json::from_str(&inspected).unwrap();
    let imports = json["imports"].as_array().unwrap();
    let ours = |import: &Json| ["types", "log"].iter().any(|name| import == &format!("gpux:pipeline/{name}@0.1.1"));
    assert!(imports.iter().all(ours), "{language}: {imports:?}");
}

/// The sums of the rows of a picture of one channel.
fn row_sums(image: &Json) -> Vec<u64> {
    let pixels = |row: &Json| row.as_array().unwrap().iter().map(|pixel| pixel[0].as_u64().unwrap()).sum();
    image.as_array().unwrap().iter().map(pixels).collect()
}

fn thresholded(method: &str) -> Vec<u64> {
    let output = program()
        .args(["run", "tests/cases/languages/threshold.yml", "--allow-outside"])
        .args(["--file", "models/samples/seven.png"])
        .env("GPUX_METHOD", method)
        .current_dir(root())
        .run();
    let json: Json = serde_json::from_str(&stdout(&output)).unwrap();
    row_sums(&json["image"])
}

#[test]
fn c_threshold_matches_numpy() {
    for method in ["binary", "to-zero"] {
        let reference: Vec<u64> = serde_json::from_value(expected()["threshold"][method].clone()).unwrap();
        assert_eq!(thresholded(method), reference, "{method}");
    }
}

#[test]
fn builds_c_from_source() {
    if !c_is_there() {
        return;
    }
    test_step(&root().join("guest-examples/c/threshold"));
    scaffold("c");
}

/// A step in C without the bindings: text in, the same text out.
const BY_HAND: &str = r#"
#include <stdint.h>
#define EXPORT(name) __attribute__((export_name(name)))
#define STEP "gpux:pipeline/step@0.1.0#"

typedef struct { const void *data; uint32_t length; } list_t;
typedef struct { list_t name; uint32_t kind[7]; uint32_t optional; list_t description; } port_t;

static uint8_t heap[65536];
static uint32_t used;
static port_t port = {{"text", 4}, {2}, 0, {"any", 3}};
static struct { list_t summary, schema; } description = {{"repeats", 7}, {"{}", 2}};
static struct { uint32_t tag; list_t inputs, outputs; } signature = {0, {&port, 1}, {&port, 1}};
static struct { uint32_t tag; list_t values; } results;

EXPORT("cabi_realloc") void *reallocate(void *old, uint32_t old_size, uint32_t align, uint32_t size) {
    (void)old, (void)old_size;
    used = (used + align - 1) / align * align + size;
    if (used > sizeof heap) __builtin_trap();
    return heap + used - size;
}
EXPORT(STEP "describe") void *describe(void) { return &description; }
EXPORT(STEP "configure") void *configure(void *options, uint32_t length) { (void)options, (void)length; return &signature; }
EXPORT(STEP "process") void *process(void *inputs, uint32_t count) {
    results.values = (list_t){inputs, count};
    return &results;
}
"#;

#[test]
fn builds_c_by_hand_and_names_what_printf_imports() {
    if !c_is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let step = folder.path().join("by-hand");
    std::fs::create_dir_all(step.join("tests/same")).unwrap();
    let write = |path: &str, text: &str| std::fs::write(step.join(path), text).unwrap();
    write("step.c", BY_HAND);
    write("tests/same/case.yml", "inputs: { text: hello }\noutputs: { text: hello }\n");
    let zig = if Command::new("zig").arg("version").output().is_ok() { "zig" } else { "python3 -m ziglang" };
    let build = format!("{zig} cc -target wasm32-freestanding -O2 -nostdlib -Wl,--no-entry step.c -o \"$GPUX_OUTPUT\"");
    write("step.yml", &format!("name: by-hand\nbuild: ['{build}']\n"));
    test_step(&step);

    std::fs::remove_dir_all(&step).unwrap();
    stdout(&gpux(&["new", "step", "--lang", "c", step.to_str().unwrap()]));
    let source = std::fs::read_to_string(step.join("src/step.c")).unwrap();
    let printing =
        source.replace("    *outputs = *inputs;", "    printf(\"%u bytes\\n\", length);\n    *outputs = *inputs;");
    assert_ne!(source, printing);
    write("src/step.c", &format!("#include <stdio.h>\n{printing}"));
    let built = patiently(&["build", step.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&built.stderr).into_owned();
    assert_eq!(built.status.code(), Some(1), "{said}");
    assert!(said.contains("`fd_write`") && said.contains("`gpux_log(GPUX_LOG_LEVEL_INFO, …)`"), "{said}");
}

/// A package in CommonJS, of two files; it asks for the time while it loads.
const SHOUT: [(&str, &str); 3] = [
    ("package.json", r#"{ "name": "shout", "version": "1.0.0", "main": "index.js" }"#),
    (
        "index.js",
        "const { ending } = require('./ending.js');\nexports.shout = (text) => text.toUpperCase() + ending;\n",
    ),
    ("ending.js", "exports.ending = '!'.repeat(1 + Date.now());\n"),
];

#[test]
fn javascript_steps_use_commonjs_packages_and_large_tensors() {
    if !javascript_is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let step = folder.path().join("my-step");
    stdout(&gpux(&["new", "step", "--lang", "js", step.to_str().unwrap()]));
    let read = |path: &str| std::fs::read_to_string(step.join(path)).unwrap();
    std::fs::create_dir(step.join("shout")).unwrap();
    for (file, text) in SHOUT {
        std::fs::write(step.join("shout").join(file), text).unwrap();
    }
    let package =
        read("package.json").replace("\"dependencies\": {", "\"dependencies\": {\n    \"shout\": \"file:./shout\",");
    std::fs::write(step.join("package.json"), package).unwrap();
    let source = read("src/step.js").replace("{ index, score }", "{ index, score, said: shout(\"best\") }");
    std::fs::write(step.join("src/step.js"), format!("import {{ shout }} from \"shout\";\n{source}")).unwrap();
    std::fs::remove_dir_all(step.join("tests/empty")).unwrap();
    let mut scores = vec![0.25_f32; 1_000_000];
    scores[750_000] = 0.75;
    let header = format!("{:117}\n", "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1000000), }");
    let numbers = scores.iter().flat_map(|score| score.to_le_bytes());
    let npy: Vec<_> = b"\x93NUMPY\x01\x00\x76\x00".iter().copied().chain(header.into_bytes()).chain(numbers).collect();
    std::fs::write(step.join("tests/best/scores.npy"), npy).unwrap();
    let expected = "{ index: 750000, score: 0.75, said: BEST! }";
    let case = format!("inputs: {{ scores: {{ file: scores.npy }} }}\noutputs: {{ best: {expected} }}\n");
    std::fs::write(step.join("tests/best/case.yml"), case).unwrap();
    test_step(&step);
}

#[test]
fn builds_javascript_that_formats_like_python() {
    if !javascript_is_there() {
        return;
    }
    test_step(&root().join("guest-examples/js/format-output"));
    let given = outputs("format-output", &json!({ "logits": [expected()["logits"]] }));
    assert_eq!(given["formatted"], expected()["formatted"]);
    scaffold("js");
}

#[test]
fn python_labels_match_numpy() {
    if !python_is_there() {
        return;
    }
    test_step(&root().join("guest-examples/python/labels"));
    let given = outputs("labels", &json!({ "logits": [expected()["logits"]] }));
    let (ours, reference) = (given["labels"].as_array().unwrap(), expected()["labels"].as_array().unwrap().clone());
    assert_eq!(ours.len(), reference.len());
    for (ours, reference) in ours.iter().zip(&reference) {
        assert_eq!((&ours["label"], &ours["index"]), (&reference["label"], &reference["index"]));
        assert!((ours["score"].as_f64().unwrap() - reference["score"].as_f64().unwrap()).abs() < 1e-6);
    }
}

#[test]
fn sandboxed_python_matches_cpython() {
    if !python_is_there() {
        return;
    }
    test_step(&root().join("guest-examples/python/clean-text"));
    let expected = expected();
    let texts = expected["texts"].as_array().unwrap();
    let mut requests = tempfile::Builder::new().suffix(".jsonl").tempfile().unwrap();
    for case in texts {
        writeln!(requests, "{}", json!({ "text": case["text"] })).unwrap();
    }
    let lines = stdout(&run("clean-text", &["--file", requests.path().to_str().unwrap()]));
    let cleaned: Vec<Json> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(cleaned.len(), texts.len());
    for (line, case) in cleaned.iter().zip(texts) {
        assert_eq!(line["outputs"]["text"], case["cleaned"], "{}", case["text"]);
    }
}

#[test]
fn new_python_step_passes_its_tests() {
    if python_is_there() {
        scaffold("python");
    }
}

/// A package that looks its tables up by name, as many do, and goes on without one that is not there.
const TABLES: &str = "
from importlib import import_module

def look_up(number):
    try:
        return import_module(f'tables.x{number}').NAME
    except ImportError:
        return ''
";
/// Tells what `import` of a name comes to.
const IMPORTER: &str = "
import collections

import tables


def tell(name):
    if name == 'most common':
        # Imports heapq now.
        return collections.Counter('abca').most_common(1)
    if name.isdigit():
        return tables.look_up(int(name))
    try:
        return __import__(name).__name__
    except Exception as error:
        return [type(error).__name__, error.name, str(error).split(' in a step')[0]]
";

#[test]
fn resolves_late_python_imports() {
    if !python_is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let step = folder.path().join("late");
    stdout(&gpux(&["new", "step", "--lang", "python", step.to_str().unwrap()]));
    std::fs::create_dir(step.join("tables")).unwrap();
    for (file, text) in [("tables/__init__.py", TABLES), ("importer.py", IMPORTER), ("beside.py", "NAME = 'beside'\n")]
    {
        std::fs::write(step.join(file), text).unwrap();
    }
    for number in 0..40 {
        std::fs::write(step.join(format!("tables/x{number}.py")), format!("NAME = 'table {number}'\n")).unwrap();
    }
    let app = "import gpux_step\nfrom gpux_step import json, signature, text\nfrom importer import tell\n\n\n\
        class Late(gpux_step.Step):\n    def configure(self):\n        \
        return signature(inputs={'name': text()}, outputs={'told': json()})\n\n    \
        def process(self, name):\n        return {'told': tell(name)}\n\n\nStep = gpux_step.export(Late)\n";
    std::fs::write(step.join("app.py"), app).unwrap();
    let names =
        ["0", "7", "39", "40", "beside", "tables.x3", "nowhere", "nowhere.deeper", "tables.nowhere", "most common"];
    let plain = "import json, sys; from importer import tell; print(json.dumps([tell(n) for n in sys.argv[1:]]))";
    let plain = child::command("python3").args(["-c", plain]).args(names).current_dir(&step).run();
    let expected: Vec<Json> = serde_json::from_str(&stdout(&plain)).unwrap();

    stdout(&patiently(&["build", step.to_str().unwrap()]));
    let pipeline = "name: late\nversion: 1.0.0\ninputs: { name: { type: text } }\npipeline: [{ wasm: late.wasm }]\n";
    std::fs::write(step.join("gpux.yml"), pipeline).unwrap();
    let requests = step.join("requests.jsonl");
    let lines: Vec<_> = names.iter().chain(&["sqlite3"]).map(|name| json!({ "name": name }).to_string()).collect();
    std::fs::write(&requests, lines.join("\n")).unwrap();
    let file = step.join("gpux.yml");
    let ran = stdout(&patiently(&["run", file.to_str().unwrap(), "--file", requests.to_str().unwrap()]));
    let told: Vec<Json> =
        ran.lines().map(|line| serde_json::from_str::<Json>(line).unwrap()["outputs"]["told"].clone()).collect();
    assert_eq!(told[..names.len()], expected);
    // A part of Python that was not loaded is no module that there is not, but cannot be had either.
    assert_eq!(told[names.len()], json!(["ModuleNotFoundError", "sqlite3", "No module named 'sqlite3'"]));
}

#[test]
fn build_names_the_missing_tool() {
    let folder = tempfile::tempdir().unwrap();
    let step = folder.path().join("my-step");
    for (language, install) in [("c", "ziglang==0.17.0"), ("js", "nodejs.org"), ("python", "componentize-py==0.25.1")] {
        stdout(&gpux(&["new", "step", "--lang", language, step.to_str().unwrap()]));
        let built = program()
            .args(["build", step.to_str().unwrap()])
            .env("PATH", Path::new("/nowhere"))
            .env("GPUX_CACHE_DIR", folder.path().join("cache"))
            .run();
        let said = String::from_utf8_lossy(&built.stderr).into_owned();
        assert_eq!(built.status.code(), Some(3), "{said}");
        assert!(said.contains(install), "{said}");
        std::fs::remove_dir_all(&step).unwrap();
    }
}
