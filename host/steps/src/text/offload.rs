//! Runs work of the tokenizers crate, which cannot be stopped and may panic, on threads that are abandoned at the
//! deadline.

use super::tokenizer_cost::TokenizerCost;
use crate::deadline::Deadline;
use gpux_core::StepFailure;
use gpux_core::catch_panic::catch_panic;
use gpux_core::threads::{AbandonableTasks, TaskError};

/// Bytes of text for which a tokenizer of linear time takes some milliseconds, in bad cases a tenth of a second.
const INLINE_BYTES: usize = 8 << 10;

/// Bytes that the normalizer may make of such a text.
const INLINE_RESULT_BYTES: usize = 64 << 10;

const PANIC_MESSAGE: &str = "the tokenizer gave up";

/// Runs code of the tokenizers crate, whose asserts and subtractions a hostile file or text can trip.
pub(crate) fn catch_tokenizer_panic<T>(run: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
    match catch_panic(run) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err(PANIC_MESSAGE.to_owned()),
    }
}

/// Runs short tokenizer work inline, the rest on abandonable threads.
pub(crate) struct Offload {
    cost: TokenizerCost,
    tasks: AbandonableTasks,
}

impl Offload {
    /// `capacity`: the most bytes of concurrent work.
    pub(crate) fn new(cost: TokenizerCost, capacity: usize) -> Self {
        Self { cost, tasks: AbandonableTasks::new(capacity) }
    }

    pub(crate) const fn cost(&self) -> TokenizerCost {
        self.cost
    }

    /// Runs work on this many bytes, of which a part may become `longest`. Work that may be long is abandoned at the
    /// deadline.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        longest: usize,
        deadline: &Deadline,
        work: impl FnOnce(&Deadline) -> Result<T, StepFailure> + Send + 'static,
    ) -> Result<T, StepFailure> {
        let long = !self.cost.is_linear || bytes > INLINE_BYTES || longest > INLINE_RESULT_BYTES;
        let Some(instant) = deadline.instant().filter(|_| long) else { return work(deadline) };
        match self.tasks.run(instant, bytes.max(longest), move || work(&Deadline::at(Some(instant)))) {
            Ok(done) => done,
            Err(TaskError::DeadlineExceeded) => Err(StepFailure::Timeout),
            Err(TaskError::Overloaded) => {
                let message = "the tokenizer is still working on texts of requests whose time is over; try again later";
                Err(StepFailure::Failed(message.to_owned()))
            }
            Err(TaskError::Panicked(_)) => Err(StepFailure::Failed(PANIC_MESSAGE.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn offloads_long_work() {
        let within = |time: Duration| Deadline::at(Instant::now().checked_add(time));
        let here = std::thread::current().id();
        let (end, ended) = channel::<()>();
        for (is_linear, bytes, longest, leaves) in [
            (false, 1, 1, true),
            (true, INLINE_BYTES + 1, 1, true),
            (true, 1, INLINE_RESULT_BYTES + 1, true),
            (true, INLINE_BYTES, INLINE_RESULT_BYTES, false),
        ] {
            let offload = Offload::new(TokenizerCost { growth: 1, contextual_growth: 1, is_linear }, 1 << 20);
            let at_once = |_: &Deadline| Ok(std::thread::current().id());
            assert_eq!(offload.run(bytes, longest, &Deadline::default(), at_once), Ok(here), "there is no deadline");
            let later = within(Duration::from_mins(10));
            assert_eq!(
                offload.run(bytes, longest, &later, at_once).map(|id| id != here),
                Ok(leaves),
                "{bytes} {longest}"
            );
        }
        let offload = Offload::new(TokenizerCost { growth: 1, contextual_growth: 1, is_linear: false }, 1 << 20);
        let asked = move |_: &Deadline| {
            let _ = ended.recv();
            Ok(())
        };
        assert_eq!(offload.run(1, 1, &within(Duration::from_millis(5)), asked), Err(StepFailure::Timeout));
        assert!(offload.tasks.has_abandoned());
        drop(end);
    }
}
