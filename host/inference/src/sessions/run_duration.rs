//! Predicts by input size which runs are short.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The longest run that its caller may be kept for beyond its deadline. A hop to another thread
/// takes about 40 µs, which is 0.1 % of this.
const SHORT_RUN: Duration = Duration::from_millis(45);
/// The longest run that may begin wherever its thread is: to change the core takes some 20 µs.
const BRIEF_RUN: Duration = Duration::from_millis(2);

/// The durations of earlier runs of a model.
pub(super) struct RunDurations {
    short: SizeThreshold,
    brief: SizeThreshold,
}

impl RunDurations {
    pub(super) const fn new() -> Self {
        Self { short: SizeThreshold::new(SHORT_RUN), brief: SizeThreshold::new(BRIEF_RUN) }
    }

    /// Whether a run on inputs of this many bytes is known to be short enough for its caller's thread.
    pub(super) fn is_short(&self, bytes: usize) -> bool {
        self.short.contains(bytes)
    }

    /// Whether it is known to be so short that the core does not matter.
    pub(super) fn is_brief(&self, bytes: usize) -> bool {
        self.brief.contains(bytes)
    }

    /// Records the duration of a run, failed runs included.
    pub(super) fn record(&self, bytes: usize, duration: Duration) {
        self.short.record(bytes, duration);
        self.brief.record(bytes, duration);
    }
}

/// The input size below which runs take less than `bound`.
struct SizeThreshold {
    bound: Duration,
    /// those on fewer bytes than this
    bytes: AtomicUsize,
}

impl SizeThreshold {
    const fn new(bound: Duration) -> Self {
        Self { bound, bytes: AtomicUsize::new(0) }
    }

    fn contains(&self, bytes: usize) -> bool {
        bytes < self.bytes.load(Ordering::Relaxed)
    }

    /// A run that was long because the machine was busy counts until the next short one.
    fn record(&self, bytes: usize, duration: Duration) {
        let short = self.bytes.load(Ordering::Relaxed);
        if duration < self.bound && bytes >= short {
            self.bytes.fetch_max(bytes.saturating_add(1), Ordering::Relaxed);
        } else if duration >= self.bound && bytes < short {
            self.bytes.fetch_min(bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predicts_short_runs_by_size() {
        let durations = RunDurations::new();
        assert!(!durations.is_short(0));
        durations.record(100, SHORT_RUN / 2);
        assert!(durations.is_short(0) && durations.is_short(100) && !durations.is_short(101));
        durations.record(50, SHORT_RUN);
        assert!(durations.is_short(49) && !durations.is_short(50));
        durations.record(50, SHORT_RUN / 2);
        assert!(durations.is_short(50) && !durations.is_short(51));
        durations.record(200, SHORT_RUN * 2);
        assert!(durations.is_short(50) && !durations.is_short(200));
        assert!(!durations.is_brief(0), "none was brief");
        durations.record(20, BRIEF_RUN / 2);
        assert!(durations.is_brief(20) && !durations.is_brief(21));
    }
}
