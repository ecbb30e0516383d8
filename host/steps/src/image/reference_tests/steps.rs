//! The steps that make one image of another, and `resize` by the rules of OpenCV and torchvision.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value as Json;

use crate::reference::{read_json, run_tensor, step, unpack};
use gpux_core::{Color, ElementType, Metadata, Tensor};

/// How far numbers are from those of the reference, in its own units.
#[derive(Debug, Default)]
pub(super) struct Far {
    cases: usize,
    pub(super) samples: usize,
    pub(super) unequal: usize,
    pub(super) largest: f64,
}

impl Far {
    /// Counts another case.
    pub(super) fn add(&mut self, ours: &Tensor, theirs: &Tensor) {
        self.cases += 1;
        let numbers = |tensor: &Tensor| tensor.cast(ElementType::Float64).unwrap().as_slice::<f64>().unwrap().to_vec();
        for (ours, theirs) in numbers(ours).into_iter().zip(numbers(theirs)) {
            self.samples += 1;
            let by = (ours - theirs).abs();
            self.unequal += usize::from(by > 0.0);
            self.largest = self.largest.max(by);
        }
    }
}

impl fmt::Display for Far {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cases, samples, unequal, largest } = self;
        write!(f, "{cases} cases, {unequal} of {samples} samples differ, by at most {largest:.2e}")
    }
}

pub(super) fn tensor(described: &Json, samples: &[u8]) -> Tensor {
    let element: ElementType = described["element"].as_str().unwrap().parse().unwrap();
    let shape: Vec<usize> =
        described["shape"].as_array().unwrap().iter().map(|side| side.as_u64().unwrap() as usize).collect();
    let bytes = shape.iter().product::<usize>() * element.size().unwrap();
    let at = described["at"].as_u64().unwrap() as usize;
    Tensor::from_bytes(element, shape, &samples[at..at + bytes]).unwrap()
}

/// Runs every case of a file; what each name differs by.
fn differences(file: &str) -> BTreeMap<String, Far> {
    let samples = unpack(&format!("image/{file}.png"));
    let mut found = BTreeMap::<String, Far>::new();
    for case in read_json(&format!("image/{file}.json")).as_array().unwrap() {
        let color = [Color::Gray, Color::Rgb, Color::Rgba, Color::Bgr]
            .into_iter()
            .find(|color| Some(color.name()) == case["color"].as_str());
        let given = tensor(&case["given"], &samples).with_metadata(Metadata { color, ..Metadata::default() });
        let theirs = tensor(&case["expected"], &samples);
        let ours = run_tensor(&*step(case["step"].as_str().unwrap(), case["options"].clone()), given);
        assert_eq!((ours.shape(), ours.element()), (theirs.shape(), theirs.element()), "{case}");
        found.entry(case["name"].as_str().unwrap().to_owned()).or_default().add(&ours, &theirs);
    }
    for (name, far) in &found {
        println!("{name}: {far}");
    }
    found
}

#[test]
fn image_steps_follow_their_libraries() {
    for (name, far) in differences("steps") {
        let most = match name.as_str() {
            "letterbox" => 1.0,
            "to-tensor" => 1e-7,
            "normalize" => 1e-6,
            _ => 0.0,
        };
        assert!(far.largest <= most, "{name}: {far:?}");
    }
}

#[test]
fn resize_follows_opencv_and_torchvision() {
    for (name, far) in differences("resize") {
        let most = match name.as_str() {
            name if name.contains("nearest") => 0.0,
            name if name.ends_with("float") => 1.0 / 255.0,
            _ => 1.0,
        };
        assert!(far.largest <= most, "{name}: {far:?}");
    }
}
