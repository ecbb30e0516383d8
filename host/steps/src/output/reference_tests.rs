//! The steps after a model against SciPy, NumPy, torchvision and transformers.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests")]

use std::collections::BTreeMap;

use serde_json::json;

use crate::reference::{assert_close, difference, exact, packed, read_json, run, run_tensor, step, tensor};
use gpux_core::{ElementType, Tensor, Value, float32_to_json};

#[test]
fn softmax_follows_scipy() {
    for case in read_json("softmax/cases.json").as_array().unwrap() {
        let given = tensor(&case["input"], &case["element"]);
        let element = given.element();
        let result = run_tensor(&*step("softmax", json!({"axis": case["axis"]})), given);
        assert_eq!(result.element(), element);
        let tolerance = match element {
            ElementType::Float16 => 1e-3,
            ElementType::Float32 => 2e-7,
            _ => 1e-15,
        };
        assert_close(&result, &case["output"], tolerance, case);
    }
}

#[test]
fn sigmoid_argmax_and_threshold_follow_scipy_and_numpy() {
    let mut largest = BTreeMap::<String, (usize, f64)>::new();
    for case in packed("output.json.png") {
        let name = case["step"].as_str().unwrap();
        let given = run_tensor(&*step(name, case["options"].clone()), exact(&case["inputs"][0]));
        let difference = difference(&given, &exact(&case["outputs"][0]));
        let bar = match given.element() {
            ElementType::Float16 => 1e-3,
            ElementType::Float32 => 1.2e-7,
            ElementType::Float64 => 2.3e-16,
            _ => 0.0,
        };
        assert!(difference <= bar, "{difference}: {case}");
        let key = if name == "sigmoid" { format!("{name}, {}", given.element()) } else { name.to_owned() };
        let entry = largest.entry(key).or_default();
        *entry = (entry.0 + 1, entry.1.max(difference));
    }
    for (name, (tensors, difference)) in &largest {
        println!("| {name} | {tensors} tensors | {difference:.1e} |");
    }
    assert_eq!(largest.len(), 5);
}

#[test]
fn nms_keeps_what_torchvision_keeps() {
    let (mut inputs, mut candidates, mut boxes) = (Vec::new(), 0, 0);
    for case in packed("detections.json.png") {
        let given: Vec<_> = case["inputs"].as_array().unwrap().iter().map(|input| Value::from(exact(input))).collect();
        inputs = if given.is_empty() { inputs } else { given };
        let Value::Json(found) = run(&*step("nms", case["options"].clone()), inputs.clone()).remove(0) else {
            panic!("not JSON")
        };
        let expected: Vec<_> = case["expected"].as_array().unwrap().iter().map(exact).collect();
        let [corners, scores, classes] = expected.as_slice() else { panic!("{case}") };
        let number = |number: &f32| float32_to_json(*number);
        let corners = corners.as_slice::<f32>().unwrap().chunks_exact(4);
        let scores = scores.as_slice::<f32>().unwrap().iter().zip(classes.as_slice::<i64>().unwrap());
        let expected: Vec<_> = corners
            .zip(scores)
            .map(|(corners, (score, class))| {
                let corners: Vec<_> = corners.iter().map(number).collect();
                json!({"box": corners, "score": number(score), "class": class})
            })
            .collect();
        let found = found.as_array().unwrap();
        let other = found.iter().zip(&expected).position(|(ours, theirs)| ours != theirs);
        assert_eq!(other, None, "{}: {:?}", case["options"], other.map(|at| (&found[at], &expected[at])));
        assert_eq!(found.len(), expected.len(), "{}", case["options"]);
        candidates += inputs[0].as_tensor().unwrap().len() / 4;
        boxes += expected.len();
    }
    println!("| nms | {candidates} candidates, {boxes} kept | the same boxes in the same order |");
}

#[test]
fn ctc_greedy_decode_follows_transformers() {
    let step = step("ctc-greedy-decode", json!({"vocabulary": "ctc/vocab.json"}));
    let cases = read_json("ctc/cases.json");
    for case in cases.as_array().unwrap() {
        let shape: Vec<usize> = serde_json::from_value(case["shape"].clone()).unwrap();
        let scores: Vec<f32> = serde_json::from_value(case["scores"].clone()).unwrap();
        let text = run(&*step, vec![Tensor::new(shape, scores).unwrap().into()]).remove(0);
        assert_eq!(text, case["text"].as_str().unwrap().into());
    }
    println!("| ctc-greedy-decode | {} recordings | the same texts |", cases.as_array().unwrap().len());
}
