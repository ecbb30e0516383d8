//! The text steps against Hugging Face's libraries, Python's `unicodedata` and NumPy.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests")]

use serde_json::{Value as Json, json};
use sha2::{Digest as _, Sha256};

use crate::reference::{assert_close, read_json, run, step, tensor};
use gpux_core::{Context, OptionOrigin, ProjectFiles, Step, Tensor, TensorElement, Value, to_json};

const NAMES: [&str; 3] = ["wordpiece", "bpe", "unigram"];

/// All outputs of `tokenize` and `chunk`, in order.
const OUTPUTS: [&str; 7] =
    ["input_ids", "attention_mask", "token_type_ids", "offsets", "special_tokens_mask", "sequence_ids", "word_ids"];

fn rows<T: TensorElement + serde::Serialize>(value: &Value) -> Json {
    let tensor = value.as_tensor().unwrap();
    let data = tensor.as_slice::<T>().unwrap();
    match tensor.shape() {
        [_, 0] => vec![json!([]); tensor.shape()[0]].into(),
        shape => data.chunks(shape[1]).map(|row| json!(row)).collect::<Vec<_>>().into(),
    }
}

fn digest(text: &str) -> String {
    let first: [u8; 8] = Sha256::digest(text.as_bytes())[..8].try_into().unwrap();
    format!("{:016x}", u64::from_be_bytes(first))
}

/// The options of a step that gives all it can.
fn everything(tokenizer: &Json, mut options: Json) -> Json {
    options["tokenizer"] = json!(format!("tokenize/{}.json", tokenizer.as_str().unwrap()));
    for name in &OUTPUTS[3..] {
        options[*name] = json!(true);
    }
    options
}

/// All that is given for one row, as the list that its digest was made of.
fn row(outputs: &[Json], index: usize) -> Json {
    outputs[..OUTPUTS.len()].iter().map(|output| output[index].clone()).collect()
}

fn texts(case: &Json) -> Vec<Value> {
    let mut inputs: Vec<Value> = vec![case["text"].clone().into()];
    if !case["pair"].is_null() {
        inputs.push(case["pair"].clone().into());
    }
    inputs
}

#[test]
fn tokenize_follows_hugging_face() {
    for name in NAMES {
        let cases = read_json(&format!("tokenize/{name}.cases.json"));
        assert!(cases.as_array().unwrap().len() > 20);
        for case in cases.as_array().unwrap() {
            let mut options = case["options"].clone();
            options["tokenizer"] = json!(format!("tokenize/{name}.json"));
            let outputs = run(&*step("tokenize", options), texts(case));
            for (output, key) in outputs.iter().zip(OUTPUTS) {
                assert_eq!(rows::<i64>(output), case[key], "{name} {key} {} {}", case["options"], case["text"]);
            }
        }
    }
}

#[test]
fn tokenize_follows_hugging_face_for_any_line() {
    let cases = read_json("text/lines.json");
    let mut different = 0;
    for name in NAMES {
        let step = step("tokenize", everything(&json!(name), json!({})));
        for (line, expected) in cases["lines"].as_array().unwrap().iter().zip(cases[name].as_array().unwrap()) {
            let outputs: Vec<_> = run(&*step, vec![line.clone().into()]).iter().map(to_json).collect();
            let ours = row(&outputs, 0).to_string();
            if json!(digest(&ours)) != *expected {
                println!("{name} {line}: {ours}");
                different += 1;
            }
        }
    }
    let lines: Vec<_> = cases["lines"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    let long = lines.join("\n").repeat(usize::try_from(cases["longer"].as_u64().unwrap()).unwrap());
    assert!(long.len() > 100_000);
    for name in NAMES {
        let step = step("tokenize", everything(&json!(name), json!({})));
        let outputs: Vec<_> = run(&*step, vec![long.as_str().into()]).iter().map(to_json).collect();
        assert_eq!(json!(digest(&row(&outputs, 0).to_string())), cases["long"][name], "{name}");
    }
    let count = lines.len();
    println!("tokenize: {count} lines × {} tokenizers, {different} differ", NAMES.len());
    assert_eq!(different, 0);
}

#[test]
fn tokenize_truncates_and_pads_on_either_side() {
    let cases = read_json("text/cut.json");
    for case in cases.as_array().unwrap() {
        let step = step("tokenize", everything(&case["tokenizer"], case["options"].clone()));
        let outputs: Vec<_> = run(&*step, texts(case)).iter().map(to_json).collect();
        for (index, expected) in case["rows"].as_array().unwrap().iter().enumerate() {
            for (output, key) in outputs.iter().zip(OUTPUTS) {
                assert_eq!(output[index], expected[key], "{key} {case}");
            }
        }
    }
    println!("tokenize: {} cases of truncation, padding and pairs, none differs", cases.as_array().unwrap().len());
}

/// The outputs of a step with this tokenizer.json: a digest for each row, and `window_of`; `None` where it refuses.
fn given(tokenizer: &Json, case: &Json) -> Option<(Vec<Json>, Json)> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("own.json"), tokenizer.to_string()).unwrap();
    let mut options = case["options"].clone();
    options["tokenizer"] = json!("./own.json");
    let files = ProjectFiles::new(folder.path(), false);
    let builtin = crate::all().into_iter().find(|builtin| case["step"] == builtin.name).unwrap();
    let step = crate::reference::build_at(builtin, options, &OptionOrigin::folder(&files)).ok()?;
    let mut inputs: Vec<_> = texts(case).into_iter().map(Some).collect();
    inputs.resize(2, None);
    let outputs: Vec<_> = step.run(inputs, &mut Context::default()).ok()?.iter().map(to_json).collect();
    let rows = (0..outputs[0].as_array().unwrap().len()).map(|index| json!(digest(&row(&outputs, index).to_string())));
    Some((rows.collect(), outputs.get(OUTPUTS.len()).cloned().unwrap_or_default()))
}

/// `tests/reference/builtin/make_text_random.py` wrote the package's results for the same inputs.
#[test]
fn random_options_and_files_follow_hugging_face() {
    let cases = read_json("tokenize-random.json");
    let cases = cases.as_array().unwrap();
    let (mut rows, mut refused) = (0, 0);
    for case in cases {
        let mut tokenizer = read_json(&format!("tokenize/{}.json", case["tokenizer"].as_str().unwrap()));
        for state in ["truncation", "padding"] {
            tokenizer[state] = case[state].clone();
        }
        match (given(&tokenizer, case), case["rows"].as_array()) {
            (Some((ours, window_of)), Some(expected)) => {
                assert_eq!((&ours, &window_of), (expected, &case["window_of"]), "{case}");
                rows += ours.len();
            }
            (None, None) => refused += 1,
            (ours, _) => panic!("{ours:?} instead of {}: {case}", case["rows"]),
        }
    }
    assert!(cases.len() >= 200 && rows > 500, "{} cases, {rows} rows", cases.len());
    println!("tokenize, chunk: {} random cases, {rows} rows, {refused} refused, none differs", cases.len());
}

#[test]
fn chunk_follows_transformers() {
    let cases = read_json("text/chunk.json");
    let mut windows = 0;
    for case in cases["text"].as_array().unwrap() {
        let step = step("chunk", everything(&case["tokenizer"], case["options"].clone()));
        let outputs: Vec<_> = run(&*step, texts(case)).iter().map(to_json).collect();
        assert_eq!(outputs[0], case["input_ids"], "{}", case["options"]);
        assert_eq!(outputs[OUTPUTS.len()], case["window_of"], "{}", case["options"]);
        for (index, expected) in case["rows"].as_array().unwrap().iter().enumerate() {
            let ours = row(&outputs, index).to_string();
            assert_eq!(json!(digest(&ours)), *expected, "{} {ours}", case["options"]);
            windows += 1;
        }
    }
    for case in cases["tokens"].as_array().unwrap() {
        let step = step("chunk", json!({"max_length": case["max_length"], "stride": case["stride"], "pad_id": 77}));
        let tokens: Vec<i64> = (0..case["length"].as_i64().unwrap()).collect();
        let outputs: Vec<_> =
            run(&*step, vec![Tensor::new([tokens.len()], tokens).unwrap().into()]).iter().map(to_json).collect();
        let expected = case["rows"].as_array().unwrap();
        assert_eq!(outputs[0].as_array().unwrap().len(), expected.len(), "{case}");
        for (ours, expected) in outputs[0].as_array().unwrap().iter().zip(expected) {
            let ours: Vec<_> = ours.as_array().unwrap().iter().filter(|id| **id != 77).cloned().collect();
            assert_eq!(Json::Array(ours), *expected, "{case}");
        }
    }
    println!("chunk: {windows} windows, none differs");
}

#[test]
fn join_follows_numpy() {
    let mut largest = 0_f64;
    for case in read_json("text/join.json").as_array().unwrap() {
        let values = tensor(&case["values"], &case["element"]);
        let mut inputs = vec![Value::from(values)];
        if let Some(window_of) = case["window_of"].as_array() {
            let window_of: Vec<i64> = window_of.iter().map(|text| text.as_i64().unwrap()).collect();
            inputs.push(Tensor::new([window_of.len()], window_of).unwrap().into());
        }
        let joined = run(&*step("join", case["options"].clone()), inputs).remove(0);
        let joined = joined.as_tensor().unwrap();
        largest = largest.max(assert_close(joined, &case["joined"], 1e-7, case));
    }
    println!("join: largest difference {largest:.1e}");
}

#[test]
fn detokenize_follows_hugging_face() {
    let cases = read_json("text/detokenize.json");
    let steps = |options: &Json| {
        NAMES.map(|name| {
            let mut options = options.clone();
            options["tokenizer"] = json!(format!("tokenize/{name}.json"));
            step("detokenize", options)
        })
    };
    let ways = [
        ("text", steps(&json!({}))),
        ("with_special", steps(&json!({"skip_special_tokens": false}))),
        ("cleaned", steps(&json!({"clean_up": true}))),
    ];
    for case in cases.as_array().unwrap() {
        let name = NAMES.iter().position(|name| case["tokenizer"] == *name).unwrap();
        let ids: Vec<i64> = case["ids"].as_array().unwrap().iter().map(|id| id.as_i64().unwrap()).collect();
        for (key, steps) in &ways {
            let decode = |tensor: Tensor| to_json(&run(&*steps[name], vec![tensor.into()])[0]);
            assert_eq!(decode(Tensor::new([ids.len()], ids.clone()).unwrap()), case[*key], "{key} {ids:?}");
            let batch = decode(Tensor::new([1, ids.len()], ids.clone()).unwrap());
            assert_eq!(batch, json!([case[*key]]));
        }
    }
    println!("detokenize: {} texts × {} ways, none differs", cases.as_array().unwrap().len(), ways.len());
}

fn normalized(step: &dyn Step, text: &str) -> String {
    match run(step, vec![text.into()]).remove(0) {
        Value::Text(text) => text.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn normalize_text_follows_unicodedata_and_bert() {
    let reference = read_json("text/normalize.json");
    let number = |value: &Json| u32::try_from(value.as_u64().unwrap()).unwrap();
    let mut blocks: Vec<(u32, Vec<char>)> = Vec::new();
    for range in reference["ranges"].as_array().unwrap() {
        for char in (number(&range[0])..number(&range[1])).filter_map(char::from_u32) {
            let block = u32::from(char) >> 12;
            match blocks.last_mut() {
                Some((last, chars)) if *last == block => chars.push(char),
                _ => blocks.push((block, vec![char])),
            }
        }
    }
    let lines = reference["lines"].as_array().unwrap();
    let cases = reference["cases"].as_array().unwrap();
    for case in cases {
        let step = step("normalize-text", case["options"].clone());
        for (line, expected) in lines.iter().zip(case["lines"].as_array().unwrap()) {
            let ours = normalized(&*step, line.as_str().unwrap());
            assert_eq!(json!(digest(&ours)), *expected, "{} {line}: {ours:?}", case["options"]);
        }
        let expected = case["blocks"].as_array().unwrap();
        assert_eq!(expected.len(), blocks.len());
        for ((block, chars), expected) in blocks.iter().zip(expected) {
            let ours: Vec<_> = chars.iter().map(|char| normalized(&*step, &format!("a{char}b"))).collect();
            assert_eq!(json!(digest(&ours.join("\n"))), *expected, "{} U+{block:X}000", case["options"]);
        }
    }
    let characters: usize = blocks.iter().map(|(_, chars)| chars.len()).sum();
    println!("normalize-text: {} lines and {characters} characters × {} ways, none differs", lines.len(), cases.len());
}
