//! Which rows may share a run: those that are the same as alone, bit for bit.

use super::super::super::testing::onnxruntime;
use super::*;
use crate::TensorDifference;
use crate::{ModelOptions, ModelStep};
use gpux_core::{Context, Step as _, Value};

#[test]
fn shares_runs_only_with_the_same_bits() {
    let Some(engine) = onnxruntime() else { return };
    assert!(within(&engine, "conv", 0.0).is_ok());
    let refused = within(&engine, "log", 0.0).err().unwrap();
    let is_told = |part: &str| assert!(refused.contains(part), "{refused}");
    is_told("output 0 of a request changes with what runs beside it, by ");
    is_told("the first operator that gives other bits is `Log` (node `last`)");
    is_told("`batching: { max_size: 8, tolerance: 0.001 }` lets them share runs");
    assert!(within(&engine, "log", 1e-3).is_ok());
    let unrelated = within(&engine, "center", 1e-3).err().unwrap();
    assert!(!unrelated.contains("tolerance"), "a tolerance is no remedy: {unrelated}");
}

#[test]
fn keeps_the_verdict_of_a_trial() {
    let Some(engine) = onnxruntime() else { return };
    let (_, sessions) = over(&engine, "log").unwrap();
    let signature = sessions.file().info().signature().unwrap();
    let verdict = examine(&sessions, &signature, &options(8)).unwrap();
    let text = serde_json::to_string(&verdict).unwrap();
    let read: BatchVerdict = serde_json::from_str(&text).unwrap();
    assert_eq!(read, verdict);
    let shown = read.to_json(0.0);
    assert_eq!((&shown["same_bits"], &shown["operator"]), (&false.into(), &"`Log` (node `last`)".into()));
    assert!(shown["equal_lengths"].as_f64().is_some_and(|part| part > 0.0 && part < 1e-5), "{shown}");
    // Neighbours that cannot be compared are kept as well.
    let (batcher, sessions) = over(&engine, "conv").unwrap();
    assert!(!batcher.pads());
    let mut unlike = examine(&sessions, &sessions.file().info().signature().unwrap(), &options(8)).unwrap();
    unlike = serde_json::from_str(&serde_json::to_string(&unlike).unwrap()).unwrap();
    assert_eq!(unlike.to_json(0.0)["equal_lengths"], 0.0);
}

/// What a model gives for one row alone, and beside others while many threads call it.
#[test]
fn answers_do_not_depend_on_the_load() {
    let Some(engine) = onnxruntime() else { return };
    for name in ["forest", "log", "conv"] {
        let batch = BatchOptions { max_size: 8, ..BatchOptions::default() };
        let options = ModelOptions { batch, ..ModelOptions::default() };
        let step = ModelStep::load(engine.clone(), model(name), &options).unwrap();
        // Several threads add trees in another order than one.
        let one_thread = name == "forest" && engine.threads(None) > 1;
        let difference = &step.details()["batching"]["difference"];
        assert_eq!(difference["single_threaded"], one_thread, "{name}: {difference}");
        assert_eq!(step.threads() == 1, one_thread || engine.threads(None) == 1, "{name}");
        let shape: Vec<_> = match name {
            "conv" => vec![1, 1, 8, 8],
            "log" => vec![1, 3],
            _ => vec![1, 4],
        };
        let run = |seed: usize| {
            let count = shape.iter().product();
            let numbers = (0..count).map(|at| ((seed * 37 + at * 11) % 101) as f32 / 101.0 + 0.01).collect();
            let outputs =
                step.run(vec![Some(Value::Tensor(tensor(&shape, numbers)))], &mut Context::default()).unwrap();
            outputs[0].as_tensor().unwrap().bytes().unwrap().to_vec()
        };
        let alone: Vec<_> = (0..40).map(run).collect();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (run, alone) = (&run, &alone);
                scope.spawn(move || {
                    for number in 0..200 {
                        let seed = (number * 7 + thread) % alone.len();
                        assert_eq!(run(seed), alone[seed], "{name}: {seed}");
                    }
                });
            }
        });
    }
}

#[test]
fn texts_of_one_length_share_runs_where_padding_changes_bits() {
    let Some(engine) = onnxruntime() else { return };
    let (batcher, _) = over(&engine, "embedding").unwrap();
    assert!(batcher.pads());
    let verdict = |padded: TensorDifference| {
        let mut found: serde_json::Value = serde_json::from_str(
            r#"{"provider":"cpu","multi_threaded":{"equal_lengths":{"difference":{"same_bits":true,"relative":0.0},"reason":null,"operator":null},"padded":null},"single_threaded":null,"threads":{"same_bits":true,"relative":0.0},"size":8}"#,
        )
        .unwrap();
        found["multi_threaded"]["padded"] =
            serde_json::json!({ "difference": padded, "reason": "output 0 changes", "operator": null });
        serde_json::from_value::<BatchVerdict>(found).unwrap()
    };
    let rounded = TensorDifference { same_bits: false, relative: 1e-7 };
    let batcher = |lengths: &[usize], tolerance, padded| {
        let (_, sessions) = over(&engine, "embedding").unwrap();
        let signature = sessions.file().info().signature().unwrap();
        let shapes = ShapeLadder::new(lengths.iter().copied(), []);
        let batch = BatchOptions { max_size: 8, tolerance, shapes, ..BatchOptions::default() };
        Batcher::new(sessions, &signature, batch, &verdict(padded))
    };
    assert!(batcher(&[], 0.0, TensorDifference::NONE).unwrap().pads());
    let same_length = batcher(&[], 0.0, rounded).unwrap();
    assert!(!same_length.pads() && !same_length.shared.rules.pads());
    assert!(batcher(&[], 1e-3, rounded).unwrap().pads());
    // Those that are padded to one length anyway.
    let rungs = batcher(&[16, 32], 0.0, rounded).unwrap();
    assert!(!rungs.pads() && rungs.shared.rules.pads());
    // The mask is not heeded.
    let ignored = TensorDifference { same_bits: false, relative: 0.1 };
    assert!(batcher(&[16, 32], 0.0, ignored).is_err_and(|reason| reason.contains("`lengths` are for models")));
}
