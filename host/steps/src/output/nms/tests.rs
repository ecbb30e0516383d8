#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use super::*;
use crate::reference::random;
use gpux_core::{Context, Dim, Geometry, Layout, Metadata, Step};

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

/// One box of the sixth class, about the middle of a picture, in each layout that exports have.
#[test]
fn auto_takes_layouts_that_are_certain() {
    let zeros = |shape: [usize; 2]| vec![0_f32; shape[0] * shape[1]];
    let tensor = |[rows, columns]: [usize; 2], numbers| Tensor::new([1, rows, columns], numbers).unwrap();
    let expected = json!([{"box": [75.0, 75.0, 125.0, 125.0], "score": 0.9, "class": 6}]);
    let labelled = json!([{"box": [75.0, 75.0, 125.0, 125.0], "score": 0.9, "class": 6, "label": "6"}]);
    let labels: Vec<_> = (0..80).map(|number| number.to_string()).collect();

    let mut columns = zeros([84, 8400]);
    for (row, number) in [100.0, 100.0, 50.0, 50.0].into_iter().enumerate() {
        columns[row * 8400] = number;
    }
    columns[10 * 8400] = 0.9;
    assert_eq!(detect(json!({}), vec![tensor([84, 8400], columns)]).unwrap(), expected);

    let mut rows = zeros([300, 84]);
    rows[..4].copy_from_slice(&[100.0, 100.0, 50.0, 50.0]);
    rows[10] = 0.9;
    let rows = tensor([300, 84], rows);
    assert_eq!(detect(json!({"layout": "transposed"}), vec![rows.clone()]).unwrap(), expected);
    assert_eq!(detect(json!({ "labels": labels }), vec![rows.clone()]).unwrap(), labelled);
    let why = detect(json!({}), vec![rows]).unwrap_err().to_string();
    assert!(why.contains("[300, 84]") && why.contains("`layout: transposed`") && why.contains("`yolov5`"), "{why}");

    let mut rows = zeros([25_200, 85]);
    rows[..5].copy_from_slice(&[100.0, 100.0, 50.0, 50.0, 1.0]);
    rows[11] = 0.9;
    assert_eq!(detect(json!({ "labels": labels }), vec![tensor([25_200, 85], rows)]).unwrap(), labelled);

    // Neighbours that overlap stay: the model has chosen.
    let mut rows = zeros([300, 6]);
    rows[..12].copy_from_slice(&[75.0, 75.0, 125.0, 125.0, 0.9, 6.0, 76.0, 75.0, 125.0, 125.0, 0.8, 6.0]);
    let rows = tensor([300, 6], rows);
    let found = detect(json!({}), vec![rows.clone()]).unwrap();
    assert_eq!((&found[0], found.as_array().unwrap().len()), (&expected[0], 2));
    assert_eq!(detect(json!({"iou_threshold": 0.45}), vec![rows]).unwrap(), expected);
}

#[test]
fn auto_rejects_implausible_numbers() {
    let rejected = |options, shape: [usize; 2], numbers: &[(usize, f32)]| {
        let mut data = vec![0_f32; shape[0] * shape[1]];
        for (index, number) in numbers {
            data[*index] = *number;
        }
        detect(options, vec![Tensor::new(shape, data).unwrap()]).unwrap_err().to_string()
    };
    // A pose: x of a keypoint, in pixels. A mask: negative coefficients.
    assert!(rejected(json!({}), [56, 8400], &[(5 * 8400, 320.0)]).contains("`keypoints: [17, 3]`"));
    assert!(rejected(json!({}), [116, 8400], &[(84 * 8400, -0.7)]).contains("`mask_coefficients: 32`"));
    // RT-DETR with two classes has the shape of an end-to-end model.
    assert!(rejected(json!({}), [300, 6], &[(4, 0.2), (5, 0.3)]).contains("a class is a whole number"));
    assert!(rejected(json!({"layout": "end-to-end"}), [300, 6], &[(4, 0.9), (5, 0.3)]).contains("of box 0 is 0.3"));
    // YOLOv5 with one class has as many columns, but the anchors of grids.
    assert!(rejected(json!({}), [25_200, 6], &[]).contains("`layout: end-to-end`"));
    assert!(rejected(json!({"layout": "end-to-end"}), [300, 38], &[]).contains("`mask_coefficients`"));
}

#[test]
fn layouts_follow_ultralytics() {
    for case in crate::reference::read_json("nms-layouts.json").as_array().unwrap() {
        let shape: Vec<usize> = serde_json::from_value(case["shape"].clone()).unwrap();
        let numbers: Vec<f32> = serde_json::from_value(case["predictions"].clone()).unwrap();
        let found = detect(case["options"].clone(), vec![Tensor::new(shape, numbers).unwrap()]).unwrap();
        let (found, kept) = (found.as_array().unwrap(), case["kept"].as_array().unwrap());
        assert_eq!(found.len(), kept.len(), "{}", case["name"]);
        found.iter().zip(kept).for_each(|(found, kept)| assert_near(found, kept, &case["name"]));
    }
}

/// Equal JSON, but for the last digits of numbers.
fn assert_near(ours: &serde_json::Value, theirs: &serde_json::Value, name: &serde_json::Value) {
    use serde_json::Value as Json;
    match (ours, theirs) {
        (Json::Number(one), Json::Number(other)) => {
            let (one, other) = (one.as_f64().unwrap(), other.as_f64().unwrap());
            assert!((one - other).abs() <= 1e-5 * other.abs().max(1.0), "{name}: {one} for {other}");
        }
        (Json::Array(one), Json::Array(other)) if one.len() == other.len() => {
            one.iter().zip(other).for_each(|(one, other)| assert_near(one, other, name));
        }
        (Json::Object(one), Json::Object(other)) if one.len() == other.len() => {
            one.iter().for_each(|(key, one)| assert_near(one, &other[key], name));
        }
        _ => panic!("{name}: {ours} for {theirs}"),
    }
}

#[test]
fn maps_keypoints_and_corners_to_the_source_image() {
    let geometry =
        Geometry { source_width: 100, source_height: 60, scale_x: 0.5, scale_y: 0.5, offset_x: 7.0, offset_y: 9.0 };
    let metadata = Metadata { geometry: Some(geometry), layout: Some(Layout::Hwc), ..Metadata::default() };
    let image = Tensor::zeros(ElementType::Uint8, [64, 64, 3]).unwrap().with_metadata(metadata);
    let pose = Tensor::new([8, 1], vec![27_f32, 19.0, 10.0, 10.0, 0.9, 17.0, 2.0, 0.7]).unwrap();
    let found = detect(json!({"keypoints": [1, 3]}), vec![pose, image.clone()]).unwrap();
    assert_eq!(found[0]["keypoints"], json!([[20.0, 0.0, 0.7]]), "points end at the picture's edges");
    let turned = Tensor::new([6, 1], vec![27_f32, 19.0, 20.0, 4.0, 0.9, std::f32::consts::FRAC_PI_2]).unwrap();
    let found = detect(json!({"angle": true}), vec![turned, image]).unwrap();
    assert_near(&found[0]["box"], &json!([36.0, 0.0, 44.0, 40.0]), &json!("box"));
    assert_near(
        &found[0]["corners"],
        &json!([[36.0, 40.0], [44.0, 40.0], [44.0, 0.0], [36.0, 0.0]]),
        &json!("corners"),
    );
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
fn maps_boxes_through_a_transform() {
    // A quarter turn counter-clockwise of a picture 100 wide.
    let transform = Some([0.0, -1.0, 100.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
    let metadata = Metadata { transform, layout: Some(Layout::Hwc), ..Metadata::default() };
    let image = Tensor::zeros(ElementType::Uint8, [64, 64, 3]).unwrap().with_metadata(metadata);
    let pose = Tensor::new([8, 1], vec![27_f32, 19.0, 10.0, 20.0, 0.9, 17.0, 2.0, 0.7]).unwrap();
    let found = detect(json!({"keypoints": [1, 3]}), vec![pose, image]).unwrap();
    assert_eq!(found[0]["box"], json!([71.0, 22.0, 91.0, 32.0]));
    assert_eq!(found[0]["keypoints"], json!([[98.0, 17.0, 0.7]]));
}

#[test]
fn batch_returns_a_list_for_each_image() {
    let both = Tensor::new([2, 5, 1], vec![5_f32, 5.0, 2.0, 2.0, 0.9, 5.0, 5.0, 2.0, 2.0, 0.1]).unwrap();
    let found = detect(json!({}), vec![both]).unwrap();
    assert_eq!((found[0].as_array().unwrap().len(), found[1].as_array().unwrap().len()), (1, 0));
    let none = Tensor::zeros(ElementType::Float32, [1, 84, 0]).unwrap();
    assert_eq!(detect(json!({}), vec![none]).unwrap(), json!([]));
    let nobody = Tensor::zeros(ElementType::Float32, [0, 84, 8400]).unwrap();
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
        let layout = if random(2) == 0 { "auto" } else { "yolov8" };
        let angle = classes > 1 && random(2) == 0;
        let options = json!({
            "layout": layout, "angle": angle, "multi_label": random(2) == 0, "class_agnostic": random(2) == 0,
        });
        let found = detect(options, vec![predictions]);
        assert!(found.is_ok() || layout == "auto", "{found:?}");
    }
}

#[test]
fn rejects_impossible_shapes_when_planned() {
    let infer = |options, dims: &[Dim]| {
        step(options).unwrap().infer(&[Some(Kind::Tensor(TensorKind::shaped(ElementType::Float32, dims)))])
    };
    assert_eq!(infer(json!({}), &[Dim::Fixed(1), Dim::Fixed(84), Dim::Dynamic]).unwrap(), [Kind::Json]);
    let wrong = infer(json!({"labels": ["one", "two"]}), &[Dim::Fixed(8400), Dim::Fixed(84)]).unwrap_err();
    assert!(wrong.to_string().contains("say which: `layout: transposed`"), "{wrong}");
    let wrong = infer(json!({"layout": "yolov8", "labels": ["one"]}), &[Dim::Fixed(56), Dim::Fixed(8400)]).unwrap_err();
    assert!(wrong.to_string().contains("1 labels, but 52 classes; is `layout` right? What follows"), "{wrong}");
    assert!(infer(json!({"layout": "yolov8"}), &[Dim::Fixed(4), Dim::Dynamic]).is_err());
    assert!(infer(json!({}), &[Dim::Dynamic, Dim::Fixed(6)]).is_err(), "three layouts have six columns");
    let separate = infer(json!({}), &[Dim::Fixed(8400), Dim::Fixed(4)]).unwrap_err();
    assert!(separate.to_string().contains("`layout: separate`"), "{separate}");
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
        json!({"keypoints": [17, 4]}),
        json!({"keypoints": [0, 3]}),
        json!({"keypoints": [17, 3], "angle": true}),
        json!({"layout": "separate", "mask_coefficients": 32}),
        json!({"angle": true, "relative": true}),
        json!({"angle": true, "format": "xyxy"}),
        json!({"format": "yxyx"}),
    ] {
        assert!(step(options.clone()).is_err(), "{options}");
    }
}
