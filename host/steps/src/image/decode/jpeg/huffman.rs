//! The Huffman tables of a file, and what is looked up in them: a code at a time, or two coefficients.

use super::Stop;
use super::bits::Bits;

/// Bits that a table answers at once; longer codes are searched.
const LOOK: u32 = 10;

/// A code and what it stands for. From the lowest byte on: its bits with those of the number behind it;
/// its bits alone; 63 less those of the number; the zeros before it.
#[derive(Clone, Copy)]
pub(super) struct Code(u32);

impl Code {
    /// No code.
    const NONE: Self = Self(0);
    /// As many zeros as no block has, before the end of one.
    pub(super) const END: usize = 128;

    fn new(symbol: u8, length: u32) -> Self {
        let (zeros, size) = (u32::from(symbol >> 4), u32::from(symbol & 15));
        let end = if size == 0 && zeros < 15 { Self::END as u32 } else { 0 };
        Self((zeros | end) << 24 | (63 - size) << 16 | length << 8 | (length + size))
    }

    /// Zeros before the number; from [`END`](Self::END) on, the block ends.
    #[inline(always)]
    pub(super) fn zeros(self) -> usize {
        (self.0 >> 24) as usize
    }

    /// Whether a number follows.
    #[inline(always)]
    pub(super) fn has_number(self) -> bool {
        self.0 >> 16 & 63 < 63
    }

    /// Bits of the code and the number, at most 31.
    #[inline(always)]
    fn bits(self) -> u32 {
        self.0 & 0xff
    }

    /// Skips the code, which is the next one in `bits`, with the number behind it; gives that, or 0.
    #[inline(always)]
    pub(super) fn number(self, bits: &mut Bits<'_>) -> i32 {
        let number = bits.number(self.0 >> 8, self.0 >> 16);
        bits.skip(self.0);
        number
    }
}

/// One or two coefficients, either of which may be the end of the block instead. From the lowest byte
/// on: their bits; zeros before the first one, as a signed number; how far away the second one is; what
/// comes behind both; then both, 0 for an end and where there is no second one.
#[derive(Clone, Copy)]
pub(super) struct Pair(u64);

impl Pair {
    /// Too many zeros for any block.
    const NONE: Self = Self(127 << 8);

    fn new(code: Code, first: i16, other: Option<(Code, i16)>) -> Self {
        let zeros = code.zeros();
        let (bits, far, next, second) = match other {
            Some((other, second)) => {
                let far = zeros + 1 + other.zeros();
                (code.bits() + other.bits(), far, far + 1, second)
            }
            // A zero is written over a zero.
            None => (code.bits(), zeros + 1, zeros + 1, 0),
        };
        let ([a, b], [c, d]) = (first.to_le_bytes(), second.to_le_bytes());
        Self(u64::from_le_bytes([bits as u8, zeros as u8, far as u8, next as u8, a, b, c, d]))
    }

    /// Zeros before the first one. Many where there is none; negative where the block ends, by 256 less
    /// than they would be.
    #[inline(always)]
    pub(super) fn zeros(self) -> isize {
        (self.0 >> 8) as i8 as isize
    }

    /// How far away the second one is.
    #[inline(always)]
    pub(super) fn far(self) -> usize {
        (self.0 >> 16 & 0xff) as usize
    }

    /// How far away it is what comes behind both.
    #[inline(always)]
    pub(super) fn next(self) -> usize {
        (self.0 >> 24 & 0xff) as usize
    }

    #[inline(always)]
    pub(super) fn first(self) -> i16 {
        (self.0 >> 32) as i16
    }

    #[inline(always)]
    pub(super) fn second(self) -> i16 {
        (self.0 >> 48) as i16
    }

    #[inline(always)]
    pub(super) fn skip(self, bits: &mut Bits<'_>) {
        bits.skip(self.0 as u32);
    }
}

/// The pairs that a table finds.
pub(super) struct Pairs(Box<[Pair; 1 << LOOK]>);

impl Pairs {
    /// What comes next in `bits`, which is not skipped.
    #[inline(always)]
    pub(super) fn next(&self, bits: &Bits<'_>) -> Pair {
        self.0[bits.peek(LOOK)]
    }
}

/// A Huffman table.
pub(super) struct Huffman {
    /// what bits begin with; nothing where that is a code of more than `LOOK` bits
    short: Box<[Code; 1 << LOOK]>,
    /// the code behind the last one of each length, in 16 bits
    beyond: [u32; 17],
    /// from a code of each length to its symbol
    offset: [i32; 17],
    symbols: Vec<u8>,
}

impl Huffman {
    /// A table as a file writes it: how many codes each length of 1 to 16 bits has, then the symbols.
    pub(super) fn new(counts: &[u8; 16], symbols: &[u8]) -> Result<Self, Stop> {
        let short = Box::new([Code::NONE; 1 << LOOK]);
        let mut table = Self { short, beyond: [0; 17], offset: [0; 17], symbols: symbols.to_vec() };
        let (mut code, mut index) = (0_u32, 0);
        for length in 1..=16_u32 {
            let count = u32::from(counts[length as usize - 1]);
            table.offset[length as usize] = index as i32 - code as i32;
            if code + count > 1 << length {
                return Err(Stop::damaged("a Huffman table has more codes than fit"));
            }
            if length <= LOOK {
                for nth in 0..count {
                    let entry = Code::new(symbols[index + nth as usize], length);
                    let first = ((code + nth) << (LOOK - length)) as usize;
                    table.short[first..first + (1 << (LOOK - length))].fill(entry);
                }
            }
            index += count as usize;
            code += count;
            table.beyond[length as usize] = code << (16 - length);
            code <<= 1;
        }
        Ok(table)
    }

    /// The pairs of this table; none for so few blocks that to find them takes longer than they save.
    pub(super) fn pairs(&self, blocks: usize) -> Pairs {
        // The pictures of tests are small, and some are to have them.
        const WORTH_IT: usize = if cfg!(test) { 20 } else { 500 };
        let mut pairs = Box::new([Pair::NONE; 1 << LOOK]);
        if blocks < WORTH_IT {
            return Pairs(pairs);
        }
        for (bits, pair) in pairs.iter_mut().enumerate() {
            let Some((code, first)) = self.whole(bits, LOOK) else { continue };
            let (used, ends) = (code.bits(), code.zeros() >= Code::END);
            let other = if ends { None } else { self.whole(bits << used & ((1 << LOOK) - 1), LOOK - used) };
            *pair = Pair::new(code, first, other);
        }
        Pairs(pairs)
    }

    /// The code and the number that these `LOOK` bits begin with, where both lie in the first `most`.
    fn whole(&self, bits: usize, most: u32) -> Option<(Code, i16)> {
        let code = self.short[bits];
        let found = code.0 != 0 && code.bits() <= most;
        found.then(|| (code, code.number(&mut Bits::of(bits, LOOK)) as i16))
    }

    /// The next code, which is not skipped.
    #[inline(always)]
    pub(super) fn code(&self, bits: &Bits<'_>) -> Result<Code, Stop> {
        let short = self.short[bits.peek(LOOK)];
        if short.0 == 0 { self.long(bits.peek(16) as u32) } else { Ok(short) }
    }

    /// The next code, skipped; what follows it is not.
    #[inline(always)]
    pub(super) fn alone(&self, bits: &mut Bits<'_>) -> Result<Code, Stop> {
        bits.refill();
        let code = self.code(bits)?;
        bits.skip(code.0 >> 8);
        Ok(code)
    }

    /// A code of more than `LOOK` bits.
    #[inline(never)]
    fn long(&self, next: u32) -> Result<Code, Stop> {
        for length in LOOK + 1..=16 {
            if next < self.beyond[length as usize] {
                let index = (next >> (16 - length)) as i32 + self.offset[length as usize];
                return self.symbols.get(index as usize).map(|symbol| Code::new(*symbol, length)).ok_or_else(no_code);
            }
        }
        Err(no_code())
    }
}

pub(super) fn no_code() -> Stop {
    Stop::damaged("a scan holds bits that are no code")
}
