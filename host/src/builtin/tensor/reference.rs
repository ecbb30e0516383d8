//! The steps on tensors against NumPy.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests")]

use std::collections::BTreeMap;

use serde_json::Value as Json;

use crate::builtin::reference::{exact, run, step, unpack};
use crate::pipeline::{ElementType, Tensor, Value};

fn tensors(case: &Json, name: &str) -> Vec<Tensor> {
    case[name].as_array().unwrap().iter().map(exact).collect()
}

/// The largest difference, relative where numbers are larger than 1; anything but a float must be the same.
fn difference(ours: &Tensor, theirs: &Tensor) -> f64 {
    assert_eq!((ours.element(), ours.shape()), (theirs.element(), theirs.shape()));
    if !ours.element().is_float() {
        assert_eq!(ours.data(), theirs.data());
        return 0.0;
    }
    let floats = |tensor: &Tensor| tensor.cast(ElementType::Float64).unwrap().as_slice::<f64>().unwrap().to_vec();
    let one = |(ours, theirs): (f64, f64)| {
        let same = ours.is_nan() && theirs.is_nan() || ours.to_bits() == theirs.to_bits();
        if same { 0.0 } else { (ours - theirs).abs() / theirs.abs().max(1.0) }
    };
    floats(ours).into_iter().zip(floats(theirs)).map(one).fold(0.0, f64::max)
}

#[test]
fn every_step_gives_what_numpy_gives() {
    let text = unpack("tensor.json.png");
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    let cases: Vec<Json> = serde_json::from_slice(&text[..end]).unwrap();
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
