//! Reads the bits of entropy-coded data.

use crate::error::Error;

/// Zero bytes behind the data, so that reading a block needs one check at its end: 64 codes of 16 bits with
/// 16 bits each are 256 bytes.
pub(crate) const PADDING: usize = 512;

/// Reads bits, the most significant first.
#[derive(Clone, Copy)]
pub(crate) struct BitReader<'a> {
    /// bytes whose bits are not all in `word` yet
    rest: &'a [u8],
    /// how many of them lie behind the end
    excess: usize,
    word: u64,
    count: u32,
}

impl<'a> BitReader<'a> {
    /// Reads from `start` to `end`; `data` continues for [`PADDING`] bytes behind `end`.
    pub(crate) fn new(data: &'a [u8], start: usize, end: usize) -> Self {
        let rest = data.get(start..).unwrap_or_default();
        Self { rest, excess: data.len().saturating_sub(end), word: 0, count: 0 }
    }

    /// Reads only the lowest `count` bits of `bits`.
    pub(crate) fn from_bits(bits: usize, count: u32) -> Self {
        Self { rest: &[], excess: 0, word: (bits as u64) << (64 - count), count }
    }

    /// Loads at least 56 bits. Unconditional, because a mispredicted branch costs more than the load.
    #[inline(always)]
    pub(crate) fn refill(&mut self) {
        if let Some(next) = self.rest.first_chunk::<8>() {
            self.word |= u64::from_be_bytes(*next).wrapping_shr(self.count);
            self.rest = &self.rest[(!self.count >> 3 & 7) as usize..];
            self.count |= 0x38;
        }
    }

    #[inline(always)]
    pub(crate) fn peek(&self, bits: u32) -> usize {
        (self.word >> (64 - bits)) as usize
    }

    /// Skips as many bits, fewer than 64, as the lowest byte of `bits` says; ignores its other bytes.
    #[inline(always)]
    pub(crate) fn skip(&mut self, bits: u32) {
        self.word = self.word.wrapping_shl(bits);
        self.count = self.count.wrapping_sub(bits & 0xff);
    }

    /// The signed value behind the next `code` bits (EXTEND in the standard): `63 - unused` bits, negative where
    /// the first one is 0. Uses the lowest six bits of both arguments.
    #[inline(always)]
    pub(crate) fn peek_value(&self, code: u32, unused: u32) -> i32 {
        let bits = self.word.wrapping_shl(code);
        // Negative values are stored with all bits inverted.
        let negative = !(bits.cast_signed() >> 63);
        let size = ((bits ^ negative.cast_unsigned()) >> 1).wrapping_shr(unused).cast_signed();
        ((size ^ negative) - negative) as i32
    }

    /// Reads `bits` bits, at most 16.
    #[inline(always)]
    pub(crate) fn read(&mut self, bits: u32) -> i32 {
        if bits == 0 {
            return 0;
        }
        self.refill();
        let value = self.peek(bits) as i32;
        self.skip(bits);
        value
    }

    #[inline(always)]
    pub(crate) fn read_bit(&mut self) -> bool {
        self.read(1) == 1
    }

    /// An error if more bits were read than there are.
    #[inline(always)]
    pub(crate) fn check_overrun(&self) -> Result<(), Error> {
        if self.rest.len() * 8 + (self.count as usize) < self.excess * 8 {
            return Err(Error::damaged("a scan ends before its last block"));
        }
        Ok(())
    }
}
