//! The transform without vectors.

/// Eight rows of eight.
type Block = [[i16; 8]; 8];

/// Fractional bits of the constants.
pub(super) const CONST_BITS: u32 = 13;
/// Fractional bits kept between the two passes.
pub(super) const PASS1_BITS: u32 = 2;

/// The samples of a block, two rows in each of four arrays.
#[inline(always)]
pub(super) fn transform(coefficients: &[i16; 64], quantization: &[i16; 64]) -> [[u8; 16]; 4] {
    let mut block = [[0; 8]; 8];
    for ((to, coefficient), step) in block.as_flattened_mut().iter_mut().zip(coefficients).zip(quantization) {
        *to = coefficient.wrapping_mul(*step);
    }
    let across = transpose(&transform_columns::<{ CONST_BITS - PASS1_BITS }>(&block));
    let down = transpose(&transform_columns::<{ CONST_BITS + PASS1_BITS + 3 }>(&across));
    let mut samples = [[0; 16]; 4];
    for (to, from) in samples.as_flattened_mut().iter_mut().zip(down.as_flattened()) {
        *to = ((*from).clamp(-128, 127) + 128) as u8;
    }
    samples
}

/// Every sample of a block that has only a DC coefficient.
#[inline(always)]
pub(super) fn dc_sample(dc: i16) -> u8 {
    let scaled = i32::from(dc) << PASS1_BITS;
    (((scaled + (1 << (PASS1_BITS + 2))) >> (PASS1_BITS + 3)).clamp(-128, 127) + 128) as u8
}

/// Interleaves whole rows three times, which compiles to vectors.
#[inline(always)]
fn transpose(block: &Block) -> Block {
    let [a, b, c, d, e, f, g, h] = *block;
    let ([a, e], [b, f], [c, g], [d, h]) = (interleave(a, e), interleave(b, f), interleave(c, g), interleave(d, h));
    // a and e now hold rows 0 and 4, and so on.
    let ([a, c], [e, g], [b, d], [f, h]) = (interleave(a, c), interleave(e, g), interleave(b, d), interleave(f, h));
    let ([a, b], [c, d], [e, f], [g, h]) = (interleave(a, b), interleave(c, d), interleave(e, f), interleave(g, h));
    [a, b, c, d, e, f, g, h]
}

/// Alternates the values of two rows.
#[inline(always)]
fn interleave(first: [i16; 8], second: [i16; 8]) -> [[i16; 8]; 2] {
    let [a, b, c, d, e, f, g, h] = first;
    let [i, j, k, l, m, n, o, p] = second;
    [[a, i, b, j, c, k, d, l], [e, m, f, n, g, o, h, p]]
}

/// Transforms every column.
#[inline(always)]
fn transform_columns<const SHIFT: u32>(block: &Block) -> Block {
    let mut done = [[0_i16; 8]; 8];
    for lane in 0..8 {
        let at = |row: usize| block[row][lane];
        let times = |value: i16, factor: i16| i32::from(value) * i32::from(factor);

        let two = times(at(2), 4433) + times(at(6), -10704);
        let three = times(at(2), 10703) + times(at(6), 4433);
        let zero = i32::from(at(0).wrapping_add(at(4))) << CONST_BITS;
        let one = i32::from(at(0).wrapping_sub(at(4))) << CONST_BITS;
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
            done[row][lane] = saturate(even.wrapping_add(odd) >> SHIFT);
            done[7 - row][lane] = saturate(even.wrapping_sub(odd) >> SHIFT);
        }
    }
    done
}

#[inline(always)]
fn saturate(value: i32) -> i16 {
    value.clamp(i32::from(i16::MIN), i32::from(i16::MAX)) as i16
}
