//! A long run: a thousand loaded components, their requests interleaved on two threads, and
//! whether memory stays what it was.
//!
//! Bar: what is resident after all requests is what it was after the first tenth, give or take
//! 2 %. `GPUX_SOAK=REQUESTS cargo bench --bench soak` runs another number than 200 000, and
//! `GPUX_SOAK_VARIETY=COUNT` with so many different options, which share nothing, in place of 20.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark prints, and stops at the first surprise")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gpux_core::CacheDir;
use gpux_core::{Context, OptionOrigin, Registry, Step, StepFailure, Tensor, Value};
use gpux_hostile_support::memory;
use gpux_sandbox::{ComponentConfig, Limits, Sandbox, SandboxOptions};
use serde_json::json;

const STEPS: usize = 1000;
const REQUESTS: usize = 200_000;
const THREADS: usize = 2;
const REPORTS: usize = 10;

/// One loaded component and what it is asked.
struct Work {
    step: Box<dyn Step>,
    input: Value,
    /// whether its request ends in an error, as it must
    fails: bool,
}

fn file(path: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
}

fn main() {
    let requests = std::env::var("GPUX_SOAK").map_or(REQUESTS, |count| count.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let cache = Some(CacheDir::at(folder.path().join("cache")));
    let program = Some(env!("CARGO_BIN_EXE_gpux").into());
    let sandbox = Sandbox::new(SandboxOptions { cache, program, ..SandboxOptions::default() }).unwrap();
    let registry = Arc::new(gpux::builtins());
    let begin = Instant::now();
    let works = works(&sandbox, &registry);
    println!("{STEPS} components loaded in {:.1?}; {} MiB resident", begin.elapsed(), resident());

    serve(&works, 5 * STEPS);
    println!("\n| requests | MiB resident | requests/s |\n| --- | --- | --- |");
    let mut marks = Vec::new();
    for report in 1..=REPORTS {
        let share = requests / REPORTS;
        let time = serve(&works, share);
        marks.push(resident());
        println!("| {} | {} | {:.0} |", report * share, marks[report - 1], share as f64 / time.as_secs_f64());
    }
    let (first, last) = (marks[0], marks[REPORTS - 1]);
    println!("\nhighest since the last mark: {} MiB", memory::peak().unwrap_or(0) >> 20);
    println!("from the first tenth to the last: {:+.1} %", (last as f64 / first as f64 - 1.0) * 100.0);

    let native = vec![native(&registry)];
    let time = serve(&native, requests);
    println!(
        "a native step (resize, 64×64 to 32×32) on the same threads: {:.0} requests/s",
        requests as f64 / time.as_secs_f64()
    );
}

fn resident() -> usize {
    memory::begin().unwrap_or(0) >> 20
}

/// Runs `count` requests over all works in turn, on all threads.
fn serve(works: &[Work], count: usize) -> Duration {
    let next = AtomicUsize::new(0);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    // A prime apart, so that neighbours in the list do not meet in time.
                    let work = &works[number * 7919 % works.len()];
                    let given = work.step.run(vec![Some(work.input.clone())], &mut Context::default());
                    assert_eq!(given.is_err(), work.fails, "{given:?}");
                    if let Err(failure) = given {
                        assert!(!matches!(failure, StepFailure::Timeout), "{failure}");
                    }
                }
            });
        }
    });
    begin.elapsed()
}

/// Honest steps with a few dozen different options, and, one in ten, one that attacks.
fn works(sandbox: &Sandbox, registry: &Arc<Registry>) -> Vec<Work> {
    let ink = file("guest-examples/rust/center-ink.wasm");
    let hostile = file("guest-examples/hostile/hostile.wasm");
    let by_hand = file("guest-examples/hostile/wat/not-for-snapshots.wasm");
    let photo: Value = photo().into();
    let load = |bytes: &[u8], options: serde_json::Value, input: Value, fails: bool| {
        let limits = Limits { time: Duration::from_millis(500), memory: 16 << 20, ..Limits::default() };
        let config = ComponentConfig { options, limits, ..ComponentConfig::default() };
        Work { step: Box::new(sandbox.load(bytes, config, registry).unwrap()), input, fails }
    };
    let variety: usize = std::env::var("GPUX_SOAK_VARIETY").map_or(20, |count| count.parse().unwrap());
    let attacks = ["panic", "big-tensor", "recurse", "bad-utf8", "forged-handle", "hoard-tensors"];
    (0..STEPS)
        .map(|number| match number % 10 {
            0 => load(&hostile, json!({"attack": attacks[number / 10 % attacks.len()]}), "".into(), true),
            1..4 => load(&hostile, json!({"attack": "echo"}), photo.clone(), false),
            4 => load(&by_hand, json!({}), "".into(), false),
            _ => load(&ink, json!({"margin": (number % variety) as f64 / (5 * variety) as f64}), photo.clone(), false),
        })
        .collect()
}

/// Paper of 64×64 with a dark bar.
fn photo() -> Tensor {
    let pixels = (0..64 * 64).map(|place| if (24..40).contains(&(place % 64)) { 30 } else { 200 }).collect::<Vec<u8>>();
    Tensor::new([64, 64, 1], pixels).unwrap()
}

fn native(registry: &Registry) -> Work {
    let step =
        (registry.builtin("resize").unwrap().build)(json!({"size": [32, 32]}), &OptionOrigin::Component).unwrap();
    Work { step, input: photo().into(), fails: false }
}
