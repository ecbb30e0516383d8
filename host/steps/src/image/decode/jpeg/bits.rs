//! The bits of an entropy-coded segment.

use super::Stop;

/// Zero bytes behind the data, so that one block can be read past the end before it is noticed: 64
/// codes of 16 bits with 16 bits each are 256 bytes.
pub(super) const PADDING: usize = 512;

/// Bits, the most significant first.
#[derive(Clone, Copy)]
pub(super) struct Bits<'a> {
    /// bytes that are not in `word` yet, at least not all of their bits
    rest: &'a [u8],
    /// how many of them do not belong to the segment
    beyond: usize,
    word: u64,
    count: u32,
}

impl<'a> Bits<'a> {
    /// Reads from `start` to `end`; `data` goes on for [`PADDING`] bytes.
    pub(super) fn new(data: &'a [u8], start: usize, end: usize) -> Self {
        let rest = data.get(start..).unwrap_or_default();
        Self { rest, beyond: data.len().saturating_sub(end), word: 0, count: 0 }
    }

    /// The lowest `count` bits of `bits` and nothing else.
    pub(super) fn of(bits: usize, count: u32) -> Self {
        Self { rest: &[], beyond: 0, word: (bits as u64) << (64 - count), count }
    }

    /// At least 56 bits to come. Whether they are needed is not asked: a processor guesses the answer
    /// wrong every few coefficients, which costs more than to do it.
    #[inline(always)]
    pub(super) fn refill(&mut self) {
        if let Some(next) = self.rest.first_chunk::<8>() {
            self.word |= u64::from_be_bytes(*next).wrapping_shr(self.count);
            self.rest = &self.rest[(!self.count >> 3 & 7) as usize..];
            self.count |= 0x38;
        }
    }

    #[inline(always)]
    pub(super) fn peek(&self, bits: u32) -> usize {
        (self.word >> (64 - bits)) as usize
    }

    /// Skips as many bits, fewer than 64, as the lowest byte of `bits` says.
    #[inline(always)]
    pub(super) fn skip(&mut self, bits: u32) {
        self.word = self.word.wrapping_shl(bits);
        self.count = self.count.wrapping_sub(bits & 0xff);
    }

    /// The number behind the next `code` bits. It has 63 less `short` bits; those that begin with 0 are
    /// negative. Of both, the lowest six bits count.
    #[inline(always)]
    pub(super) fn number(&self, code: u32, short: u32) -> i32 {
        let bits = self.word.wrapping_shl(code);
        // All bits of a negative one are inverted.
        let negative = !(bits.cast_signed() >> 63);
        let size = ((bits ^ negative.cast_unsigned()) >> 1).wrapping_shr(short).cast_signed();
        ((size ^ negative) - negative) as i32
    }

    /// The next `bits`, at most 16, as a number.
    #[inline(always)]
    pub(super) fn take(&mut self, bits: u32) -> i32 {
        if bits == 0 {
            return 0;
        }
        self.refill();
        let value = self.peek(bits) as i32;
        self.skip(bits);
        value
    }

    /// The next bit.
    #[inline(always)]
    pub(super) fn flag(&mut self) -> bool {
        self.take(1) == 1
    }

    /// An error once more bits were read than there are.
    #[inline(always)]
    pub(super) fn check(&self) -> Result<(), Stop> {
        if self.rest.len() * 8 + (self.count as usize) < self.beyond * 8 {
            return Err(Stop::damaged("a scan ends before its last block"));
        }
        Ok(())
    }
}
