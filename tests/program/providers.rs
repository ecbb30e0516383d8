//! A second execution provider, for real: OpenVINO runs on any x86-64 processor.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value as Json, json};

use crate::child::{StartWithLimit as _, program};
use crate::digits::{root, stdout};
use crate::test_server::Server;

/// The build of OpenVINO that `gpux engine install openvino --whole` puts into a cache in `target/`.
/// Without one a test says that it is skipped; with `GPUX_REQUIRE_ORT=1` (as in CI) it fails.
fn library() -> Option<PathBuf> {
    let engines = root().join("target/openvino/engines");
    let found = std::fs::read_dir(engines).into_iter().flatten().map(|entry| entry.unwrap().path());
    let folder = found.into_iter().find(|path| path.to_string_lossy().ends_with("-openvino"));
    if folder.is_none() {
        let required = std::env::var_os("GPUX_REQUIRE_ORT").is_some_and(|value| value == "1");
        let published = cfg!(all(target_arch = "x86_64", any(target_os = "linux", windows)));
        assert!(!required || !published, "run `GPUX_CACHE_DIR=target/openvino gpux engine install openvino --whole`");
        eprintln!("skipped: run `GPUX_CACHE_DIR=target/openvino gpux engine install openvino --whole`");
    }
    folder
}

/// A cache of its own for each test, so that each tries and measures for itself.
fn gpux(cache: &Path, library: &Path, arguments: &[&str]) -> Output {
    let mut command = program();
    command.args(arguments).arg("--engine-library").arg(library).env("GPUX_CACHE_DIR", cache);
    command.env("NO_COLOR", "1").current_dir(root()).run()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn numbers(json: &Json) -> Vec<f64> {
    match json {
        Json::Array(items) => items.iter().flat_map(numbers).collect(),
        other => vec![other.as_f64().unwrap()],
    }
}

/// A picture of 8 × 8 with one channel.
fn ramp() -> String {
    let pixel = |row: usize, column: usize| f64::from((row * 7 + column * 3) as u8 % 17) / 16.0;
    let rows: Vec<Vec<f64>> = (0..8).map(|row| (0..8).map(|column| pixel(row, column)).collect()).collect();
    json!({ "image": [[rows]] }).to_string()
}

#[test]
fn openvino_matches_the_cpu() {
    let Some(library) = library() else { return };
    let cache = tempfile::tempdir().unwrap();
    for (model, output, tolerance) in [("models/digits.onnx", "logits", 1e-5), ("tests/models/conv.onnx", "y", 1e-3)] {
        let run = |provider: &str| {
            let arguments = ["run", model, "--strict", "--provider", provider, "--trace", "--json", "--input", &ramp()];
            let json: Json = serde_json::from_str(&stdout(&gpux(cache.path(), &library, &arguments))).unwrap();
            let engine = json["trace"]["engine"].as_str().unwrap().to_owned();
            let outputs = json["outputs"].as_object().unwrap().clone();
            assert!(outputs.len() == 1, "{output}: {outputs:?}");
            (engine, numbers(outputs.values().next().unwrap()))
        };
        let ((on_openvino, given), (on_cpu, expected)) = (run("openvino"), run("cpu"));
        assert!(on_openvino.ends_with("on OpenVINOExecutionProvider"), "{on_openvino}");
        assert!(on_cpu.ends_with("on CPUExecutionProvider"), "{on_cpu}");
        assert_eq!(given.len(), expected.len());
        assert!(expected.iter().any(|number| number.abs() > 1e-3), "{model}: {expected:?}");
        for (given, expected) in given.iter().zip(&expected) {
            let bound = tolerance * expected.abs().max(1.0);
            assert!((given - expected).abs() <= bound, "{model}: {given} on OpenVINO, {expected} on the CPU");
        }
    }
}

#[test]
fn shows_provider_and_options_of_a_model() {
    let Some(library) = library() else { return };
    let cache = tempfile::tempdir().unwrap();
    let asked = ["inspect", ".", "--json", "--provider", "cuda,openvino", "--provider-option", "num_threads=1"];
    let inspected = gpux(cache.path(), &library, &[&asked[..], &["--provider-option", "cache_dir=true"]].concat());
    let json: Json = serde_json::from_str(&stdout(&inspected)).unwrap();
    let model = &json["models"][0];
    assert_eq!(model["provider"], "OpenVINOExecutionProvider");
    assert_eq!(model["provider_options"]["num_of_threads"], "1");
    assert_eq!(model["fallbacks"][0]["provider"], "cuda");
    assert!(stderr(&inspected).contains("the execution provider `cuda` is not used"), "{}", stderr(&inspected));
    let kept = PathBuf::from(model["provider_options"]["cache_dir"].as_str().unwrap());
    assert!(kept.starts_with(cache.path().join("providers")), "{}", kept.display());
    assert!(kept.read_dir().unwrap().next().is_some(), "OpenVINO keeps the compiled model");
}

#[test]
fn falls_back_from_a_failing_provider_unless_strict() {
    let Some(library) = library() else { return };
    let cache = tempfile::tempdir().unwrap();
    let asked = ["run", ".", "--provider", "openvino", "--provider-option", "device_type=GPU.7"];
    let photo = ["--input", "image=@models/samples/seven.png"];
    let run = |more: &[&str]| gpux(cache.path(), &library, &[&asked[..], &photo, more].concat());
    let given = run(&["--verbose"]);
    assert!(stdout(&given).contains("seven"));
    let told = stderr(&given);
    assert!(told.contains("warning: the execution provider `openvino` is not used: "), "{told}");
    assert!(told.contains("(with device_type=GPU.7)") && told.contains("on CPUExecutionProvider"), "{told}");
    let strict = run(&["--strict"]);
    assert_eq!(strict.status.code(), Some(3), "{}", stderr(&strict));
    assert!(stderr(&strict).contains("`openvino` cannot be used: "), "{}", stderr(&strict));
}

#[test]
fn caches_external_weights_until_they_change() {
    let Some(library) = library() else { return };
    let (cache, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for file in ["external.onnx", "weights.bin"] {
        std::fs::copy(root().join("tests/models").join(file), folder.path().join(file)).unwrap();
    }
    let model = folder.path().join("external.onnx").to_str().unwrap().to_owned();
    let kept = || std::fs::read_dir(cache.path().join("optimized")).map_or(0, Iterator::count);
    let run = || {
        let asked = ["run", &model, "--provider", "cpu", "--json", "--input", r#"{"x":[0,0,0,0]}"#];
        let json: Json = serde_json::from_str(&stdout(&gpux(cache.path(), &library, &asked))).unwrap();
        numbers(&json["y"])
    };
    assert_eq!((run(), kept()), (vec![1.0, 2.0, 3.0, 4.0], 1));
    let shown = stdout(&gpux(cache.path(), &library, &["inspect", &model, "--provider", "cpu", "--json"]));
    assert!(shown.contains("\"operators\""), "{shown}");
    std::fs::write(folder.path().join("weights.bin"), [5.0_f32; 8].map(f32::to_le_bytes).concat()).unwrap();
    assert_eq!((run(), kept()), (vec![5.0; 4], 2));
}

#[test]
fn caches_the_fastest_provider() {
    let Some(library) = library() else { return };
    let cache = tempfile::tempdir().unwrap();
    let built = gpux(cache.path(), &library, &["build", ".", "--measure", "--json"]);
    let json: Json = serde_json::from_str(&stdout(&built)).unwrap();
    let measured = json["models"][0]["measured"].as_array().unwrap().clone();
    let mut providers: Vec<_> = measured.iter().map(|measured| measured["provider"].as_str().unwrap()).collect();
    let times: Vec<_> = measured.iter().map(|measured| measured["milliseconds"].as_f64().unwrap()).collect();
    assert!(times.is_sorted() && times[0] > 0.0, "{times:?}");
    let fastest = providers[0].to_owned();
    providers.sort_unstable();
    assert_eq!(providers, ["cpu", "openvino"]);
    let again = gpux(cache.path(), &library, &["inspect", ".", "--provider", "fastest", "--json"]);
    let json: Json = serde_json::from_str(&stdout(&again)).unwrap();
    assert_eq!(json["models"][0]["measured"], Json::from(measured), "remembered, so the very same times");
    let provider = json["models"][0]["provider"].as_str().unwrap().to_ascii_lowercase();
    assert!(provider.starts_with(&fastest), "{provider} is not {fastest}");
}

#[test]
fn measures_providers_on_shapes_of_a_golden_case() {
    let Some(library) = library() else { return };
    let (cache, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::copy(root().join("tests/models/wide.onnx"), folder.path().join("wide.onnx")).unwrap();
    let text = "name: wide\nversion: 1.0.0\nmodel: { source: ./wide.onnx }\n";
    std::fs::write(folder.path().join("gpux.yml"), text).unwrap();
    let failures = || {
        let built = gpux(cache.path(), &library, &["build", folder.path().to_str().unwrap(), "--measure", "--json"]);
        let json: Json = serde_json::from_str(&stdout(&built)).unwrap();
        let measured = json["models"][0]["measured"].as_array().unwrap().clone();
        measured.iter().filter(|measured| measured["milliseconds"].is_null()).count()
    };
    assert!(failures() > 0, "the open axes of a trial are too small for it");
    let case = folder.path().join("tests/picture");
    std::fs::create_dir_all(&case).unwrap();
    let rows = json!([[vec![vec![1.0; 10]; 9]]]);
    std::fs::write(case.join("case.yml"), format!("inputs:\n  image: {{ data: {rows} }}\n")).unwrap();
    assert_eq!(failures(), 0);
}

#[test]
fn registers_provider_libraries_by_name() {
    let Some(library) = library() else { return };
    let cache = tempfile::tempdir().unwrap();
    let model = ["inspect", "models/digits.onnx"];
    let broken = ["run", ".", "--provider-library", "mine=Cargo.toml", "--provider", "mine", "--input", "{}"];
    let refused = gpux(cache.path(), &library, &broken);
    assert_eq!(refused.status.code(), Some(3));
    assert!(stderr(&refused).contains("the provider library `mine` (`Cargo.toml`) cannot be used: "));
    let taken = gpux(cache.path(), &library, &[&model[..], &["--provider-library", "cpu=x.so"]].concat());
    assert_eq!(taken.status.code(), Some(2));
    assert!(stderr(&taken).contains("the CPU needs no library of its own"), "{}", stderr(&taken));
    if !cfg!(target_os = "linux") {
        return;
    }
    // OpenVINO's library is a plug-in, too; as such it finds devices of Intel's only.
    let named = format!("mine={}", library.join("libonnxruntime_providers_openvino.so").display());
    let machine = gpux(cache.path(), &library, &["inspect", "--json", "--provider-library", &named]);
    let json: Json = serde_json::from_str(&stdout(&machine)).unwrap();
    let devices = json["devices"].as_array().unwrap();
    let found = devices.iter().any(|device| device["provider"] == "OpenVINOExecutionProvider");
    let asked = ["run", "models/digits.onnx", "--strict", "--provider-library", &named, "--provider", "mine", "--json"];
    let run = gpux(cache.path(), &library, &[&asked[..], &["--trace", "--input", &ramp()]].concat());
    if found {
        let json: Json = serde_json::from_str(&stdout(&run)).unwrap();
        assert!(json["trace"]["engine"].as_str().unwrap().ends_with(" on mine"), "{json}");
    } else {
        assert_eq!(run.status.code(), Some(3));
        assert!(stderr(&run).contains("found no device on this machine"), "{}", stderr(&run));
    }
}

#[test]
fn lists_nodes_that_openvino_leaves_to_the_cpu() {
    let Some(library) = library() else { return };
    let cache = tempfile::tempdir().unwrap();
    let nodes = |model: &str| {
        let asked = ["inspect", model, "--nodes", "--json", "--provider", "openvino,cpu"];
        let json: Json = serde_json::from_str(&stdout(&gpux(cache.path(), &library, &asked))).unwrap();
        json["nodes"].clone()
    };
    let digits = nodes("models/digits.onnx");
    let placement = &digits["providers"][0];
    assert_eq!((&placement["provider"], &placement["subgraphs"]), (&json!("OpenVINOExecutionProvider"), &json!(1)));
    let all = json!({ "Conv": 2, "Flatten": 1, "Gemm": 1, "MaxPool": 1, "Relu": 2 });
    assert_eq!((&placement["here"], &placement["on_cpu"]), (&all, &json!({})), "{digits:#}");
    assert_eq!(digits["providers"][1]["here"], all);
    // Labels are texts, which OpenVINO does not know.
    let estimator = nodes("tests/onnx/estimators/logistic-regression-names.onnx");
    let placement = &estimator["providers"][0];
    assert!(placement["on_cpu"].as_object().is_some_and(|left| !left.is_empty()), "{estimator:#}");
    let built = gpux(cache.path(), &library, &["build", ".", "--verbose", "--provider", "openvino"]);
    assert!(stderr(&built).contains("OpenVINO (1 part)"), "{}", stderr(&built));
}

/// Whether the processor computes in bfloat16.
fn has_bf16(cache: &Path, library: &Path) -> bool {
    let json: Json = serde_json::from_str(&stdout(&gpux(cache, library, &["inspect", "--json"]))).unwrap();
    let features = json["hardware"]["cpu"]["features"].as_array().unwrap();
    features.iter().any(|feature| feature == "avx512_bf16" || feature == "amx_bf16")
}

#[test]
fn computes_in_the_precision_that_is_asked_for() {
    let Some(library) = library() else { return };
    let cache = tempfile::tempdir().unwrap();
    let run = |precision: &str| {
        let asked = ["run", "tests/models/conv.onnx", "--provider", "openvino", "--precision", precision, "--json"];
        let output = gpux(cache.path(), &library, &[&asked[..], &["--input", &ramp()]].concat());
        let json: Json = serde_json::from_str(&stdout(&output)).unwrap();
        (numbers(json.as_object().unwrap().values().next().unwrap()), stderr(&output))
    };
    let ((exact, _), (rounded, told)) = (run("exact"), run("bf16"));
    let off = exact.iter().zip(&rounded).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    let largest = exact.iter().map(|number| number.abs()).fold(0.0, f64::max);
    if has_bf16(cache.path(), &library) {
        assert!(off > 0.0 && off < largest * 0.03, "{off} of {largest}");
    } else {
        assert!(off == 0.0 && told.contains("is computed in float32, not in bf16"), "{told}");
    }
    let strict = ["run", "tests/models/conv.onnx", "--provider", "cpu", "--precision", "fp16", "--strict"];
    let refused = gpux(cache.path(), &library, &[&strict[..], &["--input", &ramp()]].concat());
    assert_eq!(refused.status.code(), Some(3));
    assert!(stderr(&refused).contains("`gpux build --precision fp16` makes a float16 model"), "{}", stderr(&refused));
}

#[test]
fn chooses_a_precision_on_the_golden_cases_and_remembers_it() {
    let Some(library) = library() else { return };
    let (cache, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let model = folder.path().join("model.onnx");
    std::fs::copy(root().join("tests/models/conv.onnx"), &model).unwrap();
    // Not the same model: its results are far from exact, however fast it is.
    std::fs::copy(root().join("models/digits.onnx"), folder.path().join("model.int8.onnx")).unwrap();
    let text = "name: auto\nversion: 1.0.0\nmodel: ./model.onnx\nruntime: { precision: auto }\n";
    std::fs::write(folder.path().join("gpux.yml"), text).unwrap();
    let place = folder.path().to_str().unwrap();
    let strict = gpux(cache.path(), &library, &["inspect", place, "--strict"]);
    assert!(strict.status.code() == Some(3) && stderr(&strict).contains("is not chosen yet"), "{strict:?}");
    let undecided = gpux(cache.path(), &library, &["run", place, "--input", &ramp()]);
    assert!(undecided.status.success() && stderr(&undecided).contains("is computed in float32"), "{undecided:?}");

    let built = gpux(cache.path(), &library, &["build", place, "--json"]);
    let built: Json = serde_json::from_str(&stdout(&built)).unwrap();
    let choice = &built["models"][0]["precision_choice"];
    assert!(choice["error"].as_f64().unwrap() <= 0.03 && choice["precision"] != "int8", "{choice}");
    assert!(choice["speedup"].as_f64().unwrap() >= 1.0, "{choice}");
    let inspected = gpux(cache.path(), &library, &["inspect", place, "--strict", "--json"]);
    let inspected: Json = serde_json::from_str(&stdout(&inspected)).unwrap();
    assert_eq!(&inspected["models"][0]["precision_choice"], choice);
    let provider = choice["provider"].as_str().unwrap();
    let runs_on = inspected["models"][0]["provider"].as_str().unwrap().to_ascii_lowercase();
    assert!(runs_on.starts_with(provider), "{runs_on} is not {provider}");

    let missing = ["run", "tests/models/conv.onnx", "--precision", "int8", "--input", &ramp()];
    let missing = gpux(cache.path(), &library, &missing);
    assert!(stderr(&missing).contains("there is no `conv.int8.onnx` beside it"), "{missing:?}");
    let converted = gpux(cache.path(), &library, &["inspect", place, "--precision", "int8"]);
    assert!(converted.status.success() && stdout(&converted).contains("logits"), "the model beside it: {converted:?}");
}

#[test]
fn a_server_chooses_a_precision_while_exact_answers() {
    let Some(library) = library() else { return };
    let (cache, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::copy(root().join("tests/models/conv.onnx"), folder.path().join("model.onnx")).unwrap();
    let text = "name: auto\nversion: 1.0.0\nmodel: { source: ./model.onnx, precision: auto }\n";
    std::fs::write(folder.path().join("gpux.yml"), text).unwrap();
    let start = || {
        let mut command = program();
        command.args(["serve", "--host", "127.0.0.1", "--port", "0"]).arg(folder.path());
        command.arg("--engine-library").arg(&library).env("GPUX_CACHE_DIR", cache.path()).current_dir(root());
        Server::of(command)
    };
    let precision = |server: &Server| {
        let config = server.get("/v2/models/auto/config").with_status(200);
        config["parameters"]["precision"]["string_value"].as_str().unwrap().to_owned()
    };

    let first = start();
    assert_eq!(precision(&first), "exact");
    let input: Json = serde_json::from_str(&ramp()).unwrap();
    let exact = numbers(first.json("/predict", &input).with_status(200).as_object().unwrap().values().next().unwrap());
    let line = first.line("auto: precision of model: ");
    assert!(line.ends_with("over made-up inputs"), "{line}");
    let config = first.get("/v2/models/auto/config").with_status(200);
    let choice = config["parameters"]["precision_choice"]["string_value"].as_str().unwrap();
    assert!(choice.contains("× as fast as exact") && choice.starts_with(&precision(&first)), "{choice}");
    assert!(first.metric("gpux_precision_speedup{pipeline=\"auto\",model=\"model\"}") >= 1.0);
    assert!(first.metric("gpux_precision_error{pipeline=\"auto\",model=\"model\"}") <= 0.03);
    let chosen = numbers(first.json("/predict", &input).with_status(200).as_object().unwrap().values().next().unwrap());
    let largest = exact.iter().map(|number| number.abs()).fold(0.0, f64::max);
    assert!(exact.iter().zip(&chosen).all(|(a, b)| (a - b).abs() <= largest * 0.03), "{exact:?} {chosen:?}");

    let second = start();
    assert_eq!(precision(&second), precision(&first), "it was remembered");
}
