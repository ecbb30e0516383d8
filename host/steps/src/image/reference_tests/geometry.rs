//! The steps that work on points: against OpenCV, scikit-image and RapidOCR.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use super::steps::{Far, tensor};
use crate::reference::boxes::{differences, resized};
use crate::reference::{read_json, run, step, unpack};
use gpux_core::{Context, Dim, ElementType, Kind, Metadata, Tensor, TensorKind, Value, to_json};

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

#[test]
fn find_boxes_follows_rapidocr() {
    let (cases, samples) = cases("boxes");
    let (mut boxes, mut moved, mut largest, mut largest_score) = (0, 0, 0_f64, 0_f64);
    let mut wrong = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let levels = tensor(&case["given"], &samples);
        let map: Vec<f32> = levels.as_slice::<u8>().unwrap().iter().map(|level| f32::from(*level) / 255.0).collect();
        let map = Tensor::new(levels.shape(), map).unwrap();
        let &[height, width] = map.shape() else { panic!("{:?}", map.shape()) };
        let source = serde_json::from_value(case["source"].clone()).unwrap();
        let image = resized([height, width], source);
        let step = step("find-boxes", case["options"].clone());
        let Value::Json(ours) = run(&*step, vec![map.into(), image.into()]).remove(0) else { panic!() };
        match differences(&ours, &case["expected"]) {
            Err(why) => wrong.push(format!("{number}: {why}: {}", case["options"])),
            Ok(differences) => {
                for (far, score) in differences {
                    boxes += 1;
                    moved += usize::from(far > 0.0);
                    (largest, largest_score) = (largest.max(far), largest_score.max(score));
                    if far > 1.0 || score > 1e-3 {
                        let (ours, theirs) = (&ours, &case["expected"]);
                        wrong.push(format!("{number}: {ours} for {theirs}: {}", case["options"]));
                    }
                }
            }
        }
    }
    println!("{boxes} boxes, {moved} moved, by at most {largest}; scores by at most {largest_score:.1e}");
    assert!(boxes > 200 && wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn find_boxes_rounds_in_the_page_as_rapidocr_does() {
    let (cases, samples) = cases("page-boxes");
    let mut boxes = 0;
    for case in cases {
        let levels = tensor(&case["given"], &samples);
        let map: Vec<f32> = levels.as_slice::<u8>().unwrap().iter().map(|level| f32::from(*level) / 255.0).collect();
        let map = Tensor::new(levels.shape(), map).unwrap();
        let [[height, width], source]: [[usize; 2]; 2] =
            ["page", "source"].map(|name| serde_json::from_value(case[name].clone()).unwrap());
        let border = case["border"].as_u64().unwrap() as usize;
        let mut metadata = resized([height - 2 * border, width], source).metadata;
        metadata.geometry.as_mut().unwrap().offset_y = border as f32;
        let page = Tensor::zeros(ElementType::Uint8, [height, width, 3]).unwrap().with_metadata(metadata);

        let outputs = run(&*step("find-boxes", case["options"].clone()), vec![map.into(), page.into()]);
        let Value::Json(ours) = &outputs[0] else { panic!() };
        let far = |ours: &Json, theirs: &Json| differences(ours, theirs).unwrap();
        assert!(far(ours, &case["expected"]).iter().all(|(far, score)| *far < 1e-3 && *score < 1e-6), "{case}");
        let entry = |points: &Json| json!({"points": points, "score": 0});
        let [ours, theirs] = [&to_json(&outputs[3]), &case["page_points"]]
            .map(|points| points.as_array().unwrap().iter().map(entry).collect::<Json>());
        assert!(far(&ours, &theirs).iter().all(|(far, _)| *far == 0.0), "{ours} is not {theirs}");
        boxes += theirs.as_array().unwrap().len();
    }
    assert!(boxes > 80, "{boxes}");
}

#[test]
fn resize_keeps_within_bounds_as_rapidocr_does() {
    let cases = read_json("geometry/bounds.json");
    assert!(cases.as_array().unwrap().len() > 400);
    for case in cases.as_array().unwrap() {
        let side = |part: usize, axis: usize| Dim::Fixed(case[part][axis].as_u64().unwrap() as usize);
        let given = TensorKind::shaped(ElementType::Uint8, [side(1, 0), side(1, 1), Dim::Fixed(3)]);
        let kinds = step("resize", case[0].clone()).infer(&[Some(Kind::Tensor(given))]);
        let wanted = [0, 1].map(|axis| case[2][axis].as_u64().unwrap());
        if wanted.iter().product::<u64>() > 16 << 20 {
            assert!(kinds.unwrap_err().to_string().contains("max_edge"), "{case}");
            continue;
        }
        let kinds = kinds.unwrap();
        let Kind::Tensor(TensorKind { shape: Some(shape), .. }) = &kinds[0] else { panic!("{kinds:?}") };
        assert_eq!(shape[..2], [side(2, 0), side(2, 1)], "{case}");
    }
}

#[test]
fn mask_follows_opencv_and_pillow() {
    let (cases, samples) = cases("mask");
    let mut found = BTreeMap::<String, Far>::new();
    for case in cases {
        let [given, image, theirs] = ["given", "image", "expected"].map(|name| tensor(&case[name], &samples));
        let inputs = vec![Some(given.into()), Some(image.into()), None];
        let ours = step("mask", case["options"].clone()).run(inputs, &mut Context::default()).unwrap().remove(0);
        let ours = ours.as_tensor().unwrap();
        assert_eq!(ours.shape(), theirs.shape(), "{case}");
        found.entry(case["name"].as_str().unwrap().to_owned()).or_default().add(ours, &theirs);
    }
    for (name, far) in &found {
        println!("{name}: {far}");
        assert!(far.largest <= 1.0 && far.unequal * 100 <= far.samples, "{name}: {far:?}");
    }
}
