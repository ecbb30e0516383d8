//! The mean over the area that a new pixel covers: Pillow's BOX filter, to the bit.
//!
//! The general resizer will not do: where a pixel lies just on the edge of an area, rounding decides
//! whether it counts, and a whole pixel more or less is seen. So every expression is Pillow's.

use super::super::dims::ImageDims;
use crate::builtin::watch::{Late, Watch};

/// A sample that can be averaged.
pub(super) trait Sample: Copy + Into<f64> {
    /// A weight as it is multiplied with.
    fn weight(weight: f64) -> f64;
    /// The sum of samples × weights, as a sample.
    fn rounded(sum: f64) -> Self;
}

/// Pillow's fixed point: 22 bits after the point.
const ONE: f64 = 4_194_304.0;

impl Sample for u8 {
    fn weight(weight: f64) -> f64 {
        (0.5 + weight * ONE).trunc()
    }
    fn rounded(sum: f64) -> Self {
        ((sum + ONE / 2.0) / ONE) as u8
    }
}

impl Sample for f32 {
    fn weight(weight: f64) -> f64 {
        weight
    }
    fn rounded(sum: f64) -> Self {
        sum as f32
    }
}

/// Resizes across, then down; a side that stays is left alone.
pub(super) fn resize<T: Sample>(from: &[T], dims: ImageDims, target: ImageDims, watch: &Watch) -> Result<Vec<T>, Late> {
    let channels = dims.channels;
    let areas = |old, new| -> Vec<Area> { (0..new).map(|index| area::<T>(index, old, new)).collect() };
    let wide = if dims.width == target.width {
        from.to_vec()
    } else {
        along(from, dims.width, &areas(dims.width, target.width), channels, watch)?
    };
    if dims.height == target.height {
        return Ok(wide);
    }
    along(&wide, dims.height, &areas(dims.height, target.height), target.width * channels, watch)
}

/// The first old sample that a new one covers, and the weights from there on.
type Area = (usize, Vec<f64>);

/// Resizes the axis of length `old` whose entries are runs of `inner` samples.
fn along<T: Sample>(from: &[T], old: usize, areas: &[Area], inner: usize, watch: &Watch) -> Result<Vec<T>, Late> {
    let mut result = Vec::with_capacity(from.len() / old * areas.len());
    let mut sums = vec![0.0; inner];
    for block in from.chunks_exact(old * inner) {
        for (start, weights) in areas {
            watch.worked(inner * weights.len())?;
            sums.fill(0.0);
            for (samples, weight) in block[start * inner..].chunks_exact(inner).zip(weights) {
                for (sum, sample) in sums.iter_mut().zip(samples) {
                    *sum += (*sample).into() * weight;
                }
            }
            result.extend(sums.iter().map(|sum| T::rounded(*sum)));
        }
    }
    Ok(result)
}

fn area<T: Sample>(index: usize, old: usize, new: usize) -> Area {
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
