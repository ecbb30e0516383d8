//! The hostile table: what each attack comes to, how fast, what it takes, and what a neighbour
//! notices. As Markdown.
//!
//! Bars: stopped within its deadline + 10 ms (a native call, once begun, ends first; the longest
//! is printed), no more memory than the limit + 16 MiB, the neighbour's latency at most doubled,
//! the next request served. `cargo bench --bench hostile -- NAME…` makes only some.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a benchmark prints, and stops at the first surprise"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use gpux_core::CacheDir;
use gpux_core::{Context, ElementType, OptionOrigin, Registry, Tensor};
use gpux_hostile_support::attack::{self, Attack, Outcome, limits};
use gpux_hostile_support::memory;
use gpux_hostile_support::neighbour::Neighbour;
use gpux_sandbox::{Limits, Sandbox, SandboxOptions};
use serde_json::json;

/// How often an attack is made, at least, and for how long: a neighbour must have time to notice.
const STRIKES: usize = 12;
const SIEGE: Duration = Duration::from_millis(600);
/// When one attack has been made often enough, however slow it is.
const LONG_SIEGE: Duration = Duration::from_secs(4);
/// How long the neighbour works alone before each attack.
const PEACE: Duration = Duration::from_millis(300);

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let folder = tempfile::tempdir().unwrap();
    let cache = Some(CacheDir::at(folder.path().join("cache")));
    let ceiling = Limits { time: Duration::from_mins(5), calls: usize::MAX, ..Limits::default() };
    let program = Some(env!("CARGO_BIN_EXE_gpux").into());
    let sandbox = Sandbox::new(SandboxOptions { cache, ceiling, program, ..SandboxOptions::default() }).unwrap();
    let registry = Arc::new(gpux::builtins());
    let neighbour = Neighbour::new(&sandbox, &registry);
    neighbour.beside(|| std::thread::sleep(PEACE));

    println!(
        "Limits: {:?} ({:?} for set-up), {} MiB; neighbour: center-ink, 160×160. Times in ms, neighbour's in µs.\n",
        limits().time,
        limits().setup_time,
        limits().memory >> 20
    );
    println!(
        "| attack | comes to | ms, median | ms, slowest | past its deadline | MiB taken | neighbour p50, before → during | p99 | next served |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    );
    let mut worst = Worst::default();
    for attack in attack::all() {
        if wanted.is_empty() || wanted.contains(&attack.name) {
            let row = measure(&attack, &sandbox, &registry, &neighbour);
            println!("{row}");
            worst.note(row);
        }
    }
    println!("\n{worst}");
    native_call(&registry);
}

/// One line of the table.
struct Row {
    name: String,
    what: String,
    text: String,
    median: Duration,
    slowest: Duration,
    /// of the slowest, where a deadline ended it
    late: Option<Duration>,
    taken: Option<usize>,
    before: [Duration; 2],
    during: [Duration; 2],
}

fn measure(attack: &Attack, sandbox: &Sandbox, registry: &Arc<Registry>, neighbour: &Neighbour) -> Row {
    let prepared = attack.prepare(sandbox, registry);
    let before = neighbour.beside(|| std::thread::sleep(PEACE));
    // The first one counts: what it takes, the allocator may keep.
    let resident = memory::begin();
    prepared.strike();
    let mut outcomes: Vec<Outcome> = Vec::new();
    let during = neighbour.beside(|| {
        let begin = Instant::now();
        while outcomes.len() < STRIKES && begin.elapsed() < LONG_SIEGE || begin.elapsed() < SIEGE {
            outcomes.push(prepared.strike());
        }
    });
    let taken = resident.zip(memory::peak()).map(|(resident, peak)| peak.saturating_sub(resident));
    for outcome in &outcomes {
        assert_eq!(outcome.text, attack.expected(), "{}", attack.name);
    }
    neighbour.request();
    outcomes.sort_by_key(|outcome| outcome.time);
    let late = |outcome: &Outcome| Some(outcome.time.saturating_sub(outcome.deadline?));
    Row {
        name: attack.name.clone(),
        what: attack.what.clone(),
        text: outcomes[0].text.clone(),
        median: outcomes[outcomes.len() / 2].time,
        slowest: outcomes[outcomes.len() - 1].time,
        late: outcomes.iter().filter_map(late).max(),
        taken,
        before: quantiles(&before),
        during: quantiles(&during),
    }
}

/// p50 and p99.
fn quantiles(sorted: &[Duration]) -> [Duration; 2] {
    [50, 99].map(|percent| sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)])
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let late = self.late.map_or("–".to_owned(), |late| format!("{:.1}", millis(late)));
        let taken = self.taken.map_or("?".to_owned(), |taken| format!("{:.1}", taken as f64 / f64::from(1 << 20)));
        let said: String = self.text.replace('|', "\\|").chars().take(90).collect();
        write!(
            f,
            "| {}: {} | {said} | {:.2} | {:.2} | {late} | {taken} | {} → {} | {} → {} | yes |",
            self.name,
            self.what,
            millis(self.median),
            millis(self.slowest),
            self.before[0].as_micros(),
            self.during[0].as_micros(),
            self.before[1].as_micros(),
            self.during[1].as_micros(),
        )
    }
}

/// The worst of every column.
#[derive(Default)]
struct Worst {
    late: Duration,
    late_by: String,
    taken: usize,
    taken_by: String,
    slower: f64,
    slowed_by: String,
}

impl Worst {
    fn note(&mut self, row: Row) {
        if let Some(late) = row.late.filter(|late| *late > self.late) {
            (self.late, self.late_by) = (late, row.name.clone());
        }
        if let Some(taken) = row.taken.filter(|taken| *taken > self.taken) {
            (self.taken, self.taken_by) = (taken, row.name.clone());
        }
        let slower = row.during[0].as_secs_f64() / row.before[0].as_secs_f64();
        if slower > self.slower {
            (self.slower, self.slowed_by) = (slower, row.name);
        }
    }
}

impl std::fmt::Display for Worst {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "worst: {:.1} ms past its deadline ({}); {:.1} MiB taken ({}); neighbour's median {:.2} times as long ({})",
            millis(self.late),
            self.late_by,
            self.taken as f64 / f64::from(1 << 20),
            self.taken_by,
            self.slower,
            self.slowed_by
        )
    }
}

/// The longest call that an attack here makes of a built-in step, made natively.
fn native_call(registry: &Registry) {
    let options = json!({"size": [1448, 1448], "filter": "lanczos"});
    let step = (registry.builtin("resize").unwrap().build)(options, &OptionOrigin::Component).unwrap();
    let image = Tensor::zeros(ElementType::Uint8, [512, 512, 1]).unwrap();
    let mut times: Vec<_> = (0..STRIKES)
        .map(|_| {
            let begin = Instant::now();
            step.run(vec![Some(image.clone().into())], &mut Context::default()).unwrap();
            begin.elapsed()
        })
        .collect();
    times.sort_unstable();
    println!(
        "the longest native call in these attacks (resize-for-ever), made natively: {:.1} ms",
        millis(times[STRIKES / 2])
    );
}
