//! The smallest Fourier transforms, of 2 to 5 numbers: one in each lane of their vectors.

use fearless_simd::{SimdBase, SimdFloat, f32x8, f64x4};

use crate::simd::Wide;

/// A vector of floats.
pub(in crate::audio) trait Lanes: SimdFloat<Wide> {
    /// The same number in each lane.
    fn all(wide: Wide, number: f64) -> Self;
}

impl Lanes for f32x8<Wide> {
    #[inline(always)]
    fn all(wide: Wide, number: f64) -> Self {
        Self::splat(wide, number as f32)
    }
}

impl Lanes for f64x4<Wide> {
    #[inline(always)]
    fn all(wide: Wide, number: f64) -> Self {
        Self::splat(wide, number)
    }
}

/// Real and imaginary part.
pub(super) type Complex<V> = [V; 2];

#[inline(always)]
pub(super) fn add<V: Lanes>(a: Complex<V>, b: Complex<V>) -> Complex<V> {
    [a[0] + b[0], a[1] + b[1]]
}

#[inline(always)]
pub(super) fn subtract<V: Lanes>(a: Complex<V>, b: Complex<V>) -> Complex<V> {
    [a[0] - b[0], a[1] - b[1]]
}

#[inline(always)]
pub(super) fn multiply<V: Lanes>(a: Complex<V>, by: Complex<V>) -> Complex<V> {
    [a[0].mul_sub(by[0], a[1] * by[1]), a[0].mul_add(by[1], a[1] * by[0])]
}

/// a + b × `by`
#[inline(always)]
fn add_times<V: Lanes>(a: Complex<V>, b: Complex<V>, by: V) -> Complex<V> {
    [b[0].mul_add(by, a[0]), b[1].mul_add(by, a[1])]
}

#[inline(always)]
fn times<V: Lanes>(a: Complex<V>, by: V) -> Complex<V> {
    [a[0] * by, a[1] * by]
}

/// × −i
#[inline(always)]
fn turn_back<V: Lanes>(a: Complex<V>) -> Complex<V> {
    [a[1], -a[0]]
}

#[inline(always)]
pub(super) fn two<V: Lanes>([a, b]: [Complex<V>; 2]) -> [Complex<V>; 2] {
    [add(a, b), subtract(a, b)]
}

#[inline(always)]
pub(super) fn three<V: Lanes>(wide: Wide, [a, b, c]: [Complex<V>; 3]) -> [Complex<V>; 3] {
    let sum = add(b, c);
    let middle = add_times(a, sum, V::all(wide, -0.5));
    let across = turn_back(subtract(b, c));
    let sin = V::all(wide, 0.866_025_403_784_438_6);
    [add(a, sum), add_times(middle, across, sin), add_times(middle, across, -sin)]
}

#[inline(always)]
pub(super) fn four<V: Lanes>([a, b, c, d]: [Complex<V>; 4]) -> [Complex<V>; 4] {
    let (even, even_across) = (add(a, c), subtract(a, c));
    let (odd, odd_across) = (add(b, d), turn_back(subtract(b, d)));
    [add(even, odd), add(even_across, odd_across), subtract(even, odd), subtract(even_across, odd_across)]
}

#[inline(always)]
pub(super) fn five<V: Lanes>(wide: Wide, x: [Complex<V>; 5]) -> [Complex<V>; 5] {
    // Cosines and sines of a fifth and of two fifths of a turn.
    let [cos1, sin1] = [V::all(wide, 0.309_016_994_374_947_4), V::all(wide, 0.951_056_516_295_153_6)];
    let [cos2, sin2] = [V::all(wide, -0.809_016_994_374_947_5), V::all(wide, 0.587_785_252_292_473_1)];
    let (outer, outer_across) = (add(x[1], x[4]), subtract(x[1], x[4]));
    let (inner, inner_across) = (add(x[2], x[3]), subtract(x[2], x[3]));
    let near = add_times(add_times(x[0], outer, cos1), inner, cos2);
    let far = add_times(add_times(x[0], outer, cos2), inner, cos1);
    let near_across = turn_back(add_times(times(outer_across, sin1), inner_across, sin2));
    let far_across = turn_back(add_times(times(outer_across, sin2), inner_across, -sin1));
    [
        add(x[0], add(outer, inner)),
        add(near, near_across),
        add(far, far_across),
        subtract(far, far_across),
        subtract(near, near_across),
    ]
}
