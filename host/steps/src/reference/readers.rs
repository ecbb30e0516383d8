//! Steps for readers of text and of speech against RapidOCR, NumPy, transformers and kaldi_native_fbank: `make_readers.py` draws the cases.

use std::collections::BTreeMap;

use super::{difference, exact, packed, run, step};
use gpux_core::{ElementType, Tensor, Value};

#[test]
fn steps_follow_their_references() {
    let mut largest = BTreeMap::<String, (usize, f64)>::new();
    for case in packed("readers.json.png") {
        let name = case["step"].as_str().unwrap();
        let made = run(&*step(name, case["options"].clone()), vec![exact(&case["input"]).into()]);
        let difference = if name == "ctc-greedy-decode" {
            // RapidOCR rounds to five places.
            let lines = case["expected"].as_array().unwrap();
            let texts: Vec<_> = lines.iter().map(|line| line[0].as_str().unwrap().to_owned()).collect();
            let scores = match &made[1] {
                Value::Json(one) if lines.len() == 1 => vec![one.as_f64().unwrap()],
                Value::Json(list) => list.as_array().unwrap().iter().map(|score| score.as_f64().unwrap()).collect(),
                other => panic!("{other:?}"),
            };
            match &made[0] {
                Value::Text(text) => assert_eq!([text.to_string()], texts.as_slice(), "{case}"),
                Value::Json(list) => assert_eq!(list.as_ref(), &serde_json::json!(texts), "{case}"),
                other => panic!("{other:?}"),
            }
            assert_eq!(scores.len(), lines.len());
            let apart = |(ours, line): (&f64, &serde_json::Value)| (ours - line[1].as_f64().unwrap()).abs();
            scores.iter().zip(lines).map(apart).fold(0.0, f64::max)
        } else {
            difference(made[0].as_tensor().unwrap(), &exact(&case["expected"]))
        };
        let element = made[0].as_tensor().map_or(ElementType::String, Tensor::element);
        let bar = match (name, element) {
            ("ctc-greedy-decode", _) => 1.1e-5,
            // NumPy rounds after each addition along an axis that is not the last.
            (_, ElementType::Float16) => 2e-3,
            ("fbank", _) => 1e-5,
            ("max", _) => 0.0,
            ("standardize", _) => 2e-6,
            (_, ElementType::Float32) => 3e-7,
            (_, ElementType::Float64) => 3e-15,
            _ => 0.0,
        };
        assert!(difference <= bar, "{difference:e}: {name} {} of {}", case["options"], case["input"]["shape"]);
        let entry = largest.entry(format!("`{name}`, {element}")).or_default();
        *entry = (entry.0 + 1, entry.1.max(difference));
    }
    for (name, (cases, difference)) in &largest {
        println!("| {name} | {cases} cases | {difference:.1e} |");
    }
}
