//! What runs cost by the size of what they are given: so much to begin with, and so much a byte.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::slot::Width;

/// What counts of the past at each run: about the last hundred runs do.
const KEPT: f64 = 0.99;
/// Runs before anything is made of them.
const FEWEST: f64 = 16.0;
/// How far sizes must spread around their mean, as a part of it, to tell the two costs apart.
const SPREAD: f64 = 0.1;
/// A run beyond this many times what was expected met something else, and counts as no more.
const OUTLIER: f64 = 3.0;
const UNKNOWN: usize = usize::MAX;

/// A least-squares line through size and time of the latest runs, for sessions of each width.
pub(super) struct Costs {
    lines: Mutex<[Line; 2]>,
    /// see [`Costs::start`], of the latest run's width
    start: AtomicUsize,
}

/// Sums over runs of size `x` and time `y`.
#[derive(Clone, Copy, Default)]
struct Line {
    count: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

impl Costs {
    pub(super) fn new() -> Self {
        Self { lines: Mutex::default(), start: AtomicUsize::new(UNKNOWN) }
    }

    /// The bytes of input that cost as much as beginning a run; `None` as long as nothing is known.
    pub(super) fn start(&self) -> Option<usize> {
        Some(self.start.load(Ordering::Relaxed)).filter(|start| *start != UNKNOWN)
    }

    /// Notes what a run on so many bytes took.
    pub(super) fn note(&self, width: Width, bytes: usize, took: Duration) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let line = &mut lines[usize::from(width == Width::Narrow)];
        line.note(bytes as f64, took.as_secs_f64());
        let bytes = |(start, each): (f64, f64)| (start / each.max(f64::MIN_POSITIVE)) as usize;
        let start = line.fit().map_or(UNKNOWN, |fit| bytes(fit).min(UNKNOWN - 1));
        self.start.store(start, Ordering::Relaxed);
    }
}

impl Line {
    fn note(&mut self, x: f64, y: f64) {
        let y = self.fit().map_or(y, |(start, each)| y.min(OUTLIER * (start + each * x)));
        for (sum, value) in
            [(&mut self.count, 1.0), (&mut self.x, x), (&mut self.y, y), (&mut self.xx, x * x), (&mut self.xy, x * y)]
        {
            *sum = *sum * KEPT + value;
        }
    }

    /// Seconds to begin with, and for each byte; neither is below zero.
    fn fit(&self) -> Option<(f64, f64)> {
        let (x, y) = (self.x / self.count, self.y / self.count);
        let variance = self.xx / self.count - x * x;
        if self.count < FEWEST || variance < (SPREAD * x).powi(2) {
            return None;
        }
        let each = ((self.xy / self.count - x * y) / variance).max(0.0);
        Some(((y - each * x).max(0.0), each))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn run(costs: &Costs, bytes: usize, start: f64, each: f64) {
        costs.note(Width::Wide, bytes, Duration::from_secs_f64(start + each * bytes as f64));
    }

    #[test]
    fn the_line_through_runs_is_found_and_followed() {
        let costs = Costs::new();
        let sizes = || (0..400).map(|number| 64 + number * 37 % 1000);
        sizes().take(10).for_each(|bytes| run(&costs, bytes, 2e-3, 1e-5));
        assert_eq!(costs.start(), None, "too few");
        sizes().for_each(|bytes| run(&costs, bytes, 2e-3, 1e-5));
        assert!((198..=202).contains(&costs.start().unwrap()), "{:?}", costs.start());
        // One that met something else changes little.
        run(&costs, 500, 1.0, 0.0);
        assert!((150..=260).contains(&costs.start().unwrap()), "{:?}", costs.start());
        // Another machine: beginning is all that costs.
        (0..6).for_each(|_| sizes().for_each(|bytes| run(&costs, bytes, 4e-3, 1e-7)));
        assert!(costs.start().unwrap() > 20_000, "{:?}", costs.start());
        (0..6).for_each(|_| sizes().for_each(|bytes| run(&costs, bytes, 0.0, 1e-5)));
        assert!(costs.start().unwrap() < 10, "{:?}", costs.start());
    }

    #[test]
    fn runs_of_one_size_say_nothing_and_widths_are_kept_apart() {
        let costs = Costs::new();
        (0..500).for_each(|number| run(&costs, 1000 + number % 20, 2e-3, 1e-5));
        assert_eq!(costs.start(), None);
        for number in 0..500 {
            costs.note(Width::Narrow, 64 + number * 37 % 1000, Duration::from_millis(3));
        }
        assert!(costs.start().unwrap() > 1 << 40, "size costs nothing");
        run(&costs, 1000, 2e-3, 1e-5);
        assert_eq!(costs.start(), None, "what counts is where runs go now");
    }
}
