//! The transform in vectors: each row of eight coefficients is one.

use fearless_simd::{
    Bytes, SimdBase, SimdCombine, SimdIntWiden, SimdNarrow, SimdSplit, SimdWiden, i16x8, i16x16, i32x8, u8x16, u32x4,
};

use super::scalar::{CONST_BITS, PASS1_BITS};
use crate::simd::Wide;

type Rows = [i16x8<Wide>; 8];

/// The samples of a block, two rows in each of four arrays.
#[inline(always)]
pub(super) fn transform(wide: Wide, coefficients: &[i16; 64], quantization: &[i16; 64]) -> [[u8; 16]; 4] {
    let rows = dequantize(wide, coefficients, quantization);
    let across = transpose(transform_columns::<{ CONST_BITS - PASS1_BITS }>(wide, rows));
    columns_to_samples(wide, transform_columns::<{ CONST_BITS + PASS1_BITS + 3 }>(wide, across))
}

/// [`transform`] for a block that is zero outside its first four rows and columns.
#[inline(always)]
pub(super) fn transform_corner(wide: Wide, coefficients: &[i16; 64], quantization: &[i16; 64]) -> [[u8; 16]; 4] {
    let rows = dequantize(wide, coefficients, quantization);
    let [a, b, c, d, e, f, g, h] = transform_upper_rows::<{ CONST_BITS - PASS1_BITS }>(wide, rows);
    // The left halves of eight rows become four whole rows.
    let (even, odd) = (interleave(a.zip_low(e), c.zip_low(g)), interleave(b.zip_low(f), d.zip_low(h)));
    let ((a, b), (c, d)) = (interleave(even.0, odd.0), interleave(even.1, odd.1));
    columns_to_samples(wide, transform_upper_rows::<{ CONST_BITS + PASS1_BITS + 3 }>(wide, [a, b, c, d]))
}

/// The first `N` rows of coefficients, dequantized.
#[inline(always)]
fn dequantize<const N: usize>(wide: Wide, coefficients: &[i16; 64], quantization: &[i16; 64]) -> [i16x8<Wide>; N] {
    let mut rows = [i16x8::splat(wide, 0); N];
    let factors = quantization.as_chunks().0;
    for ((row, coefficients), factors) in rows.iter_mut().zip(coefficients.as_chunks().0).zip(factors) {
        *row = i16x8::load_array_ref(wide, coefficients) * i16x8::load_array_ref(wide, factors);
    }
    rows
}

/// Transforms every column.
#[inline(always)]
fn transform_columns<const SHIFT: u32>(wide: Wide, [a, b, c, d, e, f, g, h]: Rows) -> Rows {
    let rotated = pairs(c, g);
    let (two, three) = (dot(wide, rotated, 4433, -10704), dot(wide, rotated, 10703, 4433));
    let round = i32x8::splat(wide, 1 << (SHIFT - 1));
    let (zero, one) = (widen(a + e) + round, widen(a - e) + round);

    let sums = pairs(h + d, f + b);
    let (z3, z4) = (dot(wide, sums, -6436, 9633), dot(wide, sums, 9633, 6437));
    let (outer, inner) = (pairs(b, h), pairs(d, f));
    let (a, h) = butterfly::<SHIFT>(zero + three, dot(wide, outer, 4926, -7373) + z4);
    let (b, g) = butterfly::<SHIFT>(one + two, dot(wide, inner, 4177, -20995) + z3);
    let (c, f) = butterfly::<SHIFT>(one - two, dot(wide, inner, -20995, -4176) + z4);
    let (d, e) = butterfly::<SHIFT>(zero - three, dot(wide, outer, -7373, -4927) + z3);
    [a, b, c, d, e, f, g, h]
}

/// [`transform_columns`] where the last four rows are zero: sums of products become products.
#[inline(always)]
fn transform_upper_rows<const SHIFT: u32>(wide: Wide, [a, b, c, d]: [i16x8<Wide>; 4]) -> Rows {
    let rotated = pairs(c, c);
    let (two, three) = (dot(wide, rotated, 4433, 0), dot(wide, rotated, 10703, 0));
    let zero = widen(a) + i32x8::splat(wide, 1 << (SHIFT - 1));
    let sums = pairs(d, b);
    let (a, h) = butterfly::<SHIFT>(zero + three, dot(wide, sums, 9633, 6437 + 4926));
    let (b, g) = butterfly::<SHIFT>(zero + two, dot(wide, sums, 4177 - 6436, 9633));
    let (c, f) = butterfly::<SHIFT>(zero - two, dot(wide, sums, 9633 - 20995, 6437));
    let (d, e) = butterfly::<SHIFT>(zero - three, dot(wide, sums, -6436, 9633 - 7373));
    [a, b, c, d, e, f, g, h]
}

/// `first` times the first value of each pair plus `second` times the second.
#[inline(always)]
fn dot(wide: Wide, pairs: i16x16<Wide>, first: i16, second: i16) -> i32x8<Wide> {
    let both = i32::from(first) & 0xffff | i32::from(second) << 16;
    pairs.pairwise_dot_product(i32x8::splat(wide, both).bitcast::<i16x16<Wide>>())
}

/// The sum and the difference, scaled: a row of the upper half and its mirror in the lower half.
#[inline(always)]
fn butterfly<const SHIFT: u32>(even: i32x8<Wide>, odd: i32x8<Wide>) -> (i16x8<Wide>, i16x8<Wide>) {
    ((even + odd) >> SHIFT).saturating_narrow((even - odd) >> SHIFT).split()
}

/// Alternates the values of two rows, in one vector.
#[inline(always)]
fn pairs(first: i16x8<Wide>, second: i16x8<Wide>) -> i16x16<Wide> {
    first.zip_low(second).combine(first.zip_high(second))
}

/// Widens to 32 bits with [`CONST_BITS`] fractional bits.
#[inline(always)]
fn widen(row: i16x8<Wide>) -> i32x8<Wide> {
    let (low, high) = row.widen();
    low.combine(high) << CONST_BITS
}

#[inline(always)]
fn transpose([a, b, c, d, e, f, g, h]: Rows) -> Rows {
    let ((a, e), (b, f), (c, g), (d, h)) = (interleave(a, e), interleave(b, f), interleave(c, g), interleave(d, h));
    let ((a, c), (e, g), (b, d), (f, h)) = (interleave(a, c), interleave(e, g), interleave(b, d), interleave(f, h));
    let ((a, b), (c, d), (e, f), (g, h)) = (interleave(a, b), interleave(c, d), interleave(e, f), interleave(g, h));
    [a, b, c, d, e, f, g, h]
}

/// Transposes columns of values around 0 to rows of samples.
#[inline(always)]
fn columns_to_samples(wide: Wide, [a, b, c, d, e, f, g, h]: Rows) -> [[u8; 16]; 4] {
    // Interleaves four columns: first every other one, then all.
    let (even, odd) = interleave(saturate(wide, a, b), saturate(wide, c, d));
    let (upper_left, lower_left) = interleave(even, odd);
    let (even, odd) = interleave(saturate(wide, e, f), saturate(wide, g, h));
    let (upper_right, lower_right) = interleave(even, odd);
    let [a, b] = join_halves(upper_left, upper_right);
    let [c, d] = join_halves(lower_left, lower_right);
    [a, b, c, d]
}

/// Saturates two columns of values around 0 to samples.
#[inline(always)]
fn saturate(wide: Wide, first: i16x8<Wide>, second: i16x8<Wide>) -> u8x16<Wide> {
    first.saturating_narrow(second).bitcast::<u8x16<Wide>>() ^ u8x16::splat(wide, 0x80)
}

/// Joins the halves of rows, which are four samples each.
#[inline(always)]
fn join_halves(left: u8x16<Wide>, right: u8x16<Wide>) -> [[u8; 16]; 2] {
    let (upper, lower) = interleave(left.bitcast::<u32x4<Wide>>(), right.bitcast::<u32x4<Wide>>());
    [upper.bitcast::<u8x16<Wide>>().to_array(), lower.bitcast::<u8x16<Wide>>().to_array()]
}

/// Alternates the values of two rows.
#[inline(always)]
fn interleave<V: SimdBase<Wide>>(first: V, second: V) -> (V, V) {
    (first.zip_low(second), first.zip_high(second))
}
