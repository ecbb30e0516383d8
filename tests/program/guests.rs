//! The guest examples in Rust, in their sandbox, compared with their built-in counterparts.

use std::sync::{Arc, LazyLock};

use gpux_core::{Context, Layout, Metadata, OptionOrigin, Registry, Step, StepFailure, Tensor, Value};
use gpux_sandbox::{ComponentConfig, ComponentStep, Sandbox, SandboxOptions};
use serde_json::json;

use crate::digits::root;

static SANDBOX: LazyLock<Sandbox> = LazyLock::new(|| Sandbox::new(SandboxOptions::default()).unwrap());
static BUILTINS: LazyLock<Arc<Registry>> = LazyLock::new(|| Arc::new(gpux::builtins()));

fn guest(name: &str, options: serde_json::Value) -> ComponentStep {
    let component = std::fs::read(root().join(format!("guest-examples/rust/{name}.wasm"))).unwrap();
    let config = ComponentConfig { options, ..ComponentConfig::default() };
    SANDBOX.load(&component, config, &BUILTINS).unwrap()
}

fn native(name: &str, options: serde_json::Value) -> Box<dyn Step> {
    (BUILTINS.builtin(name).unwrap().build)(options, &OptionOrigin::Component).unwrap()
}

fn run(step: &dyn Step, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, StepFailure> {
    let inputs = inputs.iter().map(|input| input.map(|tensor| Value::from(tensor.clone()))).collect();
    let outputs = step.run(inputs, &mut Context::default())?;
    Ok(outputs.iter().map(|value| value.as_tensor().unwrap().clone()).collect())
}

fn image(height: usize, width: usize) -> Tensor {
    let pixels: Vec<u8> = (0..height * width * 3).map(|place| (place * 31 % 251) as u8).collect();
    let metadata = Metadata { layout: Some(Layout::Hwc), ..Metadata::default() };
    Tensor::new([height, width, 3], pixels).unwrap().with_metadata(metadata)
}

#[test]
fn to_floats_matches_normalize() {
    let image = image(37, 223);
    let expected = run(&*native("normalize", json!({"method": "imagenet"})), &[Some(&image)]).unwrap().remove(0);
    let expected = expected.as_slice::<f32>().unwrap();
    for (way, layout) in [("stream", "hwc"), ("whole", "hwc"), ("builtin", "hwc"), ("stream", "chw"), ("whole", "chw")]
    {
        let step = guest("to-floats", json!({"way": way, "layout": layout}));
        let floats = run(&step, &[Some(&image)]).unwrap().remove(0);
        let (shape, layout) = if layout == "hwc" { ([37, 223, 3], Layout::Hwc) } else { ([3, 37, 223], Layout::Chw) };
        assert_eq!((floats.shape(), floats.metadata.layout), (&shape[..], Some(layout)), "{way}");
        let floats = floats.as_slice::<f32>().unwrap();
        for (place, expected) in expected.iter().enumerate() {
            let at = if layout == Layout::Hwc { place } else { place % 3 * 37 * 223 + place / 3 };
            assert!((floats[at] - expected).abs() < 1e-6, "{way} {layout}: {} at {place}, not {expected}", floats[at]);
        }
    }
}

#[test]
fn thumbnail_matches_resize() {
    let image = image(48, 64);
    let expected = run(&*native("resize", json!({"size": [24, 32]})), &[Some(&image)]).unwrap();
    let step = guest("thumbnail", json!({"side": 32}));
    assert_eq!(run(&step, &[Some(&image)]).unwrap(), expected);
    assert_eq!(run(&guest("thumbnail", json!({})), &[Some(&image)]).unwrap(), [image]);
}

#[test]
fn nms_matches_onnx_runtime() {
    let text = std::fs::read_to_string(root().join("guest-examples/rust/nms/tests/reference.json")).unwrap();
    let cases: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    for case in &cases {
        let step = guest("nms", case["options"].clone());
        let numbers = |key: &str| serde_json::from_value::<Vec<f32>>(case[key].clone()).unwrap();
        let (boxes, scores) = (numbers("boxes"), numbers("scores"));
        let (count, classes) = (boxes.len() / 4, case["classes"].as_u64().unwrap() as usize);
        let kept: Vec<[usize; 2]> = serde_json::from_value(case["kept"].clone()).unwrap();
        let expected: Vec<f32> = kept.iter().map(|[index, class]| scores[index * classes + class]).collect();
        let (boxes, scores) = (Tensor::new([count, 4], boxes).unwrap(), Tensor::new([count, classes], scores).unwrap());
        let outputs = run(&step, &[Some(&boxes), Some(&scores), None]).unwrap();
        assert_eq!(outputs[1].as_slice::<f32>().unwrap(), expected);
        let expected: Vec<i64> = kept.iter().map(|[_, class]| *class as i64).collect();
        assert_eq!(outputs[2].as_slice::<i64>().unwrap(), expected);
    }
}

#[test]
fn reports_mismatched_inputs_as_request_faults() {
    let step = guest("nms", json!({}));
    let (boxes, scores) = (Tensor::new([2, 4], vec![0.0_f32; 8]).unwrap(), Tensor::new([3], vec![0.5_f32; 3]).unwrap());
    let failure = run(&step, &[Some(&boxes), Some(&scores), None]).unwrap_err();
    assert!(
        matches!(&failure, StepFailure::InvalidInput(why) if why == "scores of shape [3] do not fit 2 boxes"),
        "{failure}"
    );
}
