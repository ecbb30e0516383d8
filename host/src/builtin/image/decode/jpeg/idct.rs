//! From the coefficients of a block to its samples: the accurate integer transform of libjpeg
//! (`jidctint`, after Loeffler, Ligtenberg and Moschytz), in the 16 bits that libjpeg-turbo's vector
//! code computes in.

/// Eight rows of eight.
pub(super) type Block = [[i16; 8]; 8];

/// Bits after the point of the constants.
const POINT: u32 = 13;
/// Bits after the point that are kept between the two passes.
const KEPT: u32 = 2;

/// Samples of the block, 0 to 255, a row after the other.
#[inline(always)]
pub(super) fn samples(coefficients: &Block) -> [[u8; 8]; 8] {
    let across = transposed(&pass::<{ POINT - KEPT }>(coefficients));
    let down = pass::<{ POINT + KEPT + 3 }>(&across);
    level(&transposed(&down))
}

/// The value of every sample of a block that has nothing but its mean.
#[inline(always)]
pub(super) fn flat(mean: i16) -> u8 {
    let kept = i32::from(mean) << KEPT;
    (((kept + (1 << (KEPT + 2))) >> (KEPT + 3)).clamp(-128, 127) + 128) as u8
}

#[inline(always)]
fn level(block: &Block) -> [[u8; 8]; 8] {
    let mut samples = [[0; 8]; 8];
    for (to, from) in samples.as_flattened_mut().iter_mut().zip(block.as_flattened()) {
        *to = ((*from).clamp(-128, 127) + 128) as u8;
    }
    samples
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
