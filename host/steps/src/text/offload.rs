//! Runs work of the tokenizers crate, which cannot be stopped and may panic, on threads that are abandoned at the
//! deadline.

use crate::deadline::Deadline;
use gpux_core::StepFailure;
use gpux_core::catch_panic::catch_panic;
use gpux_core::threads::{AbandonableTasks, TaskError};

/// Bytes of text for which a tokenizer of linear time takes some milliseconds, in bad cases a tenth of a second.
const INLINE_BYTES: usize = 8 << 10;

/// Bytes of text for a byte of a token, at most: spaces between letters (`CTC`), U+FFFD for what is no UTF-8
/// (`ByteLevel`).
pub(crate) const DECODED_BYTES: usize = 3;

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
    is_linear: bool,
    tasks: AbandonableTasks,
}

impl Offload {
    /// `is_linear`: whether the work is known to take linear time. `capacity`: the most bytes of concurrent work.
    pub(crate) fn new(is_linear: bool, capacity: usize) -> Self {
        Self { is_linear, tasks: AbandonableTasks::new(capacity) }
    }

    /// Runs work on this many bytes. Work that may be long is abandoned at the deadline.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        deadline: &Deadline,
        work: impl FnOnce(&Deadline) -> Result<T, StepFailure> + Send + 'static,
    ) -> Result<T, StepFailure> {
        let long = !self.is_linear || bytes > INLINE_BYTES;
        let Some(instant) = deadline.instant().filter(|_| long) else { return work(deadline) };
        match self.tasks.run(instant, bytes, move || work(&Deadline::at(Some(instant)))) {
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
        for (is_linear, bytes, leaves) in
            [(false, 1, true), (true, INLINE_BYTES + 1, true), (true, INLINE_BYTES, false)]
        {
            let offload = Offload::new(is_linear, 1 << 20);
            let at_once = |_: &Deadline| Ok(std::thread::current().id());
            assert_eq!(offload.run(bytes, &Deadline::default(), at_once), Ok(here), "there is no deadline");
            let later = within(Duration::from_mins(10));
            assert_eq!(offload.run(bytes, &later, at_once).map(|id| id != here), Ok(leaves), "{bytes}");
        }
        // On a busy machine, the deadline may pass before the work begins, which then never does.
        let is_abandoned = |exponent: u32| {
            let offload = Offload::new(false, 1 << 20);
            let ((begins, begun), (end, ended)) = (channel(), channel::<()>());
            let work = move |_: &Deadline| {
                let _ = begins.send(());
                let _ = ended.recv();
                Ok(())
            };
            let deadline = within(Duration::from_millis(5 << exponent));
            assert_eq!(offload.run(1, &deadline, work), Err(StepFailure::Timeout));
            let has_begun = begun.recv().is_ok();
            assert!(!has_begun || offload.tasks.has_abandoned());
            drop(end);
            has_begun
        };
        assert!((0..12).any(is_abandoned), "it never begins");
    }
}
