use super::*;
use crate::reference::{build, run, step};
use gpux_core::{Context, Geometry, Layout, Metadata};

/// A map with a bar of 0.9.
fn bar(height: usize, width: usize, [left, top, right, bottom]: [usize; 4]) -> Tensor {
    let is_inside = |at: usize| (left..right).contains(&(at % width)) && (top..bottom).contains(&(at / width));
    let map = (0..height * width).map(|at| if is_inside(at) { 0.9_f32 } else { 0.1 }).collect::<Vec<_>>();
    Tensor::new([1, 1, height, width], map).unwrap()
}

fn boxes(options: serde_json::Value, map: Tensor, image: Option<Tensor>) -> serde_json::Value {
    let inputs: Vec<Value> = [Some(map), image].into_iter().flatten().map(Value::from).collect();
    let step = step("find-boxes", options);
    let mut inputs: Vec<_> = inputs.into_iter().map(Some).collect();
    inputs.resize(2, None);
    let given = step.run(inputs, &mut Context::default()).unwrap();
    let Value::Json(json) = &given[0] else { panic!("{given:?}") };
    let count = json.as_array().unwrap().len();
    assert_eq!(given[1].as_tensor().unwrap().shape(), [count, 4, 2]);
    assert_eq!(given[2].as_tensor().unwrap().shape(), [count]);
    serde_json::Value::clone(json)
}

#[test]
fn finds_a_bar() {
    let found = boxes(json!({"unclip_ratio": 1.5}), bar(40, 60, [10, 12, 41, 21]), None);
    assert_eq!(found.as_array().unwrap().len(), 1);
    assert_eq!(found[0]["score"], float32_to_json(0.9));
    // 30 × 8 pixels between the centres, made larger by 240 / 76 × 1.5.
    assert_eq!(found[0]["points"], json!([[5.0, 7.0], [45.0, 7.0], [45.0, 25.0], [5.0, 25.0]]));
    assert_eq!(boxes(json!({"box_threshold": 0.95}), bar(40, 60, [10, 12, 41, 21]), None), json!([]));
    assert_eq!(boxes(json!({}), bar(40, 60, [10, 12, 41, 14]), None), json!([]), "too thin");
    assert_eq!(boxes(json!({}), bar(40, 60, [0, 0, 0, 0]), None), json!([]));
}

#[test]
fn maps_boxes_to_the_source_image() {
    let geometry =
        Geometry { source_width: 100, source_height: 60, scale_x: 0.5, scale_y: 0.5, offset_x: 5.0, offset_y: 3.0 };
    let metadata = Metadata { geometry: Some(geometry), layout: Some(Layout::Hwc), ..Metadata::default() };
    let image = Tensor::zeros(ElementType::Uint8, [40, 60, 3]).unwrap();
    let found = boxes(json!({}), bar(20, 30, [10, 6, 21, 15]), Some(image.clone().with_metadata(metadata)));
    let here = boxes(json!({}), bar(20, 30, [10, 6, 21, 15]), None);
    let point = |json: &serde_json::Value| [json[0].as_f64().unwrap(), json[1].as_f64().unwrap()];
    for corner in 0..4 {
        let ([x, y], [u, v]) = (point(&here[0]["points"][corner]), point(&found[0]["points"][corner]));
        let (x, y) = ((x * 2.0 - 5.0) * 2.0, ((y * 2.0 - 3.0) * 2.0).min(59.0));
        assert!((x - u).abs() <= 2.0 && (y - v).abs() <= 2.0, "{found} {here}");
    }
    // A quarter turn of a source 60 pixels wide.
    let transform = Some([0.0, -1.0, 60.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
    let metadata = Metadata { geometry: None, transform, ..metadata };
    let found = boxes(json!({"unclip_ratio": 1.5}), bar(40, 60, [10, 12, 41, 21]), Some(image.with_metadata(metadata)));
    assert_eq!(found[0]["points"], json!([[35.0, 5.0], [53.0, 5.0], [53.0, 45.0], [35.0, 45.0]]));
}

#[test]
fn lists_boxes_line_after_line() {
    let corner = |x: f32, y: f32| FoundBox { corners: [[x, y]; 4], score: x };
    let mut found = vec![corner(5.0, 40.0), corner(9.0, 3.0), corner(2.0, 8.0), corner(1.0, 17.0), corner(7.0, 50.0)];
    sort_by_lines(&mut found);
    assert_eq!(found.iter().map(|found| found.score as i32).collect::<Vec<_>>(), [1, 2, 9, 5, 7]);
}

#[test]
fn rejects_invalid_options_and_maps() {
    for options in [json!({"threshold": 2}), json!({"max_candidates": 0}), json!({"unclip_ratio": -1}), json!({"x": 1})]
    {
        assert!(build(builtin(), options.clone()).is_err(), "{options}");
    }
    let step = step("find-boxes", json!({}));
    let refused = |map: Tensor, image: Option<Tensor>| {
        let inputs = vec![Some(map.into()), image.map(Value::from)];
        match step.run(inputs, &mut Context::default()) {
            Err(StepFailure::InvalidInput(message)) => message,
            other => panic!("{other:?}"),
        }
    };
    assert!(refused(Tensor::zeros(ElementType::Float32, [2, 1, 4, 4]).unwrap(), None).contains("[2, 1, 4, 4]"));
    assert!(refused(Tensor::zeros(ElementType::Float32, [4]).unwrap(), None).contains("a map is"));
    assert!(refused(Tensor::zeros(ElementType::Uint8, [4, 4]).unwrap(), None).contains("uint8"));
    let numbers = Tensor::zeros(ElementType::Uint8, [4, 4]).unwrap();
    assert!(refused(bar(9, 9, [0; 4]), Some(numbers)).contains("not known to be a picture"));
    assert!(refused(Tensor::zeros(ElementType::Float32, [1 << 21, 1]).unwrap(), None).contains("too much"));
}

#[test]
fn handles_odd_maps() {
    let odd = [f32::NAN, f32::INFINITY, f32::MIN, f32::MAX, -0.0, 1e-40];
    for mode in ["fast", "slow"] {
        let map: Vec<f32> = odd.iter().copied().cycle().take(30 * 30).collect();
        boxes(json!({"score_mode": mode}), Tensor::new([30, 30], map).unwrap(), None);
        for shape in [[0, 0], [0, 5], [5, 0], [1, 1], [1, 900], [900, 1]] {
            let map = Tensor::new(shape, vec![0.9_f32; shape[0] * shape[1]]).unwrap();
            boxes(json!({"score_mode": mode, "dilation": true}), map, None);
        }
        // One area with a hole in every other pixel.
        let checkered = (0..64 * 64).map(|at| ((at / 64 + at) % 2) as f32).collect::<Vec<_>>();
        let found =
            boxes(json!({"score_mode": mode, "threshold": 0.5}), Tensor::new([64, 64], checkered).unwrap(), None);
        assert_eq!(found, json!([]), "holes are too small, and of the areas only the last thousand are looked at");
    }
    assert!(run(&*step("find-boxes", json!({})), vec![bar(9, 9, [1, 1, 8, 8]).into()]).len() == 3);
}
