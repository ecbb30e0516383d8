//! The numbers of an image from JSON into a tensor: through a tree, as before, and straight.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gpux_core::{Dim, ElementType, Kind, TensorKind, TensorSeed, from_json};
use serde::de::DeserializeSeed as _;

const SHAPE: [usize; 4] = [1, 3, 224, 224];

fn numbers(criterion: &mut Criterion) {
    let count: usize = SHAPE.iter().product();
    // As many digits as normalized pixels have.
    let texts: Vec<_> = (0..count).map(|index| ((index * 7919 % 4096) as f32 / 1024.0 - 2.0).to_string()).collect();
    let text = format!("[{}]", texts.join(","));
    let kind = Kind::Tensor(TensorKind::shaped(ElementType::Float32, SHAPE.map(Dim::Fixed)));
    let mut group = criterion.benchmark_group("150,528 floats of JSON");
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("through a tree", |bencher| {
        bencher.iter(|| from_json(serde_json::from_str(black_box(&text)).ok()?, &kind).ok());
    });
    group.bench_function("straight", |bencher| {
        bencher.iter(|| {
            let mut json = serde_json::Deserializer::from_str(black_box(&text));
            TensorSeed { element: ElementType::Float32, room: count }.deserialize(&mut json).ok()
        });
    });
    group.finish();
}

criterion_group!(benches, numbers);
criterion_main!(benches);
