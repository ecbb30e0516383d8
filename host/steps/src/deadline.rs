//! Deadline checks in native work that takes long: by elements, by bytes read, and by the known throughput of work
//! that cannot be stopped.

use std::io::{self, BufRead, Read, Seek, SeekFrom};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

pub(crate) use gpux_core::{Deadline, DeadlineExceeded};

/// Elements between two calls of [`Deadline::check_after`], where a call for each few would cost as much as the work.
pub(crate) const ELEMENTS_PER_CHECK: usize = 1 << 16;

/// Rows of `width` elements between two checks: at least one.
pub(crate) fn rows_per_check(width: usize) -> usize {
    (ELEMENTS_PER_CHECK / width.max(1)).max(1)
}

/// The best observed throughput of work that cannot be stopped. Work that would miss its deadline at that throughput
/// is not begun.
#[derive(Debug)]
pub(crate) struct Throughput {
    /// nanoseconds for 1024 bytes; 0 before the first run
    best: AtomicU64,
    /// lower bound of `best`, since some inputs are easy
    floor: u64,
}

impl Throughput {
    /// `floor`: nanoseconds for 1024 bytes, at least.
    pub(crate) const fn new(floor: u64) -> Self {
        Self { best: AtomicU64::new(0), floor }
    }

    /// Runs work on this many bytes, unless it would miss the deadline.
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
        // A late run may have been preempted: do not record it.
        deadline.check()?;
        let taken = ((start.elapsed().as_nanos() as f64 / kib) as u64).max(1);
        if best == 0 || taken < best {
            self.best.store(taken, Ordering::Relaxed);
        }
        Ok(done)
    }
}

/// A reader that checks the deadline before each piece. A decoder turns a piece into at most some megabytes.
pub(crate) struct DeadlineReader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// the end of the piece before which the deadline was checked
    checked: usize,
    piece: usize,
    deadline: &'a Deadline,
}

impl<'a> DeadlineReader<'a> {
    pub(crate) fn new(bytes: &'a [u8], piece: usize, deadline: &'a Deadline) -> Self {
        Self { bytes, at: 0, checked: 0, piece: piece.max(1), deadline }
    }
}

impl BufRead for DeadlineReader<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at >= self.checked {
            self.deadline.check()?;
            self.checked = self.at.saturating_add(self.piece);
        }
        Ok(self.bytes.get(self.at..self.checked.min(self.bytes.len())).unwrap_or_default())
    }

    fn consume(&mut self, amount: usize) {
        self.at = self.at.saturating_add(amount);
    }
}

impl Read for DeadlineReader<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let piece = self.fill_buf()?;
        let length = piece.len().min(to.len());
        to[..length].copy_from_slice(&piece[..length]);
        self.consume(length);
        Ok(length)
    }
}

impl Seek for DeadlineReader<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(at) => i128::from(at),
            SeekFrom::Current(by) => self.at as i128 + i128::from(by),
            SeekFrom::End(by) => self.bytes.len() as i128 + i128::from(by),
        };
        self.at = usize::try_from(target).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        // Bytes read again are checked again.
        self.checked = self.at;
        Ok(self.at as u64)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn reader_stops_at_the_deadline() {
        let bytes: Vec<u8> = (0..=255).collect();
        let deadline = Deadline::default();
        let mut reader = DeadlineReader::new(&bytes, 100, &deadline);
        assert_eq!(reader.fill_buf().unwrap().len(), 100);
        reader.seek(SeekFrom::End(-6)).unwrap();
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, bytes[250..]);
        reader.seek(SeekFrom::Start(1000)).unwrap();
        assert!(reader.fill_buf().unwrap().is_empty());
        assert!(reader.seek(SeekFrom::Current(-1001)).is_err());

        // The current piece stays readable; the next one is an error.
        let deadline = Deadline::exceeded_after(1);
        let mut reader = DeadlineReader::new(&bytes, 100, &deadline);
        assert_eq!(reader.read(&mut [0; 10]).unwrap(), 10);
        assert_eq!(reader.read(&mut [0; 200]).unwrap(), 90);
        assert_eq!(reader.read(&mut [0; 200]).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(deadline.check_cached().is_err());
    }

    #[test]
    fn throughput_is_learned() {
        let (throughput, hour) = (Throughput::new(1), Duration::from_hours(1));
        let left = |left: Duration| Deadline::at(Instant::now().checked_add(left));
        assert_eq!(throughput.run(1 << 20, &left(hour), || 7), Ok(7));
        let learnt = throughput.best.load(Ordering::Relaxed);
        assert!(learnt > 0);
        // Slower work does not lower the measured speed, and an hour is too little for this many bytes.
        throughput.best.store(1_000_000_000, Ordering::Relaxed);
        assert_eq!(throughput.run(4000 << 10, &left(hour), || 7), Err(DeadlineExceeded));
        assert_eq!(throughput.run(4000 << 10, &Deadline::default(), || 7), Ok(7));
        assert_eq!(throughput.run(1000, &left(hour), || 7), Ok(7));
        assert_eq!(Throughput::new(u64::MAX).run(1 << 20, &left(hour), || 7), Err(DeadlineExceeded));
    }
}
