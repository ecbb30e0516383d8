//! Long native work that ends with the request's time: how much is done between two looks at the clock, and a
//! reader that asks it for whoever reads.

use std::io::{self, BufRead, Read, Seek, SeekFrom};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

pub(crate) use gpux_core::{Deadline, DeadlineExceeded};

/// Elements between two calls of [`Deadline::check_after`], where a call for each few would cost as much as the work.
pub(crate) const BLOCK: usize = 1 << 16;

/// Rows of so many elements that make a block: at least one.
pub(crate) fn rows_of_block(width: usize) -> usize {
    (BLOCK / width.max(1)).max(1)
}

/// How long work takes that cannot be stopped, as far as is known: at the best pace that was seen.
/// What cannot end in time at that pace is not begun.
#[derive(Debug)]
pub(crate) struct Pace {
    /// nanoseconds for 1024 bytes
    best: AtomicU64,
    /// below this, it is the input that was easy
    floor: u64,
}

impl Pace {
    /// Of work that takes at least so many nanoseconds for 1024 bytes.
    pub(crate) const fn of(floor: u64) -> Self {
        Self { best: AtomicU64::new(0), floor }
    }

    /// Does the work on so many bytes, unless it would end too late.
    pub(crate) fn run<T>(
        &self,
        bytes: usize,
        deadline: &Deadline,
        work: impl FnOnce() -> T,
    ) -> Result<T, DeadlineExceeded> {
        const WORTH_TIMING: usize = 1 << 14;
        if !deadline.is_set() || bytes < WORTH_TIMING {
            deadline.check()?;
            return Ok(work());
        }
        let kib = bytes as f64 / 1024.0;
        let best = self.best.load(Ordering::Relaxed);
        deadline.check_time_for(kib * best.max(self.floor) as f64 * 1e-9)?;
        let start = Instant::now();
        let done = work();
        // Who is late may have been held back since.
        deadline.check()?;
        let taken = ((start.elapsed().as_nanos() as f64 / kib) as u64).max(1);
        if best == 0 || taken < best {
            self.best.store(taken, Ordering::Relaxed);
        }
        Ok(done)
    }
}

/// Bytes handed out in small pieces, each after a look at the clock. A piece is what a decoder turns
/// into at most some megabytes.
pub(crate) struct Paced<'a> {
    bytes: &'a [u8],
    at: usize,
    /// up to where the clock was asked
    asked: usize,
    piece: usize,
    deadline: &'a Deadline,
}

impl<'a> Paced<'a> {
    pub(crate) fn new(bytes: &'a [u8], piece: usize, deadline: &'a Deadline) -> Self {
        Self { bytes, at: 0, asked: 0, piece: piece.max(1), deadline }
    }
}

impl BufRead for Paced<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at >= self.asked {
            self.deadline.check()?;
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

    #[test]
    fn pieces_end_with_the_time() {
        let bytes: Vec<u8> = (0..=255).collect();
        let deadline = Deadline::default();
        let mut reader = Paced::new(&bytes, 100, &deadline);
        assert_eq!(reader.fill_buf().unwrap().len(), 100);
        reader.seek(SeekFrom::End(-6)).unwrap();
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, bytes[250..]);
        reader.seek(SeekFrom::Start(1000)).unwrap();
        assert!(reader.fill_buf().unwrap().is_empty());
        assert!(reader.seek(SeekFrom::Current(-1001)).is_err());

        // What was handed out before stays readable; the next piece does not come.
        let deadline = Deadline::exceeded_after(1);
        let mut reader = Paced::new(&bytes, 100, &deadline);
        assert_eq!(reader.read(&mut [0; 10]).unwrap(), 10);
        assert_eq!(reader.read(&mut [0; 200]).unwrap(), 90);
        assert_eq!(reader.read(&mut [0; 200]).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(deadline.check_cached().is_err());
    }

    #[test]
    fn a_pace_is_learnt() {
        let (pace, hour) = (Pace::of(1), Duration::from_hours(1));
        let left = |left: Duration| Deadline::at(Instant::now().checked_add(left));
        assert_eq!(pace.run(1 << 20, &left(hour), || 7), Ok(7));
        let learnt = pace.best.load(Ordering::Relaxed);
        assert!(learnt > 0);
        // Slower work changes nothing, and an hour is too little for so much of it.
        pace.best.store(1_000_000_000, Ordering::Relaxed);
        assert_eq!(pace.run(4000 << 10, &left(hour), || 7), Err(DeadlineExceeded));
        assert_eq!(pace.run(4000 << 10, &Deadline::default(), || 7), Ok(7));
        assert_eq!(pace.run(1000, &left(hour), || 7), Ok(7));
        assert_eq!(Pace::of(u64::MAX).run(1 << 20, &left(hour), || 7), Err(DeadlineExceeded));
    }
}
