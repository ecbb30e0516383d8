//! The coefficients of a block, decoded from sequential and progressive scans.

use crate::bit_reader::BitReader;
use crate::error::Error;
use crate::huffman::{Code, HuffmanTable, PairTable, invalid_code};
use crate::zigzag::ZIGZAG;

/// [`ZIGZAG`], and for runs beyond the block an index behind it.
const PADDED_ZIGZAG: [u8; 256] = {
    let (mut indices, mut at) = ([64; 256], 0);
    while at < 64 {
        indices[at] = ZIGZAG[at];
        at += 1;
    }
    indices
};

/// The coefficients and the bits of each that a scan holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpectralBand {
    /// first and last coefficient
    pub(crate) first: usize,
    pub(crate) last: usize,
    /// whether an earlier scan held the higher bits
    pub(crate) is_refinement: bool,
    /// the lowest bit held
    pub(crate) low_bit: u32,
}

impl SpectralBand {
    /// The band of a sequential scan.
    pub(crate) const WHOLE: Self = Self { first: 0, last: 63, is_refinement: false, low_bit: 0 };

    /// The band of a progressive scan, from its header; `None` if it is invalid.
    pub(crate) fn new(first: u8, last: u8, bits: u8) -> Option<Self> {
        let (high, low) = (bits >> 4, bits & 15);
        let fits =
            first <= last && last < 64 && (first > 0 || last == 0) && low <= 13 && (high == 0 || high == low + 1);
        let band = Self { first: first.into(), last: last.into(), is_refinement: high > 0, low_bit: low.into() };
        fits.then_some(band)
    }
}

/// A block, and behind it padding that takes what [`PADDED_ZIGZAG`] sends beyond the block.
pub(crate) type PaddedBlock = [[i16; 64]; 4];

/// Decodes a whole block into `padded`, whose block holds zeros. Returns the number of coefficients before the
/// end of the block.
#[inline(always)]
pub(crate) fn decode_sequential(
    source: &mut BitReader<'_>,
    [dc, ac]: [&HuffmanTable; 2],
    pairs: &PairTable,
    dc_predictor: &mut i32,
    padded: &mut PaddedBlock,
) -> Result<usize, Error> {
    // A copy stays in registers.
    let mut bits = *source;
    *dc_predictor = dc_predictor.wrapping_add(read_dc_difference(&mut bits, dc)?);

    let block = padded.as_flattened_mut();
    block[0] = *dc_predictor as i16;
    let (mut at, mut last) = (1, 0);
    'refill: while at < 64 {
        bits.refill();
        // A refill is enough for two pairs and any code.
        for _ in 0..3 {
            let pair = pairs.peek(&bits);
            if at as isize + pair.run() >= 63 {
                // There is no pair, or its second code belongs to the next block.
                let code = ac.peek_code(&bits)?;
                at += code.run();
                last = code.read_value(&mut bits) as i16;
                block[usize::from(PADDED_ZIGZAG[at & 255])] = last;
                at += 1;
                continue 'refill;
            }
            pair.skip(&mut bits);
            last = pair.second();
            block[usize::from(PADDED_ZIGZAG[at.wrapping_add_signed(pair.run()) & 255])] = pair.first();
            block[usize::from(PADDED_ZIGZAG[(at + pair.second_offset()) & 255])] = last;
            at += pair.length();
            if at >= 64 {
                break;
            }
        }
    }

    if at > 64 && at <= Code::END_OF_BLOCK && last != 0 {
        return Err(too_many_coefficients());
    }
    *source = bits;
    bits.check_overrun()?;
    Ok(if at > Code::END_OF_BLOCK { at - Code::END_OF_BLOCK - 1 } else { 64 })
}

#[inline(always)]
fn read_dc_difference(bits: &mut BitReader<'_>, dc: &HuffmanTable) -> Result<i32, Error> {
    bits.refill();
    let code = dc.peek_code(bits)?;
    if code.run() % Code::END_OF_BLOCK > 0 {
        return Err(invalid_code());
    }
    Ok(code.read_value(bits))
}

/// Decodes the DC coefficient; without a table, its next bit.
pub(crate) fn decode_dc(
    bits: &mut BitReader<'_>,
    dc: Option<&HuffmanTable>,
    predictor: &mut i32,
    band: SpectralBand,
    block: &mut [i16; 64],
) -> Result<(), Error> {
    match dc {
        Some(dc) => {
            *predictor = predictor.wrapping_add(read_dc_difference(bits, dc)?);
            block[0] = (*predictor << band.low_bit) as i16;
        }
        None => block[0] |= i16::from(bits.read_bit()) << band.low_bit,
    }
    bits.check_overrun()
}

/// Decodes the first bits of AC coefficients. `end_of_band_run` counts the next blocks without any.
pub(crate) fn decode_ac_first(
    bits: &mut BitReader<'_>,
    ac: &HuffmanTable,
    end_of_band_run: &mut u32,
    band: SpectralBand,
    block: &mut [i16; 64],
) -> Result<(), Error> {
    if *end_of_band_run > 0 {
        *end_of_band_run -= 1;
        return Ok(());
    }
    let mut at = band.first;
    while at <= band.last {
        bits.refill();
        let code = ac.peek_code(bits)?;
        let value = code.read_value(bits);
        if code.run() >= Code::END_OF_BLOCK {
            let size = (code.run() - Code::END_OF_BLOCK) as u32;
            *end_of_band_run = (1 << size) - 1 + bits.read(size) as u32;
            break;
        }
        at += code.run();
        if value != 0 {
            let index = ZIGZAG.get(at).ok_or_else(too_many_coefficients)?;
            block[usize::from(*index) & 63] = (value << band.low_bit) as i16;
        }
        at += 1;
    }
    bits.check_overrun()
}

/// Decodes one more bit of AC coefficients.
pub(crate) fn decode_ac_refinement(
    bits: &mut BitReader<'_>,
    ac: &HuffmanTable,
    end_of_band_run: &mut u32,
    band: SpectralBand,
    block: &mut [i16; 64],
) -> Result<(), Error> {
    let bit = 1_i16 << band.low_bit;
    let mut at = band.first;
    while *end_of_band_run == 0 && at <= band.last {
        let code = ac.read_code(bits)?;
        let (mut run, mut new) = (code.run(), 0);
        if code.has_value() {
            new = if bits.read_bit() { bit } else { -bit };
        } else if run >= Code::END_OF_BLOCK {
            let size = (run - Code::END_OF_BLOCK) as u32;
            *end_of_band_run = (1 << size) + bits.read(size) as u32;
            break;
        }
        while at <= band.last {
            let value = &mut block[usize::from(ZIGZAG[at]) & 63];
            if *value != 0 {
                refine_coefficient(bits, value, bit);
            } else if run == 0 {
                *value = new;
                break;
            } else {
                run -= 1;
            }
            at += 1;
        }
        at += 1;
    }
    if *end_of_band_run > 0 {
        for index in &ZIGZAG[at.min(band.last + 1)..=band.last] {
            let value = &mut block[usize::from(*index) & 63];
            if *value != 0 {
                refine_coefficient(bits, value, bit);
            }
        }
        *end_of_band_run -= 1;
    }
    bits.check_overrun()
}

fn refine_coefficient(bits: &mut BitReader<'_>, value: &mut i16, bit: i16) {
    if bits.read_bit() && *value & bit == 0 {
        *value = value.wrapping_add(if *value < 0 { -bit } else { bit });
    }
}

fn too_many_coefficients() -> Error {
    Error::damaged("a block holds more than 64 coefficients")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::bit_reader::PADDING;
    use crate::tests::random;

    fn table(lengths: [u8; 16], symbols: &[u8]) -> HuffmanTable {
        HuffmanTable::new(&lengths, symbols).unwrap()
    }

    /// Random bits hold every code, ends of blocks in every position, and blocks that are too long.
    #[test]
    fn pairs_and_single_codes_agree() {
        let mut random = random();
        let dc = table([0, 2, 3, 1, 1, 1, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15]);
        let (mut whole, mut too_long) = (0, 0);
        for round in 0..60 {
            // Codes of 2 to 15 bits; the end, runs of zeros and large values among the short or the long codes.
            let mut symbols = vec![0x00, 0xf0, 0x0f, 0x10, 0x23, 0xff];
            symbols.resize_with(30, || random(256) as u8);
            symbols.rotate_left(round % 6);
            let ac = table([0, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 4, 0], &symbols);
            let data: Vec<u8> = (0..4000).map(|_| random(256) as u8).chain([0; PADDING]).collect();
            let run = |pairs: &PairTable| {
                let mut bits = BitReader::new(&data, 0, data.len() - PADDING);
                let (mut predictor, mut blocks) = (0, Vec::new());
                loop {
                    let mut padded = [[0; 64]; 4];
                    match decode_sequential(&mut bits, [&dc, &ac], pairs, &mut predictor, &mut padded) {
                        Ok(count) => blocks.push((padded[0], count)),
                        Err(error) => return (blocks, error.to_string()),
                    }
                }
            };
            let single = run(&ac.pair_table(0));
            assert_eq!(run(&ac.pair_table(usize::MAX)), single);
            whole += single.0.len();
            too_long += usize::from(single.1.contains("more than 64"));
        }
        assert!(whole > 500 && too_long > 5, "{whole} blocks, {too_long} too long");
    }
}
