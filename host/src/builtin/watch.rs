//! Long native work that ends with the request's time: a clock to ask now and then, and a reader that
//! asks it for whoever reads.

use std::cell::Cell;
use std::io::{self, BufRead, Read, Seek, SeekFrom};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::pipeline::{Context, GoesOn, StepFailure};

/// The request's time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request's timeout passed")]
pub(in crate::builtin) struct Late;

impl From<Late> for StepFailure {
    fn from(_: Late) -> Self {
        Self::Timeout
    }
}

/// For work whose errors are texts: [`Watch::was_late`] tells them apart.
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
pub(in crate::builtin) struct Watch {
    deadline: Option<Instant>,
    late: Cell<bool>,
    /// samples since the clock was asked
    done: Cell<usize>,
    /// how often it may still be asked
    #[cfg(test)]
    left: Cell<Option<usize>>,
}

/// Work that [`Tensor`](crate::pipeline::Tensor)'s own methods do in parts goes on as long as nobody is late.
impl GoesOn for Watch {
    fn goes_on(&self, elements: usize) -> bool {
        self.worked(elements).is_ok()
    }
}

/// Samples that are worked on between two looks at the clock: some milliseconds.
const SAMPLES: usize = 1 << 20;

impl Watch {
    pub(in crate::builtin) fn of(context: &Context) -> Self {
        Self { deadline: context.deadline, ..Self::default() }
    }

    /// An error once the deadline has passed.
    pub(in crate::builtin) fn ask(&self) -> Result<(), Late> {
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            self.late.set(true);
        }
        #[cfg(test)]
        match self.left.get() {
            Some(0) => self.late.set(true),
            left => self.left.set(left.map(|left| left - 1)),
        }
        if self.late.get() { Err(Late) } else { Ok(()) }
    }

    /// A clock that says no after so many times.
    #[cfg(test)]
    pub(in crate::builtin) fn after(times: usize) -> Self {
        Self { left: Cell::new(Some(times)), ..Self::default() }
    }

    /// As [`ask`](Self::ask), for work on so many samples more, or so many bytes: the clock is asked
    /// once in a million.
    pub(in crate::builtin) fn worked(&self, samples: usize) -> Result<(), Late> {
        let done = self.done.get().saturating_add(samples);
        if done < SAMPLES {
            self.done.set(done);
            return self.ask_again();
        }
        self.done.set(0);
        self.ask()
    }

    /// The last answer, without a look at the clock.
    pub(in crate::builtin) fn ask_again(&self) -> Result<(), Late> {
        if self.late.get() { Err(Late) } else { Ok(()) }
    }

    /// Whether an answer was that it is late: then any other error is only what came of it.
    pub(in crate::builtin) fn was_late(&self) -> bool {
        self.late.get()
    }

    /// As [`ask`](Self::ask), but where `seconds` of work that cannot be stopped lie ahead.
    pub(in crate::builtin) fn ask_for(&self, seconds: f64) -> Result<(), Late> {
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.as_secs_f64() < seconds) {
            self.late.set(true);
        }
        self.ask()
    }
}

/// How long work takes that cannot be stopped, as far as is known: at the best pace that was seen.
/// What cannot end in time at that pace is not begun.
#[derive(Debug)]
pub(in crate::builtin) struct Pace {
    /// nanoseconds for 1024 bytes
    best: AtomicU64,
    /// below this, it is the input that was easy
    floor: u64,
}

impl Pace {
    /// Of work that takes at least so many nanoseconds for 1024 bytes.
    pub(in crate::builtin) const fn of(floor: u64) -> Self {
        Self { best: AtomicU64::new(0), floor }
    }

    /// Does the work on so many bytes, unless it would end too late.
    pub(in crate::builtin) fn run<T>(&self, bytes: usize, watch: &Watch, work: impl FnOnce() -> T) -> Result<T, Late> {
        const WORTH_TIMING: usize = 1 << 14;
        if watch.deadline.is_none() || bytes < WORTH_TIMING {
            watch.ask()?;
            return Ok(work());
        }
        let kib = bytes as f64 / 1024.0;
        let best = self.best.load(Ordering::Relaxed);
        watch.ask_for(kib * best.max(self.floor) as f64 * 1e-9)?;
        let start = Instant::now();
        let done = work();
        let taken = ((start.elapsed().as_nanos() as f64 / kib) as u64).max(1);
        if best == 0 || taken < best {
            self.best.store(taken, Ordering::Relaxed);
        }
        Ok(done)
    }
}

/// Bytes handed out in small pieces, each after a look at the clock. A piece is what a decoder turns
/// into at most some megabytes.
pub(in crate::builtin) struct Paced<'a> {
    bytes: &'a [u8],
    at: usize,
    /// up to where the clock was asked
    asked: usize,
    piece: usize,
    watch: &'a Watch,
}

impl<'a> Paced<'a> {
    pub(in crate::builtin) fn new(bytes: &'a [u8], piece: usize, watch: &'a Watch) -> Self {
        Self { bytes, at: 0, asked: 0, piece: piece.max(1), watch }
    }
}

impl BufRead for Paced<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at >= self.asked {
            self.watch.ask()?;
            self.asked = self.at.saturating_add(self.piece);
        }
        Ok(self.bytes.get(self.at..self.asked.min(self.bytes.len())).unwrap_or_default())
    }

    fn consume(&mut self, amount: usize) {
        self.at = self.at.saturating_add(amount);
    }
}

impl Read for Paced<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let piece = self.fill_buf()?;
        let length = piece.len().min(to.len());
        to[..length].copy_from_slice(&piece[..length]);
        self.consume(length);
        Ok(length)
    }
}

impl Seek for Paced<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(at) => i128::from(at),
            SeekFrom::Current(by) => self.at as i128 + i128::from(by),
            SeekFrom::End(by) => self.bytes.len() as i128 + i128::from(by),
        };
        self.at = usize::try_from(target).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        // Whoever goes back reads again, and is asked again.
        self.asked = self.at;
        Ok(self.at as u64)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::time::Duration;

    use super::*;

    fn late() -> Watch {
        let deadline = Instant::now().checked_sub(Duration::from_secs(1));
        Watch { deadline, ..Watch::default() }
    }

    #[test]
    fn pieces_end_with_the_time() {
        let bytes: Vec<u8> = (0..=255).collect();
        let watch = Watch::default();
        let mut reader = Paced::new(&bytes, 100, &watch);
        assert_eq!(reader.fill_buf().unwrap().len(), 100);
        reader.seek(SeekFrom::End(-6)).unwrap();
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, bytes[250..]);
        reader.seek(SeekFrom::Start(1000)).unwrap();
        assert!(reader.fill_buf().unwrap().is_empty());
        assert!(reader.seek(SeekFrom::Current(-1001)).is_err());

        // What was handed out before stays readable; the next piece does not come.
        let watch = Watch::default();
        let mut reader = Paced::new(&bytes, 100, &watch);
        assert_eq!(reader.read(&mut [0; 10]).unwrap(), 10);
        watch.late.set(true);
        assert_eq!(reader.read(&mut [0; 200]).unwrap(), 90);
        assert_eq!(reader.read(&mut [0; 200]).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(watch.was_late());
    }

    #[test]
    fn what_takes_longer_than_is_left_is_not_begun() {
        assert_eq!((late().ask(), late().ask_for(0.0)), (Err(Late), Err(Late)));
        let soon = Watch { deadline: Instant::now().checked_add(Duration::from_secs(100)), ..Watch::default() };
        assert_eq!((soon.ask(), soon.ask_for(1.0)), (Ok(()), Ok(())));
        assert_eq!(soon.ask_for(1000.0), Err(Late));
        assert!(soon.was_late() && soon.ask().is_err());
        assert_eq!(Watch::default().ask_for(f64::INFINITY), Ok(()));
    }

    #[test]
    fn a_pace_is_learnt() {
        let (pace, hour) = (Pace::of(1), Duration::from_hours(1));
        let left = |left: Duration| Watch { deadline: Instant::now().checked_add(left), ..Watch::default() };
        assert_eq!(pace.run(1 << 20, &left(hour), || 7), Ok(7));
        let learnt = pace.best.load(Ordering::Relaxed);
        assert!(learnt > 0);
        // Slower work changes nothing, and an hour is too little for so much of it.
        pace.best.store(1_000_000_000, Ordering::Relaxed);
        assert_eq!(pace.run(4000 << 10, &left(hour), || 7), Err(Late));
        assert_eq!(pace.run(4000 << 10, &Watch::default(), || 7), Ok(7));
        assert_eq!(pace.run(1000, &left(hour), || 7), Ok(7));
        assert_eq!(Pace::of(u64::MAX).run(1 << 20, &left(hour), || 7), Err(Late));
    }

    #[test]
    fn the_clock_is_asked_once_in_a_million() {
        let watch = late();
        assert_eq!((watch.worked(1000), watch.worked(SAMPLES - 1001)), (Ok(()), Ok(())));
        assert_eq!(watch.worked(1), Err(Late));
        assert_eq!(Watch::default().worked(usize::MAX), Ok(()));
    }
}
