#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use super::*;
use crate::reference::random;
use gpux_core::{Context, Dim, Metadata, Step};

fn step(options: serde_json::Value) -> Result<Box<dyn Step>, BuildError> {
    crate::reference::build(builtin(), options)
}

fn detect(options: serde_json::Value, inputs: Vec<Tensor>) -> Result<serde_json::Value, StepFailure> {
    let inputs = inputs.into_iter().map(|tensor| Some(tensor.into())).collect();
    let Value::Json(json) = step(options).unwrap().run(inputs, &mut Context::default())?.remove(0) else {
        panic!("not JSON")
    };
    Ok(json.as_ref().clone())
}

/// Two anchors, two classes, as YOLOv8 gives them.
fn predictions() -> Tensor {
    let rows = [[50.0, 10.0], [40.0, 10.0], [20.0, 4.0], [10.0, 4.0], [0.1, 0.9], [0.8, 0.3]];
    Tensor::new([1, 6, 2], rows.concat()).unwrap().cast(ElementType::Float32).unwrap()
}

#[test]
fn layouts_give_equal_boxes() {
    let expected = json!([
        {"box": [8.0, 8.0, 12.0, 12.0], "score": 0.9, "class": 0, "label": "cat"},
        {"box": [40.0, 35.0, 60.0, 45.0], "score": 0.8, "class": 1, "label": "dog"}
    ]);
    let labels = ["cat", "dog"];
    assert_eq!(detect(json!({ "labels": labels }), vec![predictions()]).unwrap(), expected);
    let rows = [[50.0, 40.0, 20.0, 10.0, 1.0, 0.1, 0.8], [10.0, 10.0, 4.0, 4.0, 1.0, 0.9, 0.3]];
    let rows = Tensor::new([2, 7], rows.concat()).unwrap();
    assert_eq!(detect(json!({"layout": "yolov5", "labels": labels}), vec![rows]).unwrap(), expected);
    let boxes = Tensor::new([2, 4], [[40_f32, 35.0, 60.0, 45.0], [8.0, 8.0, 12.0, 12.0]].concat()).unwrap();
    let scores = Tensor::new([2, 2], vec![0.1_f32, 0.8, 0.9, 0.3]).unwrap();
    let separate = json!({"layout": "separate", "labels": labels});
    assert_eq!(detect(separate.clone(), vec![boxes.clone(), scores]).unwrap(), expected);
    let (scores, classes) = (Tensor::new([2], vec![0.8_f32, 0.9]).unwrap(), Tensor::new([2], vec![1_i64, 0]).unwrap());
    assert_eq!(detect(separate, vec![boxes, scores, classes]).unwrap(), expected);
}

#[test]
fn maps_boxes_to_the_source_image() {
    let geometry =
        Geometry { source_width: 100, source_height: 60, scale_x: 0.5, scale_y: 0.5, offset_x: 7.0, offset_y: 9.0 };
    let metadata = Metadata { geometry: Some(geometry), layout: Some(Layout::Hwc), ..Metadata::default() };
    let image = Tensor::zeros(ElementType::Uint8, [64, 64, 3]).unwrap().with_metadata(metadata);
    let found = detect(json!({}), vec![predictions(), image.clone()]).unwrap();
    assert_eq!(found[0]["box"], json!([2.0, 0.0, 10.0, 6.0]));
    let mirrored = Geometry { scale_x: -0.5, offset_x: 57.0, ..geometry };
    let mirrored = image.clone().with_metadata(Metadata { geometry: Some(mirrored), ..metadata });
    let found = detect(json!({}), vec![predictions(), mirrored]).unwrap();
    assert_eq!(found[0]["box"], json!([90.0, 0.0, 98.0, 6.0]));
    let fractions = Tensor::new([5, 1], vec![0.5_f32, 0.5, 0.25, 0.25, 0.9]).unwrap();
    let found = detect(json!({"relative": true}), vec![fractions.clone(), image]).unwrap();
    assert_eq!(found[0]["box"], json!([34.0, 30.0, 66.0, 60.0]));
    let unknown = Tensor::zeros(ElementType::Uint8, [64, 64, 3]).unwrap();
    assert!(detect(json!({"relative": true}), vec![fractions.clone(), unknown]).is_err());
    assert!(detect(json!({"relative": true}), vec![fractions]).is_err());
}

#[test]
fn batch_returns_a_list_for_each_image() {
    let both = Tensor::new([2, 5, 1], vec![5_f32, 5.0, 2.0, 2.0, 0.9, 5.0, 5.0, 2.0, 2.0, 0.1]).unwrap();
    let found = detect(json!({}), vec![both]).unwrap();
    assert_eq!((found[0].as_array().unwrap().len(), found[1].as_array().unwrap().len()), (1, 0));
    let none = Tensor::zeros(ElementType::Float32, [1, 84, 0]).unwrap();
    assert_eq!(detect(json!({}), vec![none]).unwrap(), json!([]));
    let nobody = Tensor::zeros(ElementType::Float32, [0, 84, 5]).unwrap();
    assert_eq!(detect(json!({}), vec![nobody]).unwrap(), json!([]));
}

#[test]
fn handles_empty_and_invalid_inputs() {
    let zeros = |shape: &[usize]| Tensor::zeros(ElementType::Float32, shape).unwrap();
    for (options, inputs) in [
        (json!({}), vec![zeros(&[4, 10])]),
        (json!({}), vec![zeros(&[10])]),
        (json!({}), vec![zeros(&[1, 1, 6, 10])]),
        (json!({}), vec![]),
        (json!({}), vec![Tensor::zeros(ElementType::Int64, [6, 10]).unwrap()]),
        (json!({"labels": ["one"]}), vec![zeros(&[6, 10])]),
        (json!({"layout": "yolov5"}), vec![zeros(&[10, 5])]),
        (json!({"layout": "separate"}), vec![zeros(&[10, 5]), zeros(&[10])]),
        (json!({"layout": "separate"}), vec![zeros(&[10, 4]), zeros(&[9, 2])]),
        (json!({"layout": "separate"}), vec![zeros(&[10, 4]), zeros(&[10, 0])]),
        (json!({"layout": "separate"}), vec![zeros(&[10, 4])]),
        (json!({"layout": "separate"}), vec![zeros(&[2, 4]), zeros(&[2]), zeros(&[1])]),
        (json!({"layout": "separate"}), vec![zeros(&[2, 4]), zeros(&[2, 3]), zeros(&[2])]),
        (json!({"max_detections": 30_000}), vec![zeros(&[1000, 5, 1000])]),
    ] {
        assert!(matches!(detect(options.clone(), inputs), Err(StepFailure::InvalidInput(_))), "{options}");
    }
    let scores = Tensor::new([1], vec![0.9_f32]).unwrap();
    let classes = Tensor::new([1], vec![-1_i64]).unwrap();
    let unnamed = detect(json!({"layout": "separate", "labels": ["x"]}), vec![zeros(&[1, 4]), scores, classes]);
    assert!(unnamed.unwrap_err().to_string().contains("class -1 has no label"));
}

#[test]
fn random_numbers_never_panic() {
    let mut random = random();
    let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, -0.0, 0.0, 1e-40, 0.5, 1.0, 640.0];
    for _ in 0..300 {
        let (classes, anchors) = (1 + random(4), random(40));
        let numbers = (0..(4 + classes) * anchors).map(|_| odd[random(odd.len())]).collect();
        let predictions = Tensor::new([4 + classes, anchors], numbers).unwrap();
        let options = json!({"multi_label": random(2) == 0, "class_agnostic": random(2) == 0});
        detect(options, vec![predictions]).unwrap();
    }
}

#[test]
fn rejects_impossible_shapes_when_planned() {
    let infer = |options, dims: &[Dim]| {
        step(options).unwrap().infer(&[Some(Kind::Tensor(TensorKind::shaped(ElementType::Float32, dims)))])
    };
    assert_eq!(infer(json!({}), &[Dim::Fixed(1), Dim::Fixed(84), Dim::Dynamic]).unwrap(), [Kind::Json]);
    let wrong = infer(json!({"labels": ["one", "two"]}), &[Dim::Fixed(8400), Dim::Fixed(84)]).unwrap_err();
    assert!(wrong.to_string().contains("2 labels, but 8396 classes; is `layout` right?"), "{wrong}");
    assert!(infer(json!({}), &[Dim::Fixed(4), Dim::Dynamic]).is_err());
    assert!(infer(json!({}), &[Dim::Dynamic]).is_err());
}

#[test]
fn rejects_invalid_options() {
    for options in [
        json!({"score_threshold": 1.5}),
        json!({"iou_threshold": -0.1}),
        json!({"max_detections": 0}),
        json!({"max_candidates": 30_001}),
        json!({"labels": []}),
        json!({"layout": "yolov1"}),
        json!({"format": "yxyx"}),
    ] {
        assert!(step(options.clone()).is_err(), "{options}");
    }
}
