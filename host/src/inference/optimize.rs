//! A model's graph as ONNX Runtime's optimizations leave it, made once by `gpux build` and kept in
//! the cache, so that later starts need not make it again.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::alike::alike;
use super::engine::{Engine, Optimized, SessionOptions};
use super::error::ModelLoadError;
use super::fastest::Trial;
use super::graph::ModelInspector;
use super::hardware::Hardware;
use super::library::{Found, Origin};
use super::model_file::ModelFile;
use super::onnxruntime::OnnxRuntime;
use super::providers::ExecutionProvider;
use super::step::{ModelOptions, ModelStep};
use super::vet;
use crate::child;
use crate::files::digest;
use crate::pipeline::{Context, Step as _, Value};

/// Loading a few times and optimizing fits.
const TIMEOUT: Duration = Duration::from_mins(5);
/// A graph in one file cannot be larger than 2 GB, and optimizing holds it several times.
const LARGEST: u64 = 1 << 30;
/// Loads that are timed, of which the shortest counts.
const LOADS: usize = 3;
/// A kept graph must load in at most this part of the time to be of use.
const WORTH: f64 = 0.9;
/// Results of the two graphs may differ by this, relative to the largest number of an output: they
/// are the same kernels, so this is already far more than is ever seen.
const TOLERANCE: f64 = 1e-5;

/// What came of optimizing a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Optimization {
    /// operators of the graph, before and after
    pub operators: (usize, usize),
    /// seconds until the model was loaded, before and after
    pub load: (f64, f64),
    /// whether the graph is kept: only if it loads clearly faster
    pub kept: bool,
}

impl fmt::Display for Optimization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, after) = self.load;
        write!(
            f,
            "optimized, {} operators instead of {}; loads in {:.0} ms instead of {:.0} ms{}",
            self.operators.1,
            self.operators.0,
            after * 1e3,
            before * 1e3,
            if self.kept { "" } else { ", so nothing is kept" }
        )
    }
}

/// What the child is to do.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    model: PathBuf,
    library: PathBuf,
    /// where the graph is to be kept
    place: PathBuf,
    memory: Option<u64>,
}

/// The optimized graph of the model, if `gpux build` has kept one.
pub fn kept(trial: &Trial<'_>) -> Option<PathBuf> {
    // Most machines have none, and need not look closely at their processor.
    trial.cache.filter(|cache| cache.root().join("optimized").is_dir())?;
    place(trial).filter(|place| place.is_file())
}

/// Where the optimized graph of the model is kept; `None` for a model or engine that there is none
/// for. It holds for this library and processor alone.
fn place(trial: &Trial<'_>) -> Option<PathBuf> {
    let info = trial.file.info();
    trial.library?;
    if !info.external_files.is_empty() || info.size_bytes > LARGEST {
        return None;
    }
    let key = format!(
        "{}\0{}\0{}\0{:?}",
        trial.file.digest(),
        trial.engine.identity(),
        env!("CARGO_PKG_VERSION"),
        Hardware::here().cpu
    );
    Some(trial.cache?.root().join("optimized").join(format!("{}.onnx", digest(key))))
}

/// Makes the optimized graph of a model in a child process and keeps it if it is of use. `None` if
/// there is none for this model, or it is kept already.
pub fn optimize(trial: &Trial<'_>) -> Result<Option<Optimization>, ModelLoadError> {
    let Some((program, (library, place))) = trial.program.zip(trial.library.zip(place(trial))) else {
        return Ok(None);
    };
    let fault = |reason: String| ModelLoadError::Vetting {
        path: trial.file.path().to_owned(),
        reason: format!("its graph could not be optimized: {reason}"),
    };
    if place.is_file() {
        return Ok(None);
    }
    let folder = trial.cache.map(|cache| cache.folder("optimized")).transpose();
    folder.map_err(|error| fault(error.to_string()))?;
    let request = Request {
        model: vet::absolute(trial.file.path()),
        library: vet::absolute(library),
        place,
        memory: vet::memory(trial, &[ExecutionProvider::Cpu]),
    };
    let text = serde_json::to_string(&request).map_err(|error| fault(error.to_string()))?;
    let answer: Result<Result<Optimization, String>, _> =
        child::ask(program, &["__optimize-model".as_ref(), text.as_ref()], TIMEOUT);
    answer.map_err(|error| fault(error.to_string()))?.map(Some).map_err(fault)
}

/// What `gpux __optimize-model REQUEST` does and prints, on one line.
pub fn optimize_answer(request: &str) -> String {
    let answer = serde_json::from_str(request).map_err(|error| error.to_string()).and_then(|request: Request| {
        child::bound_processor_time(TIMEOUT);
        child::bound_memory(request.memory);
        work(&request)
    });
    serde_json::to_string(&answer).unwrap_or_default()
}

fn work(request: &Request) -> Result<Optimization, String> {
    let text = |error: ModelLoadError| error.to_string();
    let file = Arc::new(ModelFile::open(&request.model).map_err(text)?);
    let found = Found::at(&request.library, Origin::Option);
    let engine: Arc<dyn Engine> = Arc::new(OnnxRuntime::load(&found).map_err(|error| error.to_string())?);
    let load = |optimized: Option<Optimized>| {
        let options = SessionOptions { optimized, ..SessionOptions::cpu() };
        let start = Instant::now();
        engine.load(&file, &options).map_err(text)?;
        Ok::<_, String>(start.elapsed().as_secs_f64())
    };
    let shortest = |optimized: &dyn Fn() -> Option<Optimized>| {
        let times = (0..LOADS).map(|_| load(optimized()));
        times.reduce(|a, b| Ok(a?.min(b?))).unwrap_or(Ok(0.0))
    };
    let before = shortest(&|| None)?;
    // Nobody may find half a graph in its place.
    let folder = request.place.parent().unwrap_or(Path::new("."));
    let staged = tempfile::Builder::new().suffix(".onnx").tempfile_in(folder).map_err(|error| error.to_string())?;
    load(Some(Optimized::Write(staged.path().to_owned())))?;
    let after = shortest(&|| Some(Optimized::Read(staged.path().to_owned())))?;
    let count = |path: &Path| {
        let info = ModelInspector::inspect(path).map_err(text)?;
        Ok::<_, String>(info.operators.values().sum())
    };
    let operators = (count(&request.model)?, count(staged.path())?);
    let kept = after <= WORTH * before;
    if kept {
        compare(&engine, &file, staged.path())?;
        staged.persist(&request.place).map_err(|error| error.to_string())?;
    }
    Ok(Optimization { operators, load: (before, after), kept })
}

/// Runs both graphs on zeros, where zeros can be run.
fn compare(engine: &Arc<dyn Engine>, file: &Arc<ModelFile>, kept: &Path) -> Result<(), String> {
    let Some(inputs) = vet::trial_inputs(file.info(), false) else { return Ok(()) };
    let run = |optimized: Option<PathBuf>| {
        let providers = super::ProviderChoice::These(vec![ExecutionProvider::Cpu]);
        let options = ModelOptions { providers, optimized, ..ModelOptions::default() };
        let step = ModelStep::load(engine.clone(), file.clone(), &options).map_err(|error| error.to_string())?;
        step.run(inputs.clone(), &mut Context::default()).map_err(|error| error.to_string())
    };
    let Ok(plain) = run(None) else { return Ok(()) };
    let optimized = run(Some(kept.to_owned()))?;
    if plain.iter().zip(&optimized).all(|(plain, optimized)| same(plain, optimized)) {
        Ok(())
    } else {
        Err("the optimized graph gives other results".to_owned())
    }
}

fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Tensor(one), Value::Tensor(other)) => alike(one, other, TOLERANCE),
        (one, other) => one == other,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::inference::testing::{model, onnxruntime};
    use crate::pipeline::Tensor;

    #[test]
    fn a_kept_graph_gives_the_same_and_a_damaged_one_is_made_again() {
        let Some(engine) = onnxruntime() else { return };
        let folder = tempfile::tempdir().unwrap();
        let kept = folder.path().join("kept.onnx");
        let file = model("conv");
        let write = SessionOptions { optimized: Some(Optimized::Write(kept.clone())), ..SessionOptions::cpu() };
        engine.load(&file, &write).unwrap();
        compare(&engine, &file, &kept).unwrap();
        let options = ModelOptions { optimized: Some(kept.clone()), ..ModelOptions::default() };
        let run = || {
            let step = ModelStep::load(engine.clone(), file.clone(), &options).unwrap();
            let image = Tensor::new([1, 1, 8, 8], vec![0.5_f32; 64]).unwrap();
            step.run(vec![Some(Value::Tensor(image))], &mut Context::default()).unwrap()
        };
        let whole = run();
        std::fs::write(&kept, "damaged").unwrap();
        assert!(same(&whole[0], &run()[0]));
    }
}
