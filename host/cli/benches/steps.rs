//! The built-in steps on ordinary inputs, and the digits pipeline split by step.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark prints, and stops at the first surprise")]

use std::path::Path;
use std::time::Duration;

use criterion::{Criterion, Throughput};
use gpux::EngineChoice;
use gpux::Runtime;
use gpux_core::{BenchmarkOptions, Context, OptionOrigin, Step, Tensor, Value};
use serde_json::{Value as Json, json};

fn main() {
    pipeline();
    let mut criterion = Criterion::default()
        .without_plots()
        .sample_size(50)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(3))
        .configure_from_args();
    builtins(&mut criterion);
    criterion.final_summary();
}

fn sample(name: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/samples");
    std::fs::read(folder.join(name)).unwrap().into()
}

/// Every step of the digits pipeline, on each engine.
fn pipeline() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for choice in [EngineChoice::OnnxRuntime, EngineChoice::Embedded] {
        let opened = Runtime::builder().options(|options| options.engine.choice = choice).config(&root);
        let Ok(runtime) = opened else {
            println!("no ONNX Runtime here (`gpux engine install` brings one)");
            continue;
        };
        for name in ["seven.png", "eight-small.png"] {
            let request = [("image".to_owned(), sample(name))];
            let options = BenchmarkOptions { runs: 2000, warmup: 200, timeout: None, cancelled: None };
            let benchmark = runtime.plan().benchmark(&request, options).unwrap();
            println!("\ndigits pipeline on {name}, {}", runtime.pipeline().engine());
            println!("{:<20}{:>11}{:>11}", "", "median µs", "lowest µs");
            let steps = benchmark.steps.iter().map(|step| (step.name.as_str(), &step.times));
            for (step, times) in steps.chain([("whole", &benchmark.total)]) {
                println!("{step:<20}{:>11.2}{:>11.2}", times.p50 * 1e3, times.min_inference_time * 1e3);
            }
        }
    }
    println!();
}

fn builtins(criterion: &mut Criterion) {
    let jpeg = sample("eight.jpg");
    let detailed = detailed(&jpeg);
    let png = sample("seven.png");
    let decode = builtin("decode-image", json!({"channels": "rgb"}));
    let photo = run(&*decode, jpeg.clone());
    let gray = run(&*builtin("decode-image", json!({"channels": "gray"})), png.clone());
    let small = run(&*builtin("resize", json!({"size": [224, 224]})), photo.clone());
    let scores = Tensor::new([1, 1000], (0..1000_u32).map(|i| (i * 7919 % 1000) as f32 / 100.0).collect()).unwrap();
    let shares = run(&*builtin("softmax", Json::Null), scores.clone().into());
    let imagenet = json!({"scale": 1.0 / 255.0, "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]});
    let cases = [
        ("decode-image, JPEG 800x600 colour", "decode-image", json!({"channels": "rgb"}), &jpeg, 800 * 600),
        ("decode-image, the same, quality 95", "decode-image", json!({"channels": "rgb"}), &detailed, 800 * 600),
        ("decode-image, PNG 640x480 gray", "decode-image", json!({"channels": "gray"}), &png, 640 * 480),
        ("resize, 800x600 colour to 224x224", "resize", json!({"size": [224, 224]}), &photo, 800 * 600),
        ("resize area, 640x480 gray to 8x8", "resize", json!({"size": [8, 8], "filter": "area"}), &gray, 640 * 480),
        ("normalize, 224x224 colour", "normalize", imagenet, &small, 224 * 224 * 3),
        ("softmax, 1000 classes", "softmax", json!({}), &scores.into(), 1000),
        ("top-k, 5 of 1000", "top-k", json!({"k": 5}), &shares, 1000),
    ];
    let mut group = criterion.benchmark_group("steps");
    for (name, step, options, input, elements) in cases {
        let step = builtin(step, options);
        group.throughput(Throughput::Elements(elements));
        group.bench_function(name, |bencher| bencher.iter(|| run(&*step, input.clone())));
    }
    // What others decode it with in Rust.
    for (name, file) in [("crate image, JPEG 800x600 colour", &jpeg), ("crate image, quality 95", &detailed)] {
        let decode = || image::load_from_memory(bytes(file)).unwrap().into_rgb8();
        group.throughput(Throughput::Elements(800 * 600));
        group.bench_function(name, |bencher| bencher.iter(decode));
    }
    group.finish();
}

/// The same photo in a file of high quality, which is mostly coefficients.
fn detailed(photo: &Value) -> Value {
    let photo = image::load_from_memory(bytes(photo)).unwrap().into_rgb8();
    let mut file = Vec::new();
    photo.write_with_encoder(image::codecs::jpeg::JpegEncoder::new_with_quality(&mut file, 95)).unwrap();
    file.into()
}

fn bytes(file: &Value) -> &[u8] {
    let Value::Bytes(bytes) = file else { unreachable!("a file") };
    bytes
}

fn builtin(name: &str, options: Json) -> Box<dyn Step> {
    let options = if options.is_null() { json!({}) } else { options };
    (gpux::builtins().builtin(name).unwrap().build)(options, &OptionOrigin::Component).unwrap()
}

fn run(step: &dyn Step, value: Value) -> Value {
    step.run(vec![Some(value)], &mut Context::default()).unwrap().remove(0)
}
