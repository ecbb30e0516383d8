//! Fourier transforms of several frames at once, each frame in a lane of its own.
//!
//! The samples of `L` frames lie beside each other, so that every operation on one of them is an operation on
//! vectors, and nothing is moved between lanes but when the frames come in. A frame of real samples is transformed
//! as half as many complex numbers, by Stockham's algorithm: pass after pass from one buffer into another, without
//! putting anything in another order.

use std::f64::consts::TAU;

use fearless_simd::{Simd, SimdBase, SimdCombine, SimdFloat, SimdFloatElement, SimdWiden, f32x4, f32x8, f64x4};

use super::fft_butterflies::{Complex, Lanes, add, five, four, multiply, subtract, three, two};
use crate::simd::Wide;

/// A float that spectra are computed in, `L` of them in a vector.
pub(in crate::audio) trait FftFloat<const L: usize>: SimdFloatElement + Default {
    type Vector: Lanes + SimdFloat<Wide, Element = Self, Array = [Self; L]>;
    fn narrow(number: f64) -> Self;
    fn sample(number: f32) -> Self;
    fn energy(self) -> f32;
    /// Four samples of each row, from a place on.
    fn columns(wide: Wide, rows: &[&[f32]; L], at: usize) -> [Self::Vector; 4];
}

impl FftFloat<8> for f32 {
    type Vector = f32x8<Wide>;

    fn narrow(number: f64) -> Self {
        number as Self
    }

    #[inline(always)]
    fn sample(number: f32) -> Self {
        number
    }

    #[inline(always)]
    fn energy(self) -> f32 {
        self
    }

    #[inline(always)]
    fn columns(wide: Wide, rows: &[&[f32]; 8], at: usize) -> [f32x8<Wide>; 4] {
        let low = four_by_four(wide, [rows[0], rows[1], rows[2], rows[3]], at);
        let high = four_by_four(wide, [rows[4], rows[5], rows[6], rows[7]], at);
        [low[0].combine(high[0]), low[1].combine(high[1]), low[2].combine(high[2]), low[3].combine(high[3])]
    }
}

impl FftFloat<4> for f64 {
    type Vector = f64x4<Wide>;

    fn narrow(number: f64) -> Self {
        number
    }

    #[inline(always)]
    fn sample(number: f32) -> Self {
        Self::from(number)
    }

    #[inline(always)]
    fn energy(self) -> f32 {
        self as f32
    }

    #[inline(always)]
    fn columns(wide: Wide, rows: &[&[f32]; 4], at: usize) -> [f64x4<Wide>; 4] {
        let [a, b, c, d] = four_by_four(wide, *rows, at);
        let ((a, b), (c, d)) = (a.combine(b).widen(), c.combine(d).widen());
        [a, b, c, d]
    }
}

/// Four samples of four rows, sample after sample.
#[inline(always)]
fn four_by_four(wide: Wide, [a, b, c, d]: [&[f32]; 4], at: usize) -> [f32x4<Wide>; 4] {
    let a = f32x4::from_slice(wide, &a[at..at + 4]);
    let b = f32x4::from_slice(wide, &b[at..at + 4]);
    let c = f32x4::from_slice(wide, &c[at..at + 4]);
    let d = f32x4::from_slice(wide, &d[at..at + 4]);
    let (ac, bd) = (a.zip_low(c), b.zip_low(d));
    let (ac_end, bd_end) = (a.zip_high(c), b.zip_high(d));
    [ac.zip_low(bd), ac.zip_high(bd), ac_end.zip_low(bd_end), ac_end.zip_high(bd_end)]
}

/// Complex numbers of `L` frames.
pub(super) type Block<T, const L: usize> = Complex<[T; L]>;

/// A pass, and its twiddle factors: for each butterfly as many as its radix, less one.
struct FftPass<T> {
    radix: usize,
    twiddles: Vec<Complex<T>>,
}

/// A transform of frames of one length.
pub(super) struct BatchedFft<T> {
    wide: Wide,
    /// complex numbers of a frame, half its samples
    half: usize,
    passes: Vec<FftPass<T>>,
    /// the twiddle factors of the odd samples
    odd_twiddles: Vec<Complex<T>>,
    /// half of the window, since the energies come out four times as large
    weights: Vec<T>,
}

impl<T> BatchedFft<T> {
    /// For frames under a window; `None` if their length is not twice a product of 2, 3 and 5.
    pub(super) fn new<const L: usize>(wide: Wide, window: &[f64]) -> Option<Self>
    where
        T: FftFloat<L>,
    {
        let length = window.len();
        let half = length / 2;
        let radices = radices(half).filter(|_| length.is_multiple_of(2))?;
        let twiddle = |part: usize, whole: usize| {
            let (sin, cos) = (-TAU * part as f64 / whole as f64).sin_cos();
            [T::narrow(cos), T::narrow(sin)]
        };
        let mut left = half;
        let passes = radices.into_iter().map(|radix| {
            let places = 0..left / radix;
            let twiddles = places.flat_map(|place| (1..radix).map(move |output| place * output));
            let twiddles = twiddles.map(|part| twiddle(part, left)).collect();
            left /= radix;
            FftPass { radix, twiddles }
        });
        let passes = passes.collect();
        let odd_twiddles = (0..=half / 2).map(|bin| twiddle(bin, length)).collect();
        let weights = window.iter().map(|weight| T::narrow(weight / 2.0)).collect();
        Some(Self { wide, half, passes, odd_twiddles, weights })
    }

    /// A buffer for the frames; a transform needs two.
    pub(super) fn buffer<const L: usize>(&self) -> Vec<Block<T, L>>
    where
        T: FftFloat<L>,
    {
        vec![[[T::default(); L]; 2]; self.half]
    }

    /// The power spectra of the frames in `rows`.
    pub(super) fn energies<const L: usize>(
        &self,
        rows: &[&[f32]; L],
        buffers: &mut [Vec<Block<T, L>>; 2],
        energies: &mut [[f32; L]],
    ) where
        T: FftFloat<L>,
    {
        self.wide.vectorize(
            #[inline(always)]
            || {
                let [from, to] = buffers;
                self.load(rows, from);
                let (mut from, mut to) = (from, to);
                let mut stride = 1;
                for pass in &self.passes {
                    self.pass(pass, stride, from, to);
                    (from, to) = (to, from);
                    stride *= pass.radix;
                }
                self.put_energies(from, energies);
            },
        );
    }

    /// The samples times the window: the even ones as real parts, the odd ones as imaginary parts.
    #[inline(always)]
    fn load<const L: usize>(&self, rows: &[&[f32]; L], to: &mut [Block<T, L>])
    where
        T: FftFloat<L>,
    {
        let length = 2 * self.half;
        let mut rows = *rows;
        for row in &mut rows {
            *row = &row[..length];
        }
        let weights = &self.weights[..length];
        let (pairs, last) = to[..self.half].as_chunks_mut::<2>();
        for (at, [first, second]) in (0..).step_by(4).zip(pairs) {
            let [a, b, c, d] = T::columns(self.wide, &rows, at);
            (a * weights[at]).store_array(&mut first[0]);
            (b * weights[at + 1]).store_array(&mut first[1]);
            (c * weights[at + 2]).store_array(&mut second[0]);
            (d * weights[at + 3]).store_array(&mut second[1]);
        }
        for number in last {
            for (at, part) in (length - 2..length).zip(number) {
                let mut samples = [T::default(); L];
                for (sample, row) in samples.iter_mut().zip(&rows) {
                    *sample = T::sample(row[at]);
                }
                (T::Vector::load_array(self.wide, samples) * weights[at]).store_array(part);
            }
        }
    }

    #[expect(clippy::redundant_closure, reason = "a function that is passed as it is would not be inlined")]
    #[inline(always)]
    fn pass<const L: usize>(&self, pass: &FftPass<T>, stride: usize, from: &[Block<T, L>], to: &mut [Block<T, L>])
    where
        T: FftFloat<L>,
    {
        let wide = self.wide;
        match pass.radix {
            2 => butterflies(
                wide,
                pass,
                stride,
                from,
                to,
                #[inline(always)]
                |x| two(x),
            ),
            3 => butterflies(
                wide,
                pass,
                stride,
                from,
                to,
                #[inline(always)]
                |x| three(wide, x),
            ),
            4 => butterflies(
                wide,
                pass,
                stride,
                from,
                to,
                #[inline(always)]
                |x| four(x),
            ),
            _ => butterflies(
                wide,
                pass,
                stride,
                from,
                to,
                #[inline(always)]
                |x| five(wide, x),
            ),
        }
    }

    /// The energies of the frames, of which the even samples were transformed as real parts and the odd ones as
    /// imaginary parts.
    #[inline(always)]
    fn put_energies<const L: usize>(&self, spectrum: &[Block<T, L>], energies: &mut [[f32; L]])
    where
        T: FftFloat<L>,
    {
        let half = self.half;
        let (spectrum, energies) = (&spectrum[..half], &mut energies[..=half]);
        let [even, odd] = load(self.wide, &spectrum[0]);
        let two = T::Vector::all(self.wide, 2.0);
        put([(even + odd) * two, T::Vector::all(self.wide, 0.0)], &mut energies[0]);
        put([(even - odd) * two, T::Vector::all(self.wide, 0.0)], &mut energies[half]);
        for (bin, turn) in self.odd_twiddles.iter().enumerate().skip(1) {
            let ([a, b], [c, d]) = (load(self.wide, &spectrum[bin]), load(self.wide, &spectrum[half - bin]));
            let even = [a + c, b - d];
            let odd = multiply([b + d, c - a], splat(self.wide, turn));
            put(add(even, odd), &mut energies[bin]);
            put(subtract(even, odd), &mut energies[half - bin]);
        }
    }
}

/// The radices of the passes; `None` if there are other prime factors than 2, 3 and 5.
fn radices(length: usize) -> Option<Vec<usize>> {
    let mut left = length;
    let mut radices = Vec::new();
    for radix in [5, 3, 4, 2] {
        while left > 1 && left.is_multiple_of(radix) {
            left /= radix;
            radices.push(radix);
        }
    }
    (left == 1).then_some(radices)
}

/// One pass of Stockham's algorithm.
#[inline(always)]
fn butterflies<T: FftFloat<L>, const L: usize, const RADIX: usize>(
    wide: Wide,
    pass: &FftPass<T>,
    stride: usize,
    from: &[Block<T, L>],
    to: &mut [Block<T, L>],
    butterfly: impl Fn([Complex<T::Vector>; RADIX]) -> [Complex<T::Vector>; RADIX],
) {
    let step = from.len() / RADIX;
    let places = to.chunks_exact_mut(stride * RADIX).zip(pass.twiddles.chunks_exact(RADIX - 1));
    for (place, (to, twiddles)) in places.enumerate() {
        let mut inputs = [from; RADIX];
        for (number, input) in inputs.iter_mut().enumerate() {
            *input = &from[stride * place + step * number..][..stride];
        }
        for at in 0..stride {
            let mut numbers = [load(wide, &inputs[0][at]); RADIX];
            for number in 1..RADIX {
                numbers[number] = load(wide, &inputs[number][at]);
            }
            let outputs = butterfly(numbers);
            for number in 0..RADIX {
                // The last pass has one place, where nothing is turned.
                let output = match number.checked_sub(1).filter(|_| step != stride) {
                    Some(turn) => multiply(outputs[number], splat(wide, &twiddles[turn])),
                    None => outputs[number],
                };
                store::<T, L>(output, &mut to[stride * number + at]);
            }
        }
    }
}

#[inline(always)]
fn load<T: FftFloat<L>, const L: usize>(wide: Wide, from: &Block<T, L>) -> Complex<T::Vector> {
    [T::Vector::load_array_ref(wide, &from[0]), T::Vector::load_array_ref(wide, &from[1])]
}

#[inline(always)]
fn store<T: FftFloat<L>, const L: usize>(numbers: Complex<T::Vector>, to: &mut Block<T, L>) {
    numbers[0].store_array(&mut to[0]);
    numbers[1].store_array(&mut to[1]);
}

#[inline(always)]
fn splat<T: SimdFloatElement, V: SimdBase<Wide, Element = T>>(wide: Wide, number: &Complex<T>) -> Complex<V> {
    [V::splat(wide, number[0]), V::splat(wide, number[1])]
}

/// The squares of distances from 0.
#[inline(always)]
fn put<T: FftFloat<L>, V: SimdFloat<Wide, Element = T, Array = [T; L]>, const L: usize>(
    numbers: Complex<V>,
    to: &mut [f32; L],
) {
    let squares = numbers[0].mul_add(numbers[0], numbers[1] * numbers[1]).to_array();
    for (energy, square) in to.iter_mut().zip(squares) {
        *energy = square.energy();
    }
}
