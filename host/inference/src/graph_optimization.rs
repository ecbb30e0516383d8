//! Caches a model's optimized graph: later starts skip ONNX Runtime's optimization, and sessions map the
//! cached weights instead of copying them.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::engine::{Engine, Optimized, SessionOptions};
use super::error::ModelLoadError;
use super::graph::count_trusted_operators;
use super::hardware::Hardware;
use super::library::{LibraryFile, LibraryOrigin};
use super::model_file::ModelFile;
use super::onnxruntime::{OnnxRuntime, WEIGHTS};
use super::providers::{ExecutionProvider, ProviderChoice};
use super::step::{ModelOptions, ModelStep};
use super::tensor_comparison::all_close;
use super::trial_context::{self, Trial};
use super::validation;
use gpux_core::child_process::{self, ChildError};
use gpux_core::files::{ReadAccess, check_room, digest, without_path, write_whole};
use gpux_core::{CacheFolder, Context, Step as _, Value};

/// Loading a few times and optimizing fits.
const TIMEOUT: Duration = Duration::from_mins(5);
/// Bytes of the largest model whose graph is cached: optimizing needs several times its size.
const LARGEST: u64 = 4 << 30;
/// Bytes from which a graph is cached even if it loads no faster: its weights are mapped.
const WORTH_MAPPING: u64 = 8 << 20;
/// The version of the cache's format.
const FORMAT: u32 = 3;
/// The graph, in the model's folder.
const GRAPH: &str = "graph.onnx";
/// Why there is none, in its place.
const FAILED: &str = "failed";
/// Loads that are timed, of which the shortest counts.
const LOADS: usize = 3;
/// A kept graph must load in at most this part of the time to be of use.
const WORTH: f64 = 0.9;
/// Results of the two graphs may differ by this, relative to the largest number of an output: they
/// are the same kernels, so this is already far more than is ever seen.
const TOLERANCE: f64 = 1e-5;

/// The result of optimizing a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Optimization {
    /// operators of the graph, before and after
    pub operators: (usize, usize),
    /// seconds until the model was loaded, before and after
    pub load: (f64, f64),
    /// whether the graph is cached: only if it loads clearly faster
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

/// The child's request.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    model: PathBuf,
    library: PathBuf,
    /// the folder that the graph is written to
    folder: PathBuf,
    /// see [`Optimized::Write`]
    prepacked: bool,
    /// whether it is cached though it loads no faster
    mapped: bool,
    /// see [`LOADS`]
    loads: usize,
    memory: Option<u64>,
}

/// The optimized graph of the model, if it was made before.
pub fn cached_graph(trial: &Trial<'_>) -> Option<PathBuf> {
    // Most machines have none, and need not look closely at their processor.
    let cache = trial.cache?;
    let shared = cache.shared().and_then(|shared| shared.trusted_path(CacheFolder::Optimized));
    if shared.is_none() && !cache.path(CacheFolder::Optimized).is_dir() {
        return None;
    }
    let key = key(trial)?;
    if let Some(graph) = shared.map(|folder| folder.join(&key).join(GRAPH)).filter(|graph| graph.is_file()) {
        return Some(graph);
    }
    // Not where others may write: blocks of packed weights are believed.
    let graph = cache.folder(CacheFolder::Optimized).ok()?.join(&key).join(GRAPH);
    graph.is_file().then(|| {
        cache.touch_and_evict(CacheFolder::Optimized, &key);
        cache.note_use(CacheFolder::Optimized, &key);
        graph
    })
}

/// Whether the graph is cached without being asked for: if several sessions would each hold the
/// weights, as with `many` callers, or if ONNX Runtime would map files that others may write to.
/// Truncating a mapped file crashes the process; files in the cache are not truncated.
pub fn should_optimize(trial: &Trial<'_>, options: &ModelOptions, many: bool) -> bool {
    let info = trial.file.info();
    let unasked = many && options.threads.is_none() && trial.engine.threads(None) > 1;
    let shared = options.instances.map_or(unasked, |instances| instances > 1) && info.size_bytes >= WORTH_MAPPING;
    let on_cpu = |provider: &ExecutionProvider| *provider == ExecutionProvider::Cpu;
    (shared || !info.external_files.is_empty())
        && trial_context::candidate_providers(&options.providers, trial.engine.providers()).iter().all(on_cpu)
}

/// The name under which the optimized graph of the model is kept; `None` for a model or engine that
/// there is none for. It holds for this library and processor alone.
fn key(trial: &Trial<'_>) -> Option<String> {
    trial.library?;
    if trial.file.info().size_bytes > LARGEST {
        return None;
    }
    Some(digest(format!(
        "{FORMAT}\0{}\0{}\0{}\0{:?}",
        trial.file.digest(),
        trial.engine.identity(),
        env!("CARGO_PKG_VERSION"),
        Hardware::detect().cpu
    )))
}

/// Makes the optimized graph of a model in a child process and keeps it if it is of use. `None` if
/// there is none for this model, or it is kept already. Unless it was `asked` for, it is not tried
/// again where it has failed before.
pub fn optimize(trial: &Trial<'_>, asked: bool) -> Result<Option<Optimization>, ModelLoadError> {
    let Some((program, ((library, cache), key))) = trial.program.zip(trial.library.zip(trial.cache).zip(key(trial)))
    else {
        return Ok(None);
    };

    let fault = |reason: String| ModelLoadError::Validation {
        path: trial.file.path().to_owned(),
        reason: format!("its graph could not be optimized: {reason}"),
    };
    let machine = |reason: String| ModelLoadError::CannotValidate {
        path: trial.file.path().to_owned(),
        reason: format!("its graph could not be optimized: {reason}"),
    };

    let folder = cache.folder(CacheFolder::Optimized).map_err(|error| fault(error.to_string()))?;
    let place = folder.join(&key);
    if place.join(GRAPH).is_file() || !asked && place.join(FAILED).is_file() {
        return Ok(None);
    }

    let info = trial.file.info();
    let unusable = |error: &std::io::Error| machine(format!("`{}` cannot be used: {error}", folder.display()));
    let mut request = Request {
        model: trial_context::absolute(trial.file.path()),
        library: trial_context::absolute(library),
        folder: PathBuf::new(),
        prepacked: true,
        mapped: info.size_bytes >= WORTH_MAPPING || !info.external_files.is_empty(),
        loads: if asked { LOADS } else { 1 },
        memory: trial_context::memory_limit(trial, &[ExecutionProvider::Cpu]),
    };

    let made = loop {
        // Written elsewhere and renamed, so that no reader finds half a graph. It goes also where the child dies.
        let staged = tempfile::Builder::new().prefix(".").tempdir_in(&folder);
        let staged = staged.map_err(|error| unusable(&without_path(&error)))?;
        staged.path().clone_into(&mut request.folder);

        let text = serde_json::to_string(&request).map_err(|error| fault(error.to_string()))?;
        let answer: Result<Result<Optimization, String>, ChildError> =
            child_process::run_json(program, &["__optimize-model".as_ref(), text.as_ref()], TIMEOUT);
        match answer {
            // Nothing was tried, so nothing is known of the model.
            Err(error) if error.is_environment() => return Err(machine(error.to_string())),
            // ONNX Runtime can die of weights that it has packed itself.
            Err(error) if request.prepacked && !matches!(error, ChildError::Timeout(_)) => request.prepacked = false,
            Err(error) => break Err(error.to_string()),
            Ok(Ok(made)) => {
                if made.kept {
                    publish(staged, &place).map_err(|error| unusable(&error))?;
                }
                break Ok(made);
            }
            Ok(Err(reason)) => break Err(reason),
        }
    };

    if made.is_err() {
        check_room(&folder).map_err(|error| unusable(&error))?;
    }

    let why_not = match &made {
        Ok(made) if made.kept => None,
        Ok(_) => Some("it loads no faster"),
        Err(reason) => Some(reason.as_str()),
    };
    match why_not {
        None => cache.touch_and_evict(CacheFolder::Optimized, &key),
        // Not remembering costs the next start another try, no more.
        Some(why) => drop(write_whole(&place.join(FAILED), why.as_bytes(), ReadAccess::Owner)),
    }

    made.map(Some).map_err(fault)
}

/// Serves `gpux __optimize-model REQUEST`: one line of JSON.
pub fn optimization_child(request: &str) -> String {
    let answer = serde_json::from_str(request).map_err(|error| error.to_string()).and_then(|request: Request| {
        child_process::limit_cpu_time(TIMEOUT);
        child_process::limit_memory(request.memory);
        optimize_here(&request)
    });
    serde_json::to_string(&answer).unwrap_or_default()
}

fn optimize_here(request: &Request) -> Result<Optimization, String> {
    let text = |error: ModelLoadError| error.to_string();
    let file = Arc::new(ModelFile::open(&request.model).map_err(text)?);
    let found = LibraryFile::at(&request.library, LibraryOrigin::Option);
    let engine: Arc<dyn Engine> = Arc::new(OnnxRuntime::load(&found).map_err(|error| error.to_string())?);
    let load = |optimized: Option<Optimized>| {
        let options = SessionOptions { optimized, ..SessionOptions::cpu() };
        let start = Instant::now();
        engine.load(&file, &options).map_err(text)?;
        Ok::<_, String>(start.elapsed().as_secs_f64())
    };
    let shortest = |optimized: &dyn Fn() -> Option<Optimized>| {
        let times = (0..request.loads).map(|_| load(optimized()));
        times.reduce(|a, b| Ok(a?.min(b?))).unwrap_or(Ok(0.0))
    };
    let before = shortest(&|| None)?;
    let graph = request.folder.join(GRAPH);
    load(Some(Optimized::Write { graph: graph.clone(), prepacked: request.prepacked }))?;
    let after = shortest(&|| Some(Optimized::Read(graph.clone())))?;
    let operators = (file.info().operators.values().sum(), count_trusted_operators(&graph).map_err(text)?);
    let kept = request.mapped || after <= WORTH * before;
    if kept {
        compare(&engine, &file, &graph)?;
    }
    Ok(Optimization { operators, load: (before, after), kept })
}

/// Puts the folder in its place, once the disk has all of it: weights that were lost with the
/// power would be zeros that go unnoticed.
fn publish(staged: tempfile::TempDir, place: &Path) -> std::io::Result<()> {
    for file in [GRAPH, WEIGHTS].map(|name| staged.path().join(name)) {
        if file.is_file() {
            File::open(file)?.sync_all()?;
        }
    }
    if place.is_dir() {
        std::fs::remove_dir_all(place)?;
    }
    std::fs::rename(staged.path(), place)?;
    // Where it was, there is nothing to remove any more.
    let _ = staged.keep();
    Ok(())
}

/// Runs both graphs on zeros, where zeros can be run.
fn compare(engine: &Arc<dyn Engine>, file: &Arc<ModelFile>, kept: &Path) -> Result<(), String> {
    let load = |optimized: Option<PathBuf>| {
        let providers = ProviderChoice::These(vec![ExecutionProvider::Cpu]);
        let options = ModelOptions { providers, optimized, ..ModelOptions::default() };
        ModelStep::load(engine.clone(), file.clone(), &options).map_err(|error| error.to_string())
    };
    let run = |step: &ModelStep, inputs: &[Option<Value>]| step.run(inputs.to_vec(), &mut Context::default());
    let plain_step = load(None)?;
    let runnable = validation::trial_inputs(file.info(), false)
        .into_iter()
        .find_map(|inputs| Some((run(&plain_step, &inputs).ok()?, inputs)));
    let Some((plain, inputs)) = runnable else { return Ok(()) };
    // Its weights need not lie beside those of the other.
    drop(plain_step);
    let optimized = run(&load(Some(kept.to_owned()))?, &inputs).map_err(|error| error.to_string())?;
    if plain.iter().zip(&optimized).all(|(plain, optimized)| is_close(plain, optimized)) {
        Ok(())
    } else {
        Err("the optimized graph gives other results".to_owned())
    }
}

fn is_close(expected: &Value, actual: &Value) -> bool {
    match (expected, actual) {
        (Value::Tensor(expected), Value::Tensor(actual)) => all_close(expected, actual, TOLERANCE),
        (expected, actual) => expected == actual,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::testing::{embedded, model, onnxruntime, path};
    use gpux_core::Tensor;

    #[test]
    fn cached_graphs_give_equal_results_and_damaged_ones_are_replaced() {
        let Some(engine) = onnxruntime() else { return };
        let folder = tempfile::tempdir().unwrap();
        let kept = folder.path().join("kept.onnx");
        let file = model("conv");
        let write = SessionOptions {
            optimized: Some(Optimized::Write { graph: kept.clone(), prepacked: true }),
            ..SessionOptions::cpu()
        };
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
        assert!(is_close(&whole[0], &run()[0]));
    }

    /// Whether this process maps a file whose path ends so.
    #[cfg(target_os = "linux")]
    fn maps(path: &Path) -> bool {
        let path = path.canonicalize().unwrap();
        std::fs::read_to_string("/proc/self/maps").unwrap().lines().any(|line| line.ends_with(path.to_str().unwrap()))
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn maps_weights_of_cached_graphs() {
        let Some(engine) = onnxruntime() else { return };
        let folder = tempfile::tempdir().unwrap();
        let graph = folder.path().join(GRAPH);
        let file = ModelFile::open(path("../../models/digits.onnx")).unwrap();
        let load = |optimized| {
            engine.load(&file, &SessionOptions { optimized: Some(optimized), ..SessionOptions::cpu() }).unwrap()
        };
        drop(load(Optimized::Write { graph: graph.clone(), prepacked: true }));
        let weights = folder.path().join(WEIGHTS);
        assert!(weights.metadata().unwrap().len() > 20_000 && graph.metadata().unwrap().len() < 20_000);
        // Prepacked weights are accepted from gpux itself.
        assert!(count_trusted_operators(&graph).is_ok_and(|operators| operators > 0));
        assert!(!maps(&weights));
        let session = load(Optimized::Read(graph));
        assert!(maps(&weights));
        drop(session);
        assert!(!maps(&weights));
    }

    /// A model of some megabytes: a small one with an unknown field.
    fn large_model() -> Vec<u8> {
        let mut bytes = std::fs::read(path("conv.onnx")).unwrap();
        // Field 2000, bytes; their number follows, seven bits at a time.
        bytes.extend([0x82, 0x7d]);
        let length = WORTH_MAPPING as usize;
        bytes.extend((0..4).map(|at| (length >> (7 * at) & 0x7f) as u8 | if at < 3 { 0x80 } else { 0 }));
        bytes.resize(bytes.len() + length, 0);
        bytes
    }

    /// Whether `file` is optimized with these options.
    fn called_for(engine: &dyn Engine, file: &ModelFile, options: &ModelOptions) -> bool {
        let trial = Trial { program: None, cache: None, file, engine, library: None, plugins: &[] };
        should_optimize(&trial, options, false)
    }

    /// A child that dies leaves its reason, a mark, and nothing else; weights that are not packed are tried before.
    #[cfg(unix)]
    #[test]
    fn remembers_crashes_of_the_child() {
        use gpux_core::CacheDir;
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let calls = folder.path().join("calls");
        let program = |name: &str, script: &str| {
            let program = folder.path().join(name);
            let note =
                format!("echo >>'{}'; d=$(echo \"$2\" | sed 's/.*\"folder\":\"\\([^\"]*\\).*/\\1/')", calls.display());
            std::fs::write(&program, format!("#!/bin/sh\n{note}; echo half >\"$d/graph.onnx\"\n{script}\n")).unwrap();
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
            program
        };
        let (file, engine, library) = (model("conv"), embedded(), folder.path().join("library"));
        let optimize_with = |cache: &CacheDir, program: &Path| {
            let (program, library) = (Some(program), Some(library.as_path()));
            let trial = Trial { program, cache: Some(cache), file: &file, engine: &*engine, library, plugins: &[] };
            optimize(&trial, false).map_err(|error| error.to_string())
        };
        let calls = || std::fs::read_to_string(&calls).unwrap().lines().count();

        let cache = CacheDir::at(folder.path().join("cache"));
        let crash = program("crash", "kill -SEGV $$");
        let told = optimize_with(&cache, &crash).unwrap_err();
        assert!(told.contains("its graph could not be optimized: it was ended by signal 11"), "{told}");
        assert_eq!((optimize_with(&cache, &crash), calls()), (Ok(None), 2));
        let entries: Vec<_> = std::fs::read_dir(cache.path(CacheFolder::Optimized)).unwrap().flatten().collect();
        assert_eq!(entries.len(), 1);
        assert!(std::fs::read_to_string(entries[0].path().join(FAILED)).unwrap().contains("signal 11"));
        assert_eq!(std::fs::read_dir(entries[0].path()).unwrap().count(), 1);

        let cache = CacheDir::at(folder.path().join("other"));
        let kept = r#"{"Ok":{"operators":[2,1],"load":[1.0,0.5],"kept":true}}"#;
        let script = format!("case \"$2\" in *'\"prepacked\":true'*) kill -SEGV $$;; esac\necho '{kept}'");
        assert!(optimize_with(&cache, &program("packed", &script)).unwrap().is_some_and(|made| made.kept));
        let entries: Vec<_> = std::fs::read_dir(cache.path(CacheFolder::Optimized)).unwrap().flatten().collect();
        assert!(entries.len() == 1 && entries[0].path().join(GRAPH).is_file());
    }

    #[test]
    fn optimizes_for_several_sessions_and_external_weights() {
        let engine = embedded();
        let (usual, two) = (ModelOptions::default(), ModelOptions { instances: Some(2), ..ModelOptions::default() });
        let providers = ProviderChoice::These(vec![ExecutionProvider::Cuda]);
        let elsewhere = ModelOptions { providers, ..ModelOptions::default() };
        assert!(called_for(&*engine, &model("external"), &usual));
        assert!(!called_for(&*engine, &model("external"), &elsewhere), "kept graphs are for the CPU");
        assert!(!called_for(&*engine, &model("conv"), &two), "its weights are no burden");
        let folder = tempfile::tempdir().unwrap();
        let large = folder.path().join("large.onnx");
        std::fs::write(&large, large_model()).unwrap();
        let large = ModelFile::open(large).unwrap();
        assert!(called_for(&*engine, &large, &two) && !called_for(&*engine, &large, &usual));
    }
}
