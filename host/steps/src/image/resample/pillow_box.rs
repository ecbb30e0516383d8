//! The mean over the area that a new pixel covers: Pillow's BOX filter, to the bit.
//!
//! The general resizer will not do: where a pixel lies just on the edge of an area, rounding decides
//! whether it counts, and a whole pixel more or less is seen. So every expression is Pillow's.

use std::ops::{AddAssign, Range};

use super::super::dims::ImageDims;
use crate::deadline::{Deadline, DeadlineExceeded};

/// A sample that can be averaged.
pub(super) trait Sample: Copy {
    /// A weight in fixed point.
    fn weight(weight: f64) -> f64;
    /// Resizes the axis of length `old` whose entries are runs of `inner` samples.
    fn along(
        from: &[Self],
        old: usize,
        areas: &[Coverage],
        inner: usize,
        deadline: &Deadline,
    ) -> Result<Vec<Self>, DeadlineExceeded>;
}

/// The first old sample that a new one covers, and the weights from there on.
type Coverage = (usize, Vec<f64>);

/// Pillow's fixed point: 22 bits after the point.
const BITS: u32 = 22;
/// As many bytes as a sum in 32 bits holds, whatever they are.
const FIT: usize = 1 << 24;

impl Sample for u8 {
    fn weight(weight: f64) -> f64 {
        (0.5 + weight * f64::from(1 << BITS)).trunc()
    }

    fn along(
        from: &[Self],
        old: usize,
        areas: &[Coverage],
        inner: usize,
        deadline: &Deadline,
    ) -> Result<Vec<Self>, DeadlineExceeded> {
        let covered: Vec<_> = areas.iter().map(coverage_range).collect();
        if covered.iter().all(|(range, _)| range.len() <= FIT) {
            means::<u32>(from, old, &covered, inner, deadline)
        } else {
            means::<u64>(from, old, &covered, inner, deadline)
        }
    }
}

/// The samples that count, and what each weighs: all the same.
fn coverage_range((start, weights): &Coverage) -> (Range<usize>, u64) {
    let first = weights.iter().position(|weight| *weight > 0.0).unwrap_or(0);
    let last = weights.iter().rposition(|weight| *weight > 0.0).map_or(first, |last| last + 1);
    (start + first..start + last, weights.get(first).map_or(0, |weight| *weight as u64))
}

/// Bytes are added up and multiplied once: in whole numbers that is Pillow's sum of products.
fn means<S: Copy + Default + AddAssign + From<u8> + From<u16> + Into<u64>>(
    from: &[u8],
    old: usize,
    areas: &[(Range<usize>, u64)],
    inner: usize,
    deadline: &Deadline,
) -> Result<Vec<u8>, DeadlineExceeded> {
    let mut result = Vec::with_capacity(from.len() / old * areas.len());
    let mut sums = vec![S::default(); inner];
    for block in from.chunks_exact(old * inner) {
        for (range, weight) in areas {
            deadline.check_after(inner * range.len())?;
            sums.fill(S::default());
            let samples = &block[range.start * inner..range.end * inner];
            match inner {
                2 | 4 => add_pixels::<16, S>(samples, &mut sums),
                3 => add_pixels::<48, S>(samples, &mut sums),
                _ => add_rows(samples, &mut sums),
            }
            result.extend(sums.iter().map(|sum| (((*sum).into() * weight + (1 << (BITS - 1))) >> BITS) as u8));
        }
    }
    Ok(result)
}

/// Adds rows of samples to a row of sums.
fn add_rows<S: AddAssign + From<u8>>(samples: &[u8], sums: &mut [S]) {
    if let [sum] = sums {
        for sample in samples {
            *sum += S::from(*sample);
        }
        return;
    }
    for row in samples.chunks_exact(sums.len()) {
        for (sum, sample) in sums.iter_mut().zip(row) {
            *sum += S::from(*sample);
        }
    }
}

/// Adds pixels of few channels to a sum for each channel: `LANES` samples at a time, which are whole
/// vectors and whole pixels, into sums of 16 bits side by side.
fn add_pixels<const LANES: usize, S: AddAssign + From<u16>>(samples: &[u8], sums: &mut [S]) {
    /// With one more in what is left over, 257 bytes: the most that 16 bits hold, whatever they are.
    const DEEP: usize = 256;
    for samples in samples.chunks(DEEP * LANES) {
        let mut lanes = [0_u16; LANES];
        let (whole, rest) = samples.as_chunks::<LANES>();
        for samples in whole {
            for (lane, sample) in lanes.iter_mut().zip(samples) {
                *lane += u16::from(*sample);
            }
        }
        for (lane, sample) in lanes.iter_mut().zip(rest) {
            *lane += u16::from(*sample);
        }
        for pixel in lanes.chunks_exact(sums.len()) {
            for (sum, lane) in sums.iter_mut().zip(pixel) {
                *sum += S::from(*lane);
            }
        }
    }
}

impl Sample for f32 {
    fn weight(weight: f64) -> f64 {
        weight
    }

    fn along(
        from: &[Self],
        old: usize,
        areas: &[Coverage],
        inner: usize,
        deadline: &Deadline,
    ) -> Result<Vec<Self>, DeadlineExceeded> {
        let mut result = Vec::with_capacity(from.len() / old * areas.len());
        let mut sums = vec![0.0; inner];
        for block in from.chunks_exact(old * inner) {
            for (start, weights) in areas {
                deadline.check_after(inner * weights.len())?;
                sums.fill(0.0);
                for (samples, weight) in block[start * inner..].chunks_exact(inner).zip(weights) {
                    for (sum, sample) in sums.iter_mut().zip(samples) {
                        *sum += f64::from(*sample) * weight;
                    }
                }
                result.extend(sums.iter().map(|sum| *sum as Self));
            }
        }
        Ok(result)
    }
}

/// Resizes across, then down; a side that stays is left alone.
pub(super) fn resize<T: Sample>(
    from: &[T],
    dims: ImageDims,
    target: ImageDims,
    deadline: &Deadline,
) -> Result<Vec<T>, DeadlineExceeded> {
    let channels = dims.channels;
    let areas = |old, new| -> Vec<Coverage> { (0..new).map(|index| area::<T>(index, old, new)).collect() };
    let wide = if dims.width == target.width {
        from.to_vec()
    } else {
        T::along(from, dims.width, &areas(dims.width, target.width), channels, deadline)?
    };
    if dims.height == target.height {
        return Ok(wide);
    }
    T::along(&wide, dims.height, &areas(dims.height, target.height), target.width * channels, deadline)
}

fn area<T: Sample>(index: usize, old: usize, new: usize) -> Coverage {
    let scale = old as f64 / new as f64;
    let shrink = scale.max(1.0);
    let (support, step) = (0.5 * shrink, 1.0 / shrink);
    let center = (index as f64 + 0.5) * scale;
    let start = (center - support + 0.5).max(0.0) as usize;
    let end = ((center + support + 0.5) as usize).min(old);
    let covered = |at: usize| {
        let x = (at as f64 - center + 0.5) * step;
        f64::from(u8::from(x > -0.5 && x <= 0.5))
    };
    let weights: Vec<f64> = (start..end).map(covered).collect();
    let total: f64 = weights.iter().sum();
    (start, weights.into_iter().map(|weight| T::weight(if total == 0.0 { weight } else { weight / total })).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// Pillow's sum of products, one by one.
    fn pillow(from: &[u8], areas: &[Coverage], inner: usize) -> Vec<u8> {
        let one = f64::from(1 << BITS);
        let sum = |(start, weights): &Coverage, index: usize| -> f64 {
            let samples = from[start * inner..].iter().skip(index).step_by(inner);
            samples.zip(weights).map(|(sample, weight)| f64::from(*sample) * weight).sum()
        };
        areas
            .iter()
            .flat_map(|area| (0..inner).map(move |index| ((sum(area, index) + one / 2.0) / one) as u8))
            .collect()
    }

    #[test]
    fn sum_of_products_equals_product_of_sum() {
        let deadline = Deadline::default();
        for (old, new) in [(480, 8), (641, 7), (100, 33), (8, 8), (5, 13), (1, 4), (300, 299)] {
            for inner in [1, 3, 16] {
                let from: Vec<_> = (0..old * inner).map(|at| (at * 7919 % 256) as u8).collect();
                let areas: Vec<_> = (0..new).map(|index| area::<u8>(index, old, new)).collect();
                let expected = pillow(&from, &areas, inner);
                assert_eq!(u8::along(&from, old, &areas, inner, &deadline).unwrap(), expected, "{old} to {new}");
                let covered: Vec<_> = areas.iter().map(coverage_range).collect();
                assert_eq!(means::<u64>(&from, old, &covered, inner, &deadline).unwrap(), expected, "{old} to {new}");
            }
        }
    }
}
