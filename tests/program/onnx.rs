//! Models with every kind of value through the program: estimators of scikit-learn, and cases of
//! the ONNX project's backend tests, each a model beside its inputs and outputs as JSON.

use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

use crate::child::{self, StartWithLimit as _, program};
use crate::digits::{gpux, root, stdout};

/// Whether this machine has ONNX Runtime; the gate insists on it.
fn has_onnxruntime() -> bool {
    // `--engine onnxruntime` insists on a library, and exits with 3 where there is none.
    let there = gpux(&["run", "models/digits.onnx", "--engine", "onnxruntime"]).status.code() != Some(3);
    assert!(
        there || std::env::var_os("GPUX_REQUIRE_ORT").is_none_or(|value| value != "1"),
        "GPUX_REQUIRE_ORT is set, but there is no ONNX Runtime library; run `gpux engine install`"
    );
    there
}

fn models(folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join("tests/onnx").join(folder)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut models: Vec<_> = paths.filter(|path| path.extension().is_some_and(|ending| ending == "onnx")).collect();
    models.sort();
    models
}

/// Runs a model on the inputs beside it; what differs from the outputs beside it.
fn fault(model: &Path, rtol: f64, atol: f64) -> Option<String> {
    let case: Json = serde_json::from_slice(&std::fs::read(model.with_extension("json")).unwrap()).unwrap();
    let output = program()
        .args(["run".as_ref(), model.as_os_str()])
        .args(["--engine", "onnxruntime", "--json", "--input", &case["inputs"].to_string()])
        .run();
    if !output.status.success() {
        return Some(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let given: Json = serde_json::from_slice(&output.stdout).unwrap();
    differs(&given, &case["outputs"], rtol, atol).map(|why| format!("{}: {why}", model.display()))
}

/// Where two JSON values are not the same, numbers within a tolerance.
fn differs(given: &Json, expected: &Json, rtol: f64, atol: f64) -> Option<String> {
    let fault = || Some(format!("{given} instead of {expected}"));
    match (given, expected) {
        (Json::Array(given), Json::Array(expected)) if given.len() == expected.len() => {
            given.iter().zip(expected).find_map(|(given, expected)| differs(given, expected, rtol, atol))
        }
        (Json::Object(given), Json::Object(expected)) if given.len() == expected.len() => {
            expected.iter().find_map(|(key, expected)| match given.get(key) {
                Some(given) => differs(given, expected, rtol, atol),
                None => Some(format!("there is no {key:?}")),
            })
        }
        (Json::Number(a), Json::Number(b)) => match (a.as_f64(), b.as_f64()) {
            (Some(a), Some(b)) if (a - b).abs() <= atol + rtol * b.abs() => None,
            _ => fault(),
        },
        _ if given == expected => None,
        _ => fault(),
    }
}

#[test]
fn scikit_learn_estimators_match_python() {
    if !has_onnxruntime() {
        return;
    }
    let models = models("estimators");
    assert!(models.len() >= 8, "{models:?}");
    // Another processor may round the last bits otherwise.
    let faults: Vec<_> = models.iter().filter_map(|model| fault(model, 1e-5, 1e-6)).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_operators_threads_replace_those_of_gpux_yml() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gpux.yml");
    let model = root().join("models/digits.onnx");
    let yml = format!("name: threads\nversion: 1.0.0\nmodel: {{ source: {}, threads: 2 }}\n", model.display());
    std::fs::write(&file, yml).unwrap();
    for (flags, expected) in [(&[][..], 2), (&["--threads", "3"], 3)] {
        let asked = ["inspect", file.to_str().unwrap(), "--allow-outside", "--json"];
        let output = gpux(&[&asked, flags].concat());
        let json: Json = serde_json::from_str(&stdout(&output)).unwrap();
        assert_eq!(json["models"][0]["threads"], if has_onnxruntime() { expected } else { 1 });
    }
}

#[test]
fn passes_onnx_backend_cases() {
    if !has_onnxruntime() {
        return;
    }
    let models = models("backend");
    assert!(models.len() >= 20, "{models:?}");
    let faults: Vec<_> = models.iter().filter_map(|model| fault(model, 1e-3, 1e-7)).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A few hundred of the cases of `just onnx-backend --engine embedded`: models of one operator with random
/// attributes, shapes and values, beside Python's ONNX Runtime.
#[test]
fn embedded_engine_passes_or_rejects_onnx_cases() {
    let python = root().join("target/onnx-tools/bin/python");
    if !python.exists() {
        assert!(std::env::var_os("CI").is_none(), "there is no {}", python.display());
        eprintln!("skipped: no {}", python.display());
        return;
    }
    let output = child::command(python)
        .arg(root().join("tests/onnx/operators.py"))
        .args(["--gpux", env!("CARGO_BIN_EXE_gpux"), "--cases", "400", "--seed", "5"])
        .run();
    let told = String::from_utf8_lossy(&output.stdout);
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}\n{why}");
    assert!(told.contains(" 0 wrong"), "{told}");
}

#[test]
fn embedded_engine_rejects_attributes_it_ignores() {
    let refused = gpux(&["run", "tests/models/backwards.onnx", "--engine", "embedded", "--input", "[[[1]]]"]);
    assert_eq!(refused.status.code(), Some(3));
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    let expected = "the embedded engine has no operator `RNN` with attribute `direction: reverse` (node `back`); run `gpux engine install`";
    assert!(told.contains(expected), "{told}");
    let built = gpux(&["build", "tests/models/ranks.onnx", "--engine", "embedded"]);
    assert_eq!(built.status.code(), Some(3));
    let told = String::from_utf8_lossy(&built.stderr).into_owned();
    assert!(told.contains("operator `If` of node `choice`") && told.contains("gpux engine install"), "{told}");
}

#[test]
fn detects_a_wrong_result() {
    assert_eq!(differs(&json!([1.0, { "a": "x" }]), &json!([1.000_000_1, { "a": "x" }]), 1e-5, 0.0), None);
    for other in [json!([1.1, { "a": "x" }]), json!([1.0, { "b": "x" }]), json!([1.0]), json!([1.0, { "a": "y" }])] {
        assert!(differs(&json!([1.0, { "a": "x" }]), &other, 1e-5, 1e-6).is_some(), "{other}");
    }
}

#[test]
fn reads_and_writes_npy_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let header = format!("{:117}\n", "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }");
    let numbers: Vec<u8> = [1.5_f32, -2.0].iter().flat_map(|number| number.to_le_bytes()).collect();
    let file = [b"\x93NUMPY\x01\x00\x76\x00".as_slice(), header.as_bytes(), &numbers].concat();
    std::fs::write(path("x.npy"), &file).unwrap();
    let model = "tests/models/default.onnx";
    let run = |arguments: &[&str]| gpux(&[&["run", model, "--engine", "embedded"], arguments].concat());

    let given = format!("x=@{}", path("x.npy"));
    stdout(&run(&["--input", &given, "--format", "npy", "--output", &path("out")]));
    let doubled: Vec<u8> = [3.0_f32, -4.0].iter().flat_map(|number| number.to_le_bytes()).collect();
    let expected = [&file[..file.len() - numbers.len()], &doubled].concat();
    assert_eq!(std::fs::read(path("out/y.npy")).unwrap(), expected);
    let printed: Json = serde_json::from_str(&stdout(&run(&["--file", &path("x.npy"), "--json"]))).unwrap();
    assert_eq!(printed, json!({ "y": [[3.0, -4.0]] }));

    std::fs::write(path("batch.jsonl"), "[[1, 2]]\n[\"no\"]\n").unwrap();
    let batch = run(&["--file", &path("batch.jsonl"), "--format", "npy", "--output", &path("many")]);
    assert_eq!(batch.status.code(), Some(1));
    assert!(Path::new(&path("many/000000/y.npy")).exists());
    let error: Json = serde_json::from_slice(&std::fs::read(path("many/000001/error.json")).unwrap()).unwrap();
    assert_eq!(error["details"]["field"], "x");

    std::fs::write(path("x.npy"), &file[..file.len() - 1]).unwrap();
    let cut = run(&["--input", &given]);
    assert_eq!(cut.status.code(), Some(1));
    let message = String::from_utf8_lossy(&cut.stderr).into_owned();
    assert!(message.contains("input `x`") && message.contains("takes 8 bytes, but 7 were given"), "{message}");
    let nowhere = run(&["--input", "[1, 2]", "--format", "npy"]);
    assert_eq!(nowhere.status.code(), Some(2));
}

/// A varint below 128, or bytes, as a field of a protobuf message.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, bytes.len() as u8], bytes].concat()
}

#[test]
fn reads_pb_tensors() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: Vec<u8>| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.display().to_string()
    };
    let raw = |numbers: [f32; 8]| field(9, &numbers.map(f32::to_le_bytes).concat());
    let shape = field(1, &[2, 4]);
    let [a, b] = [("a", 1.0), ("b", 10.0)].map(|(name, step)| {
        let numbers: [f32; 8] = std::array::from_fn(|at| at as f32 * step);
        file(&format!("{name}.pb"), [&shape[..], &[2 << 3, 1], &field(8, name.as_bytes()), &raw(numbers)].concat())
    });
    let inputs = [format!("a=@{a}"), format!("b=@{b}")];
    let ran = gpux(&["run", "tests/models/two.onnx", "--input", &inputs[0], "--input", &inputs[1], "--json"]);
    let given: Json = serde_json::from_str(&stdout(&ran)).unwrap();
    assert_eq!(given["sum"], json!([[0.0, 11.0, 22.0, 33.0], [44.0, 55.0, 66.0, 77.0]]), "{given}");
    // By the name in the file.
    let named = gpux(&["run", "tests/models/two.onnx", "--input", &inputs[0], "--file", &b, "--json"]);
    assert_eq!(serde_json::from_str::<Json>(&stdout(&named)).unwrap()["sum"], given["sum"]);
    let damaged = file("damaged.pb", vec![0xff; 9]);
    let refused = gpux(&["run", "tests/models/two.onnx", "--input", &format!("a=@{damaged}"), "--file", &b]);
    assert_eq!(refused.status.code(), Some(1));
    let told = String::from_utf8_lossy(&[refused.stdout, refused.stderr].concat()).into_owned();
    assert!(told.contains("no tensor as ONNX writes it"), "{told}");
}

/// A pipeline around a model of `tests/models` with this `batching`, as `gpux inspect` shows it.
fn batched(folder: &Path, model: &str, batching: &str) -> (String, String) {
    std::fs::copy(root().join("tests/models").join(model), folder.join("model.onnx")).unwrap();
    let text = format!("name: batched\nversion: 1.0.0\nmodel: {{ source: ./model.onnx, batching: {batching} }}\n");
    std::fs::write(folder.join("gpux.yml"), text).unwrap();
    let mut command = program();
    command.args(["inspect", ".", "--engine", "onnxruntime"]).current_dir(folder);
    let shown = command.run();
    assert!(shown.status.success(), "{shown:?}");
    (stdout(&shown), String::from_utf8_lossy(&shown.stderr).into_owned())
}

#[test]
fn tells_which_requests_share_runs() {
    if !has_onnxruntime() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // The second trial is remembered.
    for _ in 0..2 {
        let (_, warning) = batched(folder.path(), "log.onnx", "{ max_size: 8 }");
        let one_line = warning.lines().find(|line| line.contains("run one at a time")).unwrap_or_default();
        assert!(one_line.contains("the first operator that gives other bits is `Log` (node `last`)"), "{warning}");
        assert!(one_line.contains("`batching: { max_size: 8, tolerance: 0.001 }` lets them share runs"), "{warning}");
    }
    let (shown, warning) = batched(folder.path(), "log.onnx", "{ max_size: 8, tolerance: 1e-3 }");
    assert!(shown.contains("up to 8 rows share a run, with ") && shown.contains(" off at most"), "{shown}");
    assert_eq!(warning, "");
    let (shown, warning) = batched(folder.path(), "conv.onnx", "{ max_size: 8 }");
    assert!(shown.contains("up to 8 rows share a run, with the same bits as alone"), "{shown}");
    assert_eq!(warning, "");
}

/// A run of a model in `tests/models`: its exit code, and what it says.
fn run_model(name: &str, engine: &str, input: &str) -> (Option<i32>, String) {
    let model = format!("tests/models/{name}.onnx");
    let output = gpux(&["run", &model, "--engine", engine, "--input", input]);
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    (output.status.code(), text.split_whitespace().collect())
}

#[test]
fn inputs_with_an_initializer_may_be_given() {
    let given = r#"{"x": [[3, 4]], "scale": [10]}"#;
    assert_eq!(run_model("default", "embedded", "[[3, 4]]"), (Some(0), r#"{"y":[[6.0,8.0]]}"#.to_owned()));
    let (code, said) = run_model("default", "embedded", given);
    assert!(code == Some(3) && said.contains("`scale`") && said.contains("gpuxengineinstall"), "{said}");
    if has_onnxruntime() {
        assert_eq!(run_model("default", "onnxruntime", given), (Some(0), r#"{"y":[[30.0,40.0]]}"#.to_owned()));
        assert_eq!(run_model("default", "onnxruntime", "[[3, 4]]"), (Some(0), r#"{"y":[[6.0,8.0]]}"#.to_owned()));
    }
    let (code, said) = run_model("listed", "embedded", given);
    assert!(code == Some(1) && said.contains("input`scale`:thepipelinehasnone"), "{said}");
}

#[test]
fn embedded_engine_exits_with_3_for_what_it_cannot_run() {
    let (code, said) = run_model("ranks", "embedded", "[[1, 2]]");
    assert!(code == Some(3) && said.contains("operator`If`ofnode`choice`"), "{said}");
    assert!(said.contains("gpuxengineinstall"), "{said}");
    let (code, said) = run_model("pool", "embedded", "[[[[1, 2], [3, 4]]]]");
    assert!(code == Some(3) && said.contains("operator`MaxPool`"), "{said}");
    let (code, said) = run_model("unpadded", "embedded", "[[[[1, 2], [3, 4]]]]");
    assert!(code == Some(1) && said.contains("operator`Conv`"), "{said}");
}

#[test]
fn names_what_no_engine_runs() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["m.ort", "renamed.onnx"] {
        let file = folder.path().join(name);
        std::fs::write(&file, b"\x24\0\0\0ORTM\0\0\0\0\x08\0\0\0").unwrap();
        for command in ["run", "inspect"] {
            let output = gpux(&[command, file.to_str().unwrap()]);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.code() == Some(2) && said.contains("it is in ORT format"), "{said}");
        }
    }
    let engines = if has_onnxruntime() { &["embedded", "onnxruntime"][..] } else { &["embedded"] };
    for engine in engines {
        let (code, said) = run_model("custom", engine, "[1]");
        assert!(code == Some(2) && said.contains("`com.example.Tokenize`isacustomoperator"), "{said}");
        assert!(!said.contains("gpuxengineinstall"), "{said}");
    }
    if has_onnxruntime() {
        let (code, said) = run_model("matmul-bfloat16", "onnxruntime", "[[1, 2], [3, 4]]");
        assert!(code == Some(3) && said.contains("nokernelof`MatMul`"), "{said}");
    }
}

/// The layout of `huggingface_hub`: a model, and a pipeline, whose files are links to blobs.
#[cfg(unix)]
#[test]
fn runs_models_of_a_hugging_face_cache() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    let hub = folder.path().join("hub");
    let repository = hub.join("models--org--m");
    let (blobs, snapshot) = (repository.join("blobs"), repository.join("snapshots/abc"));
    std::fs::create_dir_all(&blobs).unwrap();
    std::fs::create_dir_all(&snapshot).unwrap();
    let models = root().join("tests/models");
    std::fs::copy(models.join("external.onnx"), blobs.join("1")).unwrap();
    std::fs::copy(models.join("weights.bin"), blobs.join("2")).unwrap();
    std::fs::write(blobs.join("3"), "name: m\nversion: 1\nmodel: ./external.onnx\n").unwrap();
    for (blob, name) in [("1", "external.onnx"), ("2", "weights.bin"), ("3", "gpux.yml")] {
        symlink(Path::new("../../blobs").join(blob), snapshot.join(name)).unwrap();
    }
    // A pipeline elsewhere whose model is a link into the cache.
    let linking = folder.path().join("linking");
    std::fs::create_dir(&linking).unwrap();
    std::fs::copy(blobs.join("3"), linking.join("gpux.yml")).unwrap();
    for name in ["external.onnx", "weights.bin"] {
        symlink(snapshot.join(name), linking.join(name)).unwrap();
    }
    let gpux = |arguments: &[&str], wanted: &Path| {
        let mut command = program();
        command.arg(arguments[0]).arg(wanted).args(&arguments[1..]).current_dir(folder.path());
        command.env("HF_HUB_CACHE", &hub).run()
    };
    let result = |arguments: &[&str], wanted: &Path| -> Json {
        let output = gpux(arguments, wanted);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let model = snapshot.join("external.onnx");
    let expected = json!({ "y": [1.5, 2.5, 3.5, 4.5] });
    let engines = if has_onnxruntime() { &["embedded", "onnxruntime"][..] } else { &["embedded"] };
    for engine in engines {
        let run = ["run", "--engine", engine, "--input", "[0.5, 0.5, 0.5, 0.5]"];
        assert_eq!(result(&run, &model), expected);
        assert_eq!(result(&run, &snapshot), expected);
        assert_eq!(result(&[&run[..], &["--allow-outside"]].concat(), &linking), expected);
        let refused = gpux(&run, &linking);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(2) && said.contains("--allow-outside"), "{said}");
    }
    let shown = result(&["inspect", "--json"], &model);
    assert_eq!(shown["path"], json!(model.display().to_string()));
    assert_eq!(shown["external_files"].as_array().unwrap().len(), 1);
    let made = program()
        .args(["new", "pipeline", "made", "--task", "table", "--model"])
        .arg(&model)
        .current_dir(folder.path())
        .run();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert!(folder.path().join("made/weights.bin").symlink_metadata().unwrap().is_file());
}
