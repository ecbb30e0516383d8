//! A request's deadline, for long work that looks at it now and then.

use std::cell::Cell;
use std::io;
use std::time::Instant;

use super::cancellation::CancelCheck;
use super::step::{Context, StepFailure};

/// The request's time is over.
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

/// A request's deadline, for work that cannot hand a [`StepFailure`] through a library: it remembers
/// that it was passed.
#[derive(Debug, Default)]
pub struct Deadline {
    deadline: Option<Instant>,
    late: Cell<bool>,
    /// samples since the clock was asked
    done: Cell<usize>,
    /// how often it may still be asked
    #[cfg(any(test, feature = "testing"))]
    left: Cell<Option<usize>>,
}

/// Work that [`Tensor`](super::Tensor)'s own methods do in parts goes on as long as nobody is late.
impl CancelCheck for Deadline {
    fn can_continue(&self, elements: usize) -> bool {
        self.check_after(elements).is_ok()
    }
}

/// Samples that are worked on between two looks at the clock: some milliseconds.
const SAMPLES: usize = 1 << 20;

impl Deadline {
    /// Over the deadline of this request.
    pub fn from_context(context: &Context) -> Self {
        Self::at(context.deadline)
    }

    /// Over this deadline; with `None` it never passes.
    pub fn at(deadline: Option<Instant>) -> Self {
        Self { deadline, ..Self::default() }
    }

    /// A clock that says no after so many times.
    #[cfg(any(test, feature = "testing"))]
    pub fn exceeded_after(times: usize) -> Self {
        Self { left: Cell::new(Some(times)), ..Self::default() }
    }

    /// When it is, if ever.
    pub const fn instant(&self) -> Option<Instant> {
        self.deadline
    }

    /// Whether there is a deadline at all.
    pub const fn is_set(&self) -> bool {
        self.deadline.is_some()
    }

    /// An error once the deadline has passed.
    pub fn check(&self) -> Result<(), DeadlineExceeded> {
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            self.late.set(true);
        }
        #[cfg(any(test, feature = "testing"))]
        match self.left.get() {
            Some(0) => self.late.set(true),
            left => self.left.set(left.map(|left| left - 1)),
        }
        self.check_cached()
    }

    /// As [`check`](Self::check), for work on so many samples more, or so many bytes: the clock is asked
    /// once in a million.
    pub fn check_after(&self, samples: usize) -> Result<(), DeadlineExceeded> {
        let done = self.done.get().saturating_add(samples);
        if done < SAMPLES {
            self.done.set(done);
            return self.check_cached();
        }
        self.done.set(0);
        self.check()
    }

    /// The last answer, without a look at the clock: once it was no, any other error is only what came of it.
    pub fn check_cached(&self) -> Result<(), DeadlineExceeded> {
        if self.late.get() { Err(DeadlineExceeded) } else { Ok(()) }
    }

    /// As [`check`](Self::check), but where `seconds` of work that cannot be stopped lie ahead.
    pub fn check_time_for(&self, seconds: f64) -> Result<(), DeadlineExceeded> {
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.as_secs_f64() < seconds) {
            self.late.set(true);
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
    fn what_takes_longer_than_is_left_is_not_begun() {
        assert_eq!((late().check(), late().check_time_for(0.0)), (Err(DeadlineExceeded), Err(DeadlineExceeded)));
        let soon = Deadline::at(Instant::now().checked_add(Duration::from_secs(100)));
        assert_eq!((soon.check(), soon.check_time_for(1.0)), (Ok(()), Ok(())));
        assert_eq!(soon.check_time_for(1000.0), Err(DeadlineExceeded));
        assert!(soon.check_cached().is_err() && soon.check().is_err());
        assert_eq!(Deadline::default().check_time_for(f64::INFINITY), Ok(()));
    }

    #[test]
    fn the_clock_is_asked_once_in_a_million() {
        let watch = late();
        assert_eq!((watch.check_after(1000), watch.check_after(SAMPLES - 1001)), (Ok(()), Ok(())));
        assert_eq!(watch.check_after(1), Err(DeadlineExceeded));
        assert_eq!(Deadline::default().check_after(usize::MAX), Ok(()));
    }
}
