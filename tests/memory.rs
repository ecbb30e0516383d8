//! Compares the memory that built-in steps declare (`Step::buffers`, and outputs whose size the plan
//! knows) with their use: the peak that a counting allocator sees. Every step, on a small and
//! a large input. A component's memory limit relies on these declarations.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests")]

use std::io::Cursor;

use allocation_counter::measure;
use gpux_core::{Context, Dim, ElementType, Kind, Layout, Metadata, OptionOrigin, ProjectFiles, Step, Tensor, Value};
use image::{DynamicImage, ImageFormat, RgbImage};
use serde_json::{Value as Json, json};

mod sweep;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/reference/builtin/");

/// Bytes besides payloads: lists, shapes, tables of a fixed size, plans of transforms.
const SMALL: usize = 256 << 10;

/// A step, its options, and its inputs at a size from 1 on.
type Case = (&'static str, Json, fn(usize) -> Vec<Value>);

fn step(name: &str, options: Json) -> Box<dyn Step> {
    let registry = gpux::builtins();
    let files = ProjectFiles::new(FOLDER, false);
    let build = registry.builtin(name).unwrap().build;
    build(options, &OptionOrigin::folder(&files)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn noise(count: usize) -> impl Iterator<Item = u8> {
    let mut state = 1_u32;
    (0..count).map(move |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    })
}

fn pixels(size: usize) -> Tensor {
    let (height, width) = (30 * size, 40 * size);
    let metadata = Metadata { layout: Some(Layout::Hwc), ..Metadata::default() };
    Tensor::new([height, width, 3], noise(height * width * 3).collect::<Vec<_>>()).unwrap().with_metadata(metadata)
}

fn picture(size: usize) -> Vec<Value> {
    vec![pixels(size).into()]
}

fn floats(shape: &[usize]) -> Tensor {
    let count = shape.iter().product();
    Tensor::new(shape, noise(count).map(|byte| f32::from(byte) / 100.0 - 1.0).collect::<Vec<_>>()).unwrap()
}

fn numbers(size: usize) -> Vec<Value> {
    vec![floats(&[10 * size, 20 * size]).into()]
}

fn two(size: usize) -> Vec<Value> {
    [numbers(size), numbers(size)].concat()
}

fn whole(shape: &[usize], value: i64) -> Value {
    Tensor::new(shape, vec![value; shape.iter().product()]).unwrap().into()
}

fn words(size: usize) -> Vec<Value> {
    vec!["The quick brown fox jumps over Zürich. ".repeat(size * size).into()]
}

/// Text whose every byte is a token.
fn dense(size: usize) -> Vec<Value> {
    vec!["!?".repeat(20 * size * size).into()]
}

fn sound(size: usize) -> Vec<Value> {
    let sound = floats(&[1, 1000 * size * size]);
    vec![sound.with_metadata(Metadata { sample_rate: Some(16_000), ..Metadata::default() }).into()]
}

fn tokens(size: usize) -> Vec<Value> {
    vec![floats(&[size, 12, 64]).into(), whole(&[size, 12], 1)]
}

fn file(size: usize, format: ImageFormat, flat: bool) -> Vec<Value> {
    let (width, height) = (40 * size as u32, 30 * size as u32);
    let samples: Vec<u8> =
        noise(width as usize * height as usize * 3).map(|level| if flat { 9 } else { level }).collect();
    let mut bytes = Cursor::new(Vec::new());
    DynamicImage::from(RgbImage::from_raw(width, height, samples).unwrap()).write_to(&mut bytes, format).unwrap();
    vec![bytes.into_inner().into()]
}

fn wav(size: usize) -> Vec<Value> {
    let data: Vec<u8> = noise(4000 * size * size).collect();
    let length = |bytes: usize| (bytes as u32).to_le_bytes();
    let format = [&[1, 0, 2, 0][..], &16_000_u32.to_le_bytes(), &64_000_u32.to_le_bytes(), &[4, 0, 16, 0]].concat();
    let parts: [&[u8]; 8] =
        [b"RIFF", &length(36 + data.len()), b"WAVEfmt ", &length(16), &format, b"data", &length(data.len()), &data];
    vec![parts.concat().into()]
}

fn read(name: &str) -> Vec<Value> {
    vec![std::fs::read(format!("{FOLDER}{name}")).unwrap().into()]
}

fn cases() -> Vec<Case> {
    let tokenizer = json!("tokenize/wordpiece.json");
    let mut cases = images();
    cases.extend::<[Case; 41]>([
        ("join-texts", json!({}), words),
        ("normalize-text", json!({"form": "nfkd", "case": "lower", "white_space": "collapse"}), words),
        ("tokenize", json!({"tokenizer": tokenizer}), words),
        ("tokenize", json!({"tokenizer": "tokenize/bpe.json", "max_length": 16}), words),
        ("tokenize", json!({"tokenizer": "tokenize/unigram.json"}), words),
        ("chunk", json!({"tokenizer": tokenizer, "max_length": 32, "stride": 8}), words),
        ("chunk", json!({"tokenizer": tokenizer, "max_length": 64, "stride": 60}), words),
        ("tokenize", json!({"tokenizer": tokenizer}), dense),
        ("tokenize", json!({"tokenizer": tokenizer}), |size| {
            vec!["a b ".repeat(99).into(), json!(vec!["c"; 9 * size]).into()]
        }),
        ("tokenize", json!({"tokenizer": "tokenize/bpe.json"}), dense),
        ("tokenize", json!({"tokenizer": "tokenize/unigram.json"}), dense),
        ("chunk", json!({"tokenizer": tokenizer, "max_length": 64, "stride": 48}), dense),
        ("chunk", json!({"max_length": 64, "stride": 60}), |size| vec![whole(&[100 * size], 1)]),
        ("detokenize", json!({"tokenizer": tokenizer}), |size| vec![whole(&[20 * size * size], 40)]),
        ("join", json!({"how": "mean"}), |size| vec![floats(&[10 * size, 64]).into(), whole(&[10 * size], 0)]),
        ("decode-audio", json!({}), wav),
        ("decode-audio", json!({}), |_| read("audio/decode/48k.mp3")),
        ("decode-audio", json!({}), |_| read("audio/decode/clipped.ogg")),
        ("decode-audio", json!({}), |_| read("audio/decode/s16.flac")),
        ("resample", json!({"to": 44_100}), sound),
        ("resample", json!({"to": 8000}), sound),
        ("mono", json!({}), |size| vec![floats(&[2, 1000 * size * size]).into()]),
        ("pad-or-trim", json!({"length": 100_000}), sound),
        ("frame", json!({"frame_length": 400, "hop_length": 50}), sound),
        ("mel-spectrogram", json!({}), sound),
        ("mel-spectrogram", json!({"method": "whisper"}), sound),
        ("fbank", json!({"sample_rate": 16_000}), sound),
        ("fbank", json!({"sample_rate": 16_000, "frame_shift": 0.2, "use_energy": true, "snip_edges": false}), sound),
        ("mfcc", json!({}), |size| vec![floats(&[40, 50 * size]).into()]),
        ("cast", json!({"to": "float64"}), numbers),
        ("clip", json!({"min": 0, "max": 1}), numbers),
        ("concat", json!({"axis": 0}), two),
        ("expand", json!({"axes": 0}), numbers),
        ("one-hot", json!({"classes": 50}), |size| vec![whole(&[10 * size], 3)]),
        ("pad-tensor", json!({"pads": [[1, 1], [2, 2]]}), numbers),
        ("reshape", json!({"shape": [-1]}), numbers),
        ("scale", json!({"factor": 2}), numbers),
        ("slice", json!({"index": "0:5"}), numbers),
        ("split", json!({"axis": 0, "parts": 2}), numbers),
        ("squeeze", json!({}), |size| vec![floats(&[1, 100 * size]).into()]),
        ("stack", json!({"axis": 0}), two),
    ]);
    cases.extend(outputs());
    cases
}

/// Squares of 16 pixels in a map of noise.
fn map(size: usize) -> Vec<Value> {
    let side = 30 * size;
    let noise = floats(&[side, side]);
    let numbers = noise.as_slice::<f32>().unwrap().iter().enumerate();
    let map =
        numbers.map(|(at, number)| if at / side % 20 < 16 && at % side % 20 < 16 { number + 2.0 } else { *number });
    vec![Tensor::new([1, 1, side, side], map.collect::<Vec<_>>()).unwrap().into()]
}

/// Five points of a face.
fn landmarks() -> Value {
    json!([[11, 9], [22, 8], [17, 15], [12, 20], [21, 21]]).into()
}

fn images() -> Vec<Case> {
    let mut cases: Vec<Case> = vec![
        ("decode-image", json!({}), |size| file(size, ImageFormat::Jpeg, false)),
        ("decode-image", json!({"channels": "gray"}), |size| file(size, ImageFormat::Png, false)),
        ("decode-image", json!({"depth": 16}), |size| file(size, ImageFormat::Png, true)),
        ("decode-image", json!({"channels": "rgba"}), |size| file(size, ImageFormat::Gif, false)),
        ("decode-image", json!({}), |size| file(size, ImageFormat::Bmp, false)),
        ("decode-image", json!({}), |size| file(size, ImageFormat::Tiff, false)),
        ("decode-image", json!({}), |size| file(size, ImageFormat::WebP, false)),
        ("decode-image", json!({}), |size| file(size, ImageFormat::WebP, true)),
        ("draw-boxes", json!({}), |size| {
            vec![pixels(size).into(), json!([{"box": [1, 2, 30, 40], "label": "a"}]).into()]
        }),
        ("draw-boxes", json!({}), |size| [file(size, ImageFormat::Png, true), vec![json!([]).into()]].concat()),
    ];
    cases.extend::<[Case; 33]>([
        ("mask", json!({}), |size| vec![whole(&[30 * size, 40 * size], 3), pixels(size).into()]),
        ("mask", json!({}), |size| vec![floats(&[15 * size, 20 * size]).into(), pixels(size).into()]),
        ("mask", json!({}), |size| vec![floats(&[15 * size, 20 * size]).into()]),
        ("encode-image", json!({}), picture),
        ("encode-image", json!({"compression": "best"}), picture),
        ("encode-image", json!({"format": "jpeg", "quality": 100}), picture),
        ("encode-image", json!({"format": "webp"}), picture),
        ("resize", json!({"min_edge": 100, "max_edge": 300, "multiple_of": 32}), picture),
        ("resize", json!({"size": 100, "filter": "bicubic"}), |size| vec![floats(&[20 * size, 30 * size, 5]).into()]),
        ("pad", json!({"square": true}), picture),
        ("find-boxes", json!({"threshold": 0.0, "box_threshold": 0.0}), map),
        ("find-boxes", json!({"threshold": 0.0, "box_threshold": 0.0, "score_mode": "slow", "dilation": true}), map),
        ("warp", json!({"size": "box", "rotate_tall": 1.5, "filter": "bicubic"}), |size| {
            let side = 25 * size;
            vec![pixels(size).into(), json!([[1, 2], [9, 3], [8, side], [1, side]]).into()]
        }),
        ("warp", json!({"template": "arcface"}), |size| vec![pixels(size).into(), landmarks()]),
        ("warp", json!({"size": 300}), |size| {
            vec![pixels(size).into(), json!({"points": [[1, 2], [9, 3], [8, 20]]}).into()]
        }),
        ("center-crop", json!({"size": 60}), picture),
        ("color", json!({"to": "rgba"}), picture),
        ("crop", json!({"height": 70, "width": 60}), picture),
        ("flip", json!({"direction": "vertical"}), picture),
        ("letterbox", json!({"size": 100}), picture),
        ("letterbox", json!({"size": 1000, "library": "pillow", "filter": "lanczos"}), picture),
        ("normalize", json!({"method": "imagenet"}), picture),
        ("normalize", json!({"method": "min-max"}), picture),
        ("pad", json!({"padding": 50, "mode": "symmetric"}), picture),
        ("resize", json!({"size": 100}), picture),
        ("resize", json!({"size": 900, "filter": "bicubic"}), picture),
        ("resize", json!({"size": 100, "filter": "area"}), picture),
        ("resize", json!({"size": 300, "library": "opencv", "filter": "area"}), picture),
        ("resize", json!({"size": 700, "library": "opencv"}), picture),
        ("resize", json!({"size": 300, "library": "torch", "antialias": false}), picture),
        ("rotate", json!({"degrees": 30, "filter": "bicubic"}), picture),
        ("rotate", json!({"degrees": 90}), picture),
        ("to-tensor", json!({"scale": true}), picture),
    ]);
    for name in ["420-33x17-progressive.jpg", "lossy-alpha.webp", "exif-6.tiff", "animated.webp", "bits.tiff"] {
        // A function pointer holds no name, so each has its own.
        let read: fn(usize) -> Vec<Value> = match name {
            "420-33x17-progressive.jpg" => |_| read("image/decode/420-33x17-progressive.jpg"),
            "lossy-alpha.webp" => |_| read("image/decode/lossy-alpha.webp"),
            "exif-6.tiff" => |_| read("image/decode/exif-6.tiff"),
            "animated.webp" => |_| read("image/decode/animated.webp"),
            _ => |_| read("image/decode/bits.tiff"),
        };
        cases.push(("decode-image", json!({}), read));
    }
    cases
}

fn outputs() -> Vec<Case> {
    vec![
        ("transpose", json!({"axes": [1, 0]}), numbers),
        ("argmax", json!({}), numbers),
        ("cls-pool", json!({}), tokens),
        ("cosine", json!({"vectors": [[1, 0, 0], [0, 1, 0]]}), |size| vec![floats(&[size, 3]).into()]),
        ("ctc-greedy-decode", json!({"vocabulary": ["<pad>", "a", "b", "|"]}), |size| {
            vec![floats(&[100 * size, 4]).into()]
        }),
        (
            "ctc-greedy-decode",
            json!({"vocabulary": ["a", "b"], "add_blank": "first", "append_space": true, "score": true, "symbols": true}),
            |size| vec![floats(&[10 * size, 10, 4]).into()],
        ),
        ("json-template", json!({"template": {"all": "{{value}}"}}), |size| {
            vec![json!(vec!["word"; 50 * size]).into()]
        }),
        ("l2-normalize", json!({}), numbers),
        ("labels", json!({"labels": ["none", "some"]}), |size| vec![whole(&[10 * size], 1)]),
        ("log", json!({"epsilon": 1}), numbers),
        ("max", json!({"axis": 0}), numbers),
        ("mean", json!({}), numbers),
        ("mean-pool", json!({}), tokens),
        ("pool", json!({ "mode": ["mean", "max", "weightedmean"] }), tokens),
        ("pool", json!({ "mode": "mean_sqrt_len_tokens" }), tokens),
        ("ner-aggregate", json!({"tokenizer": "tokenize/wordpiece.json", "labels": ["O", "B-A"]}), |size| {
            let offsets = (0..20 * size as i64).flat_map(|at| [at, at + 1]).collect::<Vec<_>>();
            let count = 20 * size;
            vec![
                floats(&[1, count, 2]).into(),
                whole(&[1, count], 40),
                Tensor::new([1, count, 2], offsets).unwrap().into(),
                whole(&[1, count], 0),
                "a".repeat(count).into(),
            ]
        }),
        ("nms", json!({"layout": "yolov8", "max_candidates": 1000}), |size| vec![floats(&[20, 100 * size]).into()]),
        ("qa-span", json!({"top_k": 5}), |size| {
            let count = 50 * size;
            let offsets = (0..count as i64).flat_map(|at| [at, at + 1]).collect::<Vec<_>>();
            vec![
                floats(&[1, count]).into(),
                floats(&[1, count]).into(),
                Tensor::new([1, count, 2], offsets).unwrap().into(),
                whole(&[1, count], 1),
                "a".repeat(count).into(),
            ]
        }),
        ("sigmoid", json!({}), numbers),
        ("softmax", json!({}), numbers),
        ("standardize", json!({}), numbers),
        ("sum", json!({"axis": [0, 1], "keepdims": true}), numbers),
        ("threshold", json!({"threshold": 0.9}), |size| vec![floats(&[100 * size]).into()]),
        ("top-k", json!({"k": 5}), |size| vec![floats(&[1000 * size]).into()]),
    ]
}

/// The size of an output, as far as the plan knows it.
fn known(kind: &Kind) -> usize {
    let Kind::Tensor(tensor) = kind else { return 0 };
    let sizes = tensor
        .shape
        .as_ref()
        .map(|shape| shape.iter().map(|dim| if let Dim::Fixed(size) = dim { *size } else { 0 }).product::<usize>());
    let element = ElementType::ALL.iter().filter(|element| tensor.elements.contains(**element));
    sizes.unwrap_or(0) * element.filter_map(|element| element.size()).min().unwrap_or(0)
}

#[test]
fn steps_allocate_no_more_than_declared() {
    let mut over = Vec::new();
    println!("{:<20}{:>12}{:>12}{:>12}", "step", "input", "says", "takes");
    for (name, options, inputs) in cases() {
        for size in [1, 10] {
            let step = step(name, options.clone());
            let given: Vec<_> = inputs(size).into_iter().map(Some).collect();
            // Once before: tables are made on first use.
            step.run(given.clone(), &mut Context::default()).unwrap_or_else(|why| panic!("{name} {options}: {why}"));
            let kinds: Vec<_> = given.iter().map(|value| value.as_ref().map(Value::kind)).collect();
            let says = step.infer(&kinds).unwrap().iter().map(known).fold(step.buffers(&given), usize::saturating_add);
            let bytes: usize = given.iter().flatten().map(Value::byte_len).sum();
            let taken = measure(|| drop(step.run(given.clone(), &mut Context::default()))).bytes_max as usize;
            println!("{name:<20}{bytes:>12}{says:>12}{taken:>12}  {options}");
            if taken > says.saturating_add(SMALL) {
                over.push(format!("{name} {options} on {bytes} bytes: says {says}, takes {taken}"));
            }
        }
    }
    assert!(over.is_empty(), "{}", over.join("\n"));
}

#[test]
fn measures_every_step() {
    let measured: Vec<_> = cases().into_iter().map(|(name, ..)| name).collect();
    for builtin in gpux::builtins().builtins() {
        assert!(measured.contains(&builtin.name), "{}", builtin.name);
    }
}
