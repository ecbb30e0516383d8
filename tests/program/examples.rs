//! The whole tasks in `examples/` against the same chains in Python, whose results their `make.py` recorded.

use serde_json::{Value as Json, json};

use crate::digits::{gpux, onnxruntime_is_there, root, stdout};

fn read(path: &str) -> Json {
    serde_json::from_str(&std::fs::read_to_string(root().join("examples").join(path)).unwrap()).unwrap()
}

/// The largest difference of numbers; everything else must be the same.
fn difference(ours: &Json, theirs: &Json) -> f64 {
    match (ours, theirs) {
        (Json::Number(ours), Json::Number(theirs)) => (ours.as_f64().unwrap() - theirs.as_f64().unwrap()).abs(),
        (Json::Array(ours), Json::Array(theirs)) => {
            assert_eq!(ours.len(), theirs.len());
            ours.iter().zip(theirs).map(|(ours, theirs)| difference(ours, theirs)).fold(0.0, f64::max)
        }
        (Json::Object(ours), Json::Object(theirs)) => {
            assert!(ours.keys().eq(theirs.keys()), "{ours:?} is not {theirs:?}");
            ours.values().zip(theirs.values()).map(|(ours, theirs)| difference(ours, theirs)).fold(0.0, f64::max)
        }
        _ => {
            assert_eq!(ours, theirs);
            0.0
        }
    }
}

#[test]
fn a_model_of_columns_answers_as_in_python() {
    if !onnxruntime_is_there() {
        eprintln!("skipped: there is no ONNX Runtime");
        return;
    }
    let cases = read("tabular/expected.json");
    let requests: Vec<_> = cases.as_array().unwrap().iter().map(|case| case["request"].clone()).collect();
    let output = gpux(&["run", "examples/tabular", "--engine", "onnxruntime", "--input", &json!(requests).to_string()]);
    let results: Vec<Json> = stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(results.len(), requests.len());
    for (result, case) in results.iter().zip(cases.as_array().unwrap()) {
        assert!(difference(&result["outputs"]["customer"], &case["response"]) < 1e-6, "{case}: {result}");
    }
}

#[test]
fn the_detector_finds_what_the_chain_in_python_finds() {
    let engines = if onnxruntime_is_there() { vec!["embedded", "onnxruntime"] } else { vec!["embedded"] };
    for engine in engines {
        let photo = "examples/detection/discs.png";
        let output = gpux(&["run", "examples/detection", "--engine", engine, "--file", photo, "--format", "json"]);
        let result: Json = serde_json::from_str(&stdout(&output)).unwrap();
        let difference = difference(&result["detections"], &read("detection/expected.json"));
        println!("detection on {engine}: {difference:.1e}");
        // Boxes are in pixels, up to 480.
        assert!(difference < 1e-3, "{result}");
        assert!(result["drawn"]["base64"].as_str().unwrap().starts_with("iVBORw0KGgo"), "a PNG");
    }
}
