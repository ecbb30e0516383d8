//! The audio steps against librosa, torchaudio, SciPy and transformers.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests")]

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use crate::reference::{assert_close, read, read_json, run_tensor, step, unpack};
use gpux_core::{Metadata, Tensor};

/// The numbers of a group of cases; a case says where its own lie.
struct Blob(Vec<f32>);

impl Blob {
    fn read(path: &str) -> Self {
        let bytes = unpack(path);
        let count = bytes.len() / 4;
        let number = |at: usize| f32::from_le_bytes([0, 1, 2, 3].map(|part| bytes[part * count + at]));
        Self((0..count).map(number).collect())
    }

    fn tensor(&self, place: &Json) -> Tensor {
        let number = |value: &Json| value.as_u64().unwrap() as usize;
        let shape: Vec<usize> = place["shape"].as_array().unwrap().iter().map(number).collect();
        let start = number(&place["at"]);
        let end = start + shape.iter().product::<usize>();
        Tensor::new(shape, self.0[start..end].to_vec()).unwrap()
    }
}

/// The largest difference between two tensors of the same shape; values that are not finite must agree.
fn difference(ours: &Tensor, theirs: &Tensor, what: &str) -> f64 {
    assert_eq!(ours.shape(), theirs.shape(), "{what}");
    let pairs = ours.as_slice::<f32>().unwrap().iter().zip(theirs.as_slice::<f32>().unwrap());
    pairs.fold(0.0, |largest: f64, (ours, theirs)| {
        if ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan() {
            return largest;
        }
        let by = (f64::from(*ours) - f64::from(*theirs)).abs();
        assert!(by.is_finite(), "{what}: {ours} is not {theirs}");
        largest.max(by)
    })
}

/// The largest number of a tensor, without its sign.
fn height(tensor: &Tensor) -> f64 {
    tensor.as_slice::<f32>().unwrap().iter().fold(0.0, |height, number| height.max(f64::from(number.abs())))
}

#[derive(Default)]
struct Largest(BTreeMap<String, (usize, f64)>);

impl Largest {
    fn add(&mut self, name: &str, difference: f64) {
        let (cases, largest) = self.0.entry(name.to_owned()).or_default();
        *cases += 1;
        *largest = largest.max(difference);
    }

    fn print(&self) {
        for (name, (cases, largest)) in &self.0 {
            println!("{name}: {cases} cases, largest difference {largest:.2e}");
        }
    }
}

/// The start of one channel: libsndfile ends a file that does not say how long it is where it guesses.
fn start(tensor: &Tensor, shape: &[usize]) -> Tensor {
    let samples = tensor.as_slice::<f32>().unwrap();
    let count = shape.iter().product();
    assert!(samples.len() > count);
    Tensor::new(shape, samples[..count].to_vec()).unwrap()
}

#[test]
fn decode_follows_librosa() {
    let blob = Blob::read("audio/decode/samples.png");
    let index = read_json("audio/decode/index.json");
    assert!(index.as_object().unwrap().len() > 40);
    let mut largest = Largest::default();
    for (name, case) in index.as_object().unwrap() {
        let bytes = read(&format!("audio/decode/{name}"));
        let format = name.rsplit('.').next().unwrap();
        for (mono, key) in [(true, "mono"), (false, "apart")] {
            let tensor = run_tensor(&*step("decode-audio", json!({"mono": mono})), bytes.clone());
            assert_eq!(tensor.metadata.sample_rate.map(u64::from), case["rate"].as_u64(), "{name}");
            let theirs = blob.tensor(&case[key]);
            let says_no_length = name == "does-not-say.mp3" || name == "cut-start-48k.mp3";
            let tensor = if says_no_length { start(&tensor, theirs.shape()) } else { tensor };
            let by = difference(&tensor, &theirs, name);
            largest.add(format, by);
            let bar = if matches!(format, "wav" | "flac") { 0.0 } else { 2e-5 };
            println!("{name} {key}: {by:.2e}");
            assert!(by <= bar, "{name}: {by}");
        }
    }
    largest.print();
}

fn with_rate(tensor: Tensor, rate: &Json) -> Tensor {
    let sample_rate = Some(rate.as_u64().unwrap() as u32);
    tensor.with_metadata(Metadata { sample_rate, ..Metadata::default() })
}

#[test]
fn resample_follows_torchaudio_and_scipy() {
    let blob = Blob::read("audio/resample/samples.png");
    let mut largest = Largest::default();
    for case in read_json("audio/resample/cases.json").as_array().unwrap() {
        let step = step("resample", json!({"to": case["to"], "method": case["method"]}));
        let given = with_rate(blob.tensor(&case["input"]), &case["from"]);
        let resampled = run_tensor(&*step, given);
        assert_eq!(resampled.metadata.sample_rate.map(u64::from), case["to"].as_u64());
        let what = format!("{} {} to {}", case["method"], case["from"], case["to"]);
        let by = difference(&resampled, &blob.tensor(&case["output"]), &what);
        largest.add(case["method"].as_str().unwrap(), by);
        assert!(by <= 1e-6, "{what}: {by}");
    }
    largest.print();
}

#[test]
fn mel_spectrogram_follows_librosa() {
    let blob = Blob::read("audio/mel/samples.png");
    let mut largest = Largest::default();
    for case in read_json("audio/mel/cases.json").as_array().unwrap() {
        let mut options = case["options"].clone();
        if options.get("top_db") == Some(&Json::Null) {
            options["top_db"] = json!("none");
        }
        let given = with_rate(blob.tensor(&case["input"]), &case["rate"]);
        let ours = run_tensor(&*step("mel-spectrogram", options), given);
        let theirs = blob.tensor(&case["output"]);
        let what = case.to_string();
        let decibels = case["options"]["db"] == json!(true);
        // Differences of decibels are unscaled, those of energies relative to the band and to the strongest band.
        if decibels {
            let by = difference(&ours, &theirs, &what);
            largest.add("decibels", by);
            assert!(by <= 1e-4, "{what}: {by}");
        } else {
            let by = difference(&ours, &theirs, &what) / height(&theirs).max(1e-30);
            largest.add("energies, against the strongest band", by);
            assert!(by <= 1e-6, "{what}: {by}");
            let pairs = ours.as_slice::<f32>().unwrap().iter().zip(theirs.as_slice::<f32>().unwrap());
            // Far below the strongest band there is only the rounding of the transform.
            let least = 1e-20 * height(&theirs).max(1e-10);
            let own =
                |(ours, theirs): (&f32, &f32)| f64::from((ours - theirs).abs()) / f64::from(theirs.abs()).max(least);
            let by = pairs.map(own).fold(0.0, f64::max);
            largest.add("energies, each against itself", by);
            assert!(by <= 1e-4, "{what}: {by}");
        }
    }
    largest.print();
}

#[test]
fn mel_spectrogram_follows_whispers_feature_extractor() {
    let blob = Blob::read("audio/mel/samples.png");
    let mut largest = Largest::default();
    for case in read_json("audio/mel/whisper.json").as_array().unwrap() {
        let given = with_rate(blob.tensor(&case["input"]), &json!(16_000));
        let ours = run_tensor(&*step("mel-spectrogram", case["options"].clone()), given);
        let theirs = blob.tensor(&case["output"]);
        let frames = case["frames"].as_u64().unwrap() as usize;
        assert_eq!(ours.shape(), [theirs.shape()[0], frames]);
        let kept = theirs.shape()[1];
        let rows = ours.as_slice::<f32>().unwrap().chunks_exact(frames);
        let start: Vec<_> = rows.clone().flat_map(|row| row[..kept].to_vec()).collect();
        let by = difference(&Tensor::new(theirs.shape(), start).unwrap(), &theirs, &case.to_string());
        largest.add("whisper", by);
        assert!(by <= 1e-4, "{case}: {by}");
        let silence = theirs.as_slice::<f32>().unwrap()[kept - 1];
        assert!(rows.flat_map(|row| &row[kept..]).all(|rest| (rest - silence).abs() <= 1e-6));
    }
    largest.print();
}

#[test]
fn mfcc_follows_librosa() {
    let blob = Blob::read("audio/mel/samples.png");
    let mut largest = Largest::default();
    for case in read_json("audio/mel/mfcc.json").as_array().unwrap() {
        let ours = run_tensor(&*step("mfcc", case["options"].clone()), blob.tensor(&case["input"]));
        let theirs = blob.tensor(&case["output"]);
        let by = difference(&ours, &theirs, &case.to_string()) / height(&theirs).max(1.0);
        largest.add("mfcc, against the largest coefficient", by);
        assert!(by <= 1e-5, "{case}: {by}");
    }
    largest.print();
}

#[test]
fn frame_follows_librosa() {
    for case in read_json("audio/frame/cases.json").as_array().unwrap() {
        let shape: Vec<usize> = serde_json::from_value(case["shape"].clone()).unwrap();
        let samples = (0..shape.iter().product()).map(|place: usize| place as f32).collect();
        let given = Tensor::new(shape, samples).unwrap();
        let frames = run_tensor(&*step("frame", case["options"].clone()), given);
        assert_close(&frames, &case["output"], 0.0, case);
    }
}

#[test]
fn mono_and_pad_or_trim_follow_numpy() {
    let given = Tensor::new([3, 2], vec![0.1_f32, 0.2, 0.3, 0.5, 0.7, 0.9]).unwrap();
    let mixed = run_tensor(&*step("mono", json!({})), given.clone());
    let mean = |column: usize| (given.as_slice::<f32>().unwrap().iter().skip(column).step_by(2).sum::<f32>()) / 3.0;
    assert_eq!(mixed.as_slice::<f32>().unwrap(), [mean(0), mean(1)]);
    let padded = run_tensor(&*step("pad-or-trim", json!({"length": 3})), given.clone());
    assert_eq!(padded.as_slice::<f32>().unwrap(), [0.1, 0.2, 0.0, 0.3, 0.5, 0.0, 0.7, 0.9, 0.0]);
    let cut = run_tensor(&*step("pad-or-trim", json!({"length": 1})), given);
    assert_eq!(cut.as_slice::<f32>().unwrap(), [0.1, 0.3, 0.7]);
}
