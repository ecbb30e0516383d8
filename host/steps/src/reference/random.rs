//! Steps with random parameters against the libraries they follow: `make_random.py` draws the cases. With
//! `GPUX_RANDOM_CASES`, those of another folder than the one that is checked in.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};

use super::{FOLDER, run, step};
use gpux_core::{Color, ElementType, Metadata, Tensor, Value};

#[derive(Deserialize)]
struct Case {
    name: String,
    step: String,
    options: Json,
    given: RandomInput,
    expected: Expected,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RandomInput {
    File { file: [usize; 2] },
    Noise(Noise),
}

#[derive(Deserialize)]
struct Noise {
    seed: u64,
    element: String,
    shape: Vec<usize>,
    faint: bool,
    low: f32,
    high: f32,
    color: Option<String>,
    rate: Option<u32>,
}

#[derive(Deserialize)]
struct Expected {
    shape: Vec<usize>,
    element: String,
    /// the start of SHA-256, in hexadecimal, of what must be the same to the bit
    hash: Option<String>,
    /// how far numbers may be off
    #[serde(default)]
    bar: f64,
    /// where the numbers that are kept start
    at: Option<usize>,
}

/// Numbers that are kept of a result.
const PROBES: usize = 32;

/// SplitMix64, from its `seed` on.
fn draw(seed: u64, count: usize) -> impl Iterator<Item = u64> {
    (1..=count as u64).map(move |index| {
        let state = index.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed);
        let state = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let state = (state ^ state >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        state ^ state >> 31
    })
}

impl Noise {
    fn tensor(&self) -> Tensor {
        let drawn = draw(self.seed, self.shape.iter().product());
        let tensor = if self.element == "uint8" {
            let mut bytes: Vec<u8> = drawn.map(|number| (number >> 56) as u8).collect();
            if self.faint {
                bytes.iter_mut().skip(3).step_by(4).for_each(|byte| *byte %= 6);
            }
            Tensor::new(self.shape.clone(), bytes).unwrap()
        } else {
            let number = |number| (number >> 40) as f32 / 16_777_216.0 * (self.high - self.low) + self.low;
            Tensor::new(self.shape.clone(), drawn.map(number).collect::<Vec<_>>()).unwrap()
        };
        let colors = [Color::Gray, Color::Rgb, Color::Rgba];
        let color = colors.into_iter().find(|color| Some(color.name()) == self.color.as_deref());
        tensor.with_metadata(Metadata { color, sample_rate: self.rate, ..Metadata::default() })
    }
}

/// Cases of one name: how many there are, how many are wrong, and the largest difference.
#[derive(Default)]
struct Count {
    cases: usize,
    wrong: Vec<String>,
    largest: f64,
}

fn compare(group: &str) {
    let folder = std::env::var_os("GPUX_RANDOM_CASES").map_or(PathBuf::from(FOLDER).join("random"), PathBuf::from);
    let read = |name: &str| std::fs::read(folder.join(group).join(name)).unwrap();
    let cases: Vec<Case> = serde_json::from_slice(&read("cases.json")).unwrap();
    assert!(cases.len() >= 200);
    let files = read("files.bin");
    let parts = image::load_from_memory(&read("numbers.png")).unwrap().into_luma8().into_raw();
    let count = parts.len() / 4;
    let number = |at: usize| f32::from_le_bytes([0, 1, 2, 3].map(|part| parts[part * count + at]));
    let mut counts = BTreeMap::<String, Count>::new();
    for case in &cases {
        let given: Value = match &case.given {
            RandomInput::File { file: [at, length] } => files[*at..*at + *length].to_vec().into(),
            RandomInput::Noise(noise) => noise.tensor().into(),
        };
        let mut ours = run(&*step(&case.step, case.options.clone()), vec![given]);
        let ours = ours.remove(0).as_tensor().unwrap().clone();
        let expected = &case.expected;
        let count = counts.entry(case.name.clone()).or_default();
        count.cases += 1;
        let (difference, right) = if (ours.shape(), ours.element().name()) != (&*expected.shape, &*expected.element) {
            (f64::NAN, false)
        } else if let Some(hash) = &expected.hash {
            let digest = Sha256::digest(ours.bytes().unwrap());
            (
                0.0,
                digest.iter().zip(hash.as_bytes().chunks(2)).all(|(byte, hex)| format!("{byte:02x}").as_bytes() == hex),
            )
        } else {
            let floats = ours.cast(ElementType::Float64).unwrap();
            let floats = floats.as_slice::<f64>().unwrap();
            let probes = floats.len().min(PROBES);
            let off = |probe: usize| {
                let theirs = f64::from(number(expected.at.unwrap() + probe));
                (floats[probe * floats.len() / probes] - theirs).abs()
            };
            let difference = (0..probes).map(off).fold(0.0, f64::max);
            (difference, difference <= expected.bar)
        };
        count.largest = count.largest.max(difference);
        if !right {
            let shape =
                if let RandomInput::Noise(noise) = &case.given { format!("{:?}", noise.shape) } else { String::new() };
            let what = format!("{} {shape} → {:?}", case.options, expected.shape);
            count.wrong.push(format!("{what}: {:?}, off by {difference:.2e} of {:.1e}", ours.shape(), expected.bar));
        }
    }
    let mut wrong = 0;
    for (name, count) in &counts {
        println!(
            "{name}: {} cases, {} mismatches, largest difference {:.2e}",
            count.cases,
            count.wrong.len(),
            count.largest
        );
        count.wrong.iter().take(4).for_each(|what| println!("    {what}"));
        wrong += count.wrong.len();
    }
    println!("{group}: {} cases, {wrong} mismatches", cases.len());
    assert_eq!(wrong, 0);
}

#[test]
fn image_steps_follow_the_libraries() {
    compare("image");
}

#[test]
fn audio_steps_follow_the_libraries() {
    compare("audio");
}
