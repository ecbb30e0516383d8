//! The steps after a model against SciPy.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests")]

use serde_json::json;

use crate::builtin::reference::{assert_close, read_json, run_tensor, step, tensor};
use crate::pipeline::ElementType;

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
