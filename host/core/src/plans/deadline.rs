//! A request's deadline, for long work that checks it at intervals.

use std::cell::Cell;
use std::io;
use std::time::Instant;

use super::step::{Context, StepFailure};
use crate::cancellation::CancelCheck;

/// The request's deadline has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request's timeout passed")]
pub struct DeadlineExceeded;

impl From<DeadlineExceeded> for StepFailure {
    fn from(_: DeadlineExceeded) -> Self {
        Self::Timeout
    }
}

/// For work whose errors are texts: [`Deadline::check_cached`] tells them apart.
impl From<DeadlineExceeded> for String {
    fn from(late: DeadlineExceeded) -> Self {
        late.to_string()
    }
}

impl From<DeadlineExceeded> for io::Error {
    fn from(late: DeadlineExceeded) -> Self {
        Self::new(io::ErrorKind::TimedOut, late)
    }
}

/// A request's deadline. It remembers that it has passed, for work that cannot return a [`StepFailure`] through a
/// library.
#[derive(Debug, Default)]
pub struct Deadline {
    at: Option<Instant>,
    exceeded: Cell<bool>,
    /// samples since the clock was read
    samples: Cell<usize>,
    /// checks until it counts as passed
    #[cfg(any(test, feature = "testing"))]
    left: Cell<Option<usize>>,
}

/// [`Tensor`](crate::Tensor)'s methods stop at the deadline.
impl CancelCheck for Deadline {
    fn can_continue(&self, elements: usize) -> bool {
        self.check_after(elements).is_ok()
    }
}

/// Samples between two reads of the clock: some milliseconds of work.
const SAMPLES: usize = 1 << 20;

impl Deadline {
    /// The deadline of the request.
    pub fn from_context(context: &Context) -> Self {
        Self::at(context.deadline)
    }

    /// Passes at `deadline`; with `None`, never.
    pub fn at(deadline: Option<Instant>) -> Self {
        Self { at: deadline, ..Self::default() }
    }

    /// Passes after `times` checks.
    #[cfg(any(test, feature = "testing"))]
    pub fn exceeded_after(times: usize) -> Self {
        Self { left: Cell::new(Some(times)), ..Self::default() }
    }

    /// The instant at which it passes, if any.
    pub const fn instant(&self) -> Option<Instant> {
        self.at
    }

    /// Whether there is a deadline at all.
    pub const fn is_set(&self) -> bool {
        self.at.is_some()
    }

    /// Fails once the deadline has passed.
    pub fn check(&self) -> Result<(), DeadlineExceeded> {
        if self.at.is_some_and(|deadline| Instant::now() >= deadline) {
            self.exceeded.set(true);
        }
        #[cfg(any(test, feature = "testing"))]
        match self.left.get() {
            Some(0) => self.exceeded.set(true),
            left => self.left.set(left.map(|left| left - 1)),
        }
        self.check_cached()
    }

    /// [`check`](Self::check) for work on `samples` more samples or bytes; reads the clock once in a million.
    pub fn check_after(&self, samples: usize) -> Result<(), DeadlineExceeded> {
        let samples = self.samples.get().saturating_add(samples);
        if samples < SAMPLES {
            self.samples.set(samples);
            return self.check_cached();
        }
        self.samples.set(0);
        self.check()
    }

    /// The result of the last check, without reading the clock.
    pub fn check_cached(&self) -> Result<(), DeadlineExceeded> {
        if self.exceeded.get() { Err(DeadlineExceeded) } else { Ok(()) }
    }

    /// [`check`](Self::check) before work that takes `seconds` and cannot be stopped.
    pub fn check_time_for(&self, seconds: f64) -> Result<(), DeadlineExceeded> {
        let left = self.at.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.as_secs_f64() < seconds) {
            self.exceeded.set(true);
        }
        self.check()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::time::Duration;

    use super::*;

    fn late() -> Deadline {
        Deadline::at(Instant::now().checked_sub(Duration::from_secs(1)))
    }

    #[test]
    fn rejects_work_longer_than_the_time_left() {
        assert_eq!((late().check(), late().check_time_for(0.0)), (Err(DeadlineExceeded), Err(DeadlineExceeded)));
        let soon = Deadline::at(Instant::now().checked_add(Duration::from_secs(100)));
        assert_eq!((soon.check(), soon.check_time_for(1.0)), (Ok(()), Ok(())));
        assert_eq!(soon.check_time_for(1000.0), Err(DeadlineExceeded));
        assert!(soon.check_cached().is_err() && soon.check().is_err());
        assert_eq!(Deadline::default().check_time_for(f64::INFINITY), Ok(()));
    }

    #[test]
    fn checks_the_clock_once_per_million_elements() {
        let watch = late();
        assert_eq!((watch.check_after(1000), watch.check_after(SAMPLES - 1001)), (Ok(()), Ok(())));
        assert_eq!(watch.check_after(1), Err(DeadlineExceeded));
        assert_eq!(Deadline::default().check_after(usize::MAX), Ok(()));
    }
}
