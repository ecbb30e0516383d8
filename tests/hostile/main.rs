//! Strangers' components against the sandbox, from outside and in a process of their own: every
//! attack of the table meets its golden error, in time and within its memory, while a neighbour
//! works and is served.
//!
//! The bounds here are wide, so that they hold on a busy machine; `cargo bench --bench hostile`
//! prints the exact numbers.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test that cannot go on has failed"
)]

mod appended;
mod calls;
mod models;
mod monsters;
mod mutants;
mod snapshots;

use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpux_core::CacheDir;
use gpux_core::Registry;
use gpux_hostile_support::neighbour::Neighbour;
use gpux_hostile_support::{attack, memory};
use gpux_sandbox::{Limits, Sandbox, SandboxOptions};

/// How far past its deadline a guest may be stopped here; one call into native code included.
const LATE: Duration = Duration::from_secs(2);
/// Memory beyond the limit that the host itself may take, twice what it should.
const OWN: usize = 32 << 20;

static REGISTRY: LazyLock<Arc<Registry>> = LazyLock::new(|| Arc::new(gpux::builtins()));

/// One engine for all tests, as in a process.
static SANDBOX: LazyLock<Sandbox> = LazyLock::new(|| {
    let built = std::env::current_exe().unwrap();
    let cache = Some(CacheDir::at(built.with_file_name("gpux-test-cache")));
    let ceiling = Limits { time: Duration::from_mins(5), calls: usize::MAX, ..Limits::default() };
    let program = Some(env!("CARGO_BIN_EXE_gpux").into());
    Sandbox::new(SandboxOptions { cache, ceiling, program, ..SandboxOptions::default() }).unwrap()
});

/// Held by each test while it runs: what one of them measures is the whole process's.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn stops_every_attack_at_its_limit() {
    let _alone = alone();
    let neighbour = Neighbour::new(&SANDBOX, &REGISTRY);
    let mut wrong = Vec::new();
    for attack in attack::all() {
        let prepared = attack.prepare(&SANDBOX, &REGISTRY);
        let before = memory::begin();
        let mut outcome = None;
        // How long its requests take is measured by the benchmark; here each must get the right answer.
        neighbour.beside(|| outcome = Some(prepared.strike()));
        let peak = memory::peak();
        let outcome = outcome.unwrap();
        if outcome.text != attack.expected() {
            wrong.push(format!(
                "{} ({}): expected\n    {}\nbut got\n    {}",
                attack.name,
                attack.what,
                attack.expected(),
                outcome.text
            ));
        }
        if outcome.deadline.is_some_and(|deadline| outcome.processor_time > deadline + LATE) {
            let (taken, time) = (outcome.processor_time, outcome.time);
            wrong.push(format!("{}: stopped only after {taken:?} of the processor's {time:?}", attack.name));
        }
        if let (Some(before), Some(peak)) = (before, peak)
            && peak > before + attack::limits().memory + OWN
        {
            wrong.push(format!("{}: the process grew by {} MiB", attack.name, (peak - before) >> 20));
        }
        neighbour.request();
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
