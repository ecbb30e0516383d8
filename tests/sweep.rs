//! Every built-in step on the largest and the strangest inputs that its signature takes, empty axes included, with
//! a deadline: it ends soon after it, and takes no more memory than it says.

use std::time::{Duration, Instant};

use gpux_core::threads::processor_time;
use gpux_core::{Context, ElementType, Kind, Layout, Metadata, Port, Step, Tensor, Value};
use serde_json::{Value as Json, json};

use super::{cases, known, step};
use allocation_counter::measure;

/// Time of each request, and how much processor time later it may end, in a build without optimizations. A step that
/// does not look at the clock takes tens of seconds.
const TIME: Duration = Duration::from_millis(100);
const LATE: Duration = Duration::from_millis(900);

/// The memory limit of a step; a step that declares more is not run.
const MEMORY: usize = 64 << 20;

/// Bytes besides payloads.
const SMALL: usize = 1 << 20;

/// Shapes with the fewest and the most elements, lists and axes.
const SHAPES: [&[usize]; 14] = [
    &[],
    &[0],
    &[4 << 20],
    &[1 << 20, 0],
    &[0, 1 << 20],
    &[2048, 2048],
    &[4 << 20, 1],
    &[1, 4 << 20],
    &[0, 1, 1 << 20],
    &[1 << 18, 0, 4],
    &[1024, 1024, 3],
    &[1 << 20, 1, 4],
    &[3, 0, 1024],
    &[2, 2, 1024, 1024],
];

fn filled(element: ElementType, shape: &[usize], value: f64) -> Tensor {
    let count = shape.iter().product();
    if element == ElementType::String {
        return Tensor::new(shape, vec!["1.5".to_owned(); count]).unwrap();
    }
    let one = Tensor::new([1], vec![value]).unwrap().cast(element).unwrap();
    one.pick(0, &[(count, 0)]).unwrap().reshape(shape).unwrap()
}

/// Values of every kind that a port takes.
fn values(port: &Port) -> Vec<Value> {
    let mut values: Vec<Value> = Vec::new();
    let tensor = matches!(port.kind, Kind::Tensor(_) | Kind::Any);
    let elements = [ElementType::Float32, ElementType::Uint8, ElementType::Int64, ElementType::String];
    let takes = |element: &ElementType| match &port.kind {
        Kind::Tensor(kind) => kind.elements.contains(*element),
        _ => tensor,
    };
    for element in elements.into_iter().filter(takes).take(2) {
        for shape in SHAPES {
            if element == ElementType::String && shape.iter().product::<usize>() > 1 << 18 {
                continue;
            }
            let plain = filled(element, shape, 1.0);
            let metadata = Metadata { layout: Some(Layout::Hwc), sample_rate: Some(16_000), ..Metadata::default() };
            if shape.len() == 3 {
                values.push(plain.clone().with_metadata(metadata).into());
            } else {
                values.push(plain.with_metadata(Metadata { layout: None, ..metadata }).into());
            }
        }
    }
    values.extend(texts());
    values.extend([vec![], vec![0_u8; 8 << 20]].map(Value::from));
    values.extend(documents());
    values.retain(|value| port.kind.accepts(&value.kind()).is_ok());
    values
}

fn texts() -> Vec<Value> {
    // Marks of many classes, which normal forms sort, behind one letter.
    let marks: String = ['\u{301}', '\u{316}', '\u{345}', '\u{327}'].into_iter().cycle().take(2 << 20).collect();
    ["", " ", &"a".repeat(4 << 20), &"a ".repeat(2 << 20), &"\u{fdfa}".repeat(1 << 20), &format!("a{marks}")]
        .map(Value::from)
        .to_vec()
}

fn documents() -> Vec<Value> {
    let deep = (0..100).fold(json!(1), |json, _| json!([json]));
    let wide: serde_json::Map<_, _> = (0..1 << 17).map(|number| (number.to_string(), json!([]))).collect();
    [json!(null), json!(vec![0; 1 << 19]), json!(vec![""; 1 << 18]), json!(vec!["a b"; 1 << 16]), deep, wide.into()]
        .map(Value::from)
        .to_vec()
}

/// Inputs of a step: the first port gets each value that it accepts, and the other required ones the same if
/// they accept it, else the first that they accept.
fn generic(step: &dyn Step) -> Vec<Vec<Option<Value>>> {
    let ports = &step.signature().inputs;
    let Some((first, rest)) = ports.split_first() else { return Vec::new() };
    let others: Vec<Vec<Value>> = rest.iter().map(|port| if port.optional { vec![] } else { values(port) }).collect();
    let with = |value: Value| {
        let other = |(port, values): (&Port, &Vec<Value>)| {
            let same = port.kind.accepts(&value.kind()).is_ok().then(|| value.clone());
            if port.optional { None } else { same.or_else(|| values.last().cloned()) }
        };
        let rest: Vec<_> = rest.iter().zip(&others).map(other).collect();
        [vec![Some(value)], rest].concat()
    };
    values(first).into_iter().map(with).collect()
}

fn tensor(shape: &[usize], value: f64) -> Value {
    filled(ElementType::Float32, shape, value).into()
}

fn whole(shape: &[usize], value: i64) -> Value {
    Tensor::new([1], vec![value])
        .and_then(|one| one.pick(0, &[(shape.iter().product(), 0)])?.reshape(shape))
        .unwrap()
        .into()
}

fn image(height: usize, width: usize) -> Value {
    let metadata = Metadata { layout: Some(Layout::Hwc), ..Metadata::default() };
    Value::from(filled(ElementType::Uint8, &[height, width, 3], 99.0).with_metadata(metadata))
}

/// A map of ones and zeros.
fn map(height: usize, width: usize, is_one: fn(usize, usize) -> bool) -> Value {
    let numbers = (0..height * width).map(|at| f32::from(is_one(at % width, at / width)));
    Tensor::new([1, 1, height, width], numbers.collect::<Vec<_>>()).unwrap().into()
}

/// A step, its options, and inputs that fit each other.
type Case = (&'static str, Json, Vec<Value>);

/// Inputs that fit each other, with options that make much of them.
fn fitting() -> Vec<Case> {
    [token_cases(), score_cases(), text_cases(), audio_cases(), tensor_cases(), image_cases()].concat()
}

fn token_cases() -> Vec<Case> {
    let file = json!("tokenize/wordpiece.json");
    let labels = json!(["O", "B-A"]);
    let word = |rows: usize, length: usize| {
        let places = whole(&[rows, length, 2], 1);
        let scores = tensor(&[rows, length], 0.5);
        let context = "word ".repeat(length.min(1 << 16));
        let contexts = if rows == 1 { context.into() } else { Value::from(json!(vec!["a b"; rows])) };
        vec![
            scores.clone(),
            scores,
            places,
            whole(&[rows, length], 1),
            contexts,
            whole(&[rows, length], 1),
            whole(&[rows, length], 1),
        ]
    };
    let entities = |rows: usize, length: usize| {
        let texts = if rows == 1 { "word ".repeat(1 << 16).into() } else { Value::from(json!(vec!["a b"; rows])) };
        let numbers = |value| whole(&[rows, length], value);
        vec![tensor(&[rows, length, 2], 0.5), numbers(40), whole(&[rows, length, 2], 1), numbers(0), texts]
    };
    let most = json!({"top_k": 1000, "max_answer_length": 1000});
    vec![
        ("qa-span", most.clone(), word(1, 100_000)),
        ("qa-span", most.clone(), word(20_000, 1)),
        ("qa-span", most, word(200, 384)),
        ("ner-aggregate", json!({"tokenizer": file, "labels": labels, "strategy": "none"}), entities(1, 1 << 18)),
        ("ner-aggregate", json!({"tokenizer": file, "labels": labels, "strategy": "average"}), entities(1, 1 << 18)),
        ("ner-aggregate", json!({"tokenizer": file, "labels": labels}), entities(1 << 16, 1)),
        ("ner-aggregate", json!({"tokenizer": file, "labels": labels}), entities(1 << 16, 0)),
    ]
}

fn score_cases() -> Vec<Case> {
    let spread = |count: usize| {
        let data = (0..6 * count).map(|index| if index < 2 * count { (index % count) as f32 * 50.0 } else { 1.0 });
        Value::from(Tensor::new([1, 6, count], data.collect::<Vec<_>>()).unwrap())
    };
    vec![
        ("json-template", json!({"template": vec!["{{x}}"; 40]}), vec![whole(&[1 << 20, 0], 1)]),
        ("json-template", json!({"template": "{{x}} {{x}}", "lists": "json"}), vec![whole(&[1 << 20, 0], 1)]),
        (
            "json-template",
            json!({"template": ["{{x}}", "{{x}} "], "lists": "json"}),
            vec![json!(vec![0.5; 1 << 20]).into()],
        ),
        ("labels", json!({"labels": ["a", "b"]}), vec![whole(&[1 << 20, 0], 1)]),
        ("labels", json!({"labels": ["a", "b"]}), vec![whole(&[[1 << 16].as_slice(), &[1; 60]].concat(), 1)]),
        (
            "nms",
            json!({"score_threshold": 0.0, "multi_label": true, "iou_threshold": 1.0, "max_detections": 30_000}),
            vec![spread(30_000)],
        ),
        ("nms", json!({"score_threshold": 0.0, "class_agnostic": true}), vec![tensor(&[1, 6, 500_000], 1.0)]),
        ("ctc-greedy-decode", json!({"vocabulary": ["<pad>", "a", "b", "|"]}), vec![tensor(&[1 << 20, 4], 1.0)]),
        ("ctc-greedy-decode", json!({"vocabulary": ["<pad>", "a"]}), vec![tensor(&[1 << 19, 0, 2], 1.0)]),
        ("top-k", json!({"k": 1 << 18}), vec![tensor(&[1 << 18], 1.0)]),
        ("top-k", json!({"k": 1}), vec![tensor(&[1 << 17, 1], 1.0)]),
        ("threshold", json!({"gives": "mask"}), vec![tensor(&[1 << 20, 0], 1.0)]),
        ("cosine", json!({"vectors": [[1, 0, 0], [0, 1, 0]]}), vec![tensor(&[1 << 17, 3], 1.0)]),
        ("mean-pool", json!({}), vec![tensor(&[1 << 20, 1, 4], 1.0), whole(&[1 << 20, 1], 1)]),
        ("mean-pool", json!({}), vec![tensor(&[1 << 20, 0, 1], 1.0), whole(&[1 << 20, 0], 1)]),
        ("softmax", json!({"axis": 0}), vec![tensor(&[2, 2 << 20], 1.0)]),
        ("argmax", json!({"axis": 0}), vec![tensor(&[4 << 20, 1], 1.0)]),
    ]
}

fn text_cases() -> Vec<Case> {
    let file = json!("tokenize/wordpiece.json");
    vec![
        ("join", json!({"how": "concat"}), vec![tensor(&[1 << 20, 1, 4], 1.0)]),
        ("join", json!({"how": "max"}), vec![tensor(&[1 << 20, 0], 1.0)]),
        ("chunk", json!({"max_length": 64, "stride": 63}), vec![whole(&[1 << 16], 1)]),
        ("chunk", json!({"max_length": 1}), vec![whole(&[4 << 20], 1)]),
        ("chunk", json!({"tokenizer": file, "max_length": 64, "stride": 60}), vec!["a b ".repeat(1 << 18).into()]),
        (
            "tokenize",
            json!({"tokenizer": file, "max_length": 512, "padding": "max_length"}),
            vec![json!(vec![""; 4096]).into()],
        ),
        ("tokenize", json!({"tokenizer": "tokenize/unigram.json"}), vec!["a".repeat(4 << 20).into()]),
        (
            "tokenize",
            json!({"tokenizer": "tokenize/bpe.json"}),
            vec!["a".repeat(4 << 20).into(), "b ".repeat(2 << 20).into()],
        ),
        ("join-texts", json!({}), vec![json!(vec!["a"; 1 << 20]).into()]),
        ("normalize-text", json!({"form": "nfd"}), vec![format!("a{}", "\u{301}\u{316}".repeat(4 << 20)).into()]),
        ("detokenize", json!({"tokenizer": file}), vec![whole(&[1 << 20, 0], 1)]),
        ("detokenize", json!({"tokenizer": file}), vec![whole(&[1 << 18, 1], 40)]),
    ]
}

fn audio_cases() -> Vec<Case> {
    vec![
        ("frame", json!({"frame_length": 400, "hop_length": 1}), vec![tensor(&[1, 40_000], 0.1)]),
        ("mel-spectrogram", json!({"hop_length": 1}), vec![tensor(&[1, 60_000], 0.1)]),
        (
            "fbank",
            json!({"sample_rate": 16_000, "frame_shift": 0.1, "snip_edges": false}),
            vec![tensor(&[1, 60_000], 0.1)],
        ),
        ("fbank", json!({"sample_rate": 16_000, "frame_length": 1000}), vec![tensor(&[1, 2 << 20], 0.1)]),
        ("resample", json!({"from": 16_000, "to": 44_100}), vec![tensor(&[1, 2 << 20], 0.1)]),
        ("resample", json!({"from": 16_000, "to": 15_999}), vec![tensor(&[1 << 20, 0], 0.1)]),
        ("mono", json!({}), vec![tensor(&[1 << 20, 4], 0.1)]),
    ]
}

fn tensor_cases() -> Vec<Case> {
    vec![
        ("one-hot", json!({"classes": 1 << 10}), vec![whole(&[1 << 12], 3)]),
        ("split", json!({"axis": 0, "sizes": vec![0; 64]}), vec![tensor(&[0, 1 << 20], 1.0)]),
        ("split", json!({"axis": 0, "parts": 64}), vec![tensor(&[1 << 20, 1], 1.0)]),
        ("expand", json!({"broadcast": [1 << 10, 1 << 13]}), vec![tensor(&[1, 1 << 13], 1.0)]),
        ("expand", json!({"broadcast": [1 << 20, 0]}), vec![tensor(&[1, 0], 1.0)]),
        (
            "pad-tensor",
            json!({"pads": [[1 << 10, 1 << 10], [1 << 10, 1 << 10]], "mode": "reflect"}),
            vec![tensor(&[1100, 1100], 1.0)],
        ),
        ("cast", json!({"to": "string"}), vec![tensor(&[1 << 18], 0.1)]),
        ("max", json!({"axis": 0}), vec![tensor(&[2048, 2048], 0.1)]),
        ("mean", json!({"axis": [0, 2]}), vec![tensor(&[64, 1 << 10, 64], 0.1)]),
        ("sum", json!({"axis": -1}), vec![tensor(&[1 << 20, 0], 0.1)]),
        ("sum", json!({"axis": 0}), vec![tensor(&[1, 4 << 20], 0.1)]),
        ("standardize", json!({"axis": 0}), vec![tensor(&[2048, 2048], 0.1)]),
    ]
}

fn image_cases() -> Vec<Case> {
    let boxes = json!(vec![json!({"box": [0, 0, 2000, 2000], "label": "a"}); 20_000]);
    let turned = json!(vec![json!({"points": [[0, 9], [1990, 0], [1e6, 2000], [20, 1e6]]}); 1000]);
    vec![
        ("resize", json!({"size": 4000, "filter": "bicubic"}), vec![image(4, 4)]),
        ("resize", json!({"size": 8, "library": "torch", "antialias": true}), vec![image(4000, 4000)]),
        ("resize", json!({"size": 8}), vec![tensor(&[8, 8, 1 << 18], 1.0)]),
        ("resize", json!({"size": 64}), vec![tensor(&[1, 1, 4 << 20], 1.0)]),
        ("resize", json!({"min_edge": 4000}), vec![image(2, 3)]),
        ("letterbox", json!({"size": 4000}), vec![image(1, 20_000)]),
        ("pad", json!({"padding": 2000, "mode": "symmetric"}), vec![image(2100, 2100)]),
        ("rotate", json!({"degrees": 30, "filter": "bicubic"}), vec![image(3000, 3000)]),
        ("draw-boxes", json!({}), vec![image(2000, 2000), boxes.into()]),
        ("draw-boxes", json!({"thickness": 50}), vec![image(2000, 2000), turned.into()]),
        (
            "warp",
            json!({"size": 4000, "filter": "bicubic"}),
            vec![image(2000, 2000), json!([[1, 2], [1900, 4], [1950, 1960], [3, 1980]]).into()],
        ),
        ("encode-image", json!({"compression": "best"}), vec![image(2000, 2000)]),
        ("encode-image", json!({"format": "jpeg"}), vec![image(2000, 2000)]),
        ("encode-image", json!({"format": "webp"}), vec![image(1000, 1000)]),
        ("mask", json!({}), vec![whole(&[1, 1], 3), image(2000, 2000)]),
        ("mask", json!({"gives": "alpha"}), vec![tensor(&[2000, 2000], 0.5), image(2, 2000)]),
        ("find-boxes", json!({"threshold": 0.5}), vec![map(2048, 2048, |x, y| (x + y) % 2 == 0)]),
        ("find-boxes", json!({"threshold": 0.5}), vec![map(2048, 2048, |x, y| x % 2 == 0 && y % 2 == 0)]),
        // Rings in rings, each around all that are in it.
        (
            "find-boxes",
            json!({"threshold": 0.5, "box_threshold": 0.0, "score_mode": "slow", "max_candidates": 10_000}),
            vec![map(2048, 2048, |x, y| x.min(y).min(2047 - x).min(2047 - y) % 2 == 0)],
        ),
        (
            "find-boxes",
            json!({"threshold": 0.5, "box_threshold": 0.0, "max_candidates": 10_000}),
            vec![map(2048, 2048, |x, y| x.min(y).min(2047 - x).min(2047 - y) % 2 == 0)],
        ),
        // One border that goes through every column.
        (
            "find-boxes",
            json!({"threshold": 0.5, "box_threshold": 0.0, "score_mode": "slow"}),
            vec![map(2048, 2048, |x, y| x % 2 == 0 || y == 0)],
        ),
        ("warp", json!({}), vec![image(4, 4), json!([[0, 0], [1e6, 0], [1e6, 60], [0, 60]]).into()]),
        ("warp", json!({"size": 4000, "template": [[0, 0], [1, 1]]}), vec![image(4, 4), json!(vec![[0, 0]; 2]).into()]),
        ("normalize", json!({"method": "min-max"}), vec![image(3000, 3000)]),
        ("crop", json!({"height": 3000, "width": 3000}), vec![image(4, 4)]),
    ]
}

/// The violation of a run, if any.
fn fault(step: &dyn Step, inputs: &[Option<Value>]) -> Option<String> {
    let kinds: Vec<_> = inputs.iter().map(|value| value.as_ref().map(Value::kind)).collect();
    let begin = processor_time();
    let Ok(outputs) = step.infer(&kinds) else { return None };
    let says = outputs.iter().map(known).fold(step.buffers(inputs), usize::saturating_add);
    let taken = processor_time().saturating_sub(begin);
    if taken > TIME + LATE {
        return Some(format!("takes {taken:?} to say what it needs"));
    }
    // A pipeline may still run combinations that are rejected here.
    if says > 8 * MEMORY {
        return None;
    }
    let mut taken = Duration::ZERO;
    let run = || {
        let begin = processor_time();
        let context = &mut Context { deadline: Instant::now().checked_add(TIME), ..Context::default() };
        drop(step.run(inputs.to_vec(), context));
        taken = processor_time().saturating_sub(begin);
    };
    let peak = measure(run).bytes_max as usize;
    if says <= MEMORY && peak > says + SMALL {
        return Some(format!("takes {peak} bytes, but says {says}"));
    }
    (taken > TIME + LATE).then(|| format!("ends after {taken:?}"))
}

fn sweep(names: impl Fn(&str) -> bool) {
    let mut faults = Vec::new();
    let mut runs = 0;
    let mut check = |name: &str, options: &Json, step: &dyn Step, inputs: &[Option<Value>]| {
        runs += 1;
        let begin = Instant::now();
        let fault = fault(step, inputs);
        let given: Vec<_> = inputs.iter().map(|value| value.as_ref().map(Value::kind)).collect();
        let line = format!(
            "{name} {options} {given:?} of {} bytes",
            inputs.iter().flatten().map(Value::byte_len).sum::<usize>()
        );
        if begin.elapsed() > Duration::from_secs(1) {
            println!("{:?}: {line}", begin.elapsed());
        }
        faults.extend(fault.map(|fault| format!("{line}: {fault}")));
    };
    let mut seen: Vec<&str> = Vec::new();
    for (name, options, _) in cases() {
        if names(name) && !seen.contains(&name) {
            seen.push(name);
            let step = step(name, options.clone());
            for inputs in generic(&*step) {
                check(name, &options, &*step, &inputs);
            }
        }
    }
    for (name, options, inputs) in fitting().into_iter().filter(|(name, ..)| names(name)) {
        let step = step(name, options.clone());
        let mut inputs: Vec<_> = inputs.into_iter().map(Some).collect();
        inputs.resize(step.signature().inputs.len(), None);
        let shown = if options.to_string().len() > 300 { json!("…") } else { options };
        check(name, &shown, &*step, &inputs);
    }
    println!("{runs} runs of {} steps", seen.len());
    assert!(!seen.is_empty() && runs > seen.len());
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

/// The group of a step, by its name.
fn group(name: &str) -> &'static str {
    let registry = gpux::builtins();
    registry.builtin(name).unwrap().group.name()
}

#[test]
fn image_steps_stay_within_time_and_memory_limits() {
    sweep(|name| group(name) == "image");
}

#[test]
fn text_steps_stay_within_time_and_memory_limits() {
    sweep(|name| group(name) == "text");
}

#[test]
fn audio_steps_stay_within_time_and_memory_limits() {
    sweep(|name| group(name) == "audio");
}

#[test]
fn tensor_steps_stay_within_time_and_memory_limits() {
    sweep(|name| group(name) == "tensor");
}

#[test]
fn output_steps_stay_within_time_and_memory_limits() {
    sweep(|name| group(name) == "output");
}
