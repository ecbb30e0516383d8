//! The steps after a language model against PyTorch, sentence-transformers and transformers.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests")]

use serde_json::{Value as Json, json};

use crate::reference::{assert_close, numbers, read_json, run, run_tensor, step, tensor};
use gpux_core::{ElementType, Tensor, Value};

/// The tolerance for results of this type.
fn tolerance(element: ElementType) -> f64 {
    match element {
        ElementType::Float16 => 1e-3,
        ElementType::Float32 => 2e-7,
        _ => 1e-15,
    }
}

#[test]
fn pooling_follows_sentence_transformers() {
    let steps = [
        ("mean-pool", json!({}), "mean"),
        ("cls-pool", json!({}), "first"),
        ("cls-pool", json!({"token": "last"}), "last"),
        ("pool", json!({}), "mean"),
        ("pool", json!({"mode": "cls"}), "first"),
        ("pool", json!({"mode": "lasttoken"}), "last"),
        ("pool", json!({"mode": "max"}), "max"),
        ("pool", json!({"mode": "weightedmean"}), "weightedmean"),
        ("pool", json!({"mode": "mean_sqrt_len_tokens"}), "mean_sqrt_len_tokens"),
        ("pool", json!({"mode": ["cls", "mean_sqrt_len_tokens"]}), "several"),
    ];
    let mut largest = steps.clone().map(|(name, options, _)| (format!("{name} {options}"), 0_f64));
    for case in read_json("output/pool.json").as_array().unwrap() {
        let hidden = tensor(&case["hidden"], &case["element"]);
        let mask = tensor(&case["mask"], &json!("int64"));
        for (index, (name, options, key)) in steps.clone().into_iter().enumerate() {
            let pooled = run(&*step(name, options), vec![hidden.clone().into(), mask.clone().into()]).remove(0);
            let is_taken = ["first", "last", "max"].contains(&key);
            let within = if is_taken { 0.0 } else { tolerance(hidden.element()) * 4.0 };
            let difference = assert_close(pooled.as_tensor().unwrap(), &case[key], within, &json!(key));
            if hidden.element() == ElementType::Float32 {
                largest[index].1 = largest[index].1.max(difference);
            }
        }
    }
    for (name, largest) in largest {
        println!("{name}: largest difference {largest:.1e} in float32");
    }
}

#[test]
fn l2_normalize_follows_pytorch() {
    let mut largest = 0_f64;
    for case in read_json("output/l2-normalize.json").as_array().unwrap() {
        let given = tensor(&case["input"], &case["element"]);
        let element = given.element();
        let result = run_tensor(&*step("l2-normalize", json!({"axis": case["axis"]})), given);
        let difference = assert_close(&result, &case["output"], tolerance(element), case);
        if element == ElementType::Float32 {
            largest = largest.max(difference);
        }
    }
    println!("l2-normalize: largest difference {largest:.1e} in float32");
}

#[test]
fn cosine_follows_sentence_transformers() {
    let case = read_json("output/cosine.json");
    let (shape, scores) = numbers(&case["scores"]);
    let labels: Vec<_> = (0..shape[1]).map(|index| format!("vector {index}")).collect();
    let step = step("cosine", json!({"vectors": "output/vectors.npy", "labels": labels, "k": shape[1]}));
    let similar = run(&*step, vec![tensor(&case["queries"], &json!("float32")).into()]).remove(0);
    let Value::Json(similar) = similar else { panic!("not JSON") };
    let mut largest = 0_f64;
    for (row, expected) in similar.as_array().unwrap().iter().zip(scores.chunks(shape[1])) {
        let entries = row.as_array().unwrap();
        assert_eq!(entries.len(), shape[1]);
        for entry in entries {
            let index = usize::try_from(entry["index"].as_u64().unwrap()).unwrap();
            largest = largest.max((entry["score"].as_f64().unwrap() - expected[index]).abs());
            assert_eq!(entry["label"], labels[index]);
        }
        assert!(entries.windows(2).all(|pair| pair[0]["score"].as_f64() >= pair[1]["score"].as_f64()));
    }
    println!("cosine: largest difference {largest:.1e}");
    assert!(largest < 3e-7);
}

/// The numbers of these answers beside the reference's: the largest difference of a score.
fn compare(ours: &Json, expected: &Json, what: &Json) -> f64 {
    let (ours, expected) = (ours.as_array().unwrap(), expected.as_array().unwrap());
    assert_eq!(ours.len(), expected.len(), "{what}: {ours:?} is not {expected:?}");
    let mut largest = 0_f64;
    for (ours, expected) in ours.iter().zip(expected) {
        for (name, value) in expected.as_object().unwrap() {
            if name == "score" {
                largest = largest.max((ours["score"].as_f64().unwrap() - value.as_f64().unwrap()).abs());
            } else {
                assert_eq!(ours[name], *value, "{what}: {ours} is not {expected}");
            }
        }
    }
    largest
}

/// The outputs of `tokenize` or `chunk` for these inputs, by name.
fn tokens(name: &str, tokenizer: &Json, mut options: Json, inputs: Vec<Value>) -> impl Fn(&str) -> Value {
    options["tokenizer"] = json!(format!("tokenize/{}.json", tokenizer.as_str().unwrap()));
    for extra in ["offsets", "special_tokens_mask", "sequence_ids", "word_ids"] {
        options[extra] = json!(true);
    }
    let step = step(name, options);
    let values = run(&*step, inputs);
    let names: Vec<_> = step.signature().outputs.iter().map(|port| port.name.clone()).collect();
    move |name| values[names.iter().position(|port| port == name).unwrap()].clone()
}

#[test]
fn qa_span_follows_transformers() {
    let (mut largest, mut count) = (0_f64, 0);
    for case in read_json("output/qa-span.json").as_array().unwrap() {
        let inputs = vec![case["question"].clone().into(), case["context"].clone().into()];
        let tokens = tokens("chunk", &case["tokenizer"], case["options"].clone(), inputs);
        for answers in case["answers"].as_array().unwrap() {
            let inputs = [
                Some(tensor(&case["start"], &json!("float32")).into()),
                Some(tensor(&case["end"], &json!("float32")).into()),
                Some(tokens("offsets")),
                Some(tokens("sequence_ids")),
                Some(case["context"].clone().into()),
                Some(tokens("attention_mask")),
                (answers["align"] == true).then(|| tokens("word_ids")),
                Some(tokens("window_of")),
            ];
            let given = step("qa-span", answers["options"].clone());
            let found = given.run(inputs.into_iter().collect(), &mut gpux_core::Context::default()).unwrap().remove(0);
            let Value::Json(found) = found else { panic!("not JSON") };
            let found = match found.as_ref() {
                Json::Array(_) => found.as_ref().clone(),
                Json::Null => json!([]),
                one => json!([one]),
            };
            largest = largest.max(compare(&found, &answers["answers"], &answers["options"]));
            count += 1;
        }
    }
    println!("qa-span: {count} cases, largest difference of a score {largest:.1e}");
    assert!(largest < 1e-6);
}

#[test]
fn ner_aggregate_follows_transformers() {
    let reference = read_json("output/ner.json");
    let (mut largest, mut count) = (0_f64, 0);
    let aggregate = |tokenizer: &Json, strategy: &Json| {
        let file = format!("tokenize/{}.json", tokenizer.as_str().unwrap());
        step("ner-aggregate", json!({"tokenizer": file, "labels": reference["labels"], "strategy": strategy}))
    };
    let mut check = |tokenizer: &Json,
                     strategy: &Json,
                     logits: Tensor,
                     tokens: &dyn Fn(&str) -> Value,
                     case: &Json,
                     windows: bool| {
        let mut inputs = vec![
            logits.into(),
            tokens("input_ids"),
            tokens("offsets"),
            tokens("special_tokens_mask"),
            case["text"].clone().into(),
        ];
        if windows {
            inputs.push(tokens("window_of"));
        }
        let found = run(&*aggregate(tokenizer, strategy), inputs).remove(0);
        let Value::Json(found) = found else { panic!("not JSON") };
        count += 1;
        found
    };
    for case in reference["cases"].as_array().unwrap() {
        let tokens = tokens("tokenize", &case["tokenizer"], json!({}), vec![case["text"].clone().into()]);
        let logits = tensor(&case["logits"], &json!("float32"));
        let shape = [&[1], logits.shape()].concat();
        let logits = logits.reshape(shape).unwrap();
        for expected in case["found"].as_array().unwrap() {
            let found = check(&case["tokenizer"], &expected["strategy"], logits.clone(), &tokens, case, false);
            largest =
                largest.max(compare(&found, &expected["entities"], &json!([case["tokenizer"], expected["strategy"]])));
        }
    }
    let case = &reference["windows"];
    let wordpiece = json!("wordpiece");
    let tokens = tokens("chunk", &wordpiece, case["options"].clone(), vec![case["text"].clone().into()]);
    let found = check(&wordpiece, &json!("simple"), tensor(&case["logits"], &json!("float32")), &tokens, case, true);
    largest = largest.max(compare(&found, &case["entities"], &json!("windows")));
    println!("ner-aggregate: {count} cases, largest difference of a score {largest:.1e}");
    assert!(largest < 1e-6);
}
