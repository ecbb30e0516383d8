//! The steps on tensors against NumPy.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests")]

use std::collections::BTreeMap;

use serde_json::Value as Json;

use crate::reference::{difference, exact, packed, run, step};
use gpux_core::{Tensor, Value};

fn tensors(case: &Json, name: &str) -> Vec<Tensor> {
    case[name].as_array().unwrap().iter().map(exact).collect()
}

#[test]
fn steps_follow_numpy() {
    let cases = packed("tensor.json.png");
    let mut largest = BTreeMap::<String, (usize, f64)>::new();
    for case in &cases {
        let name = case["step"].as_str().unwrap();
        let step = step(name, case["options"].clone());
        let given = run(&*step, tensors(case, "inputs").into_iter().map(Value::from).collect());
        let expected = tensors(case, "outputs");
        assert_eq!(given.len(), expected.len(), "{case}");
        for (ours, theirs) in given.iter().zip(&expected) {
            let difference = difference(ours.as_tensor().unwrap(), theirs);
            assert!(difference <= 0.0, "{difference}: {ours:?} is not {theirs:?}: {}", case["options"]);
            let entry = largest.entry(name.to_owned()).or_default();
            *entry = (entry.0 + 1, entry.1.max(difference));
        }
    }
    for (name, (tensors, difference)) in &largest {
        println!("| `{name}` | {tensors} tensors | {difference} |");
    }
    assert_eq!(largest.len(), 13, "every step of the group has cases");
}
