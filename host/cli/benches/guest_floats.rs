//! What a guest pays for work on a whole image, and for a built-in step's work.
//!
//! Bars: 60 µs for a step that turns 224×224×3 bytes into floats in a fresh sandbox, streaming or by
//! `builtins.run`; 10 µs for `builtins.run("resize")` from a guest over the step called natively.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark prints, and stops at the first surprise")]

#[path = "../../../guest-examples/rust/to-floats/src/floats.rs"]
#[allow(
    dead_code,
    clippy::needless_range_loop,
    unreachable_pub,
    reason = "the guest's own file, which has more callers"
)]
mod floats;
mod side_by_side;

use std::path::Path;
use std::sync::Arc;

use gpux_core::{Context, Layout, Metadata, OptionOrigin, Registry, Step, Tensor, Value};
use gpux_sandbox::{ComponentConfig, ComponentStep, Sandbox, SandboxOptions};
use serde_json::json;
use side_by_side::{compare, way};

fn main() {
    let sandbox = Sandbox::new(SandboxOptions::default()).unwrap();
    let registry = Arc::new(gpux::builtins());
    let load = |guest: &str, options: serde_json::Value| load(&sandbox, &registry, guest, options);

    let image = image(224, 224);
    let bytes = image.as_tensor().unwrap().as_slice::<u8>().unwrap();
    let factors = floats::Factors::new([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);
    let normalize = builtin(&registry, "normalize", json!({"method": "imagenet"}));
    let guest = |way: &str, layout: &str| load("to-floats", json!({"way": way, "layout": layout}));
    let [stream, whole, by_builtin] = ["stream", "whole", "builtin"].map(|way| guest(way, "hwc"));
    let [stream_chw, whole_chw] = ["stream", "whole"].map(|way| guest(way, "chw"));
    compare(
        "224×224×3 bytes to floats, a fresh sandbox for each",
        vec![
            way("native loop", || {
                let mut floats = vec![0.0; bytes.len()];
                factors.interleaved(bytes, &mut floats);
                floats
            }),
            way("native step `normalize`", || run(&*normalize, &image)),
            way("guest, by builtins.run(\"normalize\")", || run(&by_builtin, &image)),
            way("guest, streaming, HWC", || run(&stream, &image)),
            way("guest, streaming, CHW", || run(&stream_chw, &image)),
            way("guest, the whole at once, HWC", || run(&whole, &image)),
            way("guest, the whole at once, CHW", || run(&whole_chw, &image)),
        ],
    );

    let nothing = load("pass-through", json!({}));
    for (height, width) in [(480, 640), (48, 64)] {
        let image = self::image(height, width);
        let half = [height / 2, width / 2];
        let resize = builtin(&registry, "resize", json!({ "size": half }));
        let thumbnail = load("thumbnail", json!({ "side": half[1] }));
        let medians = compare(
            &format!("resize {width}×{height} colour to half its size"),
            vec![
                way("native", || run(&*resize, &image)),
                way("guest, by builtins.run(\"resize\")", || run(&thumbnail, &image)),
                way("native, and a guest that does nothing", || (run(&*resize, &image), run(&nothing, &image))),
            ],
        );
        println!("the call itself: {:.1} µs", medians[1] - medians[2]);
    }
}

fn load(sandbox: &Sandbox, registry: &Arc<Registry>, guest: &str, options: serde_json::Value) -> ComponentStep {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../guest-examples/rust/{guest}.wasm"));
    let config = ComponentConfig { options, ..ComponentConfig::default() };
    sandbox.load(&std::fs::read(path).unwrap(), config, registry).unwrap()
}

fn builtin(registry: &Registry, name: &str, options: serde_json::Value) -> Box<dyn Step> {
    (registry.builtin(name).unwrap().build)(options, &OptionOrigin::Component).unwrap()
}

/// A colour image with some variety in it.
fn image(height: usize, width: usize) -> Value {
    let pixels: Vec<u8> = (0..height * width * 3).map(|place| (place * 31 % 251) as u8).collect();
    let metadata = Metadata { layout: Some(Layout::Hwc), ..Metadata::default() };
    Tensor::new([height, width, 3], pixels).unwrap().with_metadata(metadata).into()
}

fn run(step: &dyn Step, value: &Value) -> Vec<Value> {
    step.run(vec![Some(value.clone())], &mut Context::default()).unwrap()
}
