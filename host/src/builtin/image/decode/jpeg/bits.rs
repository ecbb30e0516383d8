//! The bits of an entropy-coded segment, and the Huffman tables that they are read with.

use super::Stop;

/// Bits that a table answers at once; longer codes are searched.
const LOOK: u32 = 9;

/// Zero bytes behind the data, so that one block can be read past the end before it is noticed: 64
/// codes of 16 bits with 16 bits each are 256 bytes.
pub(super) const PADDING: usize = 512;

/// Bits, the most significant first.
#[derive(Clone, Copy)]
pub(super) struct Bits<'a> {
    data: &'a [u8],
    at: usize,
    end: usize,
    word: u64,
    count: u32,
}

impl<'a> Bits<'a> {
    /// Reads from `start` to `end`; `data` goes on for [`PADDING`] bytes.
    pub(super) fn new(data: &'a [u8], start: usize, end: usize) -> Self {
        Self { data, at: start, end, word: 0, count: 0 }
    }

    /// At least 32 bits to come.
    #[inline(always)]
    fn refill(&mut self) {
        if self.count < 32
            && let Some(next) = self.data.get(self.at..).and_then(|rest| rest.first_chunk::<8>())
        {
            self.word |= u64::from_be_bytes(*next) >> self.count;
            let bytes = (63 - self.count) >> 3;
            self.at += bytes as usize;
            self.count += bytes * 8;
        }
    }

    #[inline(always)]
    fn peek(&self, bits: u32) -> usize {
        (self.word >> (64 - bits)) as usize
    }

    #[inline(always)]
    fn skip(&mut self, bits: u32) {
        self.word <<= bits;
        self.count = self.count.saturating_sub(bits);
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

    /// A difference or coefficient of this many bits: those that begin with 0 are negative.
    #[inline(always)]
    pub(super) fn signed(&mut self, bits: u32) -> i32 {
        extend(self.take(bits), bits)
    }

    /// An error once more bits were read than there are.
    #[inline(always)]
    pub(super) fn check(&self) -> Result<(), Stop> {
        if self.at * 8 - self.count as usize > self.end * 8 {
            return Err(Stop::damaged("a scan ends before its last block"));
        }
        Ok(())
    }
}

#[inline(always)]
fn extend(value: i32, bits: u32) -> i32 {
    if bits > 0 && value < 1 << (bits - 1) { value + 1 - (1 << bits) } else { value }
}

/// A Huffman table.
pub(super) struct Huffman {
    /// length of the code and its symbol; 0 for codes of more than `LOOK` bits
    short: [u16; 1 << LOOK],
    /// a coefficient, the zeros before it and all bits of both; 0 where they do not fit
    whole: [i32; 1 << LOOK],
    /// the code behind the last one of each length, in 16 bits
    beyond: [u32; 17],
    /// from a code of each length to its symbol
    offset: [i32; 17],
    symbols: Vec<u8>,
}

impl Huffman {
    /// A table as a file writes it: how many codes each length of 1 to 16 bits has, then the symbols.
    pub(super) fn new(counts: &[u8; 16], symbols: &[u8]) -> Result<Self, Stop> {
        let mut table = Self {
            short: [0; 1 << LOOK],
            whole: [0; 1 << LOOK],
            beyond: [0; 17],
            offset: [0; 17],
            symbols: symbols.to_vec(),
        };
        let (mut code, mut index) = (0_u32, 0);
        for length in 1..=16_u32 {
            let count = u32::from(counts[length as usize - 1]);
            table.offset[length as usize] = index as i32 - code as i32;
            if code + count > 1 << length {
                return Err(Stop::damaged("a Huffman table has more codes than fit"));
            }
            if length <= LOOK {
                for nth in 0..count {
                    let entry = (length as u16) << 8 | u16::from(symbols[index + nth as usize]);
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

    /// Prepares [`coefficient`](Self::coefficient).
    pub(super) fn for_coefficients(mut self) -> Self {
        for (bits, (whole, short)) in self.whole.iter_mut().zip(self.short).enumerate() {
            let (length, zeros, size) = (u32::from(short >> 8), i32::from(short >> 4 & 15), u32::from(short & 15));
            if length > 0 && size > 0 && length + size <= LOOK {
                let value = bits as i32 >> (LOOK - length - size) & ((1 << size) - 1);
                *whole = extend(value, size) << 16 | zeros << 8 | (length + size) as i32;
            }
        }
        self
    }

    #[inline(always)]
    pub(super) fn symbol(&self, bits: &mut Bits<'_>) -> Result<u8, Stop> {
        bits.refill();
        let short = self.short[bits.peek(LOOK)];
        if short != 0 {
            bits.skip(u32::from(short >> 8));
            return Ok(short as u8);
        }
        let (symbol, length) = self.long(bits.peek(16) as u32)?;
        bits.skip(length);
        Ok(symbol)
    }

    /// A symbol of more than `LOOK` bits and how many there are.
    #[inline(never)]
    fn long(&self, next: u32) -> Result<(u8, u32), Stop> {
        for length in LOOK + 1..=16 {
            if next < self.beyond[length as usize] {
                let index = (next >> (16 - length)) as i32 + self.offset[length as usize];
                return self.symbols.get(index as usize).map(|symbol| (*symbol, length)).ok_or_else(no_code);
            }
        }
        Err(no_code())
    }

    /// The next coefficient of a block: zeros before it and its value, with the end of the block as
    /// 0 zeros before a 0.
    #[inline(always)]
    pub(super) fn coefficient(&self, bits: &mut Bits<'_>) -> Result<(usize, i32), Stop> {
        bits.refill();
        let whole = self.whole[bits.peek(LOOK)];
        if whole != 0 {
            bits.skip(whole as u32 & 0xff);
            return Ok(((whole >> 8 & 15) as usize, whole >> 16));
        }
        let symbol = self.symbol(bits)?;
        let value = bits.signed(u32::from(symbol & 15));
        Ok((usize::from(symbol >> 4), value))
    }
}

fn no_code() -> Stop {
    Stop::damaged("a scan holds bits that are no code")
}
