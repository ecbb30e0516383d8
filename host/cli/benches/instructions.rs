//! What a request costs in instructions of the processor, counted by Valgrind: numbers that a busy
//! machine does not change, so that a change of one per cent is seen. Each stands beside the native
//! way of doing the same.
//!
//! Only what runs outside the kernel is counted, without page faults and system calls:
//! `cargo bench --bench sandbox` has the times. Valgrind does not know the call that tells which pages
//! a guest wrote, so here each instance resets all of its memory, which is most of what is counted for
//! small steps: their difference to bare wasmtime, which does the same, is what gpux adds. Needs `valgrind`. This program starts itself under
//! Valgrind's callgrind twice for each case, with few requests and with many: the difference is theirs.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark prints, and stops at the first surprise")]

mod bare;

use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bare::Bare;
use gpux_core::CacheDir;
use gpux_core::{Color, Context, Layout, Metadata, OptionOrigin, Step, Tensor, Value};
use gpux_sandbox::{ComponentConfig, Limits, Sandbox, SandboxOptions};
use serde_json::{Value as Json, json};

/// Requests of either run. The compiled component comes from a cache, so little else happens.
const FEW: u64 = 10;
const MANY: u64 = 510;

/// Name, step, input.
type Case = (&'static str, Subject, fn() -> Value);

enum Subject {
    Builtin(&'static str, fn() -> Json),
    Component(&'static str, fn() -> Json),
    Bare(&'static str),
}

const CASES: [Case; 8] = [
    ("bare wasmtime: an instance of the next, nothing called", Subject::Bare("pass-through"), tiny),
    ("a step that does nothing, in a fresh sandbox", Subject::Component("pass-through", || json!({})), tiny),
    ("resize 64×48 to half, native", Subject::Builtin("resize", || json!({"size": [24, 32]})), small),
    ("the same from a guest", Subject::Component("thumbnail", || json!({"side": 32})), small),
    ("224×224×3 to floats, native", Subject::Builtin("normalize", || json!({"method": "imagenet"})), square),
    (
        "the same by builtins.run",
        Subject::Component("to-floats", || json!({"way": "builtin", "layout": "hwc"})),
        square,
    ),
    ("the same, streaming", Subject::Component("to-floats", || json!({"way": "stream", "layout": "hwc"})), square),
    ("the same, whole at once", Subject::Component("to-floats", || json!({"way": "whole", "layout": "hwc"})), square),
];

fn main() {
    // `cargo bench` passes `--bench`.
    let arguments: Vec<_> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [case, requests, cache] = &arguments[..] {
        return run(&CASES[case.parse::<usize>().unwrap()], requests.parse().unwrap(), Path::new(cache));
    }
    let cache = tempfile::tempdir().unwrap();
    println!("{:<48}{:>16}", "", "instructions");
    for (index, (name, ..)) in CASES.iter().enumerate() {
        run(&CASES[index], 1, cache.path());
        let each = (count(index, MANY, cache.path()) - count(index, FEW, cache.path())) / (MANY - FEW);
        println!("{name:<48}{each:>16}");
    }
}

/// Instructions of a whole run.
fn count(case: usize, requests: u64, cache: &Path) -> u64 {
    let told = Command::new("valgrind")
        // Guests are compiled while the program runs.
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--smc-check=all-non-file"])
        .arg(std::env::current_exe().unwrap())
        .args([case.to_string(), requests.to_string()])
        .arg(cache)
        .output()
        .unwrap();
    let succeeded = told.status.success();
    let told = String::from_utf8_lossy(&told.stderr).into_owned();
    let collected = told.lines().find_map(|line| line.split_once("Collected : ")).map(|(_, count)| count.trim());
    collected.filter(|_| succeeded).and_then(|count| count.parse().ok()).unwrap_or_else(|| unreadable(&told))
}

#[allow(clippy::panic, reason = "the benchmark cannot go on")]
fn unreadable(told: &str) -> u64 {
    panic!("valgrind did not count:\n{told}")
}

fn run((_, of, input): &Case, requests: u64, folder: &Path) {
    let registry = Arc::new(gpux::builtins());
    let cache = Some(CacheDir::at(folder));
    // Components are set up in a process of their own, which nobody counts.
    let program = Some(env!("CARGO_BIN_EXE_gpux").into());
    // Under Valgrind everything takes fifty times as long.
    let limits = Limits { time: Duration::from_mins(10), ..Limits::default() };
    let options = SandboxOptions { cache, slots: 2, program, ceiling: limits.clone() };
    let sandbox = Sandbox::new(options).unwrap();
    let step: Box<dyn Step> = match of {
        Subject::Builtin(name, options) => {
            (registry.builtin(name).unwrap().build)(options(), &OptionOrigin::Component).unwrap()
        }
        Subject::Component(name, options) => {
            let config = ComponentConfig { options: options(), limits, ..ComponentConfig::default() };
            Box::new(sandbox.load(&guest(name), config, &registry).unwrap())
        }
        Subject::Bare(name) => return bare(&guest(name), requests, &folder.join(name)),
    };
    let input = input();
    for _ in 0..requests {
        black_box(step.run(vec![Some(input.clone())], &mut Context::default()).unwrap());
    }
}

fn guest(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../guest-examples/rust/{name}.wasm"))).unwrap()
}

fn bare(component: &[u8], requests: u64, kept: &Path) {
    let bare = Bare::new(component, Some(kept));
    for _ in 0..requests {
        bare.instantiate();
    }
}

fn tiny() -> Value {
    image(1, 1)
}

fn small() -> Value {
    image(48, 64)
}

fn square() -> Value {
    image(224, 224)
}

fn image(height: usize, width: usize) -> Value {
    let pixels: Vec<u8> = (0..height * width * 3).map(|place| (place * 31 % 251) as u8).collect();
    let metadata = Metadata { layout: Some(Layout::Hwc), color: Some(Color::Rgb), ..Metadata::default() };
    Tensor::new([height, width, 3], pixels).unwrap().with_metadata(metadata).into()
}
