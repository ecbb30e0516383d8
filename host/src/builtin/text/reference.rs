//! The text steps against Hugging Face's libraries.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests")]

use serde_json::{Value as Json, json};

use crate::builtin::reference::{read_json, run, step};
use crate::pipeline::{TensorElement, Value};

fn rows<T: TensorElement + serde::Serialize>(value: &Value) -> Json {
    let tensor = value.as_tensor().unwrap();
    let data = tensor.as_slice::<T>().unwrap();
    match tensor.shape() {
        [_, 0] => vec![json!([]); tensor.shape()[0]].into(),
        shape => data.chunks(shape[1]).map(|row| json!(row)).collect::<Vec<_>>().into(),
    }
}

#[test]
fn tokenize_follows_hugging_face() {
    for name in ["wordpiece", "bpe", "unigram"] {
        let cases = read_json(&format!("tokenize/{name}.cases.json"));
        assert!(cases.as_array().unwrap().len() > 20);
        for case in cases.as_array().unwrap() {
            let mut options = case["options"].clone();
            options["tokenizer"] = json!(format!("tokenize/{name}.json"));
            let mut inputs: Vec<Value> = vec![case["text"].clone().into()];
            if !case["pair"].is_null() {
                inputs.push(case["pair"].clone().into());
            }
            let outputs = run(&*step("tokenize", options), inputs);
            for (output, key) in outputs.iter().zip(["input_ids", "attention_mask", "token_type_ids"]) {
                assert_eq!(rows::<i64>(output), case[key], "{name} {key} {} {}", case["options"], case["text"]);
            }
        }
    }
}
