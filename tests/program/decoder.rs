//! A component that loops over a model, against the same loop over ONNX Runtime in Python
//! (`examples/decoder/make.py`).

use serde::Deserialize;

use crate::digits::{gpux, onnxruntime_is_there, root, stdout};

#[derive(Debug, PartialEq, Deserialize)]
struct Written {
    prompt: String,
    tokens: Vec<i64>,
    text: String,
}

fn expected() -> Vec<Written> {
    serde_json::from_str(&std::fs::read_to_string(root().join("examples/decoder/expected.json")).unwrap()).unwrap()
}

fn written(prompt: &str, engine: &str) -> Written {
    let input = format!("text={prompt}");
    let output = gpux(&["run", "examples/decoder", "--allow-outside", "--engine", engine, "--input", &input]);
    let results: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    Written {
        prompt: prompt.to_owned(),
        tokens: serde_json::from_value(results["tokens"][0].clone()).unwrap(),
        text: results["text"].as_str().unwrap().to_owned(),
    }
}

#[test]
fn greedy_decoder_matches_python() {
    let expected = expected();
    assert!(expected.len() >= 7);
    for case in &expected {
        assert_eq!(written(&case.prompt, "embedded"), *case);
    }
    if onnxruntime_is_there() {
        assert_eq!(written(&expected[0].prompt, "onnxruntime"), expected[0]);
    }
}

#[test]
fn rejects_the_decoder_without_its_grant() {
    let folder = tempfile::tempdir().unwrap();
    let pipeline = std::fs::read_to_string(root().join("examples/decoder/gpux.yml")).unwrap();
    let refused = pipeline.replace("grant: { models: [model] }", "instances: fresh");
    assert_ne!(refused, pipeline);
    let guest = root().join("guest-examples/rust/greedy-decoder.wasm");
    let refused = refused.replace("../../guest-examples/rust/greedy-decoder.wasm", guest.to_str().unwrap());
    for file in ["letters.onnx", "tokenizer.json"] {
        std::fs::copy(root().join("examples/decoder").join(file), folder.path().join(file)).unwrap();
    }
    let file = folder.path().join("gpux.yml");
    std::fs::write(&file, refused).unwrap();
    let output = gpux(&["build", file.to_str().unwrap(), "--allow-outside", "--engine", "embedded"]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("grant: { models: [model] }"), "{message}");
}
