//! OpenCV's `cv2.resize`.

use super::super::dims::ImageDims;
use super::area::{self, Area};
use super::taps::{Mixed, Taps, mix};
use super::{Filter, nearest, to_tensor};
use crate::pipeline::{StepFailure, Tensor, TensorData, TensorElement};

pub(super) fn resize(
    tensor: &Tensor,
    dims: ImageDims,
    target: ImageDims,
    filter: Filter,
) -> Result<Tensor, StepFailure> {
    match tensor.data() {
        TensorData::Uint8(data) => to_tensor(target, resized(data, dims, target, filter)),
        TensorData::Float32(data) => to_tensor(target, resized(data, dims, target, filter)),
        other => Err(StepFailure::Failed(format!("cannot resize {}", other.element()))),
    }
}

/// A sample, and what it is as the mean of several.
trait Mean: TensorElement + Copy + Mixed<2> + Mixed<4> {
    fn to_f32(self) -> f32;
    /// `halves_up`: 2.5 is 3, not 2.
    fn of_mean(mean: f32, halves_up: bool) -> Self;
}

impl Mean for u8 {
    fn to_f32(self) -> f32 {
        f32::from(self)
    }
    fn of_mean(mean: f32, halves_up: bool) -> Self {
        if halves_up { (mean + 0.5) as Self } else { mean.round_ties_even() as Self }
    }
}

impl Mean for f32 {
    fn to_f32(self) -> f32 {
        self
    }
    fn of_mean(mean: f32, _: bool) -> Self {
        mean
    }
}

fn resized<T: Mean>(data: &[T], dims: ImageDims, target: ImageDims, filter: Filter) -> Vec<T> {
    let halved = dims.width == 2 * target.width && dims.height == 2 * target.height;
    match filter {
        Filter::Nearest => nearest(data, dims, &places(dims.height, target.height), &places(dims.width, target.width)),
        // To half the size OpenCV averages, whatever it was asked for.
        Filter::Bilinear if halved => mean(data, dims, target),
        Filter::Area if target.width <= dims.width && target.height <= dims.height => mean(data, dims, target),
        Filter::Area => {
            let taps = |old, new| Taps::enlarging(old, new);
            mix(data, dims, &taps(dims.width, target.width), &taps(dims.height, target.height))
        }
        Filter::Bicubic => {
            mix(data, dims, &Taps::cubic(dims.width, target.width), &Taps::cubic(dims.height, target.height))
        }
        Filter::Bilinear | Filter::Lanczos => {
            mix(data, dims, &Taps::linear(dims.width, target.width), &Taps::linear(dims.height, target.height))
        }
    }
}

fn places(old: usize, new: usize) -> Vec<usize> {
    let scale = 1.0 / (new as f64 / old as f64);
    (0..new).map(|index| ((index as f64 * scale).floor() as usize).min(old - 1)).collect()
}

/// The mean over the area that each new pixel covers, rounded once.
fn mean<T: Mean>(data: &[T], dims: ImageDims, target: ImageDims) -> Vec<T> {
    let floats: Vec<f32> = data.iter().map(|sample| sample.to_f32()).collect();
    let wide = area::along(&floats, dims.width, &areas(dims.width, target.width), dims.channels);
    let areas = areas(dims.height, target.height);
    let means = area::along(&wide, dims.height, &areas, target.width * dims.channels);
    let halves_up = dims.width == 2 * target.width && dims.height == 2 * target.height;
    means.into_iter().map(|mean| T::of_mean(mean, halves_up)).collect()
}

fn areas(old: usize, new: usize) -> Vec<Area> {
    let scale = old as f64 / new as f64;
    (0..new).map(|index| covered(index as f64 * scale, scale, old)).collect()
}

/// What lies in the `scale` samples from `start` on. Slivers below a thousandth do not count.
fn covered(start: f64, scale: f64, old: usize) -> Area {
    let end = start + scale;
    let cell = scale.min(old as f64 - start);
    let last = (end.floor() as usize).min(old - 1);
    let first = (start.ceil() as usize).min(last);
    let mut weights = Vec::new();
    let sliver = first as f64 - start;
    let begin = if sliver > 1e-3 { first - 1 } else { first };
    if sliver > 1e-3 {
        weights.push(f64::from((sliver / cell) as f32));
    }
    weights.extend((first..last).map(|_| f64::from((1.0 / cell) as f32)));
    let rest = end - last as f64;
    if rest > 1e-3 {
        weights.push(f64::from((rest.min(1.0).min(cell) / cell) as f32));
    }
    (begin, weights)
}
