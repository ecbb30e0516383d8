//! A request's deadline, for long work that looks at it now and then.

use std::cell::Cell;
use std::io;
use std::time::Instant;

use super::goes_on::GoesOn;
use super::step::{Context, StepFailure};

/// The request's time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request's timeout passed")]
pub struct Late;

impl From<Late> for StepFailure {
    fn from(_: Late) -> Self {
        Self::Timeout
    }
}

/// For work whose errors are texts: [`Watch::ask_again`] tells them apart.
impl From<Late> for String {
    fn from(late: Late) -> Self {
        late.to_string()
    }
}

impl From<Late> for io::Error {
    fn from(late: Late) -> Self {
        Self::new(io::ErrorKind::TimedOut, late)
    }
}

/// A request's deadline, for work that cannot hand a [`StepFailure`] through a library: it remembers
/// that it was passed.
#[derive(Debug, Default)]
pub struct Watch {
    deadline: Option<Instant>,
    late: Cell<bool>,
    /// samples since the clock was asked
    done: Cell<usize>,
    /// how often it may still be asked
    #[cfg(any(test, feature = "testing"))]
    left: Cell<Option<usize>>,
}

/// Work that [`Tensor`](super::Tensor)'s own methods do in parts goes on as long as nobody is late.
impl GoesOn for Watch {
    fn goes_on(&self, elements: usize) -> bool {
        self.worked(elements).is_ok()
    }
}

/// Samples that are worked on between two looks at the clock: some milliseconds.
const SAMPLES: usize = 1 << 20;

impl Watch {
    /// Over the deadline of this request.
    pub fn of(context: &Context) -> Self {
        Self::until(context.deadline)
    }

    /// Over this deadline; with `None` it never passes.
    pub fn until(deadline: Option<Instant>) -> Self {
        Self { deadline, ..Self::default() }
    }

    /// A clock that says no after so many times.
    #[cfg(any(test, feature = "testing"))]
    pub fn after(times: usize) -> Self {
        Self { left: Cell::new(Some(times)), ..Self::default() }
    }

    /// When it is, if ever.
    pub const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Whether there is a deadline at all.
    pub const fn ends(&self) -> bool {
        self.deadline.is_some()
    }

    /// An error once the deadline has passed.
    pub fn ask(&self) -> Result<(), Late> {
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            self.late.set(true);
        }
        #[cfg(any(test, feature = "testing"))]
        match self.left.get() {
            Some(0) => self.late.set(true),
            left => self.left.set(left.map(|left| left - 1)),
        }
        self.ask_again()
    }

    /// As [`ask`](Self::ask), for work on so many samples more, or so many bytes: the clock is asked
    /// once in a million.
    pub fn worked(&self, samples: usize) -> Result<(), Late> {
        let done = self.done.get().saturating_add(samples);
        if done < SAMPLES {
            self.done.set(done);
            return self.ask_again();
        }
        self.done.set(0);
        self.ask()
    }

    /// The last answer, without a look at the clock: once it was no, any other error is only what came of it.
    pub fn ask_again(&self) -> Result<(), Late> {
        if self.late.get() { Err(Late) } else { Ok(()) }
    }

    /// As [`ask`](Self::ask), but where `seconds` of work that cannot be stopped lie ahead.
    pub fn ask_for(&self, seconds: f64) -> Result<(), Late> {
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.as_secs_f64() < seconds) {
            self.late.set(true);
        }
        self.ask()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::time::Duration;

    use super::*;

    fn late() -> Watch {
        Watch::until(Instant::now().checked_sub(Duration::from_secs(1)))
    }

    #[test]
    fn what_takes_longer_than_is_left_is_not_begun() {
        assert_eq!((late().ask(), late().ask_for(0.0)), (Err(Late), Err(Late)));
        let soon = Watch::until(Instant::now().checked_add(Duration::from_secs(100)));
        assert_eq!((soon.ask(), soon.ask_for(1.0)), (Ok(()), Ok(())));
        assert_eq!(soon.ask_for(1000.0), Err(Late));
        assert!(soon.ask_again().is_err() && soon.ask().is_err());
        assert_eq!(Watch::default().ask_for(f64::INFINITY), Ok(()));
    }

    #[test]
    fn the_clock_is_asked_once_in_a_million() {
        let watch = late();
        assert_eq!((watch.worked(1000), watch.worked(SAMPLES - 1001)), (Ok(()), Ok(())));
        assert_eq!(watch.worked(1), Err(Late));
        assert_eq!(Watch::default().worked(usize::MAX), Ok(()));
    }
}
