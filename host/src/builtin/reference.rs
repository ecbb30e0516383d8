//! The steps against the numbers of the libraries they follow: `tests/reference/builtin/`, made by
//! its `make.py`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests")]

use serde_json::{Value as Json, json};

use crate::pipeline::{
    Color, Context, ElementType, Layout, Metadata, ProjectFiles, Site, Step, Tensor, TensorElement, Value,
};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/reference/builtin/");

pub(super) fn read(path: &str) -> Vec<u8> {
    std::fs::read(format!("{FOLDER}{path}")).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Numbers below what is asked for, the same in every run.
pub(super) fn random() -> impl FnMut(usize) -> usize {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    }
}

fn read_json(path: &str) -> Json {
    serde_json::from_slice(&read(path)).unwrap()
}

/// Bytes that were packed as the pixels of a gray PNG.
fn unpack(path: &str) -> Vec<u8> {
    image::load_from_memory(&read(path)).unwrap().into_luma8().into_raw()
}

pub(super) fn step(name: &str, options: Json) -> Box<dyn Step> {
    let files = ProjectFiles::new(FOLDER, false);
    let builtin = super::all().into_iter().find(|builtin| builtin.name == name).unwrap();
    (builtin.build)(options, &Site::Pipeline(&files)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Runs a step and checks that it gave what it had promised.
fn run(step: &dyn Step, inputs: Vec<Value>) -> Vec<Value> {
    let kinds: Vec<_> = inputs.iter().map(|value| Some(value.kind())).collect();
    let promised = step.infer(&kinds).unwrap();
    let given = step.run(inputs.into_iter().map(Some).collect(), &mut Context::default()).unwrap();
    assert_eq!(promised.len(), given.len());
    for (promised, given) in promised.iter().zip(&given) {
        promised.accepts(&given.kind()).unwrap();
    }
    given
}

fn run_tensor(step: &dyn Step, input: impl Into<Value>) -> Tensor {
    run(step, vec![input.into()]).remove(0).as_tensor().unwrap().clone()
}

/// How far samples are from those of the reference.
#[derive(Debug, Default)]
struct Difference {
    samples: usize,
    unequal: usize,
    largest: u8,
    sum: u64,
}

impl Difference {
    fn add(&mut self, ours: &[u8], theirs: &[u8]) {
        assert_eq!(ours.len(), theirs.len());
        for (ours, theirs) in ours.iter().zip(theirs) {
            let by = ours.abs_diff(*theirs);
            self.samples += 1;
            self.unequal += usize::from(by != 0);
            self.largest = self.largest.max(by);
            self.sum += u64::from(by);
        }
    }

    fn mean(&self) -> f64 {
        self.sum as f64 / self.samples as f64
    }
}

#[test]
fn decode_follows_pillow() {
    let index = read_json("decode/index.json");
    let files = index.as_object().unwrap();
    assert!(files.len() > 30);
    for (name, size) in files {
        let expected = unpack(&format!("decode/{name}.pixels.png"));
        let (height, width) = (size["height"].as_u64().unwrap() as usize, size["width"].as_u64().unwrap() as usize);
        let mut start = 0;
        let lossless = name.ends_with("png");
        let channels = if lossless { &["rgb", "gray", "rgba"][..] } else { &["rgb"] };
        for channels in channels {
            let tensor =
                run_tensor(&*step("decode-image", json!({"channels": channels})), read(&format!("decode/{name}")));
            let color =
                [Color::Rgb, Color::Gray, Color::Rgba].into_iter().find(|color| color.name() == *channels).unwrap();
            assert_eq!(tensor.shape(), [height, width, color.channels()], "{name}");
            assert_eq!((tensor.metadata.layout, tensor.metadata.color), (Some(Layout::Hwc), Some(color)));
            let ours = tensor.as_slice::<u8>().unwrap();
            let theirs = &expected[start..start + ours.len()];
            start += ours.len();
            if lossless {
                assert!(ours == theirs, "{name} as {channels}:\n{ours:?}\n{theirs:?}");
            } else {
                let mut difference = Difference::default();
                difference.add(ours, theirs);
                println!("{name}: mean {:.3}, {difference:?}", difference.mean());
                assert!(difference.largest <= 4, "{name}: {difference:?}");
                // Colours that change from pixel to pixel are beyond what 4:2:0 can hold.
                let mean = if name == "harsh.jpg" { 0.5 } else { 0.25 };
                assert!(difference.mean() <= mean, "{name}: {difference:?}");
            }
        }
    }
}

#[test]
fn orientation_may_be_ignored() {
    let step = step("decode-image", json!({"orientation": false}));
    assert_eq!(run_tensor(&*step, read("decode/exif-6.jpg")).shape(), [18, 30, 3]);
}

#[test]
fn resize_follows_pillow() {
    let samples = unpack("resize/samples.png");
    let mut totals = std::collections::BTreeMap::<String, Difference>::new();
    for case in read_json("resize/index.json").as_array().unwrap() {
        let number = |value: &Json| value.as_u64().unwrap() as usize;
        let shape: Vec<usize> = case["shape"].as_array().unwrap().iter().map(number).collect();
        let element: ElementType = case["element"].as_str().unwrap().parse().unwrap();
        let bytes = element.size().unwrap();
        let (at, expected) = (number(&case["at"]), number(&case["expected"]));
        let given = &samples[at..at + shape.iter().product::<usize>() * bytes];
        let color = [Color::Gray, Color::Rgb, Color::Rgba].into_iter().find(|color| color.channels() == shape[2]);
        let metadata = Metadata { layout: Some(Layout::Hwc), color, ..Metadata::default() };
        let tensor = Tensor::from_bytes(element, shape.clone(), given).unwrap().with_metadata(metadata);
        let filter = case["filter"].as_str().unwrap();
        let resized = run_tensor(&*step("resize", json!({"size": case["size"], "filter": filter})), tensor);
        let theirs = &samples[expected..expected + resized.byte_len()];
        if element == ElementType::Float32 {
            let theirs: &[f32] = &bytemuck::pod_collect_to_vec(theirs);
            for (ours, theirs) in resized.as_slice::<f32>().unwrap().iter().zip(theirs) {
                assert!((ours - theirs).abs() <= 2e-6, "{case}: {ours} {theirs}");
            }
        } else {
            let key = format!("{} {filter}", case["name"].as_str().unwrap());
            let total = totals.entry(key).or_default();
            let ours = resized.as_slice::<u8>().unwrap();
            total.add(ours, theirs);
            if filter == "nearest" || filter == "area" {
                assert_eq!(ours, theirs, "{case}");
            }
            for (ours, theirs) in ours.chunks_exact(shape[2]).zip(theirs.chunks_exact(shape[2])) {
                // A level of a colour weighed by its opacity is several of the colour itself.
                let level = if shape[2] == 4 { 255_u8.div_ceil(theirs[3].max(1)) } else { 1 };
                let near = ours.iter().zip(theirs).all(|(ours, theirs)| ours.abs_diff(*theirs) <= level);
                assert!(
                    near && ours.last().unwrap().abs_diff(*theirs.last().unwrap()) <= 1,
                    "{case}: {ours:?} {theirs:?}"
                );
            }
        }
    }
    for (name, total) in totals {
        println!("{name}: {} of {} samples differ", total.unequal, total.samples);
        assert!(total.unequal * 20 <= total.samples, "{name}: {total:?}");
    }
}

fn numbers(value: &Json) -> (Vec<usize>, Vec<f64>) {
    let shape = value["shape"].as_array().unwrap().iter().map(|size| size.as_u64().unwrap() as usize).collect();
    (shape, value["data"].as_array().unwrap().iter().map(|number| number.as_f64().unwrap_or(f64::NAN)).collect())
}

fn tensor(value: &Json, element: &Json) -> Tensor {
    let (shape, data) = numbers(value);
    Tensor::new(shape, data).unwrap().cast(element.as_str().unwrap().parse().unwrap()).unwrap()
}

fn assert_close(tensor: &Tensor, expected: &Json, tolerance: f64, what: &Json) {
    let (shape, expected) = numbers(expected);
    assert_eq!(tensor.shape(), shape);
    let ours = tensor.cast(ElementType::Float64).unwrap();
    for (ours, theirs) in ours.as_slice::<f64>().unwrap().iter().zip(expected) {
        let same = ours.is_nan() && theirs.is_nan() || (ours - theirs).abs() <= tolerance * theirs.abs().max(1.0);
        assert!(same, "{ours} is not {theirs}: {what}");
    }
}

#[test]
fn normalize_follows_numpy() {
    for case in read_json("normalize/cases.json").as_array().unwrap() {
        let layout = match case["layout"].as_str() {
            Some("HWC") => Some(Layout::Hwc),
            Some("CHW") => Some(Layout::Chw),
            _ => None,
        };
        let metadata = Metadata { layout, ..Metadata::default() };
        let given = tensor(&case["input"], &case["element"]).with_metadata(metadata);
        let step = step("normalize", case["options"].clone());
        for element in [given.element(), ElementType::Float32, ElementType::Float64] {
            let given = given.cast(element).unwrap();
            let shared = given.clone();
            let normalized = run_tensor(&*step, shared);
            assert_eq!(normalized.element(), ElementType::Float32);
            assert_eq!(normalized.metadata, metadata);
            assert_close(&normalized, &case["output"], 1e-6, &case["options"]);
            let alone = step.run(vec![Some(given.into())], &mut Context::default()).unwrap();
            assert_eq!(alone[0].as_tensor(), Some(&normalized), "in place and copied agree");
        }
    }
}

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
