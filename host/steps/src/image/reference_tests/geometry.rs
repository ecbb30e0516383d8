//! The steps that work on points: against OpenCV, scikit-image and RapidOCR.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::steps::{Far, tensor};
use crate::reference::{read_json, run, step, unpack};
use gpux_core::{Metadata, Tensor};

/// Each case of a file with its tensor and the samples.
fn cases(file: &str) -> (Vec<Json>, Vec<u8>) {
    let cases = read_json(&format!("geometry/{file}.json"));
    (cases.as_array().unwrap().clone(), unpack(&format!("geometry/{file}.png")))
}

/// Every `every`th row and column.
fn thinned(image: &Tensor, every: usize) -> Tensor {
    let &[height, width, channels] = image.shape() else { panic!("{:?}", image.shape()) };
    let data = image.as_slice::<u8>().unwrap();
    let places = |y: usize| (0..width).step_by(every).map(move |x| (y * width + x) * channels);
    let pixels = (0..height).step_by(every).flat_map(places);
    let thinned: Vec<_> = pixels.flat_map(|at| data[at..at + channels].to_vec()).collect();
    Tensor::new([height.div_ceil(every), width.div_ceil(every), channels], thinned).unwrap()
}

#[test]
fn warp_follows_opencv_and_scikit_image() {
    let (cases, samples) = cases("warp");
    let mut found = BTreeMap::<String, Far>::new();
    for case in cases {
        let given = tensor(&case["given"], &samples).with_metadata(Metadata::default());
        let theirs = tensor(&case["expected"], &samples);
        let step = step("warp", case["options"].clone());
        let ours = run(&*step, vec![given.into(), case["points"].clone().into()]).remove(0);
        let mut ours = ours.as_tensor().unwrap().clone();
        if let Some(every) = case["every"].as_u64() {
            ours = thinned(&ours, every as usize);
        }
        assert_eq!((ours.shape(), ours.element()), (theirs.shape(), theirs.element()), "{case}");
        found.entry(case["name"].as_str().unwrap().to_owned()).or_default().add(&ours, &theirs);
    }
    for (name, far) in &found {
        println!("{name}: {far}");
        let most = match name.as_str() {
            // OpenCV rounds places that lie between two pixels in another precision.
            name if name.contains("nearest") => {
                assert!((far.unequal as f64) < 0.03 * far.samples as f64, "{name}: {far:?}");
                continue;
            }
            name if name.ends_with("in steps") => 4.0,
            name if name.ends_with("float") => 1e-4,
            _ => 1.0,
        };
        assert!(far.largest <= most, "{name}: {far:?}");
    }
}
