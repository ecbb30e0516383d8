#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::io::Cursor;

use prost::Message as _;

use super::*;
use crate::inference::testing::path;
use crate::pipeline::Dim;

fn read(bytes: &[u8]) -> Result<ModelInfo, String> {
    inspect(Path::new("model.onnx"), Cursor::new(bytes)).map_err(|error| error.to_string())
}

#[test]
fn tells_what_a_model_is() {
    let info = ModelInspector::inspect(&path("conv.onnx")).unwrap();
    assert_eq!((info.name.as_str(), info.version.as_str(), info.format.as_str()), ("conv", "2.5.0", "onnx"));
    assert_eq!(info.inputs[0].shape.as_ref().unwrap()[0], Dim::Named("N".into()));
    assert_eq!(info.parameters, 3 * 9 + 3);
    assert_eq!(info.operators["Conv"], 1);
    assert_eq!(info.opsets[""], 17);
    let json = info.to_dict();
    assert_eq!(json["inputs"][0]["shape"], serde_json::json!(["N", 1, 8, 8]));
    assert_eq!(json["inputs"][0]["type"], "float32");
    assert_eq!(json["opsets"]["ai.onnx"], 17);
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("info.json");
    info.save(&saved).unwrap();
    let back: serde_json::Value = serde_json::from_slice(&std::fs::read(saved).unwrap()).unwrap();
    assert_eq!(back, json);
    let signature = info.signature().unwrap();
    assert_eq!(signature.inputs[0].kind.to_string(), "tensor float32[N, 1, 8, 8]");
    let default = ModelInspector::inspect(&path("default.onnx")).unwrap();
    assert_eq!([default.inputs[0].required, default.inputs[1].required], [true, false]);
}

#[test]
fn broken_files_are_errors() {
    assert!(read(b"").unwrap_err().contains("the file is empty"));
    assert!(read(b"hello, this is no model").unwrap_err().contains("not a valid ONNX model"));
    let whole = std::fs::read(path("two.onnx")).unwrap();
    for end in 1..whole.len() {
        let _ = read(&whole[..end]);
    }
    for start in 0..whole.len() {
        let _ = read(&whole[start..]);
    }
    assert!(read(&whole[..whole.len() / 2]).unwrap_err().contains("is the file complete?"));
    assert!(matches!(ModelInspector::inspect(Path::new("/no/such.onnx")), Err(ModelLoadError::Io { .. })));
}

#[test]
fn deep_nesting_is_refused() {
    let mut graph = proto::Graph { name: "inner".into(), ..proto::Graph::default() };
    for _ in 0..60 {
        let attribute = proto::Attribute { graph: Some(Box::new(graph)), ..proto::Attribute::default() };
        let node = proto::Node { op_type: "If".into(), attributes: vec![attribute], ..proto::Node::default() };
        graph = proto::Graph { nodes: vec![node], ..proto::Graph::default() };
    }
    let model = proto::Model { graph: Some(graph), ..proto::Model::default() };
    assert!(read(&model.encode_to_vec()).unwrap_err().contains("recursion limit"));
}

#[test]
fn names_are_checked() {
    let model = |outputs: &[&str]| {
        let outputs = outputs.iter().map(|name| proto::ValueInfo { name: (*name).into(), ..Default::default() });
        let graph = proto::Graph { outputs: outputs.collect(), ..Default::default() };
        read(&proto::Model { graph: Some(graph), ..Default::default() }.encode_to_vec())
    };
    assert!(model(&["y\0"]).unwrap_err().contains("unusable name"));
    assert!(model(&["y", "y"]).unwrap_err().contains("two outputs are called `y`"));
    assert!(model(&[]).unwrap_err().contains("no outputs"));
}

#[test]
fn weights_elsewhere_are_vetted() {
    let fault = |name: &str| {
        let error = ModelInspector::inspect(&path(&format!("{name}.onnx"))).unwrap_err();
        assert!(matches!(error, ModelLoadError::ExternalData { .. }));
        error.to_string()
    };
    assert!(fault("external-outside").contains("does not lie in the model's folder"));
    assert!(fault("external-absolute").contains("does not lie in the model's folder"));
    assert!(fault("external-none").contains("cannot be read"));
    assert!(fault("external-short").contains("gives it 12 bytes, but its shape takes 16"));
    let info = ModelInspector::inspect(&path("external.onnx")).unwrap();
    assert_eq!((info.parameters, info.external_files.len()), (4, 1));
    #[cfg(unix)]
    {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("model.onnx");
        std::fs::copy(path("external.onnx"), &model).unwrap();
        std::os::unix::fs::symlink(path("weights.bin"), folder.path().join("weights.bin")).unwrap();
        let error = ModelInspector::inspect(&model).unwrap_err().to_string();
        assert!(error.contains("leads out of the model's folder"), "{error}");
    }
}
