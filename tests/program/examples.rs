//! The whole tasks in `examples/` against the same chains in Python, whose results the scripts that
//! made their models recorded.

use serde::Deserialize;
use serde_json::Value as Json;

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
fn tabular_model_matches_python() {
    if !onnxruntime_is_there() {
        eprintln!("skipped: there is no ONNX Runtime");
        return;
    }
    let table = "examples/tabular/wines.csv";
    let output = gpux(&["run", "examples/tabular", table, "--engine", "onnxruntime", "--format", "csv"]);
    let expected = std::fs::read_to_string(root().join("examples/tabular/expected.csv")).unwrap();
    let rows =
        |text: &str| text.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect::<Vec<Vec<_>>>();
    let (ours, theirs) = (rows(&stdout(&output)), rows(&expected));
    assert_eq!((ours.len(), &ours[0][1..5]), (theirs.len(), &theirs[0][..]));
    for (ours, theirs) in ours.iter().zip(&theirs).skip(1) {
        assert_eq!(ours[1], theirs[0], "{ours:?}");
        for (ours, theirs) in ours[2..5].iter().zip(&theirs[1..]) {
            let off = ours.parse::<f64>().unwrap() - theirs.parse::<f64>().unwrap();
            assert!(off.abs() < 1e-6, "{ours} is not {theirs}");
        }
    }
}

#[test]
fn tabular_page_shows_results() {
    if !onnxruntime_is_there() {
        eprintln!("skipped: there is no ONNX Runtime");
        return;
    }
    let page = std::fs::read_to_string(root().join("examples/tabular/README.md")).unwrap();
    let block = |kind: &str| page.split(&format!("```{kind}\n")).nth(1).unwrap().split("\n```").next().unwrap();
    let request = block("sh").split('\'').nth(1).unwrap();
    let output = gpux(&["run", "examples/tabular", "--engine", "onnxruntime", "--input", request]);
    let given: Json = serde_json::from_str(&stdout(&output)).unwrap();
    assert!(difference(&given, &serde_json::from_str(block("json")).unwrap()) < 1e-6, "{given}");
}

/// A case of an example whose `expected.json` is a list of them.
#[derive(Deserialize)]
struct Case {
    /// after `gpux run FOLDER`; a file lies in that folder
    args: Vec<String>,
    output: Json,
    /// how far a number may be off
    tolerance: f64,
}

fn answers(example: &str) {
    let folder = format!("examples/{example}");
    let cases: Vec<Case> = serde_json::from_value(read(&format!("{example}/expected.json"))).unwrap();
    assert!(!cases.is_empty());
    let engines = if onnxruntime_is_there() { &["embedded", "onnxruntime"][..] } else { &["embedded"] };
    for (case, engine) in cases.iter().flat_map(|case| engines.iter().map(move |engine| (case, engine))) {
        let mut arguments = vec!["run".to_owned(), folder.clone(), "--json".to_owned(), "--engine".to_owned()];
        arguments.push((*engine).to_owned());
        for (index, argument) in case.args.iter().enumerate() {
            let is_file = index > 0 && case.args[index - 1] == "--file";
            arguments.push(if is_file { format!("{folder}/{argument}") } else { argument.clone() });
        }
        let output = gpux(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(output.status.success(), "{folder}: {}", String::from_utf8_lossy(&output.stderr));
        let ours: Json = serde_json::from_str(&stdout(&output)).unwrap();
        let off = difference(&ours, &case.output);
        assert!(off <= case.tolerance, "{folder} {:?} on {engine}: off by {off}: {ours}", case.args);
    }
}

#[test]
fn image_classification_matches_python() {
    answers("image-classification");
}

#[test]
fn text_classification_matches_python() {
    answers("text-classification");
}

#[test]
fn sentence_embedding_matches_python() {
    answers("sentence-embedding");
}

#[test]
fn question_answering_matches_python() {
    answers("question-answering");
}

#[test]
fn speech_recognition_matches_python() {
    answers("speech");
}

/// What `fetch.sh` of an example brings.
const FETCHED: [(&str, &[&str]); 5] = [
    ("faces", &["blazeface.onnx"]),
    (
        "ocr",
        &[
            "models/PP-OCRv6_det_small.onnx",
            "models/ch_ppocr_mobile_v2.0_cls_mobile.onnx",
            "models/PP-OCRv6_rec_small.onnx",
        ],
    ),
    ("page-layout", &["layout_cdla.onnx"]),
    ("search", &["model.onnx", "tokenizer.json"]),
    ("speech-quality", &["sig_bak_ovr.onnx", "model_v8.onnx"]),
];

/// Whether an example has its models; says so if `fetch.sh` did not bring them.
pub(crate) fn has_models(example: &str) -> bool {
    let files = FETCHED.iter().find(|(name, _)| *name == example).map_or(&[][..], |(_, files)| files);
    let missing = files.iter().find(|file| !root().join("examples").join(example).join(file).exists());
    if let Some(missing) = missing {
        eprintln!("skipped: there is no examples/{example}/{missing}; examples/{example}/fetch.sh brings it");
    }
    missing.is_none()
}

/// The cases of an application, whose results its `referee.py` compared with the Python package.
fn passes_its_cases(example: &str) {
    if !has_models(example) {
        return;
    }
    let output = gpux(&["test", &format!("examples/{example}")]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn faces_match_the_package() {
    if onnxruntime_is_there() {
        passes_its_cases("faces");
    }
}

#[test]
fn music_notes_match_python() {
    passes_its_cases("music-notes");
}

#[test]
fn page_layout_matches_python() {
    passes_its_cases("page-layout");
}

#[test]
fn ocr_matches_python() {
    passes_its_cases("ocr");
}

#[test]
fn speech_quality_matches_python() {
    passes_its_cases("speech-quality");
}

#[test]
fn search_matches_python() {
    passes_its_cases("search");
}

#[test]
fn object_detection_matches_python() {
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
