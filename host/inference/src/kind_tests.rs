//! Values of every kind through ONNX Runtime, and the embedded engine's errors for them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use super::testing::{embedded, model, onnxruntime, step, tensor};
use super::*;
use gpux_core::{Context, Dim, ElementType, Kind, Step as _, StepFailure, TensorKind, Value, to_json};

/// Runs a model on JSON; a tensor is read for the model's own input, or skipped where it is `null`
/// and no JSON is taken.
fn run(step: &ModelStep, inputs: &[Json]) -> Result<Vec<Json>, String> {
    let ports = &step.signature().inputs;
    let value = |(json, kind): (&Json, &Kind)| match (json, kind) {
        (Json::Null, Kind::Tensor(_)) => None,
        (json, kind) => Some(gpux_core::from_json(json.clone(), kind).unwrap()),
    };
    let inputs = inputs.iter().zip(ports.iter().map(|port| &port.kind)).map(value).collect();
    let context = &mut Context { deadline: Some(Instant::now() + Duration::from_secs(20)), ..Context::default() };
    let outputs = step.run(inputs, context).map_err(|error| error.to_string())?;
    Ok(outputs.iter().map(to_json).collect())
}

#[test]
fn runs_models_with_sequences() {
    let Some(engine) = onnxruntime() else { return };
    let made = step(engine.clone(), "sequence").unwrap();
    assert_eq!(made.signature().outputs[0].kind, Kind::Json);
    assert_eq!(made.signature().outputs[0].description, "sequence(float32)");
    assert_eq!(run(&made, &[json!([1.5, "NaN"])]).unwrap(), [json!([[1.5, "NaN"]])]);

    let grow = step(engine.clone(), "grow").unwrap();
    let grown = run(&grow, &[json!([[1, 2], [[0.1]], 7]), json!([3])]).unwrap();
    assert_eq!(grown, [json!([[1.0, 2.0], [[0.1]], 7.0, [3.0]]), json!(4)]);
    // Whatever was in it before, nothing is left of it.
    assert_eq!(run(&grow, &[json!([]), json!([[5]])]).unwrap(), [json!([[[5.0]]]), json!(1)]);
    let empty = json!({ "type": "float32", "shape": [0, 3], "data": [] });
    assert_eq!(run(&grow, &[json!([empty]), json!([])]).unwrap(), [json!([empty, []]), json!(2)]);

    let words = step(engine, "words").unwrap();
    let texts = json!([["gone"], ["", "ü", "日本"], [["a"], ["long enough to be on the heap"]]]);
    let rest = json!([["", "ü", "日本"], [["a"], ["long enough to be on the heap"]]]);
    assert_eq!(run(&words, &[texts]).unwrap(), [rest]);
    let error = run(&words, &[json!([["a"], ["nul\u{0}"]])]).unwrap_err();
    assert!(error.contains("item 1, element 0 holds the character NUL, which models cannot be given"), "{error}");
    assert_eq!(run(&words, &[json!([["a"], ["b"]])]).unwrap(), [json!([["b"]])]);
}

#[test]
fn runs_models_with_maps() {
    let Some(engine) = onnxruntime() else { return };
    let zipmap = step(engine.clone(), "zipmap").unwrap();
    let scores = json!([[0.1, 0.7, 0.2], [1, 0, "Infinity"]]);
    let expected = json!([
        { "no": 0.1, "vielleicht ü": 0.2, "yes": 0.7 },
        { "no": 1.0, "vielleicht ü": "Infinity", "yes": 0.0 }
    ]);
    assert_eq!(run(&zipmap, &[scores]).unwrap(), [expected]);
    let zipmap = step(engine.clone(), "zipmap-int").unwrap();
    let expected = json!([{ "-1": 0.5, "0": 0.25, "1152921504606846976": 0.25 }]);
    assert_eq!(run(&zipmap, &[json!([[0.5, 0.25, 0.25]])]).unwrap(), [expected]);
    // A batch axis is put before a single row, as for every tensor.
    let row = Value::Tensor(tensor(&[3], vec![1_f32, 0.0, 0.0]));
    let given = Kind::Tensor(TensorKind::shaped(ElementType::Float32, [Dim::Fixed(3)]));
    assert_eq!(zipmap.infer(&[Some(given)]).unwrap(), [Kind::Json]);
    assert_eq!(to_json(&zipmap.run(vec![Some(row)], &mut Context::default()).unwrap()[0])[0]["-1"], 1.0);

    let vectorize = step(engine, "vectorize").unwrap();
    let outputs = run(&vectorize, &[json!({ "two": 9_007_199_254_740_993_i64, "three": 1 }), json!({ "2": "0.5" })]);
    assert_eq!(outputs.unwrap(), [json!([[0, 9_007_199_254_740_993_i64]]), json!([[0.0, 0.0, 0.5, 0.0]])]);
    assert_eq!(run(&vectorize, &[json!({}), json!({})]).unwrap()[0], json!([[0, 0]]));
    let error = run(&vectorize, &[json!({ "two": 0.5 }), json!({})]).unwrap_err();
    assert!(
        error.contains("input `a`, which takes JSON for map(string, int64): at [\"two\"]: 0.5 is not a int64"),
        "{error}"
    );
}

#[test]
fn runs_models_with_optionals() {
    let Some(engine) = onnxruntime() else { return };
    let optional = step(engine.clone(), "optional").unwrap();
    assert!(optional.signature().inputs[0].optional);
    let there = run(&optional, &[json!([1.5, 2])]).unwrap();
    assert_eq!(there, [json!(null), json!(true), json!([1.5, 2.0]), json!(null)]);
    let gone = [json!(null), json!(false), json!(null), json!(null)];
    assert_eq!(run(&optional, &[json!(null)]).unwrap(), gone);
    let outputs = optional.run(vec![None], &mut Context::default()).unwrap();
    assert_eq!(outputs.iter().map(to_json).collect::<Vec<_>>(), gone);
    // A tensor of a step before will do, changed as a tensor may be.
    let whole = Value::Tensor(tensor(&[1], vec![3_u8]));
    assert_eq!(optional.infer(&[Some(whole.kind())]).unwrap().len(), 4);
    let outputs = optional.run(vec![Some(whole)], &mut Context::default()).unwrap();
    assert_eq!(to_json(&outputs[2]), json!([3.0]));
    let list = step(engine, "optional-list").unwrap();
    assert_eq!(run(&list, &[json!([[1], []])]).unwrap(), [json!([[1.0], []])]);
    assert_eq!(run(&list, &[json!([])]).unwrap(), [json!([])]);
    assert!(list.infer(&[Some(Kind::Text)]).unwrap_err().to_string().contains("JSON for optional(sequence(float32))"));
    let error = list.run(vec![Some(Value::Tensor(tensor(&[1], vec![1_f32])))], &mut Context::default()).unwrap_err();
    assert!(matches!(error, StepFailure::InvalidInput(_)), "{error}");
}

#[test]
fn carries_narrow_types_as_wider_ones() {
    let Some(engine) = onnxruntime() else { return };
    let twice = |name: &str, input: Json| {
        let step = step(engine.clone(), &format!("twice-{name}")).map_err(|error| error.to_string())?;
        assert_eq!(step.file().info().inputs[0].kind, name);
        Ok::<_, String>((step.signature().inputs[0].kind.to_string(), run(&step, &[input])?.remove(0)))
    };
    let both = |kind: &str, json: Json| Ok((format!("tensor {kind}[N]"), json));
    assert_eq!(twice("int4", json!([-4, 3, 0])), both("int8", json!([-8, 6, 0])));
    assert_eq!(twice("uint4", json!([7, 0, 1])), both("uint8", json!([14, 0, 2])));
    assert_eq!(twice("int4", json!([])), both("int8", json!([])));
    let error = "the model failed: 8 is no int4: those are -8 to 7";
    assert_eq!(twice("int4", json!([8])), Err(error.to_owned()));
    assert_eq!(twice("float8e4m3fn", json!([0.25, -1.5, "NaN"])), both("float32", json!([0.5, -3.0, "NaN"])));
    assert_eq!(twice("float8e5m2", json!([28672, "-Infinity"])), both("float32", json!([57344.0, "-Infinity"])));
    let error = "the model failed: 449 is no float8e4m3fn: those are -448 to 448";
    assert_eq!(twice("float8e4m3fn", json!([449])), Err(error.to_owned()));
    assert!(twice("float8e4m3fn", json!(["Infinity"])).is_err());
    for name in ["float8e4m3fnuz", "float8e5m2fnuz"] {
        assert_eq!(twice(name, json!([0.25])), both("float32", json!([0.5])));
    }
    // Only the newest libraries have these.
    for (name, kind, given, expected) in [
        ("int2", "int8", json!([-1, 0]), json!([-2, 0])),
        ("uint2", "uint8", json!([1, 0]), json!([2, 0])),
        ("float8e8m0", "float32", json!([0.25]), json!([0.5])),
    ] {
        match twice(name, given) {
            Err(error) if error.contains("cannot load the model") => {}
            given => assert_eq!(given, both(kind, expected)),
        }
    }
}

#[test]
fn does_not_batch_non_tensor_values() {
    let Some(engine) = onnxruntime() else { return };
    for name in ["zipmap", "twice-int4"] {
        let batch = BatchOptions { max_size: 4, ..BatchOptions::default() };
        let options = ModelOptions { batch, ..ModelOptions::default() };
        let step = ModelStep::load(engine.clone(), model(name), &options).unwrap();
        let reason = step.batcher().unwrap().err().unwrap();
        assert_eq!(reason, "it takes or gives other values than plain tensors", "{name}");
    }
}

#[test]
fn embedded_engine_names_missing_features() {
    for (name, lacks) in [
        ("grow", "operator `SequenceInsert`"),
        ("zipmap", "operator `ai.onnx.ml.ZipMap`"),
        ("optional-list", "values of type optional(sequence(float32))"),
        ("twice-int4", "values of type int4"),
    ] {
        let error = step(embedded(), name).err().unwrap();
        assert!(error.is_environment(), "{error}");
        assert!(error.to_string().contains(lacks), "{error}");
    }
    let mut session = embedded().load(&model("conv"), &SessionOptions::cpu()).unwrap();
    assert!(matches!(session.run_values(&[], None), Err(RunFailure::NeedsOnnxRuntime { .. })));
}
