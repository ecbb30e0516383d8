//! The example that is the product's face, on every sample, from the outside.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value as Json;

use crate::child::{StartWithLimit as _, program};

/// The checkout.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The program, run in the checkout.
pub(crate) fn gpux(arguments: &[&str]) -> Output {
    program().args(arguments).current_dir(root()).run()
}

pub(crate) fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn expected() -> serde_json::Map<String, Json> {
    let text = std::fs::read_to_string(root().join("models/samples/expected.json")).unwrap();
    let json: Json = serde_json::from_str(&text).unwrap();
    json["samples"].as_object().unwrap().clone()
}

/// Every sample through `config`: (file name, outputs).
fn run_samples(config: &str, engine: &str) -> Vec<(String, Json)> {
    let output = gpux(&[
        "run",
        config,
        "--allow-outside",
        "--engine",
        engine,
        "--file",
        "models/samples/*.jpg",
        "models/samples/*.png",
    ]);
    let lines: Vec<Json> = stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let name =
        |line: &Json| Path::new(line["source"].as_str().unwrap()).file_name().unwrap().to_str().unwrap().to_owned();
    lines.iter().map(|line| (name(line), line["outputs"].clone())).collect()
}

#[test]
fn classifies_every_sample() {
    let expected = expected();
    let results = run_samples("gpux.yml", "embedded");
    assert_eq!(results.len(), expected.len());
    for (name, outputs) in results {
        let best = &outputs["top"][0];
        assert_eq!(best["label"], expected[&name]["label"], "{name}");
        let difference = best["score"].as_f64().unwrap() - expected[&name]["probability"].as_f64().unwrap();
        assert!(difference.abs() < 0.02, "{name}: the probability is off by {difference}");
    }
}

#[test]
fn misclassifies_most_samples_without_the_component() {
    let expected = expected();
    let results = run_samples("tests/cases/pipelines/digits-without-component.yml", "embedded");
    let right = results.iter().filter(|(name, outputs)| outputs["top"][0]["label"] == expected[name]["label"]).count();
    assert!(right * 2 <= expected.len(), "{right} of {} are right without the component", expected.len());
}

/// Gray PNGs go through no decoder that may differ, so the logits must match the reference's.
#[test]
fn logits_match_the_reference_pipeline() {
    let mut compared = 0;
    for (name, outputs) in run_samples("tests/cases/pipelines/digits-logits.yml", "embedded") {
        let gray = ["zero", "four", "seven", "nine", "two-dark", "five-small", "eight-small"];
        if !gray.iter().any(|stem| name == format!("{stem}.png")) {
            continue;
        }
        let logits: Vec<f64> = serde_json::from_value(outputs["logits"][0].clone()).unwrap();
        let reference: Vec<f64> = serde_json::from_value(expected()[&name]["logits"].clone()).unwrap();
        for (ours, theirs) in logits.iter().zip(&reference) {
            assert!((ours - theirs).abs() < 1e-3, "{name}: {logits:?} against {reference:?}");
        }
        compared += 1;
    }
    assert_eq!(compared, 7);
}

/// Both engines give the same results, within the documented tolerance.
#[test]
fn engines_give_equal_results() {
    if !onnxruntime_is_there() {
        return;
    }
    let pipeline = "tests/cases/pipelines/digits-logits.yml";
    let embedded = run_samples(pipeline, "embedded");
    let native = run_samples(pipeline, "onnxruntime");
    for ((name, ours), (_, theirs)) in embedded.iter().zip(&native) {
        let read = |outputs: &Json| -> Vec<f64> { serde_json::from_value(outputs["logits"][0].clone()).unwrap() };
        for (a, b) in read(ours).iter().zip(read(theirs)) {
            assert!((a - b).abs() <= 1e-4, "{name}: {a} against {b}");
        }
    }
}

/// Whether there is an ONNX Runtime to test with; says so, and insists where CI must have one.
pub(crate) fn onnxruntime_is_there() -> bool {
    let there = gpux(&["run", "--engine", "onnxruntime", "--file", "models/samples/seven.png"]).status.success();
    if !there {
        assert!(
            std::env::var_os("GPUX_REQUIRE_ORT").is_none(),
            "ONNX Runtime is required here, but there is none: run `gpux engine install`"
        );
        eprintln!("skipped: no ONNX Runtime library; run `gpux engine install`");
    }
    there
}
