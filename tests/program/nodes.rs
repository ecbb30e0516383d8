//! `gpux inspect --nodes`: where the nodes of a model run, and how much arithmetic they are.

use serde_json::{Value as Json, json};

use crate::digits::{gpux, onnxruntime_is_there, stdout};

fn inspect(arguments: &[&str]) -> Json {
    serde_json::from_str(&stdout(&gpux(&[&["inspect", "--json"], arguments].concat()))).unwrap()
}

/// By hand: 1024 numbers of 9 products and a bias, 2048 of 144, 10 of 512; a Relu after each of the
/// first two, and a pool of the last.
const DIGITS: u64 = 1024 * (2 * 9 + 1) + 1024 + 2048 * (2 * 144 + 1) + 2048 + 2048 + 10 * (2 * 512 + 1);

#[test]
fn counts_operations_for_given_shapes() {
    if !onnxruntime_is_there() {
        return;
    }
    for (shape, rows) in [(&[][..], 1), (&["--shape", "image=4,?,?,?"][..], 4), (&["--dim", "N=3"][..], 3)] {
        let info = inspect(&[&["models/digits.onnx", "--nodes", "--provider", "cpu"], shape].concat());
        let nodes = &info["nodes"];
        assert_eq!((&nodes["flops"], &nodes["inputs"]["image"][0]), (&json!(rows * DIGITS), &json!(rows)), "{nodes:#}");
        let placement = &nodes["providers"][0];
        assert_eq!(placement["provider"], "CPUExecutionProvider");
        let expected = json!({ "Conv": 2, "Flatten": 1, "Gemm": 1, "MaxPool": 1, "Relu": 2 });
        assert_eq!((&placement["here"], &placement["on_cpu"]), (&expected, &json!({})));
    }
    let table = stdout(&gpux(&["inspect", ".", "--nodes"]));
    assert!(table.contains("one run: 626.70 k FLOPs"), "{table}");
}

#[test]
fn lists_unused_and_unsupported_nodes() {
    let plain = inspect(&["models/digits.onnx"]);
    assert!(plain["nodes"].is_null(), "nothing is run unasked");
    let lacks = |info: &Json, operator: &str| {
        let operators = info["nodes"]["operators"].as_array().unwrap();
        operators.iter().find(|known| known["operator"] == operator).unwrap()["embedded"] == false
    };
    let embedded = inspect(&["tests/models/loop.onnx", "--nodes", "--engine", "embedded"]);
    assert!(lacks(&embedded, "Loop"), "{embedded:#}");
    assert_eq!(embedded["nodes"]["providers"], json!([]));
    if !onnxruntime_is_there() {
        return;
    }
    let refused = inspect(&["models/digits.onnx", "--nodes", "--provider", "cpu,coreml"]);
    let providers = refused["nodes"]["providers"].as_array().unwrap();
    assert_eq!(providers[0]["refused"], Json::Null);
    assert!(cfg!(target_os = "macos") || providers[1]["refused"].is_string(), "{refused:#}");
    let strings = inspect(&["tests/models/words.onnx", "--nodes"]);
    let why = strings["nodes"]["providers"][0]["refused"].as_str().unwrap();
    assert!(why.contains("cannot be made up"), "{why}");
    let usage = gpux(&["inspect", "models/digits.onnx", "--shape", "image=1,1,8,8"]);
    assert_eq!(usage.status.code(), Some(2));
}

#[test]
fn lists_dynamic_axes() {
    let info = inspect(&["tests/models/embedding.onnx"]);
    let place = |port: &str, name: &str, axis: u64| json!({ "port": port, "name": name, "axis": axis });
    let batch = json!({ "name": "batch", "places": [
        place("input", "input_ids", 0), place("input", "attention_mask", 0), place("output", "tokens", 0),
        place("output", "mean", 0),
    ] });
    assert_eq!(info["dynamic_axes"][0], batch);
    assert_eq!(info["dynamic_axes"][1]["name"], "length");
    let unnamed = inspect(&["tests/models/default.onnx"]);
    assert_eq!(unnamed["dynamic_axes"][0], json!({ "name": null, "places": [place("input", "x", 0)] }));
    let text = stdout(&gpux(&["inspect", "tests/models/embedding.onnx"]));
    assert!(text.contains("input_ids[1], attention_mask[1], tokens[1]"), "{text}");
}
