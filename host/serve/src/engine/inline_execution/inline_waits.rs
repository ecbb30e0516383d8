//! Short waits of the I/O thread for the answers of isolated pipelines.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long the I/O thread waits for an answer, before a request thread goes on waiting. Other connections of the thread
/// wait meanwhile, as for a request that runs inline.
pub(crate) const LIMIT: Duration = Duration::from_micros(100);

/// The pause after an answer that did not come in time; the next is twice as long. So a pipeline takes at most a
/// fiftieth of an I/O thread's time in vain.
const FIRST_PAUSE: Duration = LIMIT.saturating_mul(50);

/// The most times that the pause doubles.
const MAX_DOUBLINGS: u32 = 8;

/// Answers in a row after which the pause is the first again. A hostile pipeline must answer to be waited for.
const FORGIVING: u32 = 16;

/// Whether the I/O thread waits for the answers of one pipeline.
#[derive(Debug, Default)]
pub(crate) struct InlineWaits(Mutex<Pause>);

#[derive(Debug, Default)]
struct Pause {
    until: Option<Instant>,
    /// waits in vain
    misses: u32,
    /// answers since the last of them
    answers: u32,
}

impl InlineWaits {
    /// Whether the I/O thread may wait for an answer now.
    pub(crate) fn may_wait(&self, now: Instant) -> bool {
        self.lock().until.is_none_or(|until| now >= until)
    }

    /// The answer came in time.
    pub(crate) fn record_answer(&self) {
        let mut pause = self.lock();
        pause.answers = pause.answers.saturating_add(1);
        if pause.answers >= FORGIVING {
            pause.misses = 0;
        }
    }

    /// No answer came in time.
    pub(crate) fn record_miss(&self, now: Instant) {
        let mut pause = self.lock();
        pause.until = now.checked_add(FIRST_PAUSE * (1 << pause.misses.min(MAX_DOUBLINGS)));
        pause.misses = pause.misses.saturating_add(1);
        pause.answers = 0;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Pause> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_with_misses() {
        let (waits, start) = (InlineWaits::default(), Instant::now());
        assert!(waits.may_wait(start));
        let mut now = start;
        for miss in 0..20 {
            waits.record_miss(now);
            let pause = FIRST_PAUSE * (1 << miss.min(MAX_DOUBLINGS));
            assert!(!waits.may_wait(now + pause / 2), "{miss}");
            now += pause;
            assert!(waits.may_wait(now), "{miss}");
        }
        let pause_after = |answers| {
            (0..answers).for_each(|_| waits.record_answer());
            waits.record_miss(now);
            (0..=MAX_DOUBLINGS).find(|doublings| waits.may_wait(now + FIRST_PAUSE * (1 << doublings)))
        };
        assert_eq!(pause_after(FORGIVING - 1), Some(MAX_DOUBLINGS));
        assert_eq!([pause_after(FORGIVING), pause_after(0)], [Some(0), Some(1)]);
    }
}
