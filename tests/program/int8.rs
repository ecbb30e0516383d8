//! `gpux build --precision int8` on random models, beside what Python's ONNX Runtime makes of the originals.

use std::path::Path;

use serde_json::Value as Json;

use crate::changed_models::{build, python, stderr};
use crate::child::{self, StartWithLimit as _};
use crate::digits::{root, stdout};

fn script(python: &Path, command: &str, folder: &Path, seed: u32) -> Json {
    let script = root().join("tests/program/int8.py");
    let asked = child::command(python).arg(script).arg(command).arg(folder).arg(seed.to_string()).run();
    serde_json::from_str(&stdout(&asked)).unwrap()
}

#[test]
fn int8_models_stay_close_to_the_originals() {
    let Some(python) = python() else { return };
    for seed in 1..=4 {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        script(&python, "make", folder, seed);
        // What random models lose is judged below.
        let int8 = ["--precision", "int8", "--tolerance", "1", "--json"];
        let products: Json =
            serde_json::from_str(&stdout(&build(folder, &python, &[&["products.onnx"][..], &int8].concat()))).unwrap();
        let tools = products["models"][0]["tools"].as_str().unwrap();
        assert!(tools.ends_with("dynamic quantization"), "{tools}");

        let none = build(folder, &python, &[&["convolutions.onnx"][..], &int8].concat());
        assert_eq!(none.status.code(), Some(1));
        assert!(stderr(&none).contains("take their ranges from samples: give --sample"), "{}", stderr(&none));
        let samples: Vec<_> = (0..12).map(|number| format!("sample{number}.npy")).collect();
        let samples: Vec<_> = samples.iter().map(String::as_str).collect();
        let given = build(folder, &python, &[&["convolutions.onnx"][..], &int8, &["--sample"], &samples].concat());
        let convolutions: Json = serde_json::from_str(&stdout(&given)).unwrap();
        let model = &convolutions["models"][0];
        assert_eq!(model["over"], "12 samples");
        let tools = model["tools"].as_str().unwrap();
        assert!(tools.ends_with("static quantization, ranges from 9 of the samples"), "{tools}");

        let differences = script(&python, "compare", folder, seed);
        let of = |name: &str| differences[name].as_f64().unwrap();
        assert!(of("convolutions") > 0.0 && of("convolutions") < 0.25, "seed {seed}: {differences}");
        assert!(of("products") > 0.0 && of("products") < 0.1, "seed {seed}: {differences}");
    }
}
