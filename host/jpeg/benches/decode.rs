//! A photo of 800 × 600 pixels, beside the decoder of the crate `image` (zune-jpeg).
#![allow(clippy::unwrap_used, reason = "a benchmark stops at the first surprise")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gpux_jpeg::Decoder;
use image::codecs::jpeg::JpegEncoder;

const PHOTO: &[u8] = include_bytes!("../../../models/samples/eight.jpg");

/// The photo in a file of quality 95, which is mostly coefficients.
fn high_quality() -> Vec<u8> {
    let mut file = Vec::new();
    let photo = image::load_from_memory(PHOTO).unwrap().into_rgb8();
    photo.write_with_encoder(JpegEncoder::new_with_quality(&mut file, 95)).unwrap();
    file
}

fn decode(criterion: &mut Criterion) {
    let high_quality = high_quality();
    let mut group = criterion.benchmark_group("decode");
    for (name, file) in [("photo", PHOTO), ("quality 95", &high_quality)] {
        let info = Decoder::new(file).unwrap().info();
        group.throughput(Throughput::Elements(u64::from(info.width) * u64::from(info.height)));
        group.bench_function(format!("gpux-jpeg, {name}"), |bencher| {
            bencher.iter(|| Decoder::new(file).unwrap().decode().unwrap());
        });
        group.bench_function(format!("image, {name}"), |bencher| {
            bencher.iter(|| image::load_from_memory(file).unwrap().into_rgb8());
        });
    }
    group.finish();
}

criterion_group!(benches, decode);
criterion_main!(benches);
