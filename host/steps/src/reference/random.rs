//! Steps with random parameters against the libraries they follow: `make_random.py` draws the cases. With
//! `GPUX_RANDOM_CASES`, those of another folder than the one that is checked in.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};

use super::boxes::{self, resized};
use super::{FOLDER, run_inputs, step, tensor};
use gpux_core::{Color, ElementType, Metadata, Tensor, Value};

#[derive(Deserialize)]
struct Case {
    name: String,
    step: String,
    options: Json,
    given: RandomInputs,
    expected: Expected,
    /// a step after this one, with its options
    then: Option<(String, Json)>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RandomInputs {
    Inputs(Vec<Option<RandomInput>>),
    Input(RandomInput),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RandomInput {
    File {
        file: [usize; 2],
    },
    /// a map of probabilities, in a PNG of 255 levels
    Levels {
        levels: [usize; 2],
    },
    /// a picture without content, which was made of one of the size `source`
    Resized {
        size: [usize; 2],
        source: [usize; 2],
    },
    Json {
        json: Json,
    },
    Tensor {
        element: Json,
        shape: Json,
        data: Json,
    },
    Noise(Noise),
}

impl RandomInput {
    fn value(&self, files: &[u8]) -> Value {
        let part = |[at, length]: [usize; 2]| &files[at..at + length];
        match self {
            Self::File { file } => part(*file).to_vec().into(),
            Self::Levels { levels } => {
                let map = image::load_from_memory(part(*levels)).unwrap().into_luma8();
                let shape = [map.height() as usize, map.width() as usize];
                let numbers: Vec<f32> = map.into_raw().into_iter().map(|level| f32::from(level) / 255.0).collect();
                Tensor::new(shape, numbers).unwrap().into()
            }
            Self::Resized { size, source } => resized(*size, *source).into(),
            Self::Json { json } => json.clone().into(),
            Self::Tensor { element, shape, data } => {
                tensor(&serde_json::json!({ "shape": shape, "data": data }), element).into()
            }
            Self::Noise(noise) => noise.tensor().into(),
        }
    }

    fn shape(&self) -> String {
        match self {
            Self::Noise(noise) => format!("{} {:?}", noise.element, noise.shape),
            Self::Json { json } => json.to_string(),
            Self::Resized { size, source } => format!("{size:?} of {source:?}"),
            Self::Tensor { data, .. } => data.to_string(),
            Self::File { .. } | Self::Levels { .. } => String::new(),
        }
    }
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
#[serde(untagged)]
enum Expected {
    Tensor(ExpectedTensor),
    /// boxes that RapidOCR finds, with their scores
    Boxes {
        boxes: Json,
    },
    /// texts, with their scores where the step gives them
    Lines {
        lines: Vec<(String, Option<f64>)>,
    },
}

#[derive(Deserialize)]
struct ExpectedTensor {
    shape: Vec<usize>,
    element: String,
    /// the start of SHA-256, in hexadecimal, of what must be the same to the bit
    hash: Option<String>,
    /// how far numbers may be off
    #[serde(default)]
    bar: f64,
    /// the share of numbers, of all cases with the same name, that may be off by more
    #[serde(default)]
    apart: f64,
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
        let element: ElementType = self.element.parse().unwrap();
        let tensor = if element == ElementType::Uint8 {
            let mut bytes: Vec<u8> = drawn.map(|number| (number >> 56) as u8).collect();
            if self.faint {
                bytes.iter_mut().skip(3).step_by(4).for_each(|byte| *byte %= 6);
            }
            Tensor::new(self.shape.clone(), bytes).unwrap()
        } else {
            let number = |number| (number >> 40) as f32 / 16_777_216.0 * (self.high - self.low) + self.low;
            let floats = Tensor::new(self.shape.clone(), drawn.map(number).collect::<Vec<_>>()).unwrap();
            floats.cast(element).unwrap()
        };
        let colors = [Color::Gray, Color::Rgb, Color::Bgr, Color::Rgba];
        let color = colors.into_iter().find(|color| Some(color.name()) == self.color.as_deref());
        tensor.with_metadata(Metadata { color, sample_rate: self.rate, ..Metadata::default() })
    }
}

/// How far a result is from the expected one.
struct Comparison {
    /// numbers that were compared, and those of them that are off by more than they may be
    numbers: usize,
    off: usize,
    largest: f64,
    bar: f64,
    /// the share of the numbers that may be off
    apart: f64,
}

impl Comparison {
    fn new(differences: impl Iterator<Item = f64>, bar: f64, apart: f64) -> Self {
        let mut comparison = Self { numbers: 0, off: 0, largest: 0.0, bar, apart };
        for difference in differences {
            comparison.numbers += 1;
            comparison.off += usize::from(difference > bar);
            comparison.largest = comparison.largest.max(difference);
        }
        comparison
    }

    fn exact(is_same: bool) -> Self {
        Self::new(std::iter::once(if is_same { 0.0 } else { f64::INFINITY }), 0.0, 0.0)
    }
}

/// Zero for equal infinities and for two NaN, infinity for one.
fn distance(ours: f64, theirs: f64) -> f64 {
    if ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan() {
        return 0.0;
    }
    let distance = (ours - theirs).abs();
    if distance.is_nan() { f64::INFINITY } else { distance }
}

impl Expected {
    /// `number` gives the kept numbers. The error says what is not comparable.
    fn compare(&self, ours: &[Value], number: impl Fn(usize) -> f32) -> Result<Comparison, String> {
        match self {
            Self::Tensor(expected) => expected.compare(ours[0].as_tensor().unwrap(), number),
            Self::Boxes { boxes } => {
                let Value::Json(found) = &ours[0] else { return Err("no JSON".into()) };
                // A score may be off by 1e-3, a corner by a pixel. Of small boxes, the last bit of `cv2.minAreaRect`'s floats
                // decides what pyclipper rounds a corner to: some move by more, or are of the least size no more.
                let differences = match boxes::differences(found, boxes) {
                    Ok(differences) => {
                        differences.into_iter().flat_map(|(moved, score)| [moved, score * 1e3]).collect()
                    }
                    Err(_) => vec![f64::INFINITY; 2],
                };
                Ok(Comparison::new(differences.into_iter(), 1.0, 0.005))
            }
            Self::Lines { lines } => {
                let [texts, scores] = [0, 1].map(|port| match ours.get(port) {
                    Some(Value::Text(text)) => vec![Json::from(text.to_string())],
                    Some(Value::Json(value)) => value.as_array().cloned().unwrap_or_else(|| vec![Json::clone(value)]),
                    _ => Vec::new(),
                });
                let expected: Vec<_> = lines.iter().map(|(text, _)| Json::from(text.as_str())).collect();
                if texts != expected {
                    return Err(format!("{texts:?} for {expected:?}"));
                }
                let theirs: Vec<_> = lines.iter().filter_map(|(_, score)| *score).collect();
                if scores.len() != theirs.len() {
                    return Err(format!("{} scores for {}", scores.len(), theirs.len()));
                }
                let pairs = scores.iter().zip(theirs);
                // RapidOCR rounds to five places.
                let differences = pairs.map(|(ours, theirs)| distance(ours.as_f64().unwrap_or(f64::NAN), theirs));
                Ok(Comparison::new(differences, 1.1e-5, 0.0))
            }
        }
    }
}

impl ExpectedTensor {
    fn compare(&self, ours: &Tensor, number: impl Fn(usize) -> f32) -> Result<Comparison, String> {
        if (ours.shape(), ours.element().name()) != (&*self.shape, &*self.element) {
            let (element, shape) = (ours.element(), ours.shape());
            return Err(format!("{element} {shape:?} for {} {:?}", self.element, self.shape));
        }
        if let Some(hash) = &self.hash {
            let digest = Sha256::digest(ours.bytes().unwrap());
            let mut pairs = digest.iter().zip(hash.as_bytes().chunks(2));
            return Ok(Comparison::exact(pairs.all(|(byte, hex)| format!("{byte:02x}").as_bytes() == hex)));
        }
        let floats = ours.cast(ElementType::Float64).unwrap();
        let floats = floats.as_slice::<f64>().unwrap();
        let probes = floats.len().min(PROBES);
        let differences = (0..probes)
            .map(|probe| distance(floats[probe * floats.len() / probes], f64::from(number(self.at.unwrap() + probe))));
        Ok(Comparison::new(differences, self.bar, self.apart))
    }
}

/// Cases of one name: how many there are, how many are wrong, and the largest difference.
#[derive(Default)]
struct Count {
    cases: usize,
    wrong: Vec<String>,
    largest: f64,
    /// numbers of cases with a share that may be off, how many are, and how many may be
    shared: (usize, usize, f64),
}

impl Count {
    fn add(&mut self, comparison: Result<Comparison, String>, what: &str) {
        self.cases += 1;
        match comparison {
            Err(why) => self.wrong.push(format!("{what}: {why}")),
            Ok(Comparison { numbers, off, apart, .. }) if apart > 0.0 => {
                let (all, wrong, allowed) = self.shared;
                self.shared = (all + numbers, wrong + off, allowed + apart * numbers as f64);
            }
            Ok(Comparison { off, largest, bar, .. }) => {
                self.largest = self.largest.max(largest);
                if off > 0 {
                    self.wrong.push(format!("{what}: off by {largest:.2e} of {bar:.1e}"));
                }
            }
        }
    }

    fn finish(&mut self) {
        let (numbers, off, allowed) = self.shared;
        if off as f64 > allowed {
            self.wrong.push(format!("{off} of {numbers} numbers are off"));
        }
    }
}

fn compare(group: &str) {
    let folder = std::env::var_os("GPUX_RANDOM_CASES").map_or(PathBuf::from(FOLDER).join("random"), PathBuf::from);
    let read = |name: &str| std::fs::read(folder.join(group).join(name)).unwrap();
    let cases: Vec<Case> = serde_json::from_slice(&read("cases.json")).unwrap();
    assert!(cases.len() >= 200);
    let files = read("files.bin");
    let parts = image::load_from_memory(&read("numbers.png")).unwrap().into_luma8().into_raw();
    let parts_of_one = parts.len() / 4;
    let number = |at: usize| f32::from_le_bytes([0, 1, 2, 3].map(|part| parts[part * parts_of_one + at]));
    let mut counts = BTreeMap::<String, Count>::new();
    for case in &cases {
        let given: Vec<_> = match &case.given {
            RandomInputs::Inputs(inputs) => inputs.iter().map(Option::as_ref).collect(),
            RandomInputs::Input(input) => vec![Some(input)],
        };
        let shapes: Vec<_> = given.iter().flatten().map(|input| input.shape()).collect();
        let what = format!("{} of {}", case.options, shapes.join(", "));
        let inputs = given.into_iter().map(|input| input.map(|input| input.value(&files))).collect();
        let made = run_inputs(&*step(&case.step, case.options.clone()), inputs).and_then(|made| match &case.then {
            Some((name, options)) => run_inputs(&*step(name, options.clone()), made.into_iter().map(Some).collect()),
            None => Ok(made),
        });
        let comparison = made.and_then(|ours| case.expected.compare(&ours, number));
        counts.entry(case.name.clone()).or_default().add(comparison, &what);
    }
    let mut wrong = 0;
    for (name, count) in &mut counts {
        count.finish();
        println!(
            "{name}: {} cases, {} mismatches, largest difference {:.2e}",
            count.cases,
            count.wrong.len(),
            count.largest
        );
        if let (numbers @ 1.., off, _) = count.shared {
            println!("    {off} of {numbers} numbers off by more than they may");
        }
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

#[test]
fn geometry_steps_follow_the_libraries() {
    compare("geometry");
}

#[test]
fn reader_steps_follow_the_libraries() {
    compare("readers");
}
