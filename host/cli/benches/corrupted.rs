//! A thousand damaged models with each engine: what they come to, and whether memory stays what it
//! was. As Markdown.
//!
//! Bars: the process lives after all of them; what is resident after the last is what it was after
//! the first tenth, give or take 10 %. `GPUX_FUZZ_ITERATIONS` makes another number, `GPUX_FUZZ_SEED`
//! others.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark prints, and stops at the first surprise"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use gpux::EngineChoice;
use gpux_hostile_support::corrupted::{Corrupted, Outcome};
use gpux_hostile_support::damage::ALL;
use gpux_hostile_support::dice::Runs;
use gpux_hostile_support::memory;

/// How many of each engine.
const COUNT: u64 = 1000;

fn main() {
    for (name, engine) in [("embedded", EngineChoice::Embedded), ("ONNX Runtime", EngineChoice::OnnxRuntime)] {
        let Some(corrupted) = Corrupted::new(engine, Path::new(env!("CARGO_BIN_EXE_gpux"))) else {
            println!("{name}: there is none; run `gpux engine install`");
            continue;
        };
        let mut counts: BTreeMap<(usize, Outcome), usize> = BTreeMap::new();
        let mut marks = Vec::new();
        let mut slowest = Duration::ZERO;
        let mut turn = 0;
        let begin = Instant::now();
        Runs::of(COUNT).each(|dice| {
            let damage = turn % ALL.len();
            let start = Instant::now();
            *counts.entry((damage, corrupted.one(dice, damage))).or_default() += 1;
            slowest = slowest.max(start.elapsed());
            turn += 1;
            if turn % (COUNT as usize / 10) == 0 {
                let now = if marks.is_empty() { memory::begin() } else { memory::now() };
                marks.push(now.unwrap_or(0) >> 20);
            }
        });
        let headings: Vec<_> = Outcome::ALL.iter().map(|outcome| outcome.name()).collect();
        println!("{name}: {turn} models in {:.0?}, the slowest {slowest:.1?}\n", begin.elapsed());
        println!("| damage | {} |\n| --- |{}", headings.join(" | "), " --: |".repeat(headings.len()));
        let row = |of: &dyn Fn(Outcome) -> usize| {
            Outcome::ALL.iter().map(|outcome| of(*outcome).to_string()).collect::<Vec<_>>().join(" | ")
        };
        for (damage, (what, _)) in ALL.iter().enumerate() {
            println!("| {what} | {} |", row(&|outcome| counts.get(&(damage, outcome)).copied().unwrap_or(0)));
        }
        let all = |outcome| counts.iter().filter(|((_, known), _)| *known == outcome).map(|(_, count)| count).sum();
        println!("| all | {} |\n", row(&all));
        println!(
            "MiB resident after each tenth: {marks:?}; the highest since the first {}\n",
            memory::peak().unwrap_or(0) >> 20
        );
    }
}
