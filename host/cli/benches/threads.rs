//! Whose threads compute: models as gpux runs them beside bare sessions with ONNX Runtime's defaults,
//! which have threads of their own each.
//!
//! Bar: as many runs a second as bare sessions, in every case. `benches/models.py` makes the larger
//! models; without them only the tiny one is measured. `GPUX_BENCH_PROVIDER=openvino`, with
//! `ORT_DYLIB_PATH` at a build that has it, measures that provider, which has a pool of its own.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark prints, and stops at the first surprise")]

mod networks;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gpux_core::{Context, Step, Tensor, Value};
use gpux_inference::{Engine as _, LibrarySearch, ModelFile, ModelOptions, ModelStep, OnnxRuntime};
use networks::{bare_run, input};
use ort::session::Session;

/// How long each way runs in one turn.
const TURN: Duration = Duration::from_millis(400);
const TURNS: usize = 7;
/// Longer than any thread goes on looking for work: what a way leaves behind is no neighbour of the
/// next.
const PAUSE: Duration = Duration::from_millis(20);

/// The shapes of real networks, with what each takes.
const MODELS: [(&str, &[&[usize]]); 4] = [
    ("models/digits.onnx", &[&[1, 1, 8, 8]]),
    ("target/bench-models/mobilenet.onnx", &[&[1, 3, 224, 224]]),
    ("target/bench-models/resnet50.onnx", &[&[1, 3, 224, 224]]),
    ("target/bench-models/minilm.onnx", &[&[1, 128], &[1, 128]]),
];

fn main() {
    let Some(found) = LibrarySearch::from_environment(None).choose().unwrap().found else {
        println!("no ONNX Runtime here (`gpux engine install` brings one)");
        return;
    };
    let engine = Arc::new(OnnxRuntime::load(&found).unwrap());
    let cores = std::thread::available_parallelism().unwrap().get();
    let (name, pool) = (engine.name(), engine.threads(None));
    println!(
        "runs a second on {name}, provider {}, {pool} shared threads, {cores} cores; medians of {TURNS} turns",
        provider()
    );
    for (name, shapes) in MODELS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
        if !path.is_file() {
            println!("\n{name} is not there; `python benches/models.py` makes it");
            continue;
        }
        println!("\n{name:<50}{:>10}{:>10}{:>9}", "bare", "gpux", "ratio");
        cases(&engine, &path, &shapes.iter().map(|shape| input(shape)).collect::<Vec<_>>(), cores);
    }
}

fn cases(engine: &Arc<OnnxRuntime>, path: &PathBuf, inputs: &[Tensor], cores: usize) {
    let bare = |count: usize| (0..count).map(|_| Mutex::new(bare_session(engine, path))).collect::<Vec<_>>();
    let file = Arc::new(ModelFile::open(path).unwrap());
    let ours = |count: usize, instances: Option<usize>| {
        let providers = provider().parse().unwrap();
        let options = ModelOptions { providers, strict: true, instances, ..ModelOptions::default() };
        let load = || ModelStep::load(engine.clone(), file.clone(), &options).unwrap();
        (0..count).map(|_| load()).collect::<Vec<_>>()
    };
    let run_bare = |session: &Mutex<Session>| bare_run(&mut session.lock().unwrap(), inputs);
    let run_ours = |step: &ModelStep| {
        let values = inputs.iter().map(|tensor| Some(Value::Tensor(tensor.clone()))).collect();
        drop(step.run(values, &mut Context::default()).unwrap());
    };
    let (one, two, all) = (bare(1), bare(2), bare(cores));
    let (own, pair, each) = (ours(1, None), ours(2, None), ours(cores, None));
    let instances = ours(1, Some(cores));
    case("one model, one caller", 1, &|_, _| run_bare(&one[0]), &|_, _| run_ours(&own[0]));
    case("two models, by turns", 1, &|_, turn| run_bare(&two[turn % 2]), &|_, turn| run_ours(&pair[turn % 2]));
    case("one model, as many callers as cores", cores, &|_, _| run_bare(&one[0]), &|_, _| run_ours(&own[0]));
    case("a model each, as many callers as cores", cores, &|at, _| run_bare(&all[at]), &|at, _| run_ours(&each[at]));
    case("as many instances and callers as cores", cores, &|at, _| run_bare(&all[at]), &|_, _| run_ours(&instances[0]));
}

/// What a caller does: it is told which it is, and how often it has done it.
type Run<'a> = &'a (dyn Fn(usize, usize) + Sync);

fn case(title: &str, callers: usize, bare: Run<'_>, ours: Run<'_>) {
    rate(callers, bare);
    rate(callers, ours);
    let turn = |index: usize| {
        if index.is_multiple_of(2) {
            let bare = rate(callers, bare);
            (bare, rate(callers, ours))
        } else {
            let ours = rate(callers, ours);
            (rate(callers, bare), ours)
        }
    };
    let turns: Vec<(f64, f64)> = (0..TURNS).map(turn).collect();
    let middle = |of: &dyn Fn(&(f64, f64)) -> f64| {
        let mut values: Vec<f64> = turns.iter().map(of).collect();
        values.sort_unstable_by(f64::total_cmp);
        values[TURNS / 2]
    };
    let (bare, ours, ratio) = (middle(&|turn| turn.0), middle(&|turn| turn.1), middle(&|turn| turn.1 / turn.0));
    println!("  {title:<48}{bare:>10.1}{ours:>10.1}{ratio:>9.2}");
}

/// Runs a second of so many callers, as fast as they can.
fn rate(callers: usize, run: Run<'_>) -> f64 {
    std::thread::sleep(PAUSE);
    let count = AtomicUsize::new(0);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for caller in 0..callers {
            let count = &count;
            scope.spawn(move || {
                let mut turn = 0;
                while start.elapsed() < TURN {
                    run(caller, turn);
                    turn += 1;
                }
                count.fetch_add(turn, Ordering::Relaxed);
            });
        }
    });
    count.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64()
}

/// The provider that is measured.
fn provider() -> String {
    std::env::var("GPUX_BENCH_PROVIDER").unwrap_or_else(|_| "cpu".to_owned())
}

/// A session as ONNX Runtime makes it where nothing is said.
fn bare_session(engine: &OnnxRuntime, path: &Path) -> Session {
    let builder = Session::builder(engine.environment()).unwrap().with_independent_thread_pool().unwrap();
    let openvino = ort::ep::OpenVINO::default().build().error_on_failure();
    let providers = (provider() == "openvino").then_some(openvino);
    let builder = builder.with_execution_providers(providers.as_slice()).unwrap();
    builder.with_log_level(ort::logging::LogLevel::Fatal).unwrap().commit_from_file(path).unwrap()
}
