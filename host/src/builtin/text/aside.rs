//! Work of the tokenizers crate, which cannot be stopped and may panic.

use super::cost::Cost;
use crate::builtin::watch::Watch;
use crate::guard::guard;
use crate::pipeline::StepFailure;
use crate::threads::{NotDone, Unstoppable};

/// Bytes on which a tokenizer whose time is in proportion to them is done in some tens of milliseconds.
const SHORT: usize = 1 << 15;

const GAVE_UP: &str = "the tokenizer gave up";

/// Runs code of the tokenizers crate, whose asserts and subtractions a hostile file or text can trip.
pub(in crate::builtin) fn guarded<T>(run: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
    match guard(run) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err(GAVE_UP.to_owned()),
    }
}

/// What a tokenizer does, some of it on threads that can be left behind.
pub(in crate::builtin) struct Aside {
    cost: Cost,
    work: Unstoppable,
}

impl Aside {
    /// Of work that may be on so many bytes at once.
    pub(in crate::builtin) fn new(cost: Cost, room: usize) -> Self {
        Self { cost, work: Unstoppable::new(room) }
    }

    pub(in crate::builtin) const fn cost(&self) -> Cost {
        self.cost
    }

    /// Does work on so many bytes, as they may become. Where it may be long, it is left behind at the request's
    /// deadline.
    pub(in crate::builtin) fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        watch: &Watch,
        work: impl FnOnce(&Watch) -> Result<T, StepFailure> + Send + 'static,
    ) -> Result<T, StepFailure> {
        let long = !self.cost.linear || bytes > SHORT;
        let Some(deadline) = watch.deadline().filter(|_| long) else { return work(watch) };
        match self.work.run(deadline, bytes, move || work(&Watch::until(Some(deadline)))) {
            Ok(done) => done,
            Err(NotDone::Late) => Err(StepFailure::Timeout),
            Err(NotDone::Crowded) => {
                let message = "the tokenizer is still at what requests before left when their time was over; try again \
                               later, or use another tokenizer";
                Err(StepFailure::Failed(message.to_owned()))
            }
            Err(NotDone::Broken(_)) => Err(StepFailure::Failed(GAVE_UP.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn what_may_be_long_is_left_behind() {
        let soon = || Watch::until(Instant::now().checked_add(Duration::from_millis(5)));
        let sleep = |_: &Watch| {
            std::thread::sleep(Duration::from_millis(500));
            Ok(7)
        };
        let at_once = |_: &Watch| Ok(std::thread::current().id());
        let here = Ok(std::thread::current().id());
        for (linear, bytes, leaves) in [(false, 1, true), (true, SHORT + 1, true), (true, SHORT, false)] {
            let aside = Aside::new(Cost { growth: 1, anywhere: 1, linear }, 1 << 20);
            assert_eq!(aside.run(bytes, &Watch::default(), at_once), here, "there is no deadline");
            let done = aside.run(bytes, &soon(), sleep);
            assert_eq!(done, if leaves { Err(StepFailure::Timeout) } else { Ok(7) }, "{bytes}");
            assert_eq!(aside.work.goes_on(), leaves);
        }
    }
}
