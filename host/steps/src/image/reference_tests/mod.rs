//! The image steps against Pillow and NumPy.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests")]

mod decode;
mod geometry;
mod steps;

use serde_json::{Value as Json, json};

use crate::reference::{assert_close, read, read_json, run_tensor, step, tensor, unpack};
use gpux_core::{Color, Context, ElementType, Layout, Metadata, Tensor};

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
                assert_eq!(difference.largest, 0, "{name}: {difference:?}");
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
            assert_eq!(ours, theirs, "{case}");
        }
    }
    for (name, total) in totals {
        println!("{name}: {} of {} samples differ", total.unequal, total.samples);
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
