//! Work of the tokenizers crate, which cannot be stopped and may panic.

use super::cost::Cost;
use crate::watch::Watch;
use gpux_core::StepFailure;
use gpux_core::guard::guard;
use gpux_core::threads::{NotDone, Unstoppable};

/// Bytes of text on which a tokenizer whose time is in proportion to them is done in some milliseconds, in bad cases in
/// a tenth of a second.
const SHORT: usize = 8 << 10;

/// Bytes that such a text may become.
const SHORT_MADE: usize = 64 << 10;

const GAVE_UP: &str = "the tokenizer gave up";

/// Runs code of the tokenizers crate, whose asserts and subtractions a hostile file or text can trip.
pub(crate) fn guarded<T>(run: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
    match guard(run) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err(GAVE_UP.to_owned()),
    }
}

/// What a tokenizer does, some of it on threads that can be left behind.
pub(crate) struct Aside {
    cost: Cost,
    work: Unstoppable,
}

impl Aside {
    /// Of work that may be on so many bytes at once.
    pub(crate) fn new(cost: Cost, room: usize) -> Self {
        Self { cost, work: Unstoppable::new(room) }
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
        watch: &Watch,
        work: impl FnOnce(&Watch) -> Result<T, StepFailure> + Send + 'static,
    ) -> Result<T, StepFailure> {
        let long = !self.cost.linear || bytes > SHORT || longest > SHORT_MADE;
        let Some(deadline) = watch.deadline().filter(|_| long) else { return work(watch) };
        match self.work.run(deadline, bytes.max(longest), move || work(&Watch::until(Some(deadline)))) {
            Ok(done) => done,
            Err(NotDone::Late) => Err(StepFailure::Timeout),
            Err(NotDone::Crowded) => {
                let message = "the tokenizer is still working on texts of requests whose time is over; try again later";
                Err(StepFailure::Failed(message.to_owned()))
            }
            Err(NotDone::Broken(_)) => Err(StepFailure::Failed(GAVE_UP.to_owned())),
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
        let within = |time: Duration| Watch::until(Instant::now().checked_add(time));
        let here = std::thread::current().id();
        let (end, ended) = channel::<()>();
        for (linear, bytes, longest, leaves) in [
            (false, 1, 1, true),
            (true, SHORT + 1, 1, true),
            (true, 1, SHORT_MADE + 1, true),
            (true, SHORT, SHORT_MADE, false),
        ] {
            let aside = Aside::new(Cost { growth: 1, anywhere: 1, linear }, 1 << 20);
            let at_once = |_: &Watch| Ok(std::thread::current().id());
            assert_eq!(aside.run(bytes, longest, &Watch::default(), at_once), Ok(here), "there is no deadline");
            let later = within(Duration::from_mins(10));
            assert_eq!(
                aside.run(bytes, longest, &later, at_once).map(|id| id != here),
                Ok(leaves),
                "{bytes} {longest}"
            );
        }
        let aside = Aside::new(Cost { growth: 1, anywhere: 1, linear: false }, 1 << 20);
        let asked = move |_: &Watch| {
            let _ = ended.recv();
            Ok(())
        };
        assert_eq!(aside.run(1, 1, &within(Duration::from_millis(5)), asked), Err(StepFailure::Timeout));
        assert!(aside.work.goes_on());
        drop(end);
    }
}
