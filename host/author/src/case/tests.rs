//! Round trips of cases, and hostile case files.

use std::path::Path;

use half::{bf16, f16};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use gpux_config::LoadError;
use gpux_core::{Color, ElementSet, Geometry, Kind, Layout, Metadata, Port, Tensor, TensorKind, Value};

fn tensors() -> Kind {
    Kind::Tensor(TensorKind::of_elements(ElementSet::ANY))
}

fn load(folder: &Path, text: &str) -> Result<Case, String> {
    std::fs::write(folder.join(CASE_FILE), text).unwrap();
    Case::load(folder).map_err(|error| match error {
        LoadError::Invalid(error) => error.render(),
        other => other.to_string(),
    })
}

/// Writes the values as a case does and reads them again.
fn through_a_file(values: &[(&str, Value, Kind)]) -> Vec<(String, Value)> {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("case");
    std::fs::create_dir(&folder).unwrap();
    let mut draft = Draft::default();
    draft.section("inputs", "input", values.iter().map(|(name, value, kind)| (*name, value, kind)), &|_| None);
    for (name, content) in &draft.files {
        assert!(!folder.join(name).exists(), "{name} twice");
        std::fs::write(folder.join(name), content).unwrap();
    }
    let case = load(&folder, &draft.text).unwrap_or_else(|error| panic!("{}\n{error}", draft.text));
    let ports: Vec<_> = values.iter().map(|(name, _, kind)| Port::new(*name, kind.clone())).collect();
    input_values(&case, &ports).unwrap_or_else(|error| panic!("{}\n{}", draft.text, error.render()))
}

#[test]
fn values_round_trip() {
    let geometry = Geometry {
        source_width: 640,
        source_height: 480,
        scale_x: 0.1,
        scale_y: 1.0 / 3.0,
        offset_x: -0.5,
        offset_y: 1e-7,
    };
    let image = Metadata {
        layout: Some(Layout::Chw),
        color: Some(Color::Bgr),
        sample_rate: Some(44_100),
        geometry: Some(geometry),
        transform: Some([1.0, 0.1, -3.5, 0.0, 1.0 / 3.0, 1e-9, 0.0, 1e-4, 1.0]),
    };
    let large: Vec<f32> = (0..100).map(|i| i as f32 / 7.0).collect();
    let texts = vec!["a".to_owned(), "\"é\u{7f}\"".to_owned(), String::new()];
    let values = [
        ("small", Value::from(Tensor::new([2, 1], vec![f32::NAN.abs(), f32::NEG_INFINITY]).unwrap()), tensors()),
        ("large", Tensor::new([10, 10], large).unwrap().with_metadata(image).into(), tensors()),
        ("labelled", Tensor::scalar(7_u8).with_metadata(image).into(), tensors()),
        ("any tensor", Tensor::scalar(i64::MIN).into(), Kind::Any),
        ("half", Tensor::new([20], vec![f16::from_f32(0.1); 20]).unwrap().into(), tensors()),
        ("brain", Tensor::new([20], vec![bf16::from_f32(0.1); 20]).unwrap().into(), tensors()),
        ("words", Tensor::new([3], texts).unwrap().into(), tensors()),
        ("empty", Tensor::new([0, 3], Vec::<i32>::new()).unwrap().into(), tensors()),
        ("text", "plain".into(), Kind::Text),
        ("long text", "x\n".repeat(500).into(), Kind::Text),
        ("number as text", "5".into(), Kind::Text),
        ("any text", "null".into(), Kind::Any),
        ("bytes", Value::from(vec![0_u8, 255]), Kind::Bytes),
        ("any bytes", Value::from(vec![7_u8; 500]), Kind::Any),
        ("a/b", Value::from(vec![1_u8; 100]), Kind::Bytes),
        ("a b", Value::from(vec![2_u8; 100]), Kind::Bytes),
        ("json", json!([{ "file": "x" }, null, 0.1, u64::MAX, "é"]).into(), Kind::Json),
        ("form", json!({ "file": "x" }).into(), Kind::Json),
        ("shape", json!({ "data": [1], "type": "float32" }).into(), Kind::Json),
        ("string", json!("text").into(), Kind::Json),
        ("large json", json!(vec![1; 500]).into(), Kind::Any),
        ("true", json!({ "json": { "text": "x" } }).into(), Kind::Any),
    ];
    let read = through_a_file(&values);
    assert_eq!(read.len(), values.len());
    for ((name, value, _), (again, read)) in values.iter().zip(&read) {
        assert_eq!(name, again);
        match (value, read) {
            // NaN is not equal to itself.
            (Value::Tensor(a), Value::Tensor(b)) if *name == "small" => assert_eq!(a.bytes(), b.bytes()),
            _ => assert_eq!(value, read, "{name}"),
        }
    }
}

#[test]
fn compares_metadata_only_if_stated() {
    let folder = tempfile::tempdir().unwrap();
    let text = "inputs: {}\noutputs:\n  a: { data: [1] }\n  b: { data: [1], metadata: { layout: HWC } }\n";
    let case = load(folder.path(), text).unwrap();
    let expected = expected_values(&case, &[Port::new("a", tensors()), Port::new("b", tensors())]).unwrap();
    assert_eq!(expected.iter().map(|one| one.metadata).collect::<Vec<_>>(), [false, true]);
}

#[test]
fn reports_wrong_values_with_their_place() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("case");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("text.txt"), b"caf\xe9").unwrap();
    std::fs::write(folder.join("bad.npy"), b"PK").unwrap();
    std::fs::write(folder.join("photo.png"), b"not a photo").unwrap();
    for (value, kind, told) in [
        ("{ file: none.npy }", tensors(), "no file at"),
        ("{ file: ../../secret }", Kind::Bytes, "leads out of"),
        ("{ file: /etc/passwd }", Kind::Bytes, "leads out of"),
        ("{ file: bad.npy }", tensors(), "no .npy file"),
        ("{ file: photo.png }", tensors(), "for the pixels of a picture, write `{ image: PATH }`"),
        ("{ file: text.txt }", Kind::Text, "utf-8"),
        ("{ file: text.txt }", Kind::Json, "expected value"),
        ("{ file: text.txt, metadata: { layout: HWC } }", Kind::Bytes, "only a tensor has `metadata`"),
        ("{ file: bad.npy, metdata: {} }", tensors(), "did you mean `metadata`?"),
        ("{ file: bad.npy, metadata: { layout: CWH } }", tensors(), "cannot be `CWH`"),
        ("{ file: bad.npy, metadata: { layout: chw, color: RGB } }", tensors(), "no .npy file"),
        ("{ image: photo.png }", tensors(), "not an image"),
        ("{ image: photo.png, channels: blue }", tensors(), "blue"),
        ("{ data: [[1], [1, 2]] }", tensors(), "ragged"),
        ("{ data: [1, 2], shape: [3] }", tensors(), "do not fill the shape"),
        ("{ data: [1], shape: [-1] }", tensors(), "`shape[0]` must be at least 0"),
        ("{ data: [300], type: uint8 }", tensors(), "300 is not a uint8"),
        ("{ text: 5 }", Kind::Text, "`text` takes a text"),
        ("5", Kind::Text, "takes text"),
        ("photo.png", Kind::Bytes, "write `{ file: photo.png }`"),
    ] {
        let case = load(&folder, &format!("inputs:\n  x: {value}\n")).unwrap();
        let error = input_values(&case, &[Port::new("x", kind)]).err().map(|error| error.render());
        let error = error.unwrap_or_else(|| panic!("{value} is accepted"));
        assert!(error.contains(told) && error.contains("case.yml:2:"), "{value}: {error}");
    }
}

#[test]
fn outputs_have_tolerances_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let ports = ["x", "y"].map(|name| Port::new(name, Kind::Json));
    let case = |tolerance: &str| load(folder.path(), &format!("outputs: {{ x: 1 }}\ntolerance: {tolerance}\n"));
    let loaded = case("{ absolute: 0.1, outputs: { y: { relative: 0.5 } } }").unwrap();
    assert_eq!((loaded.tolerance.for_output("x").absolute, loaded.tolerance.for_output("x").relative), (0.1, 0.0));
    assert_eq!((loaded.tolerance.for_output("y").absolute, loaded.tolerance.for_output("y").relative), (0.0, 0.5));
    assert!(expected_values(&loaded, &ports).is_ok());
    let misspelled = case("{ outputs: { z: { relative: 0.5 } } }").unwrap();
    let error = expected_values(&misspelled, &ports).unwrap_err().render();
    assert!(error.contains("there is no output `z`") && error.contains("case.yml:2:"), "{error}");
    assert!(case("{ outputs: { y: { relative: -1 } } }").unwrap_err().contains("at least 0"));
    assert!(case("{ output: { y: {} } }").unwrap_err().contains("did you mean `outputs`?"));
}

#[test]
fn rejects_cases_with_two_expectations() {
    let folder = tempfile::tempdir().unwrap();
    let both = load(folder.path(), "outputs: {}\nerror: { kind: failed }\n").unwrap_err();
    assert!(both.contains("not both"), "{both}");
    assert_eq!(load(folder.path(), "inputs: {}").unwrap().expectation, Expectation::Unknown);
    assert_eq!(load(folder.path(), "inputs:\noutputs:\n").unwrap().expectation, Expectation::Unknown);
    assert_eq!(load(folder.path(), "outputs: {}").unwrap().expectation, Expectation::Outputs);
}

proptest! {
    #[test]
    fn texts_and_names_come_back(text in "\\PC{0,80}|[\u{0}-\u{a0}\u{2028}\u{feff}a\"\\\\#:{}]{0,40}", name in "\\PC{1,20}|[\u{20}-\u{a0}\u{2028}\u{feff}]{1,20}") {
        let values = [
            (name.as_str(), Value::from(text.as_str()), Kind::Text),
            ("json", json!({ name.clone(): text }).into(), Kind::Json),
        ];
        let read = through_a_file(&values);
        prop_assert_eq!(&read[0].1, &values[0].1);
        prop_assert_eq!(&read[1].1, &values[1].1);
    }

    /// Cut and spliced cases are read or refused, and every place that is named is real.
    #[test]
    fn mangled_cases_do_no_harm(from in 0_usize..400, to in 0_usize..400, insert in "[-:{}\\[\\]&*!'\"$ \nab1.]{0,6}") {
        let whole = "description: x\noptions: { a: 1 }\ninputs:\n  x: { file: x.npy, metadata: { layout: HWC } }\n  y: { data: [1, 2], type: uint8, shape: [2] }\n  z: { json: [1] }\noutputs:\n  x: { image: a.png, channels: gray }\ntolerance: { absolute: 0.1 }\nrecorded: { step: 1, name: a, time_ms: 1.5, log: [b] }\n";
        let (from, to) = (from.min(to).min(whole.len()), from.max(to).min(whole.len()));
        let folder = tempfile::tempdir().unwrap();
        if let Ok(case) = load(folder.path(), &format!("{}{insert}{}", &whole[..from], &whole[to..])) {
            let ports = [Port::new("x", tensors()), Port::new("y", tensors()), Port::new("z", Kind::Json)];
            for error in [input_values(&case, &ports).err(), expected_values(&case, &ports).err()].into_iter().flatten() {
                prop_assert!(!error.render().is_empty());
            }
        }
    }
}
