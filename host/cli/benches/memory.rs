//! What models take of memory, each figure in a process of its own: bare sessions loaded by path,
//! gpux, and gpux after `gpux build`; and what one large run leaves behind.
//!
//! `benches/models.py` makes the models. Linux only: the figures are the kernel's.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark prints, and stops at the first surprise")]

mod networks;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use gpux_core::CacheDir;
use gpux_core::{Context, Step, Tensor, Value};
use gpux_inference::{
    Engine, LibraryFile, LibraryOrigin, LibrarySearch, ModelFile, ModelOptions, ModelStep, OnnxRuntime, Trial,
};
use networks::{bare_run, input};
use ort::session::Session;

/// The shapes of real networks, with what each takes.
const MODELS: [(&str, &[&[usize]]); 3] =
    [("mobilenet", &[&[1, 3, 224, 224]]), ("resnet50", &[&[1, 3, 224, 224]]), ("minilm", &[&[1, 128], &[1, 128]])];
const BARE: &str = "bare sessions, by path";
const OURS: &str = "gpux";
const BUILT: &str = "gpux, after `gpux build`";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(found) = LibrarySearch::from_environment(None).choose().unwrap().found else {
        println!("no ONNX Runtime here (`gpux engine install` brings one)");
        return;
    };
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["weights", way, model, sessions, kept] => weights(&found, way, model, sessions.parse().unwrap(), kept),
        ["arena", way] => arena(&found, way),
        _ => parent(&found),
    }
}

fn path(model: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench-models").join(model).with_extension("onnx")
}

fn parent(found: &LibraryFile) {
    let child = |arguments: &[&str]| {
        let output = Command::new(std::env::current_exe().unwrap()).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        print!("{}", String::from_utf8_lossy(&output.stdout));
    };
    let cache = tempfile::tempdir().unwrap();
    for (model, _) in MODELS {
        if !path(model).is_file() {
            println!("{model}.onnx is not there; `python benches/models.py` makes it");
            continue;
        }
        let kept = build(found, model, cache.path());
        println!("\n{model}, {:.0} MiB on disk, one thread a session; MiB beyond the library's", mib_of(&path(model)));
        println!(
            "{:<34}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}",
            "", "sessions", "load ms", "peak", "in use", "private", "run ms"
        );
        for way in [BARE, OURS, BUILT] {
            for sessions in ["1", "2", "4"] {
                child(&["weights", way, model, sessions, kept.to_str().unwrap()]);
            }
        }
    }
    if path("mobilenet").is_file() {
        println!("\nmobilenet: MiB resident beyond the library's after runs on pictures, one at a time and once 16");
        println!("{:<34}{:>12}{:>12}{:>12}", "", "10 of one", "one of 16", "150 of one");
        child(&["arena", BARE]);
        child(&["arena", OURS]);
    }
}

fn mib_of(file: &Path) -> f64 {
    file.metadata().unwrap().len() as f64 / f64::from(1 << 20)
}

/// What `gpux build` does; the graph that it keeps.
fn build(found: &LibraryFile, model: &str, cache: &Path) -> PathBuf {
    let cache = CacheDir::at(cache);
    let file = ModelFile::open(path(model)).unwrap();
    let engine = OnnxRuntime::load(found).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_gpux"));
    let trial = Trial {
        program: Some(program),
        cache: Some(&cache),
        file: &file,
        engine: &engine,
        library: Some(&found.path),
        plugins: &[],
    };
    gpux_inference::optimize(&trial, true).unwrap();
    gpux_inference::cached_graph(&trial).unwrap()
}

/// One way to load a model, and runs on each of its sessions.
fn weights(found: &LibraryFile, way: &str, model: &str, sessions: usize, kept: &str) {
    let engine = Arc::new(OnnxRuntime::load(&LibraryFile::at(&found.path, LibraryOrigin::Option)).unwrap());
    let shapes = MODELS.iter().find(|(name, _)| *name == model).unwrap().1;
    let inputs: Vec<Tensor> = shapes.iter().map(|shape| input(shape)).collect();
    let before = Memory::now();
    forget_peak();
    let start = Instant::now();
    let mut run = load(&engine, way, &path(model), sessions, Path::new(kept));
    let loaded = start.elapsed().as_secs_f64() * 1e3;
    let peak = status("VmHWM:") - before.resident;
    let times = (0..3 * sessions).map(|turn| {
        let start = Instant::now();
        run(turn % sessions, &inputs);
        start.elapsed().as_secs_f64() * 1e3
    });
    let fastest = times.fold(f64::INFINITY, f64::min);
    let after = Memory::now();
    let (used, private) = (after.proportional - before.proportional, after.private - before.private);
    println!("{way:<34}{sessions:>9}{loaded:>9.0}{peak:>9.0}{used:>9.0}{private:>9.0}{fastest:>9.1}");
}

/// A run of 16 pictures among runs of one.
fn arena(found: &LibraryFile, way: &str) {
    let engine = Arc::new(OnnxRuntime::load(found).unwrap());
    let (one, sixteen) = ([input(&[1, 3, 224, 224])], [input(&[16, 3, 224, 224])]);
    let before = Memory::now().resident;
    let mut run = load(&engine, way, &path("mobilenet"), 1, Path::new(""));
    let mut after = |runs: usize, inputs: &[Tensor]| {
        (0..runs).for_each(|_| run(0, inputs));
        Memory::now().resident - before
    };
    let (usual, large, later) = (after(10, &one), after(1, &sixteen), after(150, &one));
    println!("{way:<34}{usual:>12.0}{large:>12.0}{later:>12.0}");
}

/// Runs a session, told which.
type Run = Box<dyn FnMut(usize, &[Tensor])>;

fn load(engine: &Arc<OnnxRuntime>, way: &str, model: &Path, sessions: usize, kept: &Path) -> Run {
    if way == BARE {
        let mut sessions: Vec<_> = (0..sessions).map(|_| bare_session(engine, model)).collect();
        return Box::new(move |session, inputs| bare_run(&mut sessions[session], inputs));
    }
    let optimized = (way == BUILT).then(|| kept.to_owned());
    let options = ModelOptions { instances: Some(sessions), threads: Some(1), optimized, ..ModelOptions::default() };
    let engine: Arc<dyn Engine> = engine.clone();
    let step = ModelStep::load(engine, Arc::new(ModelFile::open(model).unwrap()), &options).unwrap();
    // Sessions take turns.
    Box::new(move |_, inputs| {
        let values = inputs.iter().map(|tensor| Some(Value::Tensor(tensor.clone()))).collect();
        drop(step.run(values, &mut Context::default()).unwrap());
    })
}

/// MiB of this process.
struct Memory {
    /// pages that are there
    resident: f64,
    /// the same, those of files shared with other mappings counted in parts
    proportional: f64,
    /// what no file holds
    private: f64,
}

impl Memory {
    fn now() -> Self {
        let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
        let [resident, proportional, private] = ["Rss:", "Pss:", "Anonymous:"].map(|name| mib(&text, name));
        Self { resident, proportional, private }
    }
}

fn status(name: &str) -> f64 {
    mib(&std::fs::read_to_string("/proc/self/status").unwrap(), name)
}

fn mib(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
}

/// The peak is counted from here.
fn forget_peak() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

fn bare_session(engine: &OnnxRuntime, path: &Path) -> Session {
    let builder = Session::builder(engine.environment()).unwrap().with_independent_thread_pool().unwrap();
    builder.with_intra_threads(1).unwrap().commit_from_file(path).unwrap()
}
