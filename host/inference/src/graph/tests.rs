#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::io::Cursor;

use prost::encoding::{WireType, encode_key, encode_varint};

use super::*;
use crate::testing::path;
use gpux_core::Dim;

fn read(bytes: &[u8]) -> Result<ModelInfo, String> {
    inspect(Path::new("model.onnx"), Cursor::new(bytes), WeightLinks::Inside).map_err(|error| error.to_string())
}

/// A field with a length, encoded.
fn field(tag: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(payload.len() + 8);
    encode_key(tag, WireType::LengthDelimited, &mut bytes);
    encode_varint(payload.len() as u64, &mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

#[test]
fn describes_models() {
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
fn rejects_broken_files() {
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
fn rejects_deep_nesting() {
    let mut graph = field(2, b"inner");
    for _ in 0..60 {
        let attribute = field(5, &field(6, &graph));
        graph = field(1, &[field(4, b"If"), attribute].concat());
    }
    assert!(read(&field(7, &graph)).unwrap_err().contains("recursion limit"));
}

#[test]
fn rejects_invalid_names() {
    let model = |outputs: &[&str]| {
        let outputs: Vec<_> = outputs.iter().map(|name| field(12, &field(1, name.as_bytes()))).collect();
        read(&field(7, &outputs.concat()))
    };
    assert!(model(&["y\0"]).unwrap_err().contains("unusable name"));
    assert!(model(&["y", "y"]).unwrap_err().contains("two outputs are called `y`"));
    assert!(model(&[]).unwrap_err().contains("no outputs"));
    let (one, other) = (field(12, &field(1, b"y")), field(12, &field(1, b"z")));
    let parts = read(&[field(7, &one), field(7, &other)].concat()).unwrap();
    assert_eq!(parts.outputs.len(), 2);
}

#[test]
fn bounds_memory_of_small_fields() {
    const MANY: usize = 1_000_000;
    let output = field(12, &field(1, b"y"));
    // Empty nodes, attributes, weights of each kind, dimensions, and inputs of a node.
    let dimensions = |count: usize| field(5, &field(1, &vec![1; count]));
    let graphs = [
        field(1, &[]).repeat(MANY),
        field(1, &field(5, &[]).repeat(MANY)),
        field(5, &[]).repeat(MANY),
        field(15, &[]).repeat(MANY),
        field(1, &field(5, &field(23, &[]).repeat(MANY))),
        dimensions(MANY).repeat(5),
    ];
    for graph in &graphs {
        let model = read(&field(7, &[graph.as_slice(), &output].concat())).unwrap();
        assert_eq!(model.outputs.len(), 1);
    }
    let numbered = |tag: u32, inner: u32| -> Vec<u8> {
        (0..MANY).flat_map(|index| field(tag, &field(inner, index.to_string().as_bytes()))).collect()
    };
    // The memory that each would take: inputs, names of weights, names of operators, inputs of loops.
    let axes = field(11, &field(2, &field(1, &field(2, &field(1, &[]).repeat(2 * MANY)))));
    let taken = field(1, &[field(1, &[]).repeat(MANY), field(4, b"Loop")].concat());
    for graph in [field(11, &[]).repeat(MANY), numbered(5, 8), numbered(1, 4), axes, taken, dimensions(3 * MANY)] {
        let error = read(&field(7, &[graph, output.clone()].concat()));
        assert!(error.unwrap_err().contains("would take more than 64 MiB of memory"));
    }
    for field in [field(8, &[]).repeat(MANY), field(14, &[]).repeat(MANY)] {
        assert!(read(&field).unwrap_err().contains("would take more than 64 MiB of memory"));
    }
}

#[test]
fn reads_models_with_large_metadata() {
    let output = field(7, &field(12, &field(1, b"y")));
    let text = vec![b'x'; 40 << 20];
    let entry = |key: &[u8], value: &[u8]| field(14, &[field(1, key), field(2, value)].concat());
    let model = [entry(b"small", b"1"), field(6, &text), entry(b"large", &text), output].concat();
    let info = read(&model).unwrap();
    assert_eq!(info.omitted_metadata, ["description".to_owned(), "large".to_owned()].into());
    let metadata = info.metadata;
    assert_eq!(metadata["small"], "1");
    assert_eq!(metadata["large"], "(41943040 bytes, which are not shown)");
    assert_eq!(metadata["description"], metadata["large"]);
}

#[test]
fn tells_custom_operators_from_functions() {
    let node = |domain: &[u8], name: &[u8]| field(1, &[field(4, name), field(7, domain)].concat());
    let graph = |nodes: &[Vec<u8>]| field(7, &[nodes.concat(), field(12, &field(1, b"y"))].concat());
    let known = [node(b"", b"Relu"), node(b"com.microsoft", b"Gelu"), node(b"ai.onnx", b"Add"), node(b"own", b"F")];
    let function = field(25, &[field(1, b"F"), field(10, b"own")].concat());
    let custom = |model: &[u8]| read(model).unwrap().custom_operator().map(str::to_owned);
    assert_eq!(custom(&[graph(&known), function].concat()), None);
    assert_eq!(custom(&graph(&known)).as_deref(), Some("own.F"));
    let unknown = graph(&[node(b"", b"Rellu")]);
    assert_eq!(custom(&unknown).as_deref(), Some("Rellu"));
    let opset = |version: u8| field(8, &[0x10, version]);
    assert_eq!(custom(&[unknown.clone(), opset(26)].concat()).as_deref(), Some("Rellu"));
    assert_eq!(custom(&[unknown, opset(99)].concat()), None, "a newer set may have it");
}

/// More nodes, weights and inputs than the largest real models have.
#[test]
fn reads_large_models() {
    let name = |kind: &str, index: usize| format!("/model/layers.{index}/self_attn/{kind}.weight_quantized_{index}");
    let mut graph = field(12, &field(1, b"y"));
    for index in 0..100_000 {
        let texts = [(1, "in"), (1, "and"), (2, "out"), (3, "node")];
        let mut node: Vec<u8> =
            texts.iter().flat_map(|(tag, kind)| field(*tag, name(kind, index).as_bytes())).collect();
        node.extend(field(4, b"MatMul"));
        graph.extend(field(1, &node));
        graph.extend(field(5, &[field(1, &[2, 3]), field(8, name("in", index).as_bytes())].concat()));
    }
    let tensor = field(1, &field(2, &field(1, &[8, 1]).repeat(4)));
    for index in 0..5_000 {
        graph.extend(field(11, &[field(1, name("in", index).as_bytes()), field(2, &tensor)].concat()));
    }
    let info = read(&field(7, &graph)).unwrap();
    assert_eq!((info.operators["MatMul"], info.parameters, info.inputs.len()), (100_000, 600_000, 5_000));
    assert!(info.inputs.iter().all(|input| !input.required && input.shape.as_ref().unwrap().len() == 4));
}

#[test]
fn counts_the_weights_of_constant_nodes() {
    let tensor = field(5, &field(1, &[2, 3]));
    let node = |operator: &[u8]| field(1, &[field(4, operator), field(5, &tensor)].concat());
    // The tensor of another operator is an option.
    let graph = [node(b"Constant"), node(b"ConstantOfShape"), node(b"Constant"), field(12, &field(1, b"y"))].concat();
    assert_eq!(read(&field(7, &graph)).unwrap().parameters, 12);
}

#[test]
fn rejects_tensors_in_parts() {
    let tensor = field(5, &field(8, b"part"));
    for (parts, refused) in [(1, false), (2, true)] {
        let node = field(1, &field(5, &tensor.repeat(parts)));
        let model = field(7, &[node, field(12, &field(1, b"y"))].concat());
        let error = read(&model).err();
        assert_eq!(error.is_some_and(|error| error.contains("a tensor is given twice")), refused);
    }
}

/// A tensor that lies in another file.
fn check_external_data(location: &str) -> Vec<u8> {
    said("location", location)
}

/// The `external_data` entries of a tensor.
fn said(key: &str, value: &str) -> Vec<u8> {
    field(13, &[field(1, key.as_bytes()), field(2, value.as_bytes())].concat())
}

#[test]
fn rejects_files_that_parsers_read_differently() {
    let folder = tempfile::tempdir().unwrap();
    let address = folder.path().join("*/_ORT_MEM_ADDR_");
    std::fs::create_dir_all(&address).unwrap();
    for file in [folder.path().join("w"), folder.path().join("v"), address.join("*")] {
        std::fs::write(file, [0; 5]).unwrap();
    }
    let read = |tensor: &[&[u8]]| {
        let graph =
            [field(5, &[&field(8, b"weight"), tensor.concat().as_slice()].concat()), field(12, &field(1, b"y"))];
        let info =
            inspect(&folder.path().join("model.onnx"), Cursor::new(field(7, &graph.concat())), WeightLinks::Inside);
        info.map(|info| info.external_files.len()).map_err(|error| error.to_string())
    };
    let (here, there) = (check_external_data("w"), check_external_data("v"));
    assert_eq!(read(&[&here, &said("checksum", "")]), Ok(1));
    for (tensor, reason) in [
        (vec![&here, &there], "its `location` is given twice"),
        (vec![&here, &said("offset", "0"), &said("offset", "4")], "its `offset` is given twice"),
        (vec![&here, &said("prepacked_0", "MatMul|0;4;0")], "it has a `prepacked_0`, which cannot be checked"),
        (vec![&here, &said("basepath", "/")], "it has a `basepath`, which gpux does not know"),
        (vec![&check_external_data("*/_ORT_MEM_ADDR_/*")], "is an address in memory, not a file"),
    ] {
        let tensor: Vec<_> = tensor.into_iter().map(Vec::as_slice).collect();
        let error = read(&tensor).unwrap_err();
        assert!(error.contains(reason) && error.contains("weight"), "{error}");
    }
}

#[test]
fn checks_attributes_of_functions() {
    let output = field(7, &field(12, &field(1, b"y")));
    let model = |tensors: &[u8]| [field(25, &field(11, tensors)), output.clone()].concat();
    let outside = read(&model(&field(5, &check_external_data("../../secret")))).unwrap_err();
    assert!(outside.contains("`../../secret` does not lie in the model's folder"), "{outside}");
    assert!(read(&model(&field(5, &[]).repeat(2))).unwrap_err().contains("a tensor is given twice"));

    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("w"), [0; 5]).unwrap();
    // In a graph that a node of the function runs, too.
    let inner = field(6, &field(1, &field(5, &field(5, &check_external_data("w")))));
    for tensors in [field(5, &check_external_data("w")), field(10, &check_external_data("w")), inner] {
        let bytes = model(&tensors);
        let info = inspect(&folder.path().join("model.onnx"), Cursor::new(&bytes), WeightLinks::Inside).unwrap();
        assert_eq!((info.size_bytes, info.external_files.len()), (bytes.len() as u64 + 5, 1));
    }
}

#[test]
fn bounds_external_files_by_memory() {
    let folder = tempfile::tempdir().unwrap();
    (0..20).for_each(|index| std::fs::write(folder.path().join(index.to_string()), []).unwrap());
    let tensor = |location: &str| field(5, &check_external_data(location));
    let one = (0..10_000).flat_map(|_| tensor("0"));
    let each = (0..20).flat_map(|index| tensor(&index.to_string()));
    for (graph, fits) in [(one.collect::<Vec<_>>(), true), (each.collect(), false)] {
        let mut source = forward_reader::ForwardReader::new(Cursor::new(field(7, &graph))).unwrap();
        let files = ExternalFiles::new(folder.path(), WeightLinks::Inside);
        let model = scan::scan_within(16 << 10, &mut source, files, PrepackedWeights::Refused);
        assert_eq!(model.map(|model| model.files.len()).ok(), fits.then_some(1));
    }
}

#[test]
fn checks_external_weights() {
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
        let inspect_with = |links| inspect(&model, open(&model).unwrap(), links);
        let error = inspect_with(WeightLinks::Inside).unwrap_err().to_string();
        assert!(error.contains("`weights.bin` leads out of the model's folder; pass `--allow-outside`"), "{error}");
        let info = inspect_with(WeightLinks::Anywhere).unwrap();
        let weights = path("weights.bin").canonicalize().unwrap();
        assert_eq!(info.external_locations, BTreeMap::from([("weights.bin".into(), weights.clone())]));
        assert_eq!(info.external_files, [weights]);
    }
}

/// Where files may claim to be as large as numbers go: elsewhere the file system refuses them.
#[cfg(target_os = "linux")]
#[test]
fn sums_sizes_of_sparse_files_without_overflow() {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else { return };
    for name in ["v", "w"] {
        let file = File::create(folder.path().join(name)).unwrap();
        if file.set_len(i64::MAX as u64).is_err() {
            return;
        }
    }
    let weights = ["v", "w"].map(|name| field(5, &check_external_data(name))).concat();
    let graph = field(7, &[weights, field(12, &field(1, b"y"))].concat());
    let info = inspect(&folder.path().join("model.onnx"), Cursor::new(graph), WeightLinks::Inside).unwrap();
    assert_eq!((info.size_bytes, info.external_files.len()), (u64::MAX, 2));
}
