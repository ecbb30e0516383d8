//! How much memory a built-in step takes beside its result: a tensor that nobody else holds is
//! changed in place, and one whose elements stay as they are is not copied. Counted, not timed, so
//! the numbers are the same on every machine.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark prints, and stops at the first surprise")]

use allocation_counter::{AllocationInfo, measure};
use gpux_core::{Color, Context, ElementType, Layout, Metadata, OptionOrigin, Step, Tensor, Value};
use serde_json::{Value as Json, json};

/// Bytes that are no tensor's: lists of values, shapes, errors that are not made.
const SMALL: u64 = 4096;

fn main() {
    println!("{:<40}{:>12}{:>12}{:>14}{:>8}", "step", "bytes in", "bytes out", "allocated", "times");
    println!("a tensor that nobody else holds");
    for (name, options, element, most) in [
        ("normalize", json!({"method": "imagenet"}), ElementType::Float32, 0),
        ("scale", json!({"factor": 0.5}), ElementType::Float32, 0),
        ("clip", json!({"min": 0, "max": 1}), ElementType::Float32, 0),
        ("sigmoid", json!({}), ElementType::Float32, 0),
        ("softmax", json!({}), ElementType::Float32, 0),
        ("l2-normalize", json!({}), ElementType::Float32, 0),
        ("cast", json!({"to": "float32"}), ElementType::Float32, 0),
        ("reshape", json!({"shape": [-1]}), ElementType::Float32, 0),
        ("expand", json!({"axes": 0}), ElementType::Float32, 0),
        ("normalize", json!({"method": "imagenet"}), ElementType::Uint8, 1),
        ("cast", json!({"to": "float32"}), ElementType::Uint8, 1),
        ("to-tensor", json!({"element": "float32", "scale": true}), ElementType::Uint8, 1),
        ("transpose", json!({"axes": [2, 0, 1]}), ElementType::Float32, 1),
        ("center-crop", json!({"size": 200}), ElementType::Uint8, 1),
        ("flip", json!({"direction": "horizontal"}), ElementType::Uint8, 1),
        ("pad", json!({"multiple_of": 100}), ElementType::Uint8, 1),
        ("letterbox", json!({"size": [320, 320]}), ElementType::Uint8, 2),
        // Across first, then down: half of the picture lies between.
        ("resize", json!({"size": [112, 112]}), ElementType::Uint8, 4),
    ] {
        let step = builtin(name, options);
        let image = image(element);
        let given = image.byte_len();
        let (info, out) = run(&*step, vec![Some(image.into())]);
        show(name, element, given, out, &info);
        let most = most * out as u64 + SMALL;
        assert!(info.bytes_total <= most, "{name}: {} bytes, more than {most}", info.bytes_total);
    }
    println!("a tensor that another step still reads");
    for (name, options) in [("reshape", json!({"shape": [-1]})), ("expand", json!({"axes": 0}))] {
        let step = builtin(name, options);
        let image = image(ElementType::Float32);
        let (info, out) = run(&*step, vec![Some(image.clone().into())]);
        show(name, ElementType::Float32, image.byte_len(), out, &info);
        assert!(info.bytes_total <= SMALL, "{name}: {} bytes", info.bytes_total);
    }
}

fn builtin(name: &str, options: Json) -> Box<dyn Step> {
    let registry = gpux::builtins();
    (registry.builtin(name).unwrap().build)(options, &OptionOrigin::Component).unwrap()
}

/// 224×224×3.
fn image(element: ElementType) -> Tensor {
    let metadata = Metadata { layout: Some(Layout::Hwc), color: Some(Color::Rgb), ..Metadata::default() };
    let pixels: Vec<u8> = (0..224 * 224 * 3).map(|place| (place * 31 % 251) as u8).collect();
    Tensor::new([224, 224, 3], pixels).unwrap().cast(element).unwrap().with_metadata(metadata)
}

/// What a run allocated, and the bytes that it gave.
fn run(step: &dyn Step, inputs: Vec<Option<Value>>) -> (AllocationInfo, usize) {
    // Once before: tables are made on first use.
    step.run(inputs.clone(), &mut Context::default()).unwrap();
    let mut out = 0;
    let mut inputs = Some(inputs);
    let info = measure(|| {
        let given = step.run(inputs.take().unwrap_or_default(), &mut Context::default()).unwrap();
        out = given.iter().map(Value::byte_len).sum();
    });
    (info, out)
}

fn show(name: &str, element: ElementType, given: usize, out: usize, info: &AllocationInfo) {
    let name = format!("{name}, from {element}");
    println!("{name:<40}{given:>12}{out:>12}{:>14}{:>8}", info.bytes_total, info.count_total);
}
