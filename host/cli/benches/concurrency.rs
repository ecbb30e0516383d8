//! Many requests at once: how runs scale over sessions, what running them together brings, and how
//! soon a caller is let go whose deadline passes while one kernel is at work.
//!
//! `benches/models.py` makes the larger models; without them only the small ones are measured.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark prints, and stops at the first surprise")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gpux_core::{Context, Step, Tensor, Value};
use gpux_inference::{BatchOptions, Engine, LibrarySearch, ModelFile, ModelOptions, ModelStep, OnnxRuntime};

/// How long each figure is measured, in each of its turns.
const TURN: Duration = Duration::from_millis(700);
const TURNS: usize = 5;

fn main() {
    let Some(found) = LibrarySearch::from_environment(None).choose().unwrap().found else {
        println!("no ONNX Runtime here (`gpux engine install` brings one)");
        return;
    };
    let engine: Arc<dyn Engine> = Arc::new(OnnxRuntime::load(&found).unwrap());
    scaling(&engine);
    together(&engine);
    let_go(&engine);
}

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

fn load(engine: &Arc<dyn Engine>, name: &str, options: &ModelOptions) -> Option<ModelStep> {
    let file = path(name);
    if !file.is_file() {
        println!("{name} is not there; `python benches/models.py` makes it");
        return None;
    }
    let file = Arc::new(ModelFile::open(file).unwrap());
    Some(ModelStep::load(engine.clone(), file, options).unwrap())
}

/// Runs a second of `clients` threads at it, as fast as they can.
fn rate(clients: usize, run: impl Fn(usize) + Sync) -> f64 {
    let (over, count) = (AtomicBool::new(false), AtomicUsize::new(0));
    let start = Instant::now();
    std::thread::scope(|scope| {
        for client in 0..clients {
            let (over, count, run) = (&over, &count, &run);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    run(client);
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        std::thread::sleep(TURN);
        over.store(true, Ordering::Relaxed);
    });
    count.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A tiny model on one thread and on two.
fn scaling(engine: &Arc<dyn Engine>) {
    println!("\na tiny model (models/digits.onnx), runs a second");
    let options = ModelOptions { instances: Some(2), threads: Some(1), ..ModelOptions::default() };
    let step = load(engine, "models/digits.onnx", &options).unwrap();
    let image = Tensor::new([1, 1, 8, 8], vec![0.5_f32; 64]).unwrap();
    let run = |_| drop(step.run(vec![Some(Value::Tensor(image.clone()))], &mut Context::default()).unwrap());
    let turns: Vec<(f64, f64)> = (0..TURNS).map(|_| (rate(1, run), rate(2, run))).collect();
    let one = median(turns.iter().map(|turn| turn.0).collect());
    let two = median(turns.iter().map(|turn| turn.1).collect());
    let ratio = median(turns.iter().map(|turn| turn.1 / turn.0).collect());
    println!("one thread {one:>10.0}   two threads {two:>10.0}   ratio {ratio:.2}");
}

/// What one client asks for.
type Request = Vec<Option<Value>>;

fn together(engine: &Arc<dyn Engine>) {
    let digits = |_| vec![Some(image([1, 1, 8, 8]))];
    let photo = |_| vec![Some(image([1, 3, 224, 224]))];
    let text = |length: usize| -> Request {
        let tensor = |value: i64| Some(Value::Tensor(Tensor::new([1, length], vec![value; length]).unwrap()));
        vec![tensor(7), tensor(1)]
    };
    race(engine, "models/digits.onnx", 32, digits);
    race(engine, "target/bench-models/mobilenet.onnx", 8, photo);
    race(engine, "target/bench-models/minilm.onnx", 8, |_| text(32));
    // Lengths as they come, from 8 to 120.
    race(engine, "target/bench-models/minilm.onnx", 8, |client| text(8 + client * 37 % 113));
}

fn image<const RANK: usize>(shape: [usize; RANK]) -> Value {
    Value::Tensor(Tensor::new(shape, vec![0.5_f32; shape.iter().product()]).unwrap())
}

/// One at a time, and together, at more and more clients; and a fixed batch, which nobody waits for.
fn race(engine: &Arc<dyn Engine>, name: &str, max_size: usize, request: impl Fn(usize) -> Request + Sync) {
    let alone = load(engine, name, &ModelOptions::default());
    let batch = BatchOptions { max_size, ..BatchOptions::default() };
    let Some((alone, batched)) = alone.zip(load(engine, name, &ModelOptions { batch, ..ModelOptions::default() }))
    else {
        return;
    };
    println!("\n{name}, requests a second; runs of up to {max_size}");
    let run = |step: &ModelStep, client| drop(step.run(request(client), &mut Context::default()).unwrap());
    println!("{:>8}{:>14}{:>14}{:>9}", "clients", "one by one", "together", "ratio");
    for clients in [1, 2, 4, 8, 16, 32, 64] {
        let turn = |_| (rate(clients, |client| run(&alone, client)), rate(clients, |client| run(&batched, client)));
        let turns: Vec<(f64, f64)> = (0..TURNS).map(turn).collect();
        let one = median(turns.iter().map(|turn| turn.0).collect());
        let many = median(turns.iter().map(|turn| turn.1).collect());
        let ratio = median(turns.iter().map(|turn| turn.1 / turn.0).collect());
        println!("{clients:>8}{one:>14.0}{many:>14.0}{ratio:>9.2}");
    }
    let fixed = request(0).into_iter().map(|value| value.map(|value| repeated(&value, max_size)));
    let fixed: Request = fixed.collect();
    let rates = (0..TURNS).map(|_| rate(1, |_| drop(alone.run(fixed.clone(), &mut Context::default()).unwrap())));
    println!("a fixed batch of {max_size}: {:.0} rows a second", median(rates.collect()) * max_size as f64);
}

fn repeated(value: &Value, times: usize) -> Value {
    let tensor = value.as_tensor().unwrap();
    let mut axes = vec![(times, 0)];
    axes.extend(tensor.shape().iter().copied().zip(tensor.strides()).skip(1));
    Value::Tensor(tensor.pick(0, &axes).unwrap())
}

/// A kernel of about a second, a timeout of 100 ms, and what comes after.
fn let_go(engine: &Arc<dyn Engine>) {
    let step = load(engine, "tests/models/square.onnx", &ModelOptions::default()).unwrap();
    let size = 3500;
    let large = Tensor::new([size, size], vec![0.5_f32; size * size]).unwrap();
    let small = Tensor::new([2, 2], vec![0.5_f32; 4]).unwrap();
    let run = |tensor: &Tensor, limit: Duration| {
        let mut context = Context { deadline: Some(Instant::now() + limit), ..Context::default() };
        let start = Instant::now();
        let outcome = step.run(vec![Some(Value::Tensor(tensor.clone()))], &mut context);
        (outcome.is_ok(), start.elapsed())
    };
    let (done, whole) = run(&large, Duration::from_mins(10));
    println!("\none kernel (a product of {size}×{size}) takes {whole:.0?} (ended: {done})");
    let mut answers = Vec::new();
    let mut next = Vec::new();
    let mut gone = Vec::new();
    for _ in 0..10 {
        let (done, answer) = run(&large, Duration::from_millis(100));
        assert!(!done, "the kernel must be longer than the timeout");
        answers.push(answer.as_secs_f64() * 1e3);
        let (done, after) = run(&small, Duration::from_mins(10));
        assert!(done);
        next.push(after.as_secs_f64() * 1e3);
        let start = Instant::now();
        while step.sessions().retired() > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        gone.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let worst = answers.iter().copied().fold(0.0, f64::max);
    println!("timeout 100 ms: answered after {:.0} ms, at worst {worst:.0} ms", median(answers));
    println!("the next request, while that kernel still runs: {:.1} ms", median(next));
    println!("its session is back or gone after another {:.0} ms", median(gone));
}
