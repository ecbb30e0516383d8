//! What a sandbox costs: an empty step, the step of the example, and a guest that never ends.
//!
//! Bars: 8 µs for a fresh, configured sandbox around a step that does nothing; 100 µs for
//! `center-ink` on a gray image of 160×160; a guest with a deadline of 50 ms is stopped within 60.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark prints, and stops at the first surprise")]

mod bare;
#[path = "../../../guest-examples/rust/center-ink/src/ink/mod.rs"]
#[allow(
    clippy::trivially_copy_pass_by_ref,
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "the guest's own file, which has tests and more callers"
)]
mod ink;
mod side_by_side;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bare::Bare;
use gpux_core::{Context, OptionOrigin, Step, StepFailure, Value};
use gpux_sandbox::{ComponentConfig, ComponentStep, Limits, Sandbox, SandboxOptions, componentize};
use serde_json::json;
use side_by_side::{compare, way};

fn main() {
    let sandbox = Sandbox::new(SandboxOptions::default()).unwrap();
    empty(&sandbox);
    center_ink(&sandbox);
    spinning(&sandbox);
}

fn file(path: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
}

fn load(sandbox: &Sandbox, component: &str, options: serde_json::Value, limits: Limits) -> ComponentStep {
    let config = ComponentConfig { options, limits, ..ComponentConfig::default() };
    sandbox.load(&file(component), config, &Arc::default()).unwrap()
}

fn run(step: &dyn Step, value: Value) -> Vec<Value> {
    step.run(vec![Some(value)], &mut Context::default()).unwrap()
}

/// The price of a sandbox: bare wasmtime making an instance of the component, and gpux making one
/// from its snapshot and calling a step that does nothing. Each function that a component imports
/// costs something when it is linked, so there is one that imports all there are.
fn empty(sandbox: &Sandbox) {
    let value = Value::from("a text");
    for (imports, guest, options, input) in [
        ("what a small step imports", "rust/pass-through.wasm", json!({}), Some(value)),
        ("all imports there are", "hostile/hostile.wasm", json!({"attack": ""}), None),
    ] {
        let guest = format!("guest-examples/{guest}");
        let step = load(sandbox, &guest, options, Limits::default());
        let bare = Bare::new(&componentize(&file(&guest)).unwrap(), None);
        compare(
            &format!("a fresh sandbox for each request, and a step that does nothing; {imports}"),
            vec![
                way("bare wasmtime: make an instance, call nothing", || bare.instantiate()),
                way("gpux: make, configure, call, check", || {
                    step.run(vec![input.clone()], &mut Context::default()).unwrap()
                }),
            ],
        );
    }
}

/// The example's component beside the same Rust code, compiled natively.
fn center_ink(sandbox: &Sandbox) {
    let step = load(sandbox, "guest-examples/rust/center-ink.wasm", json!({"margin": 0.15}), Limits::default());
    let photos = [("eight-small.png", None), ("seven.png", None), ("seven.png", Some([1920, 1080]))];
    for (name, size) in photos {
        let image = photo(name, size);
        let tensor = image.as_tensor().unwrap();
        let (pixels, [height, width, _]) = (tensor.as_slice::<u8>().unwrap(), tensor.shape()) else { return };
        let medians = compare(
            &format!("center-ink on {width}×{height} gray"),
            vec![
                way("native", || ink::center(pixels, *width, *height, &ink::Options { margin: 0.15 }).unwrap()),
                way("component", || run(&step, image.clone())),
            ],
        );
        let megapixels = (width * height) as f64 / 1e6;
        println!(
            "per megapixel: native {:.0} µs, component {:.0} µs",
            medians[0] / megapixels,
            medians[1] / megapixels
        );
    }
}

/// A sample photo as `decode-image` gives it, and as large as wanted.
fn photo(name: &str, size: Option<[usize; 2]>) -> Value {
    let bytes = Value::from(file(&format!("models/samples/{name}")));
    let image = run(&*builtin("decode-image", json!({"channels": "gray"})), bytes).remove(0);
    match size {
        None => image,
        Some(size) => run(&*builtin("resize", json!({ "size": size })), image).remove(0),
    }
}

fn builtin(name: &str, options: serde_json::Value) -> Box<dyn Step> {
    (gpux::builtins().builtin(name).unwrap().build)(options, &OptionOrigin::Component).unwrap()
}

/// How long after its start a guest that never ends is stopped.
fn spinning(sandbox: &Sandbox) {
    let deadline = Duration::from_millis(50);
    let limits = Limits { time: deadline, ..Limits::default() };
    let step = load(sandbox, "guest-examples/hostile/hostile.wasm", json!({"attack": "spin"}), limits);
    let mut times: Vec<_> = (0..40)
        .map(|_| {
            let start = Instant::now();
            let failure = step.run(vec![None], &mut Context::default()).unwrap_err();
            assert!(matches!(failure, StepFailure::Limit(_)), "{failure}");
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    println!(
        "\na guest that spins, deadline {deadline:?}: stopped after {:.1?} (median of 40), {:.1?} (slowest)",
        times[20], times[39]
    );
}
