//! A protobuf buffer over a file. It seeks past skipped bytes and has a read budget.

use std::io::{Read, Seek, SeekFrom};

use prost::bytes::Buf;

/// Bytes read at a time.
const WINDOW: usize = 16 << 10;
/// Bytes that may be read (not skipped): names, shapes and nodes of the largest real models fit.
const READ_LIMIT: u64 = 512 << 20;
/// The most Protobuf items of a file: about one second of reading.
const STEP_LIMIT: u32 = 16 << 20;

/// Why a [`ForwardReader`] ended early.
#[derive(Debug)]
pub(super) enum ReadFault {
    Io(std::io::Error),
    TooLarge(&'static str),
}

/// A forward-only reader of known length.
pub(crate) trait ForwardRead: Read {
    /// How many there are, before any is read.
    fn length(&mut self) -> std::io::Result<u64>;

    /// Goes past `count` of them.
    fn skip(&mut self, count: u64) -> std::io::Result<()>;
}

impl<R: Read + Seek> ForwardRead for R {
    fn length(&mut self) -> std::io::Result<u64> {
        let length = self.seek(SeekFrom::End(0))?;
        self.rewind()?;
        Ok(length)
    }

    fn skip(&mut self, count: u64) -> std::io::Result<()> {
        self.seek_relative(i64::try_from(count).map_err(std::io::Error::other)?)
    }
}

/// The bytes of a model, read as they are needed.
pub(super) struct ForwardReader<R> {
    reader: R,
    window: Vec<u8>,
    start: usize,
    /// bytes not yet consumed, the window's included
    left: u64,
    read: u64,
    steps: u32,
    fault: Option<ReadFault>,
}

impl<R: ForwardRead> ForwardReader<R> {
    /// All of `reader`.
    pub(super) fn new(mut reader: R) -> std::io::Result<Self> {
        let left = reader.length()?;
        let mut source = Self { reader, window: Vec::new(), start: 0, left, read: 0, steps: 0, fault: None };
        source.refill();
        Ok(source)
    }

    /// The fault that ended reading early.
    pub(super) fn fault(&mut self) -> Option<ReadFault> {
        self.fault.take()
    }

    fn refill(&mut self) {
        let size = self.left.min(WINDOW as u64);
        self.read += size;
        if self.read > READ_LIMIT {
            self.fault = Some(ReadFault::TooLarge("its description is larger than 512 MiB"));
            return;
        }
        self.window.resize(size as usize, 0);
        self.start = 0;
        if let Err(error) = self.reader.read_exact(&mut self.window) {
            self.fault = Some(ReadFault::Io(error));
        }
    }
}

impl<R: ForwardRead> Buf for ForwardReader<R> {
    fn remaining(&self) -> usize {
        if self.fault.is_some() { 0 } else { usize::try_from(self.left).unwrap_or(usize::MAX) }
    }

    fn chunk(&self) -> &[u8] {
        if self.fault.is_some() { &[] } else { &self.window[self.start..] }
    }

    fn advance(&mut self, count: usize) {
        if self.fault.is_some() {
            return;
        }
        self.steps += 1;
        if self.steps > STEP_LIMIT {
            self.fault = Some(ReadFault::TooLarge("it has more than 16 million fields"));
            return;
        }
        let count = (count as u64).min(self.left);
        let buffered = (self.window.len() - self.start) as u64;
        self.left -= count;
        if count < buffered {
            self.start += count as usize;
            return;
        }
        if count > buffered
            && let Err(error) = self.reader.skip(count - buffered)
        {
            self.fault = Some(ReadFault::Io(error));
            return;
        }
        self.refill();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn seeks_past_skipped_bytes() {
        let bytes: Vec<u8> = (0..1_000_000_u32).map(|index| (index % 251) as u8).collect();
        let mut source = ForwardReader::new(std::io::Cursor::new(&bytes)).unwrap();
        assert_eq!(source.get_u8(), 0);
        source.advance(900_000);
        assert_eq!(source.get_u8(), bytes[900_001]);
        assert_eq!(source.remaining(), 1_000_000 - 900_002);
        assert!(source.read <= 2 * WINDOW as u64);
        source.advance(source.remaining());
        assert_eq!(source.remaining(), 0);
        assert!(source.chunk().is_empty());
    }
}
