//! Whether short runs are as fast without other threads.
//!
//! ONNX Runtime hands parts of an operator to other threads even where the whole model takes some
//! microseconds, which is less than it takes them to begin; and after each such run they look for
//! more work a while, on cores that others could use. So where runs are that short, both widths of
//! session are tried on the requests that come. Larger inputs still go to a wide one.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::slot::Width;

/// A run that takes longer is worth other threads.
const SHORT: Duration = Duration::from_micros(100);
/// Runs of one size on sessions of each width, before it is decided.
const TRIED: u32 = 32;
/// What other threads must save for their looking around: a narrow run may take half as long again.
const WORTH: f64 = 1.5;

/// Decides which runs are narrow even for a single caller.
pub(super) struct Trial {
    /// runs on fewer bytes are
    narrow: AtomicUsize,
    over: AtomicBool,
    stage: Mutex<Stage>,
}

#[derive(Clone, Copy)]
enum Stage {
    /// short wide runs of the same size are counted
    Counting(Seen),
    /// the same number of them is to be narrow
    Trying { wide: Seen, narrow: Seen },
}

/// Runs of one size, in a row.
#[derive(Clone, Copy, Default)]
struct Seen {
    runs: u32,
    bytes: usize,
    shortest: Duration,
}

impl Seen {
    /// Counts a run; one of another size begins anew.
    fn note(&mut self, bytes: usize, took: Duration) {
        let same = self.runs > 0 && self.bytes == bytes;
        let (runs, shortest) = if same { (self.runs + 1, self.shortest.min(took)) } else { (1, took) };
        *self = Self { runs, bytes, shortest };
    }
}

impl Trial {
    /// A trial, for a set that can have narrow sessions; for any other it is over at once.
    pub(super) fn new(possible: bool) -> Self {
        let stage = Mutex::new(Stage::Counting(Seen::default()));
        Self { narrow: AtomicUsize::new(0), over: AtomicBool::new(!possible), stage }
    }

    /// Whether a run on so many bytes is to be narrow, or to be tried so.
    pub(super) fn takes(&self, bytes: usize) -> bool {
        if self.over.load(Ordering::Relaxed) {
            return bytes < self.narrow.load(Ordering::Relaxed);
        }
        matches!(*self.stage.lock().unwrap_or_else(PoisonError::into_inner),
            Stage::Trying { wide, .. } if wide.bytes == bytes)
    }

    /// Notes what a run took that did not fail.
    pub(super) fn note(&self, width: Width, bytes: usize, took: Duration) {
        if self.over.load(Ordering::Relaxed) {
            return;
        }
        let mut stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        match (&mut *stage, width) {
            // The first runs of a session are longer than all others.
            (Stage::Counting(seen), Width::Wide) if took < SHORT => {
                seen.note(bytes, took);
                if seen.runs >= TRIED {
                    *stage = Stage::Trying { wide: *seen, narrow: Seen::default() };
                }
            }
            (Stage::Trying { wide, narrow }, Width::Narrow) if wide.bytes == bytes => {
                narrow.note(bytes, took);
                if narrow.runs >= TRIED {
                    let short = narrow.shortest <= wide.shortest.mul_f64(WORTH);
                    self.narrow.store(if short { bytes.saturating_add(1) } else { 0 }, Ordering::Relaxed);
                    self.over.store(true, Ordering::Release);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(trial: &Trial, runs: u32, width: Width, bytes: usize, took: Duration) {
        for _ in 0..runs {
            trial.note(width, bytes, took);
        }
    }

    #[test]
    fn short_runs_are_narrow_unless_others_save_much() {
        for (percent, narrow) in [(50, true), (140, true), (160, false)] {
            let trial = Trial::new(true);
            note(&trial, TRIED - 1, Width::Wide, 64, SHORT / 10);
            assert!(!trial.takes(64));
            note(&trial, 1, Width::Wide, 64, SHORT / 10);
            assert!(trial.takes(64) && !trial.takes(65), "what is compared is tried, and nothing else");
            note(&trial, TRIED, Width::Narrow, 64, SHORT * percent / 1000);
            assert_eq!((trial.takes(64), trial.takes(63), trial.takes(65)), (narrow, narrow, false), "{percent} %");
        }
    }

    #[test]
    fn longer_runs_and_runs_of_all_sizes_stay_wide() {
        let trial = Trial::new(true);
        note(&trial, 10 * TRIED, Width::Wide, 64, SHORT);
        for bytes in 0..10 * TRIED as usize {
            trial.note(Width::Wide, bytes, SHORT / 10);
        }
        note(&trial, 10 * TRIED, Width::Narrow, 64, SHORT / 10);
        assert!((0..1000).all(|bytes| !trial.takes(bytes)));
    }
}
