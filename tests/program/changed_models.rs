//! `gpux build --precision` and `--shape`, with ONNX Runtime's own tools in Python, and what Python's
//! ONNX Runtime makes of the models that come out.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value as Json, json};

use crate::child::{self, StartWithLimit as _, program};
use crate::digits::{gpux, onnxruntime_is_there, root, stdout};

/// A Python with onnx and onnxruntime. Without one a test says that it is skipped; with
/// `GPUX_REQUIRE_ORT=1` (as in CI) it fails.
pub(crate) fn python() -> Option<PathBuf> {
    let python = root().join(if cfg!(windows) {
        "target/onnx-tools/Scripts/python.exe"
    } else {
        "target/onnx-tools/bin/python"
    });
    if python.is_file() && onnxruntime_is_there() {
        return Some(python);
    }
    let help = "run `python3 -m venv target/onnx-tools` and `target/onnx-tools/bin/pip install onnx==1.23.2 onnxruntime==1.32.0`";
    assert!(std::env::var_os("GPUX_REQUIRE_ORT").is_none_or(|value| value != "1"), "{help}");
    eprintln!("skipped: {help}");
    None
}

/// A copy of the digits pipeline: changed models are written beside its model.
fn project() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in [
        "gpux.yml",
        "models/digits.onnx",
        "models/digits.labels.txt",
        "models/samples/seven.png",
        "models/samples/two.jpg",
        "guest-examples/rust/center-ink.wasm",
    ] {
        let to = folder.path().join(file);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(root().join(file), to).unwrap();
    }
    folder
}

pub(crate) fn build(folder: &Path, python: &Path, arguments: &[&str]) -> Output {
    let mut command = program();
    command.arg("build").args(arguments).arg("--python").arg(python).env("NO_COLOR", "1").current_dir(folder);
    command.run()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What lies in a folder, by name.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Runs a script with Python's ONNX Runtime; gives what it prints as JSON.
fn ask(python: &Path, script: &str, arguments: &[&Path]) -> Json {
    let asked = child::command(python).args(["-c", script]).args(arguments).run();
    serde_json::from_str(&stdout(&asked)).unwrap()
}

const RUN: &str = "
import json, sys
import numpy, onnxruntime
image = ((numpy.arange(64) * 7) % 17 / 16).astype(numpy.float32).reshape(1, 1, 8, 8)
outputs = [onnxruntime.InferenceSession(path).run(None, {'image': image})[0] for path in sys.argv[1:]]
print(json.dumps({'image': image.tolist(), 'outputs': [output.tolist() for output in outputs]}))
";

fn numbers(json: &Json) -> Vec<f64> {
    match json {
        Json::Array(items) => items.iter().flat_map(numbers).collect(),
        other => vec![other.as_f64().unwrap()],
    }
}

#[test]
fn writes_converted_models_that_match_python() {
    let Some(python) = python() else { return };
    let folder = project();
    let models = folder.path().join("models");
    let source = std::fs::read(models.join("digits.onnx")).unwrap();
    for (precision, tolerance, size) in [("fp16", 0.01, 0.6), ("int8", 0.05, 0.4)] {
        let samples = ["models/samples/seven.png", "models/samples/two.jpg"];
        let arguments = [&[".", "--precision", precision, "--json", "--sample"][..], &samples].concat();
        let report: Json = serde_json::from_str(&stdout(&build(folder.path(), &python, &arguments))).unwrap();
        let model = &report["models"][0];
        assert_eq!((&model["accepted"], &model["over"]), (&json!(true), &json!("2 samples")), "{model:#}");
        assert_eq!(model["gpux_yml"], format!("source: ./models/digits.{precision}.onnx"));
        let [before, after] = ["before", "after"].map(|when| model["bytes"][when].as_f64().unwrap());
        assert!(after < size * before, "{model:#}");
        assert!(model["time_ms"]["before"].as_f64().unwrap() > 0.0 && model["speedup"].as_f64().unwrap() > 0.0);
        let output = &model["outputs"][0];
        assert_eq!(output["top1"], json!({ "same": 2, "rows": 2 }), "{output:#}");
        let error = output["error"].as_f64().unwrap();
        assert!(error > 0.0 && error <= tolerance, "{output:#}");
        assert_eq!(std::fs::read(models.join("digits.onnx")).unwrap(), source, "the source is left alone");

        let made = models.join(format!("digits.{precision}.onnx"));
        let by_python = ask(&python, RUN, &[&models.join("digits.onnx"), &made]);
        let input = json!({ "image": by_python["image"] }).to_string();
        for (path, expected) in [models.join("digits.onnx"), made].iter().zip(by_python["outputs"].as_array().unwrap())
        {
            let ran = gpux(&["run", path.to_str().unwrap(), "--engine", "onnxruntime", "--json", "--input", &input]);
            let given: Json = serde_json::from_str(&stdout(&ran)).unwrap();
            for (given, expected) in numbers(&given["logits"]).iter().zip(numbers(expected)) {
                assert!((given - expected).abs() <= 1e-5 * expected.abs().max(1.0), "{given} and {expected} in Python");
            }
        }
        // The line goes into gpux.yml, and the pipeline works on.
        let file = folder.path().join("gpux.yml");
        let text = std::fs::read_to_string(root().join("gpux.yml")).unwrap();
        assert!(text.contains("source: ./models/digits.onnx"));
        let line = model["gpux_yml"].as_str().unwrap();
        std::fs::write(&file, text.replace("source: ./models/digits.onnx", line)).unwrap();
        let ran = gpux(&["run", file.to_str().unwrap(), "--file", "models/samples/seven.png"]);
        assert!(stdout(&ran).contains("seven"));
        std::fs::copy(root().join("gpux.yml"), file).unwrap();
    }
    let lies = ["digits.fp16.onnx", "digits.int8.onnx", "digits.labels.txt", "digits.onnx", "samples"];
    assert_eq!(names(&models), lies, "nothing else is left");
}

#[test]
fn counts_one_item_in_the_singular() {
    let built = |pipeline: &str| stdout(&gpux(&["build", pipeline, "--engine", "embedded"]));
    let one = built("models/digits.onnx");
    assert!(one.contains(": 1 step, "), "{one}");
    let several = built("gpux.yml");
    assert!(several.contains(" steps, "), "{several}");
}

#[test]
fn writes_nothing_past_the_tolerance() {
    let Some(python) = python() else { return };
    let folder = project();
    let case = folder.path().join("tests/seven");
    std::fs::create_dir_all(&case).unwrap();
    std::fs::copy(root().join("models/samples/seven.png"), case.join("seven.png")).unwrap();
    std::fs::write(case.join("case.yml"), "inputs:\n  image: { file: seven.png }\n").unwrap();
    let refused = build(folder.path(), &python, &[".", "--precision", "int8", "--tolerance", "0.00001"]);
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    let told = String::from_utf8(refused.stdout).unwrap();
    assert!(told.contains("over 1 golden case\n"), "{told}");
    assert!(told.contains("refused: the output `logits` is off by") && told.contains("Nothing is written"), "{told}");
    assert_eq!(names(&folder.path().join("models")), ["digits.labels.txt", "digits.onnx", "samples"]);
    let over = build(folder.path(), &python, &[".", "--precision", "fp16", "--output", "models/digits.onnx"]);
    assert_eq!(over.status.code(), Some(2));
    assert!(stderr(&over).contains("is a model of this pipeline, and is not written over"), "{}", stderr(&over));
    let nothing = root().join("tests/models/flip-int32.onnx");
    let unchanged =
        build(folder.path(), &python, &[nothing.to_str().unwrap(), "--precision", "int8", "--output", "out"]);
    assert_eq!(unchanged.status.code(), Some(1));
    assert!(stderr(&unchanged).contains("no operator that is quantized"), "{}", stderr(&unchanged));
    assert!(names(&folder.path().join("out")).is_empty());
}

#[test]
fn tells_why_a_model_stays_as_it_is() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    for (model, precision, why) in [
        ("tests/models/default.onnx", "fp16", "its weights are inputs, too, as before IR version 4"),
        ("tests/onnx/estimators/decision-tree.onnx", "fp16", "attributes of the operators TreeEnsembleClassifier"),
        ("tests/onnx/estimators/decision-tree.onnx", "int8", "attributes of the operators TreeEnsembleClassifier"),
        ("tests/models/flip-int32.onnx", "fp16", "it has no weights in float32"),
        ("models/digits.onnx", "int8", "convolutions take their ranges from samples"),
    ] {
        let model = root().join(model);
        let unchanged =
            build(folder.path(), &python, &[model.to_str().unwrap(), "--precision", precision, "--output", "out"]);
        assert_eq!(unchanged.status.code(), Some(1), "{}", stderr(&unchanged));
        assert!(stderr(&unchanged).contains(why), "{}", stderr(&unchanged));
        assert!(names(&folder.path().join("out")).is_empty());
    }
}

#[test]
fn keeps_external_weights_in_one_file() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("wide.onnx");
    let make = "
import sys
import numpy, onnx
from onnx import TensorProto, helper, numpy_helper
weights = (numpy.arange(64 * 64) % 61 / 61).astype(numpy.float32).reshape(64, 64)
graph = helper.make_graph(
    [helper.make_node('MatMul', ['x', 'w'], ['y'])], 'wide', [helper.make_tensor_value_info('x', TensorProto.FLOAT, ['N', 64])],
    [helper.make_tensor_value_info('y', TensorProto.FLOAT, ['N', 64])], [numpy_helper.from_array(weights, 'w')])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8)
onnx.save(model, sys.argv[1], save_as_external_data=True, location='wide.weights')
print('null')
";
    ask(&python, make, &[&model]);
    for (arguments, made) in [
        (&["--precision", "fp16"][..], "wide.fp16.onnx"),
        (&["--precision", "int8"][..], "wide.int8.onnx"),
        (&["--dim", "N=3"][..], "wide.fixed.onnx"),
        (&["--shape", "x=2,64", "--precision", "fp16"][..], "wide.fixed.fp16.onnx"),
    ] {
        let built = build(folder.path(), &python, &[&["wide.onnx", "--json"], arguments].concat());
        let report: Json = serde_json::from_str(&stdout(&built)).unwrap();
        assert_eq!(report["models"][0]["accepted"], true, "{report:#}");
        let inspected = gpux(&["inspect", folder.path().join(made).to_str().unwrap(), "--json"]);
        let info: Json = serde_json::from_str(&stdout(&inspected)).unwrap();
        let beside = info["external_files"][0].as_str().unwrap().to_owned();
        let expected = if made == "wide.fixed.onnx" { "wide.weights".to_owned() } else { format!("{made}.data") };
        assert!(beside.ends_with(&expected), "{beside}");
    }
    let elsewhere = build(folder.path(), &python, &["wide.onnx", "--dim", "N=3", "--output", "out"]);
    assert_eq!(elsewhere.status.code(), Some(1));
    assert!(stderr(&elsewhere).contains("its weights lie in other files"), "{}", stderr(&elsewhere));
}

#[test]
fn names_missing_python_packages() {
    if !onnxruntime_is_there() {
        return;
    }
    let folder = project();
    let none = build(folder.path(), Path::new("/nonexistent/python"), &[".", "--precision", "fp16"]);
    assert_eq!(none.status.code(), Some(3));
    assert!(stderr(&none).contains("tried `/nonexistent/python`"), "{}", stderr(&none));
    let bare = folder.path().join("bare");
    let made = Command::new("python3").args(["-m", "venv", "--without-pip"]).arg(&bare).output();
    if !made.is_ok_and(|made| made.status.success()) {
        eprintln!("skipped: no python3 that makes environments");
        return;
    }
    // A module of that name in the working folder is a stranger's.
    std::fs::write(folder.path().join("onnx.py"), "raise SystemExit('loaded')").unwrap();
    let python = bare.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    let lacking = build(folder.path(), &python, &[".", "--precision", "fp16"]);
    assert_eq!(lacking.status.code(), Some(3), "{}", stderr(&lacking));
    let told = stderr(&lacking);
    assert!(told.contains("has no package `onnx`, `onnxruntime`; run: "), "{told}");
    assert!(told.contains("-m pip install onnx==1.23.2 onnxruntime==1.32.0, or leave out `--python`"), "{told}");
}

#[test]
fn fixes_dynamic_dimensions_if_the_pipeline_accepts_them() {
    if !onnxruntime_is_there() {
        return;
    }
    let folder = project();
    let no_python = Path::new("/nonexistent/python");
    let model = root().join("tests/models/embedding.onnx");
    let arguments =
        [model.to_str().unwrap(), "--shape", "input_ids=1,?", "--dim", "length=8", "--output", "out", "--json"];
    let built = build(folder.path(), no_python, &arguments);
    let report: Json = serde_json::from_str(&stdout(&built)).unwrap();
    let inputs = &report["models"][0]["inputs"];
    assert_eq!((&inputs[0]["shape"], &inputs[1]["shape"]), (&json!(["1", "8"]), &json!(["1", "8"])), "{report:#}");
    let fixed = folder.path().join("out/embedding.fixed.onnx");
    let inspected = gpux(&["inspect", fixed.to_str().unwrap(), "--json"]);
    let info: Json = serde_json::from_str(&stdout(&inspected)).unwrap();
    assert_eq!(info["dynamic_axes"], json!([]));
    let long =
        gpux(&["run", fixed.to_str().unwrap(), "--input", r#"{"input_ids": [[1, 2]], "attention_mask": [[1, 1]]}"#]);
    assert_eq!(long.status.code(), Some(1), "{}", stderr(&long));

    // The pipeline gives one picture at a time.
    let four = build(folder.path(), no_python, &[".", "--dim", "N=4"]);
    assert_eq!(four.status.code(), Some(2), "{}", stderr(&four));
    assert!(stderr(&four).contains("the pipeline does not work with the changed model"), "{}", stderr(&four));
    let wide = build(folder.path(), no_python, &[".", "--shape", "image=1,1,16,16"]);
    assert!(stderr(&wide).contains("axis 2 of the input `image` is 8, not 16"), "{}", stderr(&wide));
    assert_eq!(names(&folder.path().join("models")), ["digits.labels.txt", "digits.onnx", "samples"]);
    let pruned = build(folder.path(), no_python, &[".", "--prune"]);
    assert_eq!(pruned.status.code(), Some(2));
    assert!(stderr(&pruned).contains("pruning is refused"), "{}", stderr(&pruned));
}

#[test]
fn shows_paths_as_given() {
    let folder = project();
    let no_python = Path::new("/nonexistent/python");
    let arguments = [".", "--engine", "embedded", "--dim", "N=1"];
    let built = build(folder.path(), no_python, &[&arguments[..], &["--json"]].concat());
    let report: Json = serde_json::from_str(&stdout(&built)).unwrap();
    let model = &report["models"][0];
    assert_eq!(
        (&model["source"], &model["written"]),
        (&json!("models/digits.onnx"), &json!("models/digits.fixed.onnx"))
    );
    // A folder in which not even root can create files.
    if cfg!(target_os = "linux") {
        let refused = build(folder.path(), no_python, &[&arguments[..], &["--output", "/proc"]].concat());
        assert_eq!(refused.status.code(), Some(1));
        let said = stderr(&refused);
        assert!(said.contains("`/proc/digits.fixed.onnx` cannot be written") && !said.contains(".gpux-"), "{said}");
    }
}
