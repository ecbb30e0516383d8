use gpux_step::{Geometry, Tensor, Value, testing};
use serde::Deserialize;

use super::*;

/// What ONNX Runtime's NonMaxSuppression keeps: `tests/reference.py`.
#[derive(Deserialize)]
struct Case {
    options: serde_json::Value,
    classes: u32,
    boxes: Vec<f32>,
    scores: Vec<f32>,
    /// box, class
    kept: Vec<[usize; 2]>,
}

fn nms(options: &str, boxes: &[f32], scores_shape: &[u32], scores: &[f32]) -> Result<Values, Error> {
    let boxes = Tensor::of([boxes.len() as u32 / 4, 4], boxes)?;
    testing::run::<Nms>(options, [("boxes", boxes), ("scores", Tensor::of(scores_shape, scores)?)])
}

#[test]
fn it_keeps_what_the_reference_keeps() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("../tests/reference.json")).unwrap();
    assert!(cases.len() >= 6);
    for (number, case) in cases.iter().enumerate() {
        let count = case.boxes.len() as u32 / 4;
        let results = nms(&case.options.to_string(), &case.boxes, &[count, case.classes], &case.scores).unwrap();
        let expected =
            |of: fn(&Case, [usize; 2]) -> Vec<f32>| case.kept.iter().flat_map(|kept| of(case, *kept)).collect();
        let boxes: Vec<f32> = expected(|case, [index, _]| case.boxes[index * 4..][..4].to_vec());
        let scores: Vec<f32> =
            expected(|case, [index, class]| vec![case.scores[index * case.classes as usize + class]]);
        assert_eq!(results.tensor("boxes").unwrap().view::<f32>().unwrap().to_vec(), boxes, "case {number}");
        assert_eq!(results.tensor("scores").unwrap().view::<f32>().unwrap().to_vec(), scores, "case {number}");
        let classes: Vec<_> = case.kept.iter().map(|[_, class]| *class as i64).collect();
        assert_eq!(results.tensor("classes").unwrap().view::<i64>().unwrap().to_vec(), classes, "case {number}");
    }
}

#[test]
fn boxes_go_back_to_the_source_image() {
    let boxes = Tensor::of([2, 4], &[0.0_f32, 140.0, 320.0, 500.0, 600.0, 400.0, 700.0, 600.0]).unwrap();
    let scores = Tensor::of([2], &[0.9_f32, 0.8]).unwrap();
    let mut image = Tensor::zeros::<f32>([1, 3, 640, 640]).unwrap();
    image.set_geometry(Some(Geometry {
        source_width: 1280,
        source_height: 720,
        scale_x: 0.5,
        scale_y: 0.5,
        offset_x: 0.0,
        offset_y: 140.0,
    }));
    let results = testing::run::<Nms>("{}", [("boxes", boxes), ("scores", scores), ("image", image)]).unwrap();
    let places = results.tensor("boxes").unwrap().view::<f32>().unwrap().to_vec();
    assert_eq!(places, [0.0, 0.0, 640.0, 720.0, 1200.0, 520.0, 1280.0, 720.0]);
}

#[test]
fn what_is_no_number_is_no_detection() {
    let boxes = [[0.0, 0.0, 1.0, 1.0], [f32::NAN, 0.0, 1.0, 1.0], [3.0, 0.0, 2.0, 1.0], [5.0, 0.0, 6.0, 1.0]].concat();
    let kept = |scores: [f32; 4]| {
        nms("{}", &boxes, &[4], &scores).unwrap().tensor("scores").unwrap().view::<f32>().unwrap().to_vec()
    };
    assert_eq!(kept([0.5, 0.9, 0.9, 0.6]), [0.6, 0.5]);
    assert!(kept([f32::NAN, 0.9, 0.9, f32::INFINITY]).is_empty());
    assert!(kept([0.25, 0.9, 0.9, 0.0]).is_empty());
    let none = nms("{}", &[], &[0, 80], &[]).unwrap();
    assert_eq!(none.tensor("boxes").unwrap().shape(), [0, 4]);
}

#[test]
fn many_boxes_are_compared_as_far_as_allowed() {
    let count = 40_000;
    let boxes: Vec<f32> = (0..count).flat_map(|i| [i as f32 * 2.0, 0.0, i as f32 * 2.0 + 1.0, 1.0]).collect();
    let scores: Vec<f32> = (0..count).map(|i| 0.3 + (i * 7919 % count) as f32 / 1e5).collect();
    let results = nms(r#"{"candidates": 50, "limit": 100}"#, &boxes, &[count as u32], &scores).unwrap();
    let kept = results.tensor("scores").unwrap().view::<f32>().unwrap().to_vec();
    let mut best = scores;
    best.sort_unstable_by(|a, b| b.total_cmp(a));
    assert_eq!(kept, best[..50]);
}

#[test]
fn inputs_that_do_not_fit_are_the_callers_fault() {
    let error = nms("{}", &[0.0; 8], &[3], &[0.5; 3]).unwrap_err();
    assert_eq!(error, Error::invalid("scores of shape [3] do not fit 2 boxes"));
    let boxes = Tensor::of([1, 4], &[0.0_f32; 4]).unwrap();
    let error = testing::run::<Nms>("{}", Values::new().with("boxes", boxes).with("scores", Value::Text("no".into())));
    assert!(matches!(error, Err(Error::InvalidInput(_))));
}

#[test]
fn the_schema_is_that_of_the_options() {
    testing::check_schema::<Nms>("options.schema.json");
}
