//! Which runs are known to be short, by the size of what they are given.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The longest run that its caller may be kept for beyond its deadline. A hop to another thread
/// takes about 40 µs, which is 0.1 % of this.
const SHORT: Duration = Duration::from_millis(45);
/// The longest run that may begin wherever its thread is: to change the core takes some 20 µs.
const BRIEF: Duration = Duration::from_millis(2);

/// What earlier runs of a model took.
pub(super) struct Pace {
    short: Under,
    brief: Under,
}

impl Pace {
    pub(super) const fn new() -> Self {
        Self { short: Under::new(SHORT), brief: Under::new(BRIEF) }
    }

    /// Whether a run on so many bytes is known to be short enough for its caller's thread.
    pub(super) fn is_short(&self, bytes: usize) -> bool {
        self.short.holds(bytes)
    }

    /// Whether it is known to be so short that the core does not matter.
    pub(super) fn is_brief(&self, bytes: usize) -> bool {
        self.brief.holds(bytes)
    }

    /// Notes what a run on so many bytes took, however it ended.
    pub(super) fn note(&self, bytes: usize, took: Duration) {
        self.short.note(bytes, took);
        self.brief.note(bytes, took);
    }
}

/// Runs that took less than `bound`.
struct Under {
    bound: Duration,
    /// those on fewer bytes than this
    bytes: AtomicUsize,
}

impl Under {
    const fn new(bound: Duration) -> Self {
        Self { bound, bytes: AtomicUsize::new(0) }
    }

    fn holds(&self, bytes: usize) -> bool {
        bytes < self.bytes.load(Ordering::Relaxed)
    }

    /// What was long only because the machine was busy is short again after the next run that is.
    fn note(&self, bytes: usize, took: Duration) {
        let short = self.bytes.load(Ordering::Relaxed);
        if took < self.bound && bytes >= short {
            self.bytes.fetch_max(bytes.saturating_add(1), Ordering::Relaxed);
        } else if took >= self.bound && bytes < short {
            self.bytes.fetch_min(bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_short_is_taken_to_be() {
        let pace = Pace::new();
        assert!(!pace.is_short(0));
        pace.note(100, SHORT / 2);
        assert!(pace.is_short(0) && pace.is_short(100) && !pace.is_short(101));
        pace.note(50, SHORT);
        assert!(pace.is_short(49) && !pace.is_short(50));
        pace.note(50, SHORT / 2);
        assert!(pace.is_short(50) && !pace.is_short(51));
        pace.note(200, SHORT * 2);
        assert!(pace.is_short(50) && !pace.is_short(200));
        assert!(!pace.is_brief(0), "none was brief");
        pace.note(20, BRIEF / 2);
        assert!(pace.is_brief(20) && !pace.is_brief(21));
    }
}
