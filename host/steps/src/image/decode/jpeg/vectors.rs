//! The transform of [`idct`](super::idct) written in vectors: eight columns in one, each row a vector of
//! its own.

use fearless_simd::{
    Bytes, SimdBase, SimdCombine, SimdIntWiden, SimdNarrow, SimdSplit, SimdWiden, i16x8, i16x16, i32x8, u8x16, u32x4,
};

use super::idct::{KEPT, POINT};
use crate::wide::Wide;

type Rows = [i16x8<Wide>; 8];

/// Samples of a block, a row after the other, two rows in each vector.
#[inline(always)]
pub(super) fn samples(wide: Wide, coefficients: &[i16; 64], steps: &[i16; 64]) -> [[u8; 16]; 4] {
    let rows = multiplied(wide, coefficients, steps);
    let across = transposed(pass::<{ POINT - KEPT }>(wide, rows));
    levels(wide, pass::<{ POINT + KEPT + 3 }>(wide, across))
}

/// The same of a block that holds nothing outside the first four rows and columns.
#[inline(always)]
pub(super) fn corner(wide: Wide, coefficients: &[i16; 64], steps: &[i16; 64]) -> [[u8; 16]; 4] {
    let rows = multiplied(wide, coefficients, steps);
    let [a, b, c, d, e, f, g, h] = half_pass::<{ POINT - KEPT }>(wide, rows);
    // The left halves of eight rows become four whole ones.
    let (even, odd) = (riffled(a.zip_low(e), c.zip_low(g)), riffled(b.zip_low(f), d.zip_low(h)));
    let ((a, b), (c, d)) = (riffled(even.0, odd.0), riffled(even.1, odd.1));
    levels(wide, half_pass::<{ POINT + KEPT + 3 }>(wide, [a, b, c, d]))
}

/// The first rows of coefficients as they were before they were quantized.
#[inline(always)]
fn multiplied<const N: usize>(wide: Wide, coefficients: &[i16; 64], steps: &[i16; 64]) -> [i16x8<Wide>; N] {
    let mut rows = [i16x8::splat(wide, 0); N];
    for ((row, coefficients), steps) in rows.iter_mut().zip(coefficients.as_chunks().0).zip(steps.as_chunks().0) {
        *row = i16x8::load_array_ref(wide, coefficients) * i16x8::load_array_ref(wide, steps);
    }
    rows
}

/// The transform of every column.
#[inline(always)]
fn pass<const SHIFT: u32>(wide: Wide, [a, b, c, d, e, f, g, h]: Rows) -> Rows {
    let rotated = pairs(c, g);
    let (two, three) = (dot(wide, rotated, 4433, -10704), dot(wide, rotated, 10703, 4433));
    let round = i32x8::splat(wide, 1 << (SHIFT - 1));
    let (zero, one) = (wider(a + e) + round, wider(a - e) + round);

    let sums = pairs(h + d, f + b);
    let (z3, z4) = (dot(wide, sums, -6436, 9633), dot(wide, sums, 9633, 6437));
    let (outer, inner) = (pairs(b, h), pairs(d, f));
    let (a, h) = ends::<SHIFT>(zero + three, dot(wide, outer, 4926, -7373) + z4);
    let (b, g) = ends::<SHIFT>(one + two, dot(wide, inner, 4177, -20995) + z3);
    let (c, f) = ends::<SHIFT>(one - two, dot(wide, inner, -20995, -4176) + z4);
    let (d, e) = ends::<SHIFT>(zero - three, dot(wide, outer, -7373, -4927) + z3);
    [a, b, c, d, e, f, g, h]
}

/// [`pass`] where the last four rows hold nothing: then a product is enough for what is a sum there.
#[inline(always)]
fn half_pass<const SHIFT: u32>(wide: Wide, [a, b, c, d]: [i16x8<Wide>; 4]) -> Rows {
    let rotated = pairs(c, c);
    let (two, three) = (dot(wide, rotated, 4433, 0), dot(wide, rotated, 10703, 0));
    let zero = wider(a) + i32x8::splat(wide, 1 << (SHIFT - 1));
    let sums = pairs(d, b);
    let (a, h) = ends::<SHIFT>(zero + three, dot(wide, sums, 9633, 6437 + 4926));
    let (b, g) = ends::<SHIFT>(zero + two, dot(wide, sums, 4177 - 6436, 9633));
    let (c, f) = ends::<SHIFT>(zero - two, dot(wide, sums, 9633 - 20995, 6437));
    let (d, e) = ends::<SHIFT>(zero - three, dot(wide, sums, -6436, 9633 - 7373));
    [a, b, c, d, e, f, g, h]
}

/// What pairs are with the first ones multiplied by one number and the second ones by another.
#[inline(always)]
fn dot(wide: Wide, pairs: i16x16<Wide>, first: i16, second: i16) -> i32x8<Wide> {
    let both = i32::from(first) & 0xffff | i32::from(second) << 16;
    pairs.pairwise_dot_product(i32x8::splat(wide, both).bitcast::<i16x16<Wide>>())
}

/// A row from above and its counterpart from below.
#[inline(always)]
fn ends<const SHIFT: u32>(even: i32x8<Wide>, odd: i32x8<Wide>) -> (i16x8<Wide>, i16x8<Wide>) {
    ((even + odd) >> SHIFT).saturating_narrow((even - odd) >> SHIFT).split()
}

/// The values of two rows in turns, in one vector.
#[inline(always)]
fn pairs(first: i16x8<Wide>, second: i16x8<Wide>) -> i16x16<Wide> {
    first.zip_low(second).combine(first.zip_high(second))
}

/// With [`POINT`] bits after the point.
#[inline(always)]
fn wider(row: i16x8<Wide>) -> i32x8<Wide> {
    let (low, high) = row.widen();
    low.combine(high) << POINT
}

/// Rows as columns.
#[inline(always)]
fn transposed([a, b, c, d, e, f, g, h]: Rows) -> Rows {
    let ((a, e), (b, f), (c, g), (d, h)) = (riffled(a, e), riffled(b, f), riffled(c, g), riffled(d, h));
    let ((a, c), (e, g), (b, d), (f, h)) = (riffled(a, c), riffled(e, g), riffled(b, d), riffled(f, h));
    let ((a, b), (c, d), (e, f), (g, h)) = (riffled(a, b), riffled(c, d), riffled(e, f), riffled(g, h));
    [a, b, c, d, e, f, g, h]
}

/// Columns of values around 0 as rows of samples.
#[inline(always)]
fn levels(wide: Wide, [a, b, c, d, e, f, g, h]: Rows) -> [[u8; 16]; 4] {
    // Four columns in turns: first every other one, then all.
    let (even, odd) = riffled(level(wide, a, b), level(wide, c, d));
    let (upper_left, lower_left) = riffled(even, odd);
    let (even, odd) = riffled(level(wide, e, f), level(wide, g, h));
    let (upper_right, lower_right) = riffled(even, odd);
    let [a, b] = halves(upper_left, upper_right);
    let [c, d] = halves(lower_left, lower_right);
    [a, b, c, d]
}

/// Two columns of values around 0 as samples.
#[inline(always)]
fn level(wide: Wide, first: i16x8<Wide>, second: i16x8<Wide>) -> u8x16<Wide> {
    first.saturating_narrow(second).bitcast::<u8x16<Wide>>() ^ u8x16::splat(wide, 0x80)
}

/// Whole rows of their halves, which are four samples each.
#[inline(always)]
fn halves(left: u8x16<Wide>, right: u8x16<Wide>) -> [[u8; 16]; 2] {
    let (upper, lower) = riffled(left.bitcast::<u32x4<Wide>>(), right.bitcast::<u32x4<Wide>>());
    [upper.bitcast::<u8x16<Wide>>().to_array(), lower.bitcast::<u8x16<Wide>>().to_array()]
}

/// The values of two rows in turns.
#[inline(always)]
fn riffled<V: SimdBase<Wide>>(first: V, second: V) -> (V, V) {
    (first.zip_low(second), first.zip_high(second))
}
