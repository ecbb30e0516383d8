//! Estimates the cost of runs: a fixed overhead, and a cost per byte of input.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::slot::ThreadMode;

/// The decay of earlier runs: about the last hundred count.
const DECAY: f64 = 0.99;
/// Runs before anything is made of them.
const MIN_RUNS: f64 = 16.0;
/// How far sizes must spread around their mean, as a part of it, to tell the two costs apart.
const SPREAD: f64 = 0.1;
/// A run that takes longer than this multiple of the expected time was disturbed, and counts as this multiple.
const OUTLIER: f64 = 3.0;
const UNKNOWN: usize = usize::MAX;

/// A least-squares line through size and time of the latest runs, for sessions of each width.
pub(super) struct CostModel {
    lines: Mutex<[LinearFit; 2]>,
    /// see [`CostModel::start`], of the latest run's width
    start: AtomicUsize,
}

/// Sums over runs of size `x` and time `y`.
#[derive(Clone, Copy, Default)]
struct LinearFit {
    count: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

impl CostModel {
    pub(super) fn new() -> Self {
        Self { lines: Mutex::default(), start: AtomicUsize::new(UNKNOWN) }
    }

    /// The overhead of a run as bytes of input that cost as much; `None` while unknown.
    pub(super) fn start(&self) -> Option<usize> {
        Some(self.start.load(Ordering::Relaxed)).filter(|start| *start != UNKNOWN)
    }

    /// Records the duration of a run.
    pub(super) fn record(&self, mode: ThreadMode, bytes: usize, duration: Duration) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let line = &mut lines[usize::from(mode == ThreadMode::SingleThreaded)];
        line.record(bytes as f64, duration.as_secs_f64());
        let bytes = |(start, each): (f64, f64)| (start / each.max(f64::MIN_POSITIVE)) as usize;
        let start = line.fit().map_or(UNKNOWN, |fit| bytes(fit).min(UNKNOWN - 1));
        self.start.store(start, Ordering::Relaxed);
    }
}

impl LinearFit {
    fn record(&mut self, x: f64, y: f64) {
        let y = self.fit().map_or(y, |(start, each)| y.min(OUTLIER * (start + each * x)));
        for (sum, value) in
            [(&mut self.count, 1.0), (&mut self.x, x), (&mut self.y, y), (&mut self.xx, x * x), (&mut self.xy, x * y)]
        {
            *sum = *sum * DECAY + value;
        }
    }

    /// Seconds to begin with, and for each byte; neither is below zero.
    fn fit(&self) -> Option<(f64, f64)> {
        let (x, y) = (self.x / self.count, self.y / self.count);
        let variance = self.xx / self.count - x * x;
        if self.count < MIN_RUNS || variance < (SPREAD * x).powi(2) {
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

    fn run(cost_model: &CostModel, bytes: usize, start: f64, each: f64) {
        cost_model.record(ThreadMode::MultiThreaded, bytes, Duration::from_secs_f64(start + each * bytes as f64));
    }

    #[test]
    fn fits_and_follows_run_costs() {
        let cost_model = CostModel::new();
        let sizes = || (0..400).map(|number| 64 + number * 37 % 1000);
        sizes().take(10).for_each(|bytes| run(&cost_model, bytes, 2e-3, 1e-5));
        assert_eq!(cost_model.start(), None, "too few");
        sizes().for_each(|bytes| run(&cost_model, bytes, 2e-3, 1e-5));
        assert!((198..=202).contains(&cost_model.start().unwrap()), "{:?}", cost_model.start());
        // An outlier changes little.
        run(&cost_model, 500, 1.0, 0.0);
        assert!((150..=260).contains(&cost_model.start().unwrap()), "{:?}", cost_model.start());
        // Another machine: beginning is all that costs.
        (0..6).for_each(|_| sizes().for_each(|bytes| run(&cost_model, bytes, 4e-3, 1e-7)));
        assert!(cost_model.start().unwrap() > 20_000, "{:?}", cost_model.start());
        (0..6).for_each(|_| sizes().for_each(|bytes| run(&cost_model, bytes, 0.0, 1e-5)));
        assert!(cost_model.start().unwrap() < 10, "{:?}", cost_model.start());
    }

    #[test]
    fn needs_several_sizes_and_separates_thread_modes() {
        let cost_model = CostModel::new();
        (0..500).for_each(|number| run(&cost_model, 1000 + number % 20, 2e-3, 1e-5));
        assert_eq!(cost_model.start(), None);
        for number in 0..500 {
            cost_model.record(ThreadMode::SingleThreaded, 64 + number * 37 % 1000, Duration::from_millis(3));
        }
        assert!(cost_model.start().unwrap() > 1 << 40, "size costs nothing");
        run(&cost_model, 1000, 2e-3, 1e-5);
        assert_eq!(cost_model.start(), None, "what counts is where runs go now");
    }
}
