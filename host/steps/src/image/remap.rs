//! Images looked up at the places that a map of the plane gives: OpenCV's `warpAffine` and `warpPerspective`.

use super::dims::ImageDims;
use super::window::{BorderMode, FillValue};
use crate::deadline::Deadline;
use crate::homography::Homography;
use gpux_core::{StepFailure, Tensor, TensorData, TensorElement};

use super::affine::Interpolation;

/// How much longer than an addition it takes to find a sample, by its neighbours.
const NEAREST: usize = 4;
const BILINEAR: usize = 8;
const BICUBIC: usize = 32;

/// How pixels are found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remap<'a> {
    /// from the pixel centres of the new image to those of the given one, both counted from the first pixel's
    pub(super) back: Homography,
    pub(super) filter: Interpolation,
    pub(super) border: BorderMode,
    pub(super) fill: &'a FillValue,
}

impl Remap<'_> {
    /// The image of size `target` that this gives of one of size `dims`. The metadata is that of a new tensor.
    pub(super) fn apply(
        &self,
        tensor: &Tensor,
        dims: ImageDims,
        target: ImageDims,
        deadline: &Deadline,
    ) -> Result<Tensor, StepFailure> {
        let shape = [target.height, target.width, dims.channels];
        match tensor.data() {
            TensorData::Uint8(data) => Ok(Tensor::new(shape, self.samples(data, dims, target, deadline)?)?),
            TensorData::Float32(data) => Ok(Tensor::new(shape, self.samples(data, dims, target, deadline)?)?),
            other => Err(StepFailure::InvalidInput(format!("cannot interpolate {}; cast it first", other.element()))),
        }
    }

    fn samples<T: Sample>(
        &self,
        data: &[T],
        dims: ImageDims,
        target: ImageDims,
        deadline: &Deadline,
    ) -> Result<Vec<T>, StepFailure> {
        let fill = self.fill.pixel::<T>(dims.channels)?;
        let source = Source { data, dims, border: self.border, fill: &fill };
        let mut result = Vec::with_capacity(target.height * target.width * dims.channels);
        let work = match self.filter {
            Interpolation::Nearest => NEAREST,
            Interpolation::Bilinear => BILINEAR,
            Interpolation::Bicubic => BICUBIC,
        };
        for row in 0..target.height {
            for column in 0..target.width {
                deadline.check_after(dims.channels * work)?;
                let [x, y] = self.back.apply([column as f64, row as f64]);
                match self.filter {
                    Interpolation::Nearest => source.nearest([x, y].map(f64::round_ties_even), &mut result),
                    Interpolation::Bilinear => {
                        let weights = |by: f32| [1.0 - by, by];
                        let start = [x, y].map(f64::floor);
                        let by = [x - start[0], y - start[1]].map(|part| weights(part as f32));
                        source.weighted(start, by, &mut result);
                    }
                    Interpolation::Bicubic => {
                        let start = [x, y].map(f64::floor);
                        let by = [x - start[0], y - start[1]].map(|part| cubic(part as f32));
                        source.weighted(start.map(|number| number - 1.0), by, &mut result);
                    }
                }
            }
        }
        Ok(result)
    }
}

/// Weights of the four neighbours of a place `by` after the second of them, with OpenCV's -0.75.
fn cubic(by: f32) -> [f32; 4] {
    const A: f32 = -0.75;
    let near = |x: f32| ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0;
    let far = ((A * (by + 1.0) - 5.0 * A) * (by + 1.0) + 8.0 * A) * (by + 1.0) - 4.0 * A;
    let weights = [far, near(by), near(1.0 - by)];
    [weights[0], weights[1], weights[2], 1.0 - weights[0] - weights[1] - weights[2]]
}

trait Sample: TensorElement + Copy + Into<f32> {
    fn from_f32(value: f32) -> Self;
}
impl Sample for u8 {
    fn from_f32(value: f32) -> Self {
        // The cast saturates.
        value.round_ties_even() as Self
    }
}
impl Sample for f32 {
    fn from_f32(value: f32) -> Self {
        value
    }
}

struct Source<'a, T> {
    data: &'a [T],
    dims: ImageDims,
    border: BorderMode,
    fill: &'a [T],
}

impl<T: Sample> Source<'_, T> {
    fn nearest(&self, [x, y]: [f64; 2], result: &mut Vec<T>) {
        let places = [self.border.index(x as i64, self.dims.width), self.border.index(y as i64, self.dims.height)];
        result.extend_from_slice(self.pixel(places[0], places[1]));
    }

    fn pixel(&self, x: Option<usize>, y: Option<usize>) -> &[T] {
        let ImageDims { width, channels, .. } = self.dims;
        match (x, y) {
            (Some(x), Some(y)) => &self.data[(y * width + x) * channels..][..channels],
            _ => self.fill,
        }
    }

    /// The weighted sum of `N` × `N` pixels from `start` on, horizontal weights first.
    fn weighted<const N: usize>(&self, start: [f64; 2], by: [[f32; N]; 2], result: &mut Vec<T>) {
        let ImageDims { height, width, .. } = self.dims;
        let [left, top] = start.map(|number| number as i64);
        let is_inside = left >= 0 && top >= 0 && left as usize + N <= width && top as usize + N <= height;
        if is_inside {
            self.weighted_inside([left as usize, top as usize], by, result);
            return;
        }
        let xs: [Option<usize>; N] = std::array::from_fn(|at| self.border.index(left + at as i64, width));
        let ys: [Option<usize>; N] = std::array::from_fn(|at| self.border.index(top + at as i64, height));
        if xs.iter().all(Option::is_none) || ys.iter().all(Option::is_none) {
            result.extend_from_slice(self.fill);
            return;
        }
        let rows = ys.map(|y| xs.map(|x| self.pixel(x, y)));
        for channel in 0..self.dims.channels {
            let mut sum = 0.0;
            for (row, down) in rows.iter().zip(by[1]) {
                let across: f32 = row.iter().zip(by[0]).map(|(pixel, by)| pixel[channel].into() * by).sum();
                sum += across * down;
            }
            result.push(T::from_f32(sum));
        }
    }

    /// The same where all pixels are those of the image.
    fn weighted_inside<const N: usize>(&self, [left, top]: [usize; 2], by: [[f32; N]; 2], result: &mut Vec<T>) {
        let ImageDims { width, channels, .. } = self.dims;
        let row = |down: usize| &self.data[((top + down) * width + left) * channels..][..N * channels];
        let rows: [&[T]; N] = std::array::from_fn(row);
        for channel in 0..channels {
            let mut sum = 0.0;
            for (row, down) in rows.iter().zip(by[1]) {
                let mut across = 0.0;
                for (at, by) in by[0].into_iter().enumerate() {
                    across += row[at * channels + channel].into() * by;
                }
                sum += across * down;
            }
            result.push(T::from_f32(sum));
        }
    }
}
