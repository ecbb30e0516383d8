//! Weighted sums of bytes in Pillow's fixed point, to the bit.

use std::f64::consts::PI;

use super::super::dims::ImageDims;
use crate::deadline::{Deadline, DeadlineExceeded};
use crate::simd::vectorize;

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
    let (mut columns, mut made) = (vec![0; rows * row], vec![0; rows * new_row]);
    for (from, to) in from.chunks(rows * row).zip(result.chunks_mut(rows * new_row)) {
        let inner = from.len() / dims.width;
        for (number, row) in from.chunks_exact(row).enumerate() {
            interleave(row, &mut columns, number * channels, inner, channels);
        }
        let made = &mut made[..to.len()];
        along(&columns[..from.len()], &taps, inner, made, deadline)?;
        for (number, row) in to.chunks_exact_mut(new_row).enumerate() {
            separate(made, row, number * channels, inner, channels);
        }
    }
    Ok(result)
}

/// Puts the pixels of a row at `start` of every `inner` samples.
fn interleave(row: &[u8], to: &mut [u8], start: usize, inner: usize, channels: usize) {
    fn with<const C: usize>(row: &[u8], to: &mut [u8], start: usize, inner: usize) {
        for (pixel, to) in row.as_chunks::<C>().0.iter().zip(to.chunks_exact_mut(inner)) {
            to[start..start + C].copy_from_slice(pixel);
        }
    }
    match channels {
        1 => with::<1>(row, to, start, inner),
        3 => with::<3>(row, to, start, inner),
        _ => with::<4>(row, to, start, inner),
    }
}

/// The other way round.
fn separate(from: &[u8], row: &mut [u8], start: usize, inner: usize, channels: usize) {
    fn with<const C: usize>(from: &[u8], row: &mut [u8], start: usize, inner: usize) {
        for (pixel, from) in row.as_chunks_mut::<C>().0.iter_mut().zip(from.chunks_exact(inner)) {
            pixel.copy_from_slice(&from[start..start + C]);
        }
    }
    match channels {
        1 => with::<1>(from, row, start, inner),
        3 => with::<3>(from, row, start, inner),
        _ => with::<4>(from, row, start, inner),
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
