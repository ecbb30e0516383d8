//! Decides whether short runs are as fast on a single thread.
//!
//! ONNX Runtime hands parts of an operator to other threads even where the whole model takes some
//! microseconds, which is less than it takes them to begin; and after each such run they look for
//! more work a while, on cores that others could use. So where runs are that short, both widths of
//! session are tried on the requests that come. Larger inputs still use a multi-threaded one.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::slot::ThreadMode;

/// A run that takes longer is worth other threads.
const SHORT_RUN: Duration = Duration::from_micros(100);
/// Runs of one size on sessions of each width, before it is decided.
const RUNS_PER_MODE: u32 = 32;
/// A single-threaded run may take this many times as long: it spares the thread pool's spinning.
const MAX_SLOWDOWN: f64 = 1.5;

/// Decides which runs are single-threaded even for a single caller.
pub(super) struct ThreadingTrial {
    /// runs on fewer bytes are
    single_threaded: AtomicUsize,
    is_decided: AtomicBool,
    stage: Mutex<Stage>,
}

#[derive(Clone, Copy)]
enum Stage {
    /// short multi-threaded runs of one size are counted
    Counting(RunSamples),
    /// as many single-threaded runs follow
    Trying { multi_threaded: RunSamples, single_threaded: RunSamples },
}

/// Runs of one size, in a row.
#[derive(Clone, Copy, Default)]
struct RunSamples {
    runs: u32,
    bytes: usize,
    shortest: Duration,
}

impl RunSamples {
    /// Counts a run; one of another size begins anew.
    fn record(&mut self, bytes: usize, duration: Duration) {
        let same = self.runs > 0 && self.bytes == bytes;
        let (runs, shortest) = if same { (self.runs + 1, self.shortest.min(duration)) } else { (1, duration) };
        *self = Self { runs, bytes, shortest };
    }
}

impl ThreadingTrial {
    /// A trial; without single-threaded sessions it is decided from the start.
    pub(super) fn new(possible: bool) -> Self {
        let stage = Mutex::new(Stage::Counting(RunSamples::default()));
        Self { single_threaded: AtomicUsize::new(0), is_decided: AtomicBool::new(!possible), stage }
    }

    /// Whether a run on inputs of this many bytes uses a single-threaded session, decided or on trial.
    pub(super) fn prefers_single_threaded(&self, bytes: usize) -> bool {
        if self.is_decided.load(Ordering::Relaxed) {
            return bytes < self.single_threaded.load(Ordering::Relaxed);
        }
        matches!(*self.stage.lock().unwrap_or_else(PoisonError::into_inner),
            Stage::Trying { multi_threaded, .. } if multi_threaded.bytes == bytes)
    }

    /// Records the duration of a successful run.
    pub(super) fn record(&self, mode: ThreadMode, bytes: usize, duration: Duration) {
        if self.is_decided.load(Ordering::Relaxed) {
            return;
        }
        let mut stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        match (&mut *stage, mode) {
            // The first runs of a session are longer than all others.
            (Stage::Counting(samples), ThreadMode::MultiThreaded) if duration < SHORT_RUN => {
                samples.record(bytes, duration);
                if samples.runs >= RUNS_PER_MODE {
                    *stage = Stage::Trying { multi_threaded: *samples, single_threaded: RunSamples::default() };
                }
            }
            (Stage::Trying { multi_threaded, single_threaded }, ThreadMode::SingleThreaded)
                if multi_threaded.bytes == bytes =>
            {
                single_threaded.record(bytes, duration);
                if single_threaded.runs >= RUNS_PER_MODE {
                    let short = single_threaded.shortest <= multi_threaded.shortest.mul_f64(MAX_SLOWDOWN);
                    self.single_threaded.store(if short { bytes.saturating_add(1) } else { 0 }, Ordering::Relaxed);
                    self.is_decided.store(true, Ordering::Release);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(threading_trial: &ThreadingTrial, runs: u32, mode: ThreadMode, bytes: usize, duration: Duration) {
        for _ in 0..runs {
            threading_trial.record(mode, bytes, duration);
        }
    }

    #[test]
    fn chooses_single_threads_for_short_runs() {
        for (percent, single_threaded) in [(50, true), (140, true), (160, false)] {
            let threading_trial = ThreadingTrial::new(true);
            record(&threading_trial, RUNS_PER_MODE - 1, ThreadMode::MultiThreaded, 64, SHORT_RUN / 10);
            assert!(!threading_trial.prefers_single_threaded(64));
            record(&threading_trial, 1, ThreadMode::MultiThreaded, 64, SHORT_RUN / 10);
            assert!(
                threading_trial.prefers_single_threaded(64) && !threading_trial.prefers_single_threaded(65),
                "what is compared is tried, and nothing else"
            );
            record(&threading_trial, RUNS_PER_MODE, ThreadMode::SingleThreaded, 64, SHORT_RUN * percent / 1000);
            assert_eq!(
                (
                    threading_trial.prefers_single_threaded(64),
                    threading_trial.prefers_single_threaded(63),
                    threading_trial.prefers_single_threaded(65)
                ),
                (single_threaded, single_threaded, false),
                "{percent} %"
            );
        }
    }

    #[test]
    fn keeps_long_and_mixed_runs_multi_threaded() {
        let threading_trial = ThreadingTrial::new(true);
        record(&threading_trial, 10 * RUNS_PER_MODE, ThreadMode::MultiThreaded, 64, SHORT_RUN);
        for bytes in 0..10 * RUNS_PER_MODE as usize {
            threading_trial.record(ThreadMode::MultiThreaded, bytes, SHORT_RUN / 10);
        }
        record(&threading_trial, 10 * RUNS_PER_MODE, ThreadMode::SingleThreaded, 64, SHORT_RUN / 10);
        assert!((0..1000).all(|bytes| !threading_trial.prefers_single_threaded(bytes)));
    }
}
