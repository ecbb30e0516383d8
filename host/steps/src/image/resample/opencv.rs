//! OpenCV's `cv2.resize`.

use super::super::dims::ImageDims;
use super::taps::{Interpolate, PositionPrecision, Taps, mix};
use super::{Filter, nearest, to_tensor};
use crate::deadline::{Deadline, DeadlineExceeded};
use crate::simd::vectorize;
use gpux_core::{StepFailure, Tensor, TensorData, TensorElement};

pub(super) fn resize(
    tensor: &Tensor,
    dims: ImageDims,
    target: ImageDims,
    filter: Filter,
    deadline: &Deadline,
) -> Result<Tensor, StepFailure> {
    match tensor.data() {
        TensorData::Uint8(data) => to_tensor(target, resize_elements(data, dims, target, filter, deadline)?),
        TensorData::Float32(data) => to_tensor(target, resize_elements(data, dims, target, filter, deadline)?),
        other => Err(StepFailure::Failed(format!("cannot resize {}", other.element()))),
    }
}

/// A sample that is the mean of several.
trait AreaMean: TensorElement + Copy + Default + Interpolate<2> + Interpolate<4> {
    /// The precision of positions between two neighbors.
    const PLACES: PositionPrecision;
    fn to_f32(self) -> f32;
    fn from_mean(mean: f32) -> Self;
    /// The sum of two samples.
    type Sum: Copy + Default;
    fn sum_of_two(above: Self, below: Self) -> Self::Sum;
    /// The mean of four, halves up.
    fn mean_of_sums(left: Self::Sum, right: Self::Sum) -> Self;
}

impl AreaMean for u8 {
    const PLACES: PositionPrecision = PositionPrecision::Rounded;
    fn to_f32(self) -> f32 {
        f32::from(self)
    }
    fn from_mean(mean: f32) -> Self {
        mean.round_ties_even() as Self
    }
    type Sum = u16;
    #[inline(always)]
    fn sum_of_two(above: Self, below: Self) -> u16 {
        u16::from(above) + u16::from(below)
    }
    #[inline(always)]
    fn mean_of_sums(left: u16, right: u16) -> Self {
        ((left + right + 2) >> 2) as Self
    }
}

impl AreaMean for f32 {
    const PLACES: PositionPrecision = PositionPrecision::Double;
    fn to_f32(self) -> f32 {
        self
    }
    fn from_mean(mean: f32) -> Self {
        mean
    }
    type Sum = Self;
    #[inline(always)]
    fn sum_of_two(above: Self, below: Self) -> Self {
        above + below
    }
    #[inline(always)]
    fn mean_of_sums(left: Self, right: Self) -> Self {
        (left + right) * 0.25
    }
}

fn resize_elements<T: AreaMean>(
    data: &[T],
    dims: ImageDims,
    target: ImageDims,
    filter: Filter,
    deadline: &Deadline,
) -> Result<Vec<T>, DeadlineExceeded> {
    let halved = dims.width == 2 * target.width && dims.height == 2 * target.height;
    match filter {
        Filter::Nearest | Filter::NearestExact => {
            let (rows, columns) = (places(dims.height, target.height), places(dims.width, target.width));
            nearest(data, dims, &rows, &columns, deadline)
        }
        // To half the size OpenCV averages, whatever the filter.
        Filter::Bilinear | Filter::Area if halved => match dims.channels {
            1 => half::<T, 1>(data, dims.width, deadline),
            3 => half::<T, 3>(data, dims.width, deadline),
            _ => half::<T, 4>(data, dims.width, deadline),
        },
        Filter::Area if target.width <= dims.width && target.height <= dims.height => {
            match (whole(dims.width, target.width), whole(dims.height, target.height)) {
                (Some(wide), Some(high)) => blocks(data, dims, target, [high, wide], deadline),
                _ => mean(data, dims, target, deadline),
            }
        }
        Filter::Area => {
            let taps = |old, new| Taps::enlarging(old, new);
            mix(data, dims, &taps(dims.width, target.width), &taps(dims.height, target.height), deadline)
        }
        Filter::Bicubic => {
            let taps = |old, new| Taps::cubic(old, new, PositionPrecision::Rounded);
            mix(data, dims, &taps(dims.width, target.width), &taps(dims.height, target.height), deadline)
        }
        Filter::Bilinear | Filter::Lanczos => {
            let taps = |old, new| Taps::linear(old, new, T::PLACES);
            mix(data, dims, &taps(dims.width, target.width), &taps(dims.height, target.height), deadline)
        }
    }
}

fn places(old: usize, new: usize) -> Vec<usize> {
    let scale = 1.0 / (new as f64 / old as f64);
    (0..new).map(|index| ((index as f64 * scale).floor() as usize).min(old - 1)).collect()
}

/// How many old samples a new one covers, if OpenCV finds that to be a whole number.
fn whole(old: usize, new: usize) -> Option<usize> {
    let scale = 1.0 / (new as f64 / old as f64);
    ((scale - scale.round()).abs() < f64::EPSILON).then_some(scale.round() as usize)
}

/// The means of blocks of `high` × `wide` pixels: their sum times the reciprocal of their number.
fn blocks<T: AreaMean>(
    data: &[T],
    dims: ImageDims,
    target: ImageDims,
    [high, wide]: [usize; 2],
    deadline: &Deadline,
) -> Result<Vec<T>, DeadlineExceeded> {
    let channels = dims.channels;
    let part = 1.0 / (high * wide) as f32;
    let (row, new_row) = (dims.width * channels, target.width * channels);
    let mut sums = vec![0.0_f64; new_row];
    let mut result = Vec::with_capacity(target.height * new_row);
    for rows in data.chunks_exact(high * row) {
        deadline.check_after(rows.len())?;
        sums.fill(0.0);
        for row in rows.chunks_exact(row) {
            for (sums, block) in sums.chunks_exact_mut(channels).zip(row.chunks_exact(wide * channels)) {
                for pixel in block.chunks_exact(channels) {
                    for (sum, sample) in sums.iter_mut().zip(pixel) {
                        *sum += f64::from(sample.to_f32());
                    }
                }
            }
        }
        result.extend(sums.iter().map(|sum| T::from_mean(*sum as f32 * part)));
    }
    Ok(result)
}

/// The mean over the area that each new pixel covers, rounded once.
fn mean<T: AreaMean>(
    data: &[T],
    dims: ImageDims,
    target: ImageDims,
    deadline: &Deadline,
) -> Result<Vec<T>, DeadlineExceeded> {
    let columns = areas(dims.width, target.width);
    let wide = match dims.channels {
        1 => across::<T, 1>(data, dims.width, &columns, deadline)?,
        3 => across::<T, 3>(data, dims.width, &columns, deadline)?,
        _ => across::<T, 4>(data, dims.width, &columns, deadline)?,
    };
    let row = target.width * dims.channels;
    let mut sums = vec![0.0; row];
    let mut result = Vec::with_capacity(target.height * row);
    for (start, weights) in areas(dims.height, target.height) {
        deadline.check_after(row * weights.len())?;
        sums.fill(0.0);
        for (samples, weight) in wide[start * row..].chunks_exact(row).zip(&weights) {
            for (sum, sample) in sums.iter_mut().zip(samples) {
                *sum += sample * weight;
            }
        }
        result.extend(sums.iter().map(|mean| T::from_mean(*mean)));
    }
    Ok(result)
}

/// Half the size: each new pixel is the mean of four.
fn half<T: AreaMean, const C: usize>(
    data: &[T],
    width: usize,
    deadline: &Deadline,
) -> Result<Vec<T>, DeadlineExceeded> {
    let row = width * C;
    let mut result = vec![T::default(); data.len() / 4];
    let mut sums = vec![T::Sum::default(); row];
    for (rows, to) in data.chunks_exact(2 * row).zip(result.chunks_exact_mut(row / 2)) {
        deadline.check_after(2 * row)?;
        let (above, below) = rows.split_at(row);
        vectorize(
            #[inline(always)]
            || {
                for ((sum, above), below) in sums.iter_mut().zip(above).zip(below) {
                    *sum = T::sum_of_two(*above, *below);
                }
                let pairs = sums.as_chunks::<C>().0.as_chunks::<2>().0;
                for (to, [left, right]) in to.as_chunks_mut::<C>().0.iter_mut().zip(pairs) {
                    for channel in 0..C {
                        to[channel] = T::mean_of_sums(left[channel], right[channel]);
                    }
                }
            },
        );
    }
    Ok(result)
}

/// The means along each row, not rounded.
fn across<T: AreaMean, const C: usize>(
    data: &[T],
    width: usize,
    columns: &[Coverage],
    deadline: &Deadline,
) -> Result<Vec<f32>, DeadlineExceeded> {
    let (pixels, _) = data.as_chunks::<C>();
    let mut result = Vec::with_capacity(pixels.len() / width * columns.len() * C);
    for row in pixels.chunks_exact(width) {
        deadline.check_after(width * C)?;
        for (start, weights) in columns {
            let mut sums = [0.0; C];
            for (pixel, weight) in row[*start..].iter().zip(weights) {
                for (sum, sample) in sums.iter_mut().zip(pixel) {
                    *sum += sample.to_f32() * weight;
                }
            }
            result.extend_from_slice(&sums);
        }
    }
    Ok(result)
}

/// The first old sample that a new one covers, and the weights from there on.
type Coverage = (usize, Vec<f32>);

fn areas(old: usize, new: usize) -> Vec<Coverage> {
    // As OpenCV computes it: not the same as `old / new`.
    let scale = 1.0 / (new as f64 / old as f64);
    (0..new).map(|index| coverage(index as f64 * scale, scale, old)).collect()
}

/// The old samples within `scale` from `start` on, and their weights. Slivers below a thousandth do not count.
fn coverage(start: f64, scale: f64, old: usize) -> Coverage {
    let end = start + scale;
    let cell = scale.min(old as f64 - start);
    let last = (end.floor() as usize).min(old - 1);
    let first = (start.ceil() as usize).min(last);
    let mut weights = Vec::new();
    let sliver = first as f64 - start;
    let begin = if sliver > 1e-3 { first - 1 } else { first };
    if sliver > 1e-3 {
        weights.push((sliver / cell) as f32);
    }
    weights.extend((first..last).map(|_| (1.0 / cell) as f32));
    let rest = end - last as f64;
    if rest > 1e-3 {
        weights.push((rest.min(1.0).min(cell) / cell) as f32);
    }
    (begin, weights)
}
