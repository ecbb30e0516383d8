//! The coefficients of blocks, as sequential and progressive scans hold them.

use super::Stop;
use super::bits::{Bits, PADDING};
use super::head::marker;
use super::huffman::{Code, Huffman, Pairs, no_code};

/// Where the coefficient of each place in a scan lies in its block.
#[rustfmt::skip]
pub(super) const ZIGZAG: [u8; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21,
    28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54,
    47, 55, 62, 63,
];

/// The same, and for what a block does not hold a place behind it.
const PLACES: [u8; 256] = {
    let (mut places, mut at) = ([64; 256], 0);
    while at < 64 {
        places[at] = ZIGZAG[at];
        at += 1;
    }
    places
};

/// The bytes of a scan without what hides markers, and where each of its parts ends.
pub(super) struct Coded {
    pub(super) data: Vec<u8>,
    pub(super) parts: Vec<usize>,
}

impl Coded {
    /// Reads from `at` to the first marker that does not belong to the scan; gives its place.
    pub(super) fn read(bytes: &[u8], mut at: usize) -> Result<(Self, usize), Stop> {
        let mut coded = Self { data: Vec::with_capacity(bytes.len() - at + PADDING), parts: Vec::new() };
        loop {
            let rest = &bytes[at..];
            let next = marker(rest).ok_or_else(Stop::cut)?;
            coded.data.extend_from_slice(&rest[..next]);
            at += next;
            match rest.get(next + 1).ok_or_else(Stop::cut)? {
                0 => {
                    coded.data.push(0xff);
                    at += 2;
                }
                0xff => at += 1,
                restart @ 0xd0..=0xd7 => {
                    if usize::from(restart & 7) != coded.parts.len() % 8 {
                        return Err(Stop::damaged("the parts of a scan are out of order"));
                    }
                    coded.parts.push(coded.data.len());
                    at += 2;
                }
                _ => break,
            }
        }
        coded.parts.push(coded.data.len());
        coded.data.extend([0; PADDING]);
        Ok((coded, at))
    }

    /// The bits of a part.
    pub(super) fn part(&self, part: usize) -> Result<Bits<'_>, Stop> {
        let end = *self.parts.get(part).ok_or_else(|| Stop::damaged("a scan ends before its last block"))?;
        let start = part.checked_sub(1).map_or(0, |before| self.parts[before]);
        Ok(Bits::new(&self.data, start, end))
    }
}

/// What a progressive scan holds of each coefficient.
#[derive(Clone, Copy, Debug)]
pub(super) struct Band {
    /// first and last coefficient
    pub(super) first: usize,
    pub(super) last: usize,
    /// whether bits were sent before
    pub(super) refines: bool,
    /// the lowest bit sent
    pub(super) low: u32,
}

impl Band {
    /// What a sequential scan holds.
    pub(super) const WHOLE: Self = Self { first: 0, last: 63, refines: false, low: 0 };

    /// As the head of a progressive scan says it; nothing if it cannot be.
    pub(super) fn new(first: u8, last: u8, bits: u8) -> Option<Self> {
        let (high, low) = (bits >> 4, bits & 15);
        let fits =
            first <= last && last < 64 && (first > 0 || last == 0) && low <= 13 && (high == 0 || high == low + 1);
        let band = Self { first: first.into(), last: last.into(), refines: high > 0, low: low.into() };
        fits.then_some(band)
    }
}

/// A block, and behind it room for what it does not hold.
pub(super) type Room = [[i16; 64]; 4];

/// A whole block, as it is quantized. `room` holds zeros before. Gives how many coefficients come before
/// the end.
#[inline(always)]
pub(super) fn sequential(
    source: &mut Bits<'_>,
    [dc, ac]: [&Huffman; 2],
    pairs: &Pairs,
    mean: &mut i32,
    room: &mut Room,
) -> Result<usize, Stop> {
    // A copy, so that it can lie in registers.
    let mut bits = *source;
    *mean = mean.wrapping_add(difference(&mut bits, dc)?);
    let block = room.as_flattened_mut();
    block[0] = *mean as i16;
    let (mut at, mut last) = (1, 0);
    'bits: while at < 64 {
        bits.refill();
        // Enough for two pairs and any code.
        for _ in 0..3 {
            let pair = pairs.next(&bits);
            if at as isize + pair.zeros() >= 63 {
                // There is none, or what lies behind the first one belongs to the next block.
                let code = ac.code(&bits)?;
                at += code.zeros();
                last = code.number(&mut bits) as i16;
                block[usize::from(PLACES[at & 255])] = last;
                at += 1;
                continue 'bits;
            }
            pair.skip(&mut bits);
            last = pair.second();
            block[usize::from(PLACES[at.wrapping_add_signed(pair.zeros()) & 255])] = pair.first();
            block[usize::from(PLACES[(at + pair.far()) & 255])] = last;
            at += pair.next();
            if at >= 64 {
                break;
            }
        }
    }
    if at > 64 && at <= Code::END && last != 0 {
        return Err(too_many());
    }
    *source = bits;
    bits.check()?;
    Ok(if at > Code::END { at - Code::END - 1 } else { 64 })
}

#[inline(always)]
fn difference(bits: &mut Bits<'_>, dc: &Huffman) -> Result<i32, Stop> {
    bits.refill();
    let code = dc.code(bits)?;
    if code.zeros() % Code::END > 0 {
        return Err(no_code());
    }
    Ok(code.number(bits))
}

/// The mean, or the next bit of it.
pub(super) fn mean(
    bits: &mut Bits<'_>,
    dc: Option<&Huffman>,
    mean: &mut i32,
    band: Band,
    block: &mut [i16; 64],
) -> Result<(), Stop> {
    match dc {
        Some(dc) => {
            *mean = mean.wrapping_add(difference(bits, dc)?);
            block[0] = (*mean << band.low) as i16;
        }
        None => block[0] |= i16::from(bits.flag()) << band.low,
    }
    bits.check()
}

/// The first bits of the other coefficients. `run` counts blocks to come that have none.
pub(super) fn first(
    bits: &mut Bits<'_>,
    ac: &Huffman,
    run: &mut u32,
    band: Band,
    block: &mut [i16; 64],
) -> Result<(), Stop> {
    if *run > 0 {
        *run -= 1;
        return Ok(());
    }
    let mut at = band.first;
    while at <= band.last {
        bits.refill();
        let code = ac.code(bits)?;
        let value = code.number(bits);
        if code.zeros() >= Code::END {
            let size = (code.zeros() - Code::END) as u32;
            *run = (1 << size) - 1 + bits.take(size) as u32;
            break;
        }
        at += code.zeros();
        if value != 0 {
            let place = ZIGZAG.get(at).ok_or_else(too_many)?;
            block[usize::from(*place) & 63] = (value << band.low) as i16;
        }
        at += 1;
    }
    bits.check()
}

/// One more bit of the other coefficients.
pub(super) fn refine(
    bits: &mut Bits<'_>,
    ac: &Huffman,
    run: &mut u32,
    band: Band,
    block: &mut [i16; 64],
) -> Result<(), Stop> {
    let bit = 1_i16 << band.low;
    let mut at = band.first;
    while *run == 0 && at <= band.last {
        let code = ac.alone(bits)?;
        let (mut zeros, mut new) = (code.zeros(), 0);
        if code.has_number() {
            new = if bits.flag() { bit } else { -bit };
        } else if zeros >= Code::END {
            let size = (zeros - Code::END) as u32;
            *run = (1 << size) + bits.take(size) as u32;
            break;
        }
        while at <= band.last {
            let value = &mut block[usize::from(ZIGZAG[at]) & 63];
            if *value != 0 {
                correct(bits, value, bit);
            } else if zeros == 0 {
                *value = new;
                break;
            } else {
                zeros -= 1;
            }
            at += 1;
        }
        at += 1;
    }
    if *run > 0 {
        for place in &ZIGZAG[at.min(band.last + 1)..=band.last] {
            let value = &mut block[usize::from(*place) & 63];
            if *value != 0 {
                correct(bits, value, bit);
            }
        }
        *run -= 1;
    }
    bits.check()
}

fn correct(bits: &mut Bits<'_>, value: &mut i16, bit: i16) {
    if bits.flag() && *value & bit == 0 {
        *value = value.wrapping_add(if *value < 0 { -bit } else { bit });
    }
}

fn too_many() -> Stop {
    Stop::damaged("a block holds more than 64 coefficients")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::reference::random;

    /// A table of `symbols` whose codes have these lengths, as few bits of each length as possible.
    fn table(lengths: [u8; 16], symbols: &[u8]) -> Huffman {
        Huffman::new(&lengths, symbols).unwrap_or_else(|_| unreachable!("a table that fits"))
    }

    /// Random bits hold every code, ends of blocks in every place, and blocks that are too long.
    #[test]
    fn pairs_are_what_single_codes_are() {
        let mut random = random();
        let dc = table([0, 2, 3, 1, 1, 1, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15]);
        let (mut ends, mut too_long) = (0, 0);
        for round in 0..60 {
            // Codes of 2 to 15 bits; the end, runs of zeros and large numbers among the short or the long ones.
            let mut symbols = vec![0x00, 0xf0, 0x0f, 0x10, 0x23, 0xff];
            symbols.resize_with(30, || random(256) as u8);
            symbols.rotate_left(round % 6);
            let ac = table([0, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 4, 0], &symbols);
            let data: Vec<u8> = (0..4000).map(|_| random(256) as u8).chain([0; PADDING]).collect();
            let run = |pairs: &Pairs| {
                let mut bits = Bits::new(&data, 0, data.len() - PADDING);
                let (mut mean, mut blocks) = (0, Vec::new());
                loop {
                    let mut room = [[0; 64]; 4];
                    match sequential(&mut bits, [&dc, &ac], pairs, &mut mean, &mut room) {
                        Ok(held) => blocks.push((room[0], held)),
                        Err(Stop::Damaged(why)) => return (blocks, why),
                        Err(Stop::DeadlineExceeded) => unreachable!("nothing looks at the clock"),
                    }
                }
            };
            let single = run(&ac.pairs(0));
            assert_eq!(run(&ac.pairs(usize::MAX)), single);
            ends += single.0.len();
            too_long += usize::from(single.1.contains("more than 64"));
        }
        assert!(ends > 500 && too_long > 5, "{ends} blocks, {too_long} too long");
    }
}
