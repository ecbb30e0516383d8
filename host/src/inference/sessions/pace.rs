//! Which runs are short enough for the caller's own thread.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The longest run that its caller may be kept for beyond its deadline. A hop to another thread
/// takes about 40 µs, which is 0.1 % of this.
const SHORT: Duration = Duration::from_millis(45);

/// What earlier runs of a model took, by the size of what they were given.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// runs on fewer bytes than this have been short
    short: AtomicUsize,
}

impl Pace {
    /// Whether a run on so many bytes is known to be short.
    pub(super) fn is_short(&self, bytes: usize) -> bool {
        bytes < self.short.load(Ordering::Relaxed)
    }

    /// Notes what a run on so many bytes took, however it ended. What was long only because the
    /// machine was busy is short again after the next run that is.
    pub(super) fn note(&self, bytes: usize, took: Duration) {
        let short = self.short.load(Ordering::Relaxed);
        if took < SHORT && bytes >= short {
            self.short.fetch_max(bytes.saturating_add(1), Ordering::Relaxed);
        } else if took >= SHORT && bytes < short {
            self.short.fetch_min(bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_short_is_taken_to_be() {
        let pace = Pace::default();
        assert!(!pace.is_short(0));
        pace.note(100, SHORT / 2);
        assert!(pace.is_short(0) && pace.is_short(100) && !pace.is_short(101));
        pace.note(50, SHORT);
        assert!(pace.is_short(49) && !pace.is_short(50));
        pace.note(50, SHORT / 2);
        assert!(pace.is_short(50) && !pace.is_short(51));
        pace.note(200, SHORT * 2);
        assert!(pace.is_short(50) && !pace.is_short(200));
    }
}
