//! What gpux adds around a model, layer by layer, over the engine called directly.
//!
//! Bars: a pipeline adds at most 5 µs around a tiny model; our session at most 2 µs, or 0.5 % around
//! a larger one. `benches/models.py` makes the larger ones; without them they are left out.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark prints, and stops at the first surprise")]

mod networks;
mod side_by_side;

use std::path::Path;
use std::sync::Arc;

use gpux::EngineChoice;
use gpux::Runtime;
use gpux_core::{Context, RunOptions, Step, Tensor, Value};
use gpux_inference::{
    Embedded, Engine, LibrarySearch, ModelFile, ModelOptions, ModelStep, OnnxRuntime, SessionOptions,
};
use networks::{bare_run, input};
use ort::value::TensorRef;
use side_by_side::{Variant, compare, way};
use tract_onnx::prelude::{
    DatumExt as _, Framework as _, InferenceModelExt as _, IntoRunnable as _, TypedSimpleState, tvec,
};

/// A model, the name of its only input, and the shape that it takes.
const MODELS: [(&str, &str, &[usize]); 2] =
    [("tests/models/adds.onnx", "x", &[1, 16]), ("models/digits.onnx", "image", &[1, 1, 8, 8])];

/// The shapes of real networks, with what each takes.
const LARGE: [(&str, &[&[usize]]); 3] = [
    ("target/bench-models/mobilenet.onnx", &[&[1, 3, 224, 224]]),
    ("target/bench-models/resnet50.onnx", &[&[1, 3, 224, 224]]),
    ("target/bench-models/minilm.onnx", &[&[1, 128], &[1, 128]]),
];

fn main() {
    let library = LibrarySearch::from_environment(None).choose().unwrap().found;
    let onnxruntime = library.map(|found| Arc::new(OnnxRuntime::load(&found).unwrap()));
    for (model, input, shape) in MODELS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(model);
        let tensor = tensor(shape);
        match &onnxruntime {
            Some(engine) => {
                let mut session = bare_ort(engine, &path);
                let bare = way("bare session.run", || {
                    let view = TensorRef::from_array_view((shape, tensor.as_slice::<f32>().unwrap())).unwrap();
                    let outputs = session.run(ort::inputs![view]).unwrap();
                    outputs[0].try_extract_tensor::<f32>().unwrap().1[0]
                });
                layers(model, bare, engine.clone(), EngineChoice::OnnxRuntime, &path, input, &tensor);
            }
            None => println!("\n{model}: no ONNX Runtime here (`gpux engine install` brings one)"),
        }
        let mut state = bare_tract(&path, shape);
        let bare = way("bare tract", || {
            let native = tract_onnx::prelude::Tensor::from_shape(shape, tensor.as_slice::<f32>().unwrap()).unwrap();
            state.run(tvec!(native.into())).unwrap()
        });
        layers(model, bare, Arc::new(Embedded), EngineChoice::Embedded, &path, input, &tensor);
    }
    onnxruntime.iter().for_each(large);
}

/// The models that take milliseconds: bare and ours, in turns of one run each.
fn large(engine: &Arc<OnnxRuntime>) {
    for (model, shapes) in LARGE {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(model);
        if !path.is_file() {
            println!("\n{model} is not there; `python benches/models.py` makes it");
            continue;
        }
        let inputs: Vec<Tensor> = shapes.iter().map(|shape| input(shape)).collect();
        let mut session = bare_ort(engine, &path);
        let bare = way("bare session.run", || bare_run(&mut session, &inputs));
        let step = ModelStep::load(engine.clone(), Arc::new(ModelFile::open(&path).unwrap()), &ModelOptions::default());
        let step = step.unwrap();
        let values = || inputs.iter().map(|tensor| Some(Value::Tensor(tensor.clone()))).collect::<Vec<_>>();
        let deadline = || Some(std::time::Instant::now() + std::time::Duration::from_secs(30));
        compare(
            &format!("{model} on {}", engine.name()),
            vec![
                bare,
                way("the model as a step", || step.run(values(), &mut Context::default()).unwrap()),
                way("the same, with a deadline", || {
                    step.run(values(), &mut Context { deadline: deadline(), ..Context::default() }).unwrap()
                }),
            ],
        );
    }
}

fn tensor(shape: &[usize]) -> Tensor {
    let count = shape.iter().product::<usize>();
    Tensor::new(shape, (0..count).map(|index| index as f32 * 0.1).collect()).unwrap()
}

fn bare_ort(engine: &OnnxRuntime, path: &Path) -> ort::session::Session {
    let builder = ort::session::Session::builder(engine.environment()).unwrap();
    builder.with_log_level(ort::logging::LogLevel::Fatal).unwrap().commit_from_file(path).unwrap()
}

fn bare_tract(path: &Path, shape: &[usize]) -> TypedSimpleState {
    let mut model = tract_onnx::onnx().model_for_path(path).unwrap();
    model.set_input_fact(0, f32::fact(shape).into()).unwrap();
    model.into_optimized().unwrap().into_runnable().unwrap().spawn().unwrap()
}

/// The same run through more and more of gpux.
fn layers(
    model: &str,
    bare: Variant<'_>,
    engine: Arc<dyn Engine>,
    choice: EngineChoice,
    path: &Path,
    input: &str,
    tensor: &Tensor,
) {
    let file = Arc::new(ModelFile::open(path).unwrap());
    let options = SessionOptions::cpu();
    let mut session = engine.load(&file, &options).unwrap();
    let step = ModelStep::load(engine.clone(), file, &ModelOptions::default()).unwrap();
    let runtime = Runtime::builder().options(|options| options.engine.choice = choice).model(path).unwrap();
    let value = || Value::Tensor(tensor.clone());
    compare(
        &format!("{model} on {}", engine.name()),
        vec![
            bare,
            way("our Session::run", || session.run(&[(0, tensor)], None).unwrap()),
            way("the model as a step", || step.run(vec![Some(value())], &mut Context::default()).unwrap()),
            way("a pipeline of one step, input by name", || {
                runtime.plan().run(vec![(input.to_owned(), value())], RunOptions::default()).unwrap()
            }),
            way("Runtime::infer, with a deadline", || runtime.infer([(input, value())]).unwrap()),
        ],
    );
}
