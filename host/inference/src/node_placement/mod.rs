//! Profiles the nodes of a model: the provider that each runs on, and its floating-point operations.
//! A child process runs the model once, with an unoptimized graph.

mod events;
mod flops;
mod report;

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::engine::{Engine as _, SessionOptions};
use super::error::ModelLoadError;
use super::graph::{InputSpec, ModelInfo, OnnxType};
use super::library::{LibraryFile, LibraryOrigin};
use super::model_file::ModelFile;
use super::onnxruntime::OnnxRuntime;
use super::providers::{ExecutionProvider, ProviderLibrary, ProviderOptions};
use super::trial_context::{self, Trial};
use gpux_core::child_process;
use gpux_core::files::check_room;
use gpux_core::{ElementType, SyntheticInputs, Tensor};
pub use report::{NodeReport, OperatorNodes, Placement};

/// A large model is loaded, compiled for its provider and run within it.
const TIMEOUT: Duration = Duration::from_mins(10);

/// The child's request.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    /// first, because reading them makes known the names that follow
    plugins: Vec<ProviderLibrary>,
    model: PathBuf,
    library: PathBuf,
    provider: ExecutionProvider,
    options: ProviderOptions,
    /// index and shape of each input
    inputs: Vec<(usize, Vec<usize>)>,
    /// where ONNX Runtime writes its profile
    folder: PathBuf,
    memory: Option<u64>,
}

/// One execution of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct NodeExecution {
    /// the node, so that a node in a loop is counted once
    node: String,
    operator: String,
    /// as ONNX Runtime calls it: `CPUExecutionProvider`
    provider: String,
    inputs: Vec<Vec<u64>>,
    outputs: Vec<Vec<u64>>,
}

/// Runs the model once on each of `providers`, each in a child process. `info` describes the inputs: the
/// model's own description, or one with fixed shapes.
pub fn profile_nodes(
    trial: &Trial<'_>,
    info: &ModelInfo,
    providers: &[ExecutionProvider],
    options: &ProviderOptions,
) -> NodeReport {
    let shapes = shapes(info);
    let named = |(index, shape): &(usize, Vec<usize>)| Some((info.inputs.get(*index)?.name.clone(), shape.clone()));
    let inputs = shapes.iter().flatten().filter_map(named).collect();
    let mut report = NodeReport::new(trial.file.info(), inputs);
    let cpu = ExecutionProvider::Cpu;
    // The arithmetic is counted on the CPU, where every node shows.
    let also = (!providers.contains(&cpu)).then_some(cpu);
    for provider in providers.iter().copied().chain(also) {
        let asked = ProfileTask { trial, provider, options, shapes: shapes.as_deref() };
        let ran = asked.run_in_child();
        if provider == cpu
            && let Ok(ran) = &ran
        {
            report.count(ran);
        }
        if providers.contains(&provider) {
            report.place(provider, &ran);
        }
    }
    report
}

/// The shape of each input that must be given; `None` where one is no plain tensor.
fn shapes(info: &ModelInfo) -> Option<Vec<(usize, Vec<usize>)>> {
    let required = info.inputs.iter().enumerate().filter(|(_, input)| input.required);
    let shape = |(index, input): (usize, &InputSpec)| match &input.value {
        Some(OnnxType::Tensor { kind, narrow: None }) => Some((index, SyntheticInputs::default().shape(kind))),
        _ => None,
    };
    required.map(shape).collect()
}

struct ProfileTask<'a> {
    trial: &'a Trial<'a>,
    provider: ExecutionProvider,
    options: &'a ProviderOptions,
    shapes: Option<&'a [(usize, Vec<usize>)]>,
}

impl ProfileTask<'_> {
    fn run_in_child(&self) -> Result<Vec<NodeExecution>, String> {
        let Trial { program, file, library, plugins, .. } = *self.trial;
        let program = program.ok_or("that takes the `gpux` program")?;
        let library = library.ok_or("only ONNX Runtime tells")?;
        let inputs = self.shapes.ok_or("its inputs are no plain tensors, and cannot be made up")?;
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let request = Request {
            plugins: plugins.to_vec(),
            model: trial_context::absolute(file.path()),
            library: trial_context::absolute(library),
            provider: self.provider,
            options: self.options.clone(),
            inputs: inputs.to_vec(),
            folder: folder.path().to_owned(),
            memory: trial_context::memory_limit(self.trial, &[self.provider]),
        };
        let text = serde_json::to_string(&request).map_err(|error| error.to_string())?;
        let answer: Result<Result<(), String>, _> =
            child_process::run_json(program, &["__run-nodes".as_ref(), text.as_ref()], TIMEOUT);
        let ran = match answer {
            Ok(answer) => answer.and_then(|()| events::read(folder.path())),
            Err(fault) if fault.is_environment() => Err(fault.to_string()),
            Err(fault) => Err(format!("{fault}; the model may be damaged or hostile")),
        };
        let no_room = |error| format!("the folder for temporary files (TMPDIR) cannot be used: {error}");
        if ran.is_err() {
            check_room(folder.path()).map_err(no_room)?;
        }
        ran
    }
}

/// Serves `gpux __run-nodes REQUEST`: one line of JSON. The profile is in the folder.
pub fn node_placement_child(request: &str) -> String {
    let answer = serde_json::from_str(request).map_err(|error| error.to_string()).and_then(|request: Request| {
        child_process::limit_cpu_time(TIMEOUT);
        child_process::limit_memory(request.memory);
        run(&request)
    });
    serde_json::to_string(&answer).unwrap_or_default()
}

fn run(request: &Request) -> Result<(), String> {
    let file = ModelFile::open(&request.model).map_err(|error| error.to_string())?;
    let engine = OnnxRuntime::load_with(&LibraryFile::at(&request.library, LibraryOrigin::Option), &request.plugins);
    let engine = engine.map_err(|error| error.to_string())?;
    if !engine.providers().contains(&request.provider) {
        return Err(engine.unavailable_reason(request.provider));
    }
    let tensor = |(index, shape): &(usize, Vec<usize>)| {
        let input = file.info().inputs.get(*index).ok_or("the model has changed")?;
        let kind = input.value.as_ref().and_then(OnnxType::plain).ok_or("the model has changed")?;
        let element = kind.element().unwrap_or(ElementType::Float32);
        let tensor = SyntheticInputs::default().tensor_of_shape(element, shape.clone());
        tensor.map(|tensor| (*index, tensor)).ok_or_else(|| format!("the input `{}` would be too large", input.name))
    };
    let inputs: Vec<(usize, Tensor)> = request.inputs.iter().map(tensor).collect::<Result<_, _>>()?;
    let options = SessionOptions {
        provider: request.provider,
        provider_options: request.options.clone(),
        ..SessionOptions::cpu()
    };
    let inputs: Vec<_> = inputs.iter().map(|(index, tensor)| (*index, tensor)).collect();
    engine.profile(&file, &options, &inputs, &request.folder.join(events::PREFIX)).map_err(|error| match error {
        ModelLoadError::Engine { reason, .. } | ModelLoadError::Lacking { reason, .. } => reason,
        other => other.to_string(),
    })
}
