//! Work of the tokenizers crate, which cannot be stopped and may panic.

use super::tokenizer_cost::Cost;
use crate::pacing::Deadline;
use gpux_core::StepFailure;
use gpux_core::catch_panic::catch_panic;
use gpux_core::threads::{AbandonableTasks, TaskError};

/// Bytes of text on which a tokenizer whose time is in proportion to them is done in some milliseconds, in bad cases in
/// a tenth of a second.
const SHORT: usize = 8 << 10;

/// Bytes that such a text may become.
const SHORT_MADE: usize = 64 << 10;

const GAVE_UP: &str = "the tokenizer gave up";

/// Runs code of the tokenizers crate, whose asserts and subtractions a hostile file or text can trip.
pub(crate) fn catch_tokenizer_panic<T>(run: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
    match catch_panic(run) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err(GAVE_UP.to_owned()),
    }
}

/// What a tokenizer does, some of it on threads that can be left behind.
pub(crate) struct Offload {
    cost: Cost,
    work: AbandonableTasks,
}

impl Offload {
    /// Of work that may be on so many bytes at once.
    pub(crate) fn new(cost: Cost, room: usize) -> Self {
        Self { cost, work: AbandonableTasks::new(room) }
    }

    pub(crate) const fn cost(&self) -> Cost {
        self.cost
    }

    /// Does work on so many bytes, of which a part may become `longest`. Where it may be long, it is left behind at the
    /// request's deadline.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        longest: usize,
        deadline: &Deadline,
        work: impl FnOnce(&Deadline) -> Result<T, StepFailure> + Send + 'static,
    ) -> Result<T, StepFailure> {
        let long = !self.cost.linear || bytes > SHORT || longest > SHORT_MADE;
        let Some(instant) = deadline.instant().filter(|_| long) else { return work(deadline) };
        match self.work.run(instant, bytes.max(longest), move || work(&Deadline::at(Some(instant)))) {
            Ok(done) => done,
            Err(TaskError::DeadlineExceeded) => Err(StepFailure::Timeout),
            Err(TaskError::Overloaded) => {
                let message = "the tokenizer is still working on texts of requests whose time is over; try again later";
                Err(StepFailure::Failed(message.to_owned()))
            }
            Err(TaskError::Panicked(_)) => Err(StepFailure::Failed(GAVE_UP.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn what_may_be_long_is_left_behind() {
        let within = |time: Duration| Deadline::at(Instant::now().checked_add(time));
        let here = std::thread::current().id();
        let (end, ended) = channel::<()>();
        for (linear, bytes, longest, leaves) in [
            (false, 1, 1, true),
            (true, SHORT + 1, 1, true),
            (true, 1, SHORT_MADE + 1, true),
            (true, SHORT, SHORT_MADE, false),
        ] {
            let offload = Offload::new(Cost { growth: 1, anywhere: 1, linear }, 1 << 20);
            let at_once = |_: &Deadline| Ok(std::thread::current().id());
            assert_eq!(offload.run(bytes, longest, &Deadline::default(), at_once), Ok(here), "there is no deadline");
            let later = within(Duration::from_mins(10));
            assert_eq!(
                offload.run(bytes, longest, &later, at_once).map(|id| id != here),
                Ok(leaves),
                "{bytes} {longest}"
            );
        }
        let offload = Offload::new(Cost { growth: 1, anywhere: 1, linear: false }, 1 << 20);
        let asked = move |_: &Deadline| {
            let _ = ended.recv();
            Ok(())
        };
        assert_eq!(offload.run(1, 1, &within(Duration::from_millis(5)), asked), Err(StepFailure::Timeout));
        assert!(offload.work.has_abandoned());
        drop(end);
    }
}
