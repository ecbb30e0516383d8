//! What it saves that tensors stay on the device between models: three small models in a row on
//! tensors of 16 MiB, handed on where they lie, and through the host, as a run does at which somebody
//! looks.
//!
//! Needs ONNX Runtime with a provider that keeps tensors on its device, and its driver:
//! `GPUX_CACHE_DIR=target/webgpu gpux engine install webgpu`, `tests/software-vulkan.sh`, and with
//! `v=$PWD/target/vulkan`
//! `LD_LIBRARY_PATH=$v VK_DRIVER_FILES=$v/vk_swiftshader_icd.json GPUX_CACHE_DIR=$PWD/target/webgpu`.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark prints, and stops at the first surprise")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpux_core::{Context, Names, Observer, Plan, PlanBuilder, PlannedStep, RunOptions, Tensor, Value};
use gpux_inference::{Engine as _, ExecutionProvider, ModelFile, ModelOptions, ModelStep, OnnxRuntime};
use gpux_inference::{LibrarySearch, ProviderChoice};

const MODELS: usize = 3;
const ROWS: usize = 1 << 20;
const RUNS: usize = 15;

/// Somebody who wants to see every value.
struct Looks;

impl Observer for Looks {
    fn after(&mut self, _: &PlannedStep, _: Duration, _: &[Value], _: &Context) {}
}

fn main() {
    let found = LibrarySearch::from_environment(None).choose().unwrap().found;
    let engine = found.map(|found| Arc::new(OnnxRuntime::load(&found).unwrap()));
    let on_device = [ExecutionProvider::TensorRt, ExecutionProvider::Cuda, ExecutionProvider::WebGpu];
    let offered = |engine: &OnnxRuntime| on_device.into_iter().find(|one| engine.providers().contains(one));
    let Some((engine, provider)) = engine.and_then(|engine| Some((engine.clone(), offered(&engine)?))) else {
        println!("no ONNX Runtime here whose tensors stay on a device (the head of this file says what brings one)");
        return;
    };
    let options =
        ModelOptions { providers: ProviderChoice::These(vec![provider]), strict: true, ..ModelOptions::default() };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/models/center.onnx");
    let file = Arc::new(ModelFile::open(&path).unwrap());
    let mut builder = PlanBuilder::new(None);
    for index in 0..MODELS {
        let model = Arc::new(ModelStep::load(engine.clone(), file.clone(), &options).unwrap());
        builder.push("center", model, None, Some(&Names::Ordered(vec![format!("y{index}")]))).unwrap();
    }
    let plan = builder.finish(None).unwrap();
    let stays: usize =
        plan.steps().iter().flat_map(PlannedStep::outputs_on_device).map(|stays| usize::from(*stays)).sum();
    println!("{} on {provider}: {MODELS} models on {ROWS} x 4 float32, {stays} tensors stay", engine.name());
    let numbers = (0_u16..).map(|index| f32::from(index % 97)).take(ROWS * 4).collect();
    let input = Value::Tensor(Tensor::new([ROWS, 4], numbers).unwrap());
    assert_eq!(run(&plan, &input, false).1, run(&plan, &input, true).1, "both ways give the same");
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..RUNS {
        for (way, times) in times.iter_mut().enumerate() {
            times.push(run(&plan, &input, way == 1).0.as_secs_f64() * 1e3);
        }
    }
    let [stay, host] = times.map(|mut times| {
        times.sort_unstable_by(f64::total_cmp);
        times[RUNS / 2]
    });
    println!("on the device {stay:.1} ms, through the host {host:.1} ms: {:.2} x as fast", host / stay);
}

/// How long one run takes, and what it gives.
fn run(plan: &Plan, input: &Value, looks: bool) -> (Duration, Value) {
    let mut observer = Looks;
    let observer = looks.then_some(&mut observer as &mut dyn Observer);
    let values = vec![("x".to_owned(), input.clone())];
    let start = Instant::now();
    let outputs = plan.run(values, RunOptions { observer, ..RunOptions::default() }).unwrap();
    (start.elapsed(), outputs.into_iter().next().unwrap().1)
}
