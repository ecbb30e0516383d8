//! Weighted sums of bytes in Pillow's fixed point, to the bit.

use std::f64::consts::PI;

use fearless_simd::{Bytes, Simd, SimdBase, u8x16, u32x4};

use super::super::dims::ImageDims;
use crate::deadline::{Deadline, DeadlineExceeded};
use crate::simd::{vectorize, wide};

/// The weight of a sample by its distance from the middle of a new one, in old samples or, where the image shrinks,
/// in new ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kernel {
    Box,
    Triangle,
    Cubic,
    Lanczos,
}

impl Kernel {
    /// The distance from which on nothing weighs anything.
    fn support(self) -> f64 {
        match self {
            Self::Box => 0.5,
            Self::Triangle => 1.0,
            Self::Cubic => 2.0,
            Self::Lanczos => 3.0,
        }
    }

    /// The weight at a distance, in Pillow's order of operations.
    fn weight(self, x: f64) -> f64 {
        const A: f64 = -0.5;
        let near = x.abs();
        let sinc = |x: f64| if x == 0.0 { 1.0 } else { (x * PI).sin() / (x * PI) };
        match self {
            Self::Box => f64::from(u8::from(x > -0.5 && x <= 0.5)),
            Self::Triangle => (1.0 - near).max(0.0),
            Self::Cubic if near < 1.0 => ((A + 2.0) * near - (A + 3.0)) * near * near + 1.0,
            Self::Cubic if near < 2.0 => (((near - 5.0) * near + 8.0) * near - 4.0) * A,
            Self::Lanczos if (-3.0..3.0).contains(&x) => sinc(x) * sinc(x / 3.0),
            Self::Cubic | Self::Lanczos => 0.0,
        }
    }
}

/// Bits after the point of a weight: of 32, 8 are the sample's, and two are left for sums above 1 and below 0.
const BITS: u32 = 22;

/// Rows that are resized across together: their samples side by side, in vectors.
pub(super) const ROWS: usize = 32;

/// Samples that are added up side by side.
const LANES: usize = 32;

/// The source samples of each new sample, with their weights.
struct WeightedTaps {
    /// the first old sample of each new one, and how many there are
    spans: Vec<(u32, u32)>,
    /// `length` for each new sample, of which as many count as its span has
    weights: Vec<i32>,
    length: usize,
}

impl WeightedTaps {
    fn new(old: usize, new: usize, kernel: Kernel) -> Self {
        let scale = old as f64 / new as f64;
        let shrink = scale.max(1.0);
        let (support, step) = (kernel.support() * shrink, 1.0 / shrink);
        let fixed = |weight: f64| {
            let weight = weight * f64::from(1 << BITS);
            (if weight < 0.0 { weight - 0.5 } else { weight + 0.5 }) as i32
        };
        let length = support.ceil() as usize * 2 + 1;
        let (mut spans, mut weights) = (Vec::with_capacity(new), vec![0; new * length]);
        let mut parts = Vec::with_capacity(length);
        for (index, weights) in weights.chunks_exact_mut(length).enumerate() {
            let center = (index as f64 + 0.5) * scale;
            let start = (center - support + 0.5).max(0.0) as usize;
            let end = ((center + support + 0.5) as usize).min(old);
            parts.clear();
            parts.extend((start..end).map(|at| kernel.weight((at as f64 - center + 0.5) * step)));
            let total: f64 = parts.iter().sum();
            for (weight, part) in weights.iter_mut().zip(&parts) {
                *weight = fixed(if total == 0.0 { *part } else { part / total });
            }
            spans.push((start as u32, parts.len() as u32));
        }
        Self { spans, weights, length }
    }

    fn iter(&self) -> impl Iterator<Item = (usize, &[i32])> {
        let weights = self.weights.chunks_exact(self.length);
        self.spans.iter().zip(weights).map(|((start, count), weights)| (*start as usize, &weights[..*count as usize]))
    }
}

/// Resizes the one side that changes.
pub(super) fn pass(
    from: &[u8],
    dims: ImageDims,
    target: ImageDims,
    kernel: Kernel,
    deadline: &Deadline,
) -> Result<Vec<u8>, DeadlineExceeded> {
    let channels = dims.channels;
    let mut result = vec![0; target.height * target.width * channels];
    if dims.width == target.width {
        along(
            from,
            &WeightedTaps::new(dims.height, target.height, kernel),
            dims.width * channels,
            &mut result,
            deadline,
        )?;
        return Ok(result);
    }
    let taps = WeightedTaps::new(dims.width, target.width, kernel);
    let (row, new_row) = (dims.width * channels, target.width * channels);
    let rows = ROWS.min(dims.height);
    let pixel = padded(channels);
    let (mut columns, mut made) = (vec![0; rows * dims.width * pixel], vec![0; rows * target.width * pixel]);
    for (from, to) in from.chunks(rows * row).zip(result.chunks_mut(rows * new_row)) {
        let inner = from.len() / row * pixel;
        let (columns, made) = (&mut columns[..dims.width * inner], &mut made[..target.width * inner]);
        match channels {
            1 => interleave::<1>(from, row, columns, inner),
            3 => interleave_rgb(from, row, columns, inner),
            _ => interleave::<4>(from, row, columns, inner),
        }
        along(columns, &taps, inner, made, deadline)?;
        match channels {
            1 => separate::<1>(made, inner, to, new_row),
            3 => separate::<3>(made, inner, to, new_row),
            _ => separate::<4>(made, inner, to, new_row),
        }
    }
    Ok(result)
}

/// Bytes of a pixel of an interleaved row: a power of two, which vectors transpose.
pub(super) const fn padded(channels: usize) -> usize {
    channels.next_power_of_two()
}

/// Puts the rows' pixels side by side: `inner` bytes for each column.
fn interleave<const C: usize>(from: &[u8], row: usize, to: &mut [u8], inner: usize) {
    for (column, to) in to.chunks_exact_mut(inner).enumerate() {
        for (to, row) in to.as_chunks_mut::<C>().0.iter_mut().zip(from.chunks_exact(row)) {
            to.copy_from_slice(&row[column * C..][..C]);
        }
    }
}

/// [`interleave`] for pixels of three bytes, each padded to four.
fn interleave_rgb(from: &[u8], row: usize, to: &mut [u8], inner: usize) {
    let in_blocks = match wide() {
        Some(wide) => wide.vectorize(
            #[inline(always)]
            || interleave_blocks(wide, from, row, to, inner),
        ),
        None => 0,
    };
    let rows_in_blocks = from.len() / row / 4 * 4;
    for (column, to) in to.chunks_exact_mut(inner).enumerate() {
        let pixels = to.as_chunks_mut::<4>().0.iter_mut().zip(from.chunks_exact(row));
        for (to, row) in pixels.skip(if column < in_blocks { rows_in_blocks } else { 0 }) {
            to[..3].copy_from_slice(&row[column * 3..][..3]);
        }
    }
}

/// Transposes all blocks of four rows by four pixels that have four more bytes behind them, which a vector loads too.
/// Returns how many columns that are.
#[inline(always)]
fn interleave_blocks<S: Simd>(simd: S, from: &[u8], row: usize, to: &mut [u8], inner: usize) -> usize {
    let blocks = row.saturating_sub(4) / 12;
    for (block, to) in to.chunks_exact_mut(4 * inner).take(blocks).enumerate() {
        for (number, rows) in from.chunks_exact(4 * row).enumerate() {
            let a = load_padded(simd, &rows[block * 12..]);
            let b = load_padded(simd, &rows[row + block * 12..]);
            let c = load_padded(simd, &rows[2 * row + block * 12..]);
            let d = load_padded(simd, &rows[3 * row + block * 12..]);
            let (first, second) = (a.zip_low(c), a.zip_high(c));
            let (third, fourth) = (b.zip_low(d), b.zip_high(d));
            let at = number * 16;
            store(first.zip_low(third), &mut to[at..]);
            store(first.zip_high(third), &mut to[inner + at..]);
            store(second.zip_low(fourth), &mut to[2 * inner + at..]);
            store(second.zip_high(fourth), &mut to[3 * inner + at..]);
        }
    }
    4 * blocks
}

/// Four pixels of three bytes, each padded to four.
#[inline(always)]
fn load_padded<S: Simd>(simd: S, from: &[u8]) -> u32x4<S> {
    let pad = u8x16::from_slice(simd, &[0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 8, 9, 10, 11, 11]);
    u8x16::from_slice(simd, &from[..16]).swizzle_dyn_within_blocks(pad).bitcast()
}

#[inline(always)]
fn store<S: Simd>(pixels: u32x4<S>, to: &mut [u8]) {
    pixels.bitcast::<u8x16<S>>().store_slice(&mut to[..16]);
}

/// The other way round, without the padding.
fn separate<const C: usize>(from: &[u8], inner: usize, to: &mut [u8], row: usize) {
    for (column, from) in from.chunks_exact(inner).enumerate() {
        for (from, row) in from.chunks_exact(padded(C)).zip(to.chunks_exact_mut(row)) {
            row[column * C..][..C].copy_from_slice(&from[..C]);
        }
    }
}

/// Resizes an axis whose entries are runs of `inner` samples.
fn along(
    from: &[u8],
    taps: &WeightedTaps,
    inner: usize,
    to: &mut [u8],
    deadline: &Deadline,
) -> Result<(), DeadlineExceeded> {
    for ((start, weights), to) in taps.iter().zip(to.chunks_exact_mut(inner)) {
        deadline.check_after(inner * weights.len())?;
        let from = &from[start * inner..][..weights.len() * inner];
        vectorize(
            #[inline(always)]
            || {
                let mut at = 0;
                while at + LANES <= inner {
                    let mut sums = [1_i32 << (BITS - 1); LANES];
                    for (run, weight) in from.chunks_exact(inner).zip(weights) {
                        for (sum, sample) in sums.iter_mut().zip(&run[at..at + LANES]) {
                            *sum = sum.wrapping_add(i32::from(*sample).wrapping_mul(*weight));
                        }
                    }
                    for (to, sum) in to[at..at + LANES].iter_mut().zip(sums) {
                        *to = (sum >> BITS).clamp(0, 255) as u8;
                    }
                    at += LANES;
                }
                for (at, to) in to.iter_mut().enumerate().skip(at) {
                    let products = from.iter().skip(at).step_by(inner).zip(weights);
                    let sum = products.fold(1_i32 << (BITS - 1), |sum, (sample, weight)| {
                        sum.wrapping_add(i32::from(*sample).wrapping_mul(*weight))
                    });
                    *to = (sum >> BITS).clamp(0, 255) as u8;
                }
            },
        );
    }
    Ok(())
}
