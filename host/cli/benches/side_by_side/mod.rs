//! Times several ways of doing one thing in turns, so that a noisy machine treats them alike.
//!
//! What else runs on a machine slows every way by about the same factor while it lasts. Timed one
//! after the other, two ways meet different neighbours; timed in turns of a few milliseconds, they
//! meet the same ones, and the median of the differences within a round is steady.

use std::time::{Duration, Instant};

/// Rounds in which each way has one turn.
const ROUNDS: usize = 201;
/// How long one turn lasts, about.
const TURN: Duration = Duration::from_millis(2);
/// How long each way runs before anything is timed.
const WARM_UP: Duration = Duration::from_millis(200);

/// One way of doing it.
pub(crate) struct Variant<'a> {
    name: String,
    run: Box<dyn FnMut() + 'a>,
}

/// One way; what `run` gives is kept from the optimizer.
pub(crate) fn way<'a, T>(name: impl Into<String>, mut run: impl FnMut() -> T + 'a) -> Variant<'a> {
    Variant {
        name: name.into(),
        run: Box::new(move || {
            std::hint::black_box(run());
        }),
    }
}

/// Times the ways and prints a line for each: its median, and how far above the first way it is.
/// Gives back the medians, in microseconds.
pub(crate) fn compare(title: &str, mut ways: Vec<Variant<'_>>) -> Vec<f64> {
    let turns: Vec<u32> = ways.iter_mut().map(|way| runs_in_a_turn(&mut way.run)).collect();
    let mut times = vec![Vec::with_capacity(ROUNDS); ways.len()];
    for _ in 0..ROUNDS {
        for ((way, turn), times) in ways.iter_mut().zip(&turns).zip(&mut times) {
            let start = Instant::now();
            for _ in 0..*turn {
                (way.run)();
            }
            times.push(start.elapsed().as_secs_f64() * 1e6 / f64::from(*turn));
        }
    }
    let medians: Vec<f64> = times.iter().map(|times| median(times.clone())).collect();
    println!("\n{title}");
    println!("{:<44}{:>11}{:>11}{:>11}{:>9}", "", "median µs", "lowest µs", "added µs", "ratio");
    for ((way, own), median_time) in ways.iter().zip(&times).zip(&medians) {
        let lowest = own.iter().copied().fold(f64::INFINITY, f64::min);
        let added = median(own.iter().zip(&times[0]).map(|(own, first)| own - first).collect());
        let ratio = median(own.iter().zip(&times[0]).map(|(own, first)| own / first).collect());
        println!("{:<44}{median_time:>11.2}{lowest:>11.2}{added:>11.2}{ratio:>9.2}", way.name);
    }
    medians
}

/// Warms one way up and counts how often it runs in a turn.
fn runs_in_a_turn(run: &mut dyn FnMut()) -> u32 {
    let start = Instant::now();
    let mut runs = 0_u32;
    while start.elapsed() < WARM_UP {
        run();
        runs += 1;
    }
    let share = TURN.as_secs_f64() / start.elapsed().as_secs_f64();
    (f64::from(runs) * share).max(1.0) as u32
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 2]
}
