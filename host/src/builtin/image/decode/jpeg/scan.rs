//! The coefficients of blocks, as sequential and progressive scans hold them.

use super::Stop;
use super::bits::{Bits, Huffman, PADDING};
use super::head::marker;
use super::idct::Block;

/// Where the coefficient of each place in a scan lies in its block.
#[rustfmt::skip]
pub(super) const ZIGZAG: [u8; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21,
    28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54,
    47, 55, 62, 63,
];

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

/// A whole block; `quantized` are the steps, in the order of the scan. `block` is zero before. Tells
/// whether there is more than the mean.
#[inline(always)]
pub(super) fn sequential(
    source: &mut Bits<'_>,
    [dc, ac]: [&Huffman; 2],
    mean: &mut i32,
    steps: &[i16; 64],
    block: &mut Block,
) -> Result<bool, Stop> {
    // A copy, so that it can lie in registers.
    let mut bits = *source;
    *mean = mean.wrapping_add(difference(&mut bits, dc)?);
    let block = block.as_flattened_mut();
    block[0] = (*mean as i16).wrapping_mul(steps[0]);
    let (mut at, mut detailed) = (1, true);
    while at < 64 {
        let (zeros, value) = ac.coefficient(&mut bits)?;
        if value == 0 && zeros < 15 {
            detailed = at > 1;
            break;
        }
        at += zeros;
        if value != 0 {
            let (Some(place), Some(step)) = (ZIGZAG.get(at), steps.get(at)) else { return Err(too_many()) };
            block[usize::from(*place) & 63] = (value as i16).wrapping_mul(*step);
        }
        at += 1;
    }
    *source = bits;
    bits.check()?;
    Ok(detailed)
}

#[inline(always)]
fn difference(bits: &mut Bits<'_>, dc: &Huffman) -> Result<i32, Stop> {
    let size = dc.symbol(bits)?;
    if size > 15 {
        return Err(Stop::damaged("a scan holds bits that are no code"));
    }
    Ok(bits.signed(u32::from(size)))
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
        let (zeros, size) = split(ac.symbol(bits)?);
        if size > 0 {
            at += zeros as usize;
            let value = bits.signed(size);
            let place = ZIGZAG.get(at).ok_or_else(too_many)?;
            block[usize::from(*place) & 63] = (value << band.low) as i16;
        } else if zeros < 15 {
            *run = (1 << zeros) - 1 + bits.take(zeros) as u32;
            break;
        } else {
            at += 15;
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
        let (mut zeros, size) = split(ac.symbol(bits)?);
        let mut new = 0;
        if size > 0 {
            new = if bits.flag() { bit } else { -bit };
        } else if zeros < 15 {
            *run = (1 << zeros) + bits.take(zeros) as u32;
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

/// How many zeros, and how many bits.
fn split(symbol: u8) -> (u32, u32) {
    (u32::from(symbol >> 4), u32::from(symbol & 15))
}

fn too_many() -> Stop {
    Stop::damaged("a block holds more than 64 coefficients")
}
