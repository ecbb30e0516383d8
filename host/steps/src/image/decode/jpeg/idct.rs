//! From the coefficients of a block to its samples: the accurate integer transform of libjpeg
//! (`jidctint`, after Loeffler, Ligtenberg and Moschytz), in the 16 bits that libjpeg-turbo's vector
//! code computes in.

use super::vectors;
use crate::wide::Wide;

/// Eight rows of eight.
type Block = [[i16; 8]; 8];

/// Bits after the point of the constants.
pub(super) const POINT: u32 = 13;
/// Coefficients that lie within the first four rows and columns, in the order of the scans.
const CORNER: usize = 10;
/// Bits after the point that are kept between the two passes.
pub(super) const KEPT: u32 = 2;

/// Writes the samples of a block, 0 to 255, a row every `stride`. Of its coefficients, in the order of
/// the scans, only the first `held` are more than zeros.
#[inline(always)]
pub(super) fn write(
    wide: Option<Wide>,
    coefficients: &[i16; 64],
    steps: &[i16; 64],
    held: usize,
    samples: &mut [u8],
    stride: usize,
) {
    let rows = samples.chunks_mut(stride);
    if held <= 1 {
        let level = flat(coefficients[0].wrapping_mul(steps[0]));
        for row in rows.take(8) {
            row[..8].fill(level);
        }
        return;
    }
    let block = match wide {
        Some(wide) if held <= CORNER => vectors::corner(wide, coefficients, steps),
        Some(wide) => vectors::samples(wide, coefficients, steps),
        None => plain(coefficients, steps),
    };
    for (to, from) in rows.zip(block.as_flattened().as_chunks::<8>().0) {
        to[..8].copy_from_slice(from);
    }
}

/// Samples of the block, two rows in each of four, without vectors.
#[inline(always)]
fn plain(coefficients: &[i16; 64], steps: &[i16; 64]) -> [[u8; 16]; 4] {
    let mut block = [[0; 8]; 8];
    for ((to, coefficient), step) in block.as_flattened_mut().iter_mut().zip(coefficients).zip(steps) {
        *to = coefficient.wrapping_mul(*step);
    }
    let across = transposed(&pass::<{ POINT - KEPT }>(&block));
    let down = transposed(&pass::<{ POINT + KEPT + 3 }>(&across));
    let mut samples = [[0; 16]; 4];
    for (to, from) in samples.as_flattened_mut().iter_mut().zip(down.as_flattened()) {
        *to = ((*from).clamp(-128, 127) + 128) as u8;
    }
    samples
}

/// The value of every sample of a block that has nothing but its mean.
#[inline(always)]
fn flat(mean: i16) -> u8 {
    let kept = i32::from(mean) << KEPT;
    (((kept + (1 << (KEPT + 2))) >> (KEPT + 3)).clamp(-128, 127) + 128) as u8
}

/// Rows as columns, in steps of pairs, pairs of pairs, and halves, each on whole rows.
#[inline(always)]
fn transposed(block: &Block) -> Block {
    let [a, b, c, d, e, f, g, h] = *block;
    let ([a, e], [b, f], [c, g], [d, h]) = (riffled(a, e), riffled(b, f), riffled(c, g), riffled(d, h));
    // Now a, e hold rows 0 and 4, and so on.
    let ([a, c], [e, g], [b, d], [f, h]) = (riffled(a, c), riffled(e, g), riffled(b, d), riffled(f, h));
    let ([a, b], [c, d], [e, f], [g, h]) = (riffled(a, b), riffled(c, d), riffled(e, f), riffled(g, h));
    [a, b, c, d, e, f, g, h]
}

/// The values of two rows in turns.
#[inline(always)]
fn riffled(first: [i16; 8], second: [i16; 8]) -> [[i16; 8]; 2] {
    let [a, b, c, d, e, f, g, h] = first;
    let [i, j, k, l, m, n, o, p] = second;
    [[a, i, b, j, c, k, d, l], [e, m, f, n, g, o, h, p]]
}

/// The transform of every column.
#[inline(always)]
fn pass<const SHIFT: u32>(block: &Block) -> Block {
    let mut done = [[0_i16; 8]; 8];
    for lane in 0..8 {
        let at = |row: usize| block[row][lane];
        let times = |value: i16, factor: i16| i32::from(value) * i32::from(factor);

        let two = times(at(2), 4433) + times(at(6), -10704);
        let three = times(at(2), 10703) + times(at(6), 4433);
        let zero = i32::from(at(0).wrapping_add(at(4))) << POINT;
        let one = i32::from(at(0).wrapping_sub(at(4))) << POINT;
        let even = [zero + three, one + two, one - two, zero - three];

        let (third, fourth) = (at(7).wrapping_add(at(3)), at(5).wrapping_add(at(1)));
        let z3 = times(third, -6436) + times(fourth, 9633);
        let z4 = times(third, 9633) + times(fourth, 6437);
        let odd = [
            times(at(1), 4926) + times(at(7), -7373) + z4,
            times(at(3), 4177) + times(at(5), -20995) + z3,
            times(at(5), -4176) + times(at(3), -20995) + z4,
            times(at(7), -4927) + times(at(1), -7373) + z3,
        ];
        for row in 0..4 {
            let round = 1 << (SHIFT - 1);
            let (even, odd) = (even[row].wrapping_add(round), odd[row]);
            done[row][lane] = saturated(even.wrapping_add(odd) >> SHIFT);
            done[7 - row][lane] = saturated(even.wrapping_sub(odd) >> SHIFT);
        }
    }
    done
}

#[inline(always)]
fn saturated(value: i32) -> i16 {
    value.clamp(i32::from(i16::MIN), i32::from(i16::MAX)) as i16
}

#[cfg(test)]
mod tests {
    use super::super::scan::ZIGZAG;
    use super::*;
    use crate::reference::random;
    use crate::wide::wide;

    /// Ordinary blocks, and such as overflow everywhere.
    #[test]
    fn vectors_and_plain_numbers_agree() {
        let Some(wide) = wide() else { return };
        let mut random = random();
        for round in 0..4000 {
            let mut value = |most: usize| random(2 * most + 1) as i32 - most as i32;
            let most = [3, 60, 1024, 32767][round % 4];
            let coefficients = std::array::from_fn(|_| if value(4) > 1 { value(most) as i16 } else { 0 });
            let steps = std::array::from_fn(|_| if round % 8 < 4 { value(16) as i16 } else { value(32767) as i16 });
            let ours = vectors::samples(wide, &coefficients, &steps);
            assert_eq!(ours, plain(&coefficients, &steps), "{coefficients:?} times {steps:?}");
        }
    }

    #[test]
    fn a_corner_is_a_block() {
        let Some(wide) = wide() else { return };
        let mut random = random();
        for round in 0..4000 {
            let mut value = |most: usize| (random(2 * most + 1) as i32 - most as i32) as i16;
            let (mut coefficients, most) = ([0; 64], [3, 60, 1024, 32767][round % 4]);
            for place in &ZIGZAG[..CORNER] {
                coefficients[usize::from(*place)] = value(most);
            }
            let steps = std::array::from_fn(|_| value(if round % 8 < 4 { 16 } else { 32767 }));
            let corner = vectors::corner(wide, &coefficients, &steps);
            assert_eq!(corner, plain(&coefficients, &steps), "{coefficients:?} times {steps:?}");
        }
        assert!(ZIGZAG[..CORNER].iter().all(|place| place / 8 < 4 && place % 8 < 4));
    }

    #[test]
    fn a_mean_alone_is_flat() {
        for mean in i16::MIN..=i16::MAX {
            let (mut coefficients, mut steps) = ([0; 64], [0; 64]);
            (coefficients[0], steps[0]) = (mean, 1);
            assert_eq!(plain(&coefficients, &steps), [[flat(mean); 16]; 4], "{mean}");
        }
    }
}
