//! `tokenize` beside the crate `tokenizers` that it calls: what reading a value, checking it and making
//! tensors adds.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark prints, and stops at the first surprise")]

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use gpux_core::{Context, OptionOrigin, ProjectFiles, Step, Value};
use serde_json::json;
use tokenizers::Tokenizer;

/// As long as is measured for each row.
const TIME: Duration = Duration::from_secs(3);

const PROSE: &str = "Every request gets its own sandbox around native inference. It's a model's job, isn't it? Größe, \
                     naïve café: unbelievable tokenizers, believing in resizing images of 224x224 pixels! ";

fn main() {
    println!("{:<28}{:>14}{:>14}{:>9}", "", "crate", "step", "ratio");
    for name in ["wordpiece", "bpe", "unigram"] {
        for (length, text) in
            [("50 B", PROSE[..50].to_owned()), ("400 B", PROSE.repeat(3)), ("100 kB", PROSE.repeat(550))]
        {
            compare(name, length, text);
        }
    }
}

fn compare(name: &str, length: &str, text: String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/reference/builtin/tokenize");
    let mut tokenizer = Tokenizer::from_file(folder.join(format!("{name}.json"))).unwrap();
    tokenizer.with_padding(None);
    let files = ProjectFiles::new(folder, false);
    let build = gpux::builtins().builtin("tokenize").unwrap().build;
    let step = build(json!({"tokenizer": format!("{name}.json")}), &OptionOrigin::folder(&files)).unwrap();
    let value = Value::from(text.as_str());
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    let begin = Instant::now();
    // In turn, so that a change of the machine's speed meets both.
    while begin.elapsed() < TIME {
        theirs.push(time(|| tokenizer.encode_fast(text.as_str(), true).unwrap()));
        ours.push(time(|| run(&*step, value.clone())));
    }
    let (theirs, ours) = (median(theirs), median(ours));
    let micros = |time: f64| format!("{:.2} µs", time * 1e6);
    println!("{:<28}{:>14}{:>14}{:>9.3}", format!("{name}, {length}"), micros(theirs), micros(ours), ours / theirs);
}

fn time<T>(run: impl FnOnce() -> T) -> f64 {
    let begin = Instant::now();
    black_box(run());
    begin.elapsed().as_secs_f64()
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn run(step: &dyn Step, value: Value) -> Vec<Value> {
    step.run(vec![Some(value), None], &mut Context::default()).unwrap()
}
