//! Huffman tables: lookup of one code, or of two coefficients at once.

use crate::bit_reader::BitReader;
use crate::error::Error;

/// Bits of a lookup; longer codes are searched.
const LOOKUP_BITS: u32 = 10;

/// A code and its symbol. Bytes from the lowest: bits of the code and the value behind it; bits of the code;
/// 63 less the bits of the value; the run of zeros before the value.
#[derive(Clone, Copy)]
pub(crate) struct Code(u32);

impl Code {
    const NONE: Self = Self(0);
    /// The run that stands for the end of the block.
    pub(crate) const END_OF_BLOCK: usize = 128;

    fn new(symbol: u8, length: u32) -> Self {
        let (run, size) = (u32::from(symbol >> 4), u32::from(symbol & 15));
        let end = if size == 0 && run < 15 { Self::END_OF_BLOCK as u32 } else { 0 };
        Self((run | end) << 24 | (63 - size) << 16 | length << 8 | (length + size))
    }

    /// Zeros before the value; from [`END_OF_BLOCK`](Self::END_OF_BLOCK) on, the block ends.
    #[inline(always)]
    pub(crate) fn run(self) -> usize {
        (self.0 >> 24) as usize
    }

    #[inline(always)]
    pub(crate) fn has_value(self) -> bool {
        self.0 >> 16 & 63 < 63
    }

    /// Bits of the code and the value, at most 31.
    #[inline(always)]
    fn bits(self) -> u32 {
        self.0 & 0xff
    }

    /// Skips this code, which `bits` must have next, and the value behind it; returns the value, or 0.
    #[inline(always)]
    pub(crate) fn read_value(self, bits: &mut BitReader<'_>) -> i32 {
        let value = bits.peek_value(self.0 >> 8, self.0 >> 16);
        bits.skip(self.0);
        value
    }
}

/// One or two coefficients, either of which may be the end of the block instead. Bytes from the lowest: bits of
/// both; the run of zeros before the first, signed; the offset of the second; the offset behind both; then the
/// two values of 16 bits, 0 for an end of the block and for a missing second one.
#[derive(Clone, Copy)]
pub(crate) struct CodePair(u64);

impl CodePair {
    /// A run too long for any block.
    const NONE: Self = Self(127 << 8);

    fn new(code: Code, first: i16, other: Option<(Code, i16)>) -> Self {
        let run = code.run();
        let (bits, offset, length, second) = match other {
            Some((other, second)) => {
                let offset = run + 1 + other.run();
                (code.bits() + other.bits(), offset, offset + 1, second)
            }
            // Writes a zero over a zero.
            None => (code.bits(), run + 1, run + 1, 0),
        };
        let ([a, b], [c, d]) = (first.to_le_bytes(), second.to_le_bytes());
        Self(u64::from_le_bytes([bits as u8, run as u8, offset as u8, length as u8, a, b, c, d]))
    }

    /// Zeros before the first coefficient. 127 where there is none; negative (less 256) where the block ends.
    #[inline(always)]
    pub(crate) fn run(self) -> isize {
        (self.0 >> 8) as i8 as isize
    }

    /// The offset of the second coefficient.
    #[inline(always)]
    pub(crate) fn second_offset(self) -> usize {
        (self.0 >> 16 & 0xff) as usize
    }

    /// The offset behind both.
    #[inline(always)]
    pub(crate) fn length(self) -> usize {
        (self.0 >> 24 & 0xff) as usize
    }

    #[inline(always)]
    pub(crate) fn first(self) -> i16 {
        (self.0 >> 32) as i16
    }

    #[inline(always)]
    pub(crate) fn second(self) -> i16 {
        (self.0 >> 48) as i16
    }

    #[inline(always)]
    pub(crate) fn skip(self, bits: &mut BitReader<'_>) {
        bits.skip(self.0 as u32);
    }
}

/// The coefficients that the next [`LOOKUP_BITS`] bits hold.
pub(crate) struct PairTable(Box<[CodePair; 1 << LOOKUP_BITS]>);

impl PairTable {
    /// The next coefficients, without skipping them.
    #[inline(always)]
    pub(crate) fn peek(&self, bits: &BitReader<'_>) -> CodePair {
        self.0[bits.peek(LOOKUP_BITS)]
    }
}

pub(crate) struct HuffmanTable {
    /// the code that bits begin with; `NONE` where it has more than `LOOKUP_BITS` bits
    lookup: Box<[Code; 1 << LOOKUP_BITS]>,
    /// the code behind the last one of each length, in 16 bits
    limits: [u32; 17],
    /// from a code of each length to the index of its symbol
    offsets: [i32; 17],
    symbols: Vec<u8>,
}

impl HuffmanTable {
    /// Builds a table from the number of codes of each length, 1 to 16 bits, and the symbols.
    pub(crate) fn new(counts: &[u8; 16], symbols: &[u8]) -> Result<Self, Error> {
        let lookup = Box::new([Code::NONE; 1 << LOOKUP_BITS]);
        let mut table = Self { lookup, limits: [0; 17], offsets: [0; 17], symbols: symbols.to_vec() };
        let (mut code, mut index) = (0_u32, 0);
        for length in 1..=16_u32 {
            let count = u32::from(counts[length as usize - 1]);
            table.offsets[length as usize] = index as i32 - code as i32;
            if code + count > 1 << length {
                return Err(Error::damaged("a Huffman table has more codes than fit"));
            }
            if length <= LOOKUP_BITS {
                for nth in 0..count {
                    let entry = Code::new(symbols[index + nth as usize], length);
                    let first = ((code + nth) << (LOOKUP_BITS - length)) as usize;
                    table.lookup[first..first + (1 << (LOOKUP_BITS - length))].fill(entry);
                }
            }
            index += count as usize;
            code += count;
            table.limits[length as usize] = code << (16 - length);
            code <<= 1;
        }
        Ok(table)
    }

    /// The pairs of this table; an empty table for few blocks, where building it costs more than it saves.
    pub(crate) fn pair_table(&self, blocks: usize) -> PairTable {
        // Small, so that the small images of the tests cover both.
        const MIN_BLOCKS: usize = if cfg!(test) { 20 } else { 500 };
        let mut pairs = Box::new([CodePair::NONE; 1 << LOOKUP_BITS]);
        if blocks < MIN_BLOCKS {
            return PairTable(pairs);
        }
        for (bits, pair) in pairs.iter_mut().enumerate() {
            let Some((code, first)) = self.complete_code(bits, LOOKUP_BITS) else { continue };
            let (used, ends) = (code.bits(), code.run() >= Code::END_OF_BLOCK);
            let rest = bits << used & ((1 << LOOKUP_BITS) - 1);
            let other = if ends { None } else { self.complete_code(rest, LOOKUP_BITS - used) };
            *pair = CodePair::new(code, first, other);
        }
        PairTable(pairs)
    }

    /// The code and the value that `LOOKUP_BITS` bits begin with, if both lie within the first `limit`.
    fn complete_code(&self, bits: usize, limit: u32) -> Option<(Code, i16)> {
        let code = self.lookup[bits];
        let found = code.0 != 0 && code.bits() <= limit;
        found.then(|| (code, code.read_value(&mut BitReader::from_bits(bits, LOOKUP_BITS)) as i16))
    }

    /// The next code, without skipping it.
    #[inline(always)]
    pub(crate) fn peek_code(&self, bits: &BitReader<'_>) -> Result<Code, Error> {
        let code = self.lookup[bits.peek(LOOKUP_BITS)];
        if code.0 == 0 { self.find_long_code(bits.peek(16) as u32) } else { Ok(code) }
    }

    /// Reads the next code without the value behind it.
    #[inline(always)]
    pub(crate) fn read_code(&self, bits: &mut BitReader<'_>) -> Result<Code, Error> {
        bits.refill();
        let code = self.peek_code(bits)?;
        bits.skip(code.0 >> 8);
        Ok(code)
    }

    #[inline(never)]
    fn find_long_code(&self, next: u32) -> Result<Code, Error> {
        for length in LOOKUP_BITS + 1..=16 {
            if next < self.limits[length as usize] {
                let index = (next >> (16 - length)) as i32 + self.offsets[length as usize];
                let symbol = self.symbols.get(index as usize).ok_or_else(invalid_code)?;
                return Ok(Code::new(*symbol, length));
            }
        }
        Err(invalid_code())
    }
}

pub(crate) fn invalid_code() -> Error {
    Error::damaged("a scan holds bits that are no code")
}
