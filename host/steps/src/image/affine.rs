//! Images looked up at places that an affine map gives: Pillow's `Image.transform`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::dims::ImageDims;
use super::premultiply;
use super::window::FillValue;
use crate::deadline::Deadline;
use crate::homography::Homography;
use gpux_core::{Color, StepFailure, Tensor, TensorData, TensorElement};

/// How much longer than a copy a sample takes that lies between others.
const INTERPOLATION: usize = 8;

/// The interpolation between pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(super) enum Interpolation {
    #[default]
    Nearest,
    Bilinear,
    Bicubic,
}

/// The position of a new pixel in the old image: `x = a·x' + b·y' + c`, `y = d·x' + e·y' + f`.
pub(super) struct Affine([f64; 6]);

impl Affine {
    /// A turn by `angle` degrees about the middle, and the height and width of what it gives.
    pub(super) fn rotation(angle: f64, height: usize, width: usize, expand: bool) -> (Self, [usize; 2]) {
        // As Pillow, so that right angles have no remainder: Python's `round` goes by the decimal digits.
        let rounded = |number: f64| format!("{number:.15}").parse().unwrap_or(number);
        let (sin, cos) = (-angle.to_radians()).sin_cos();
        let (w, h) = (width as f64, height as f64);
        let mut map = Self([rounded(cos), rounded(sin), 0.0, rounded(-sin), rounded(cos), 0.0]);
        let (x, y) = map.at(-w / 2.0, -h / 2.0);
        (map.0[2], map.0[5]) = (x + w / 2.0, y + h / 2.0);
        if !expand {
            return (map, [height, width]);
        }
        let corners = [(0.0, 0.0), (w, 0.0), (w, h), (0.0, h)].map(|(x, y)| map.at(x, y));
        let span = |values: [f64; 4]| {
            let (low, high) =
                values.into_iter().fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
            high.ceil() - low.floor()
        };
        let (wide, high) = (span(corners.map(|corner| corner.0)), span(corners.map(|corner| corner.1)));
        (map.0[2], map.0[5]) = map.at(-(wide - w) / 2.0, -(high - h) / 2.0);
        (map, [high as usize, wide as usize])
    }

    /// The same map, from the coordinates of the new image to those of the old one.
    pub(super) const fn homography(&self) -> Homography {
        Homography::affine(self.0)
    }

    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let of = |row: &[f64]| row[0] * x + row[1] * y + row[2];
        (of(&self.0[..3]), of(&self.0[3..]))
    }

    /// The image of size `target` that this map gives; what lies outside is filled.
    pub(super) fn apply(
        &self,
        tensor: &Tensor,
        dims: ImageDims,
        target: ImageDims,
        how: Interpolation,
        fill: &FillValue,
        deadline: &Deadline,
    ) -> Result<Tensor, StepFailure> {
        let shape = [target.height, target.width, dims.channels];
        // Colours are mixed by their opacity.
        let weigh = how != Interpolation::Nearest && tensor.metadata.color == Some(Color::Rgba) && dims.channels == 4;
        match tensor.data() {
            TensorData::Uint8(data) if weigh => {
                let mut result = self.sample_all(&premultiply::premultiply(data), dims, target, how, fill, deadline)?;
                premultiply::unpremultiply(&mut result);
                Ok(Tensor::new(shape, result)?)
            }
            TensorData::Uint8(data) => {
                Ok(Tensor::new(shape, self.sample_all(data, dims, target, how, fill, deadline)?)?)
            }
            TensorData::Float32(data) => {
                Ok(Tensor::new(shape, self.sample_all(data, dims, target, how, fill, deadline)?)?)
            }
            other => Err(StepFailure::Failed(format!("cannot interpolate {}", other.element()))),
        }
    }

    fn sample_all<T: AffineSample>(
        &self,
        data: &[T],
        dims: ImageDims,
        target: ImageDims,
        how: Interpolation,
        fill: &FillValue,
        deadline: &Deadline,
    ) -> Result<Vec<T>, StepFailure> {
        let fill = fill.pixel::<T>(dims.channels)?;
        let source = Source { data, dims };
        let mut result = Vec::with_capacity(target.height * target.width * dims.channels);
        let steps = self.0.map(|number| (number * 65536.0 + 0.5).floor() as i64);
        let (x, y) = self.at(0.5, 0.5);
        let start = [x, y].map(|number| (number * 65536.0 + 0.5).floor() as i64);
        for row in 0..target.height {
            deadline.check_after(target.width * dims.channels * INTERPOLATION)?;
            for column in 0..target.width {
                if how == Interpolation::Nearest {
                    // In Pillow's fixed point, which decides where a place lies between two pixels.
                    let (row, column) = (row as i64, column as i64);
                    let x = (start[0] + steps[0] * column + steps[1] * row) >> 16;
                    let y = (start[1] + steps[3] * column + steps[4] * row) >> 16;
                    result.extend_from_slice(source.pixel(x, y).unwrap_or(&fill));
                    continue;
                }
                let (x, y) = self.at(column as f64 + 0.5, row as f64 + 0.5);
                if x < 0.0 || x >= dims.width as f64 || y < 0.0 || y >= dims.height as f64 {
                    result.extend_from_slice(&fill);
                } else if how == Interpolation::Bilinear {
                    result.extend((0..dims.channels).map(|channel| source.bilinear(x - 0.5, y - 0.5, channel)));
                } else {
                    result.extend((0..dims.channels).map(|channel| source.bicubic(x - 0.5, y - 0.5, channel)));
                }
            }
        }
        Ok(result)
    }
}

trait AffineSample: TensorElement + Copy + Into<f64> {
    fn from_f64(value: f64) -> Self;
}
impl AffineSample for u8 {
    fn from_f64(value: f64) -> Self {
        // Pillow cuts off; the cast saturates.
        value as Self
    }
}
impl AffineSample for f32 {
    fn from_f64(value: f64) -> Self {
        value as Self
    }
}

struct Source<'a, T> {
    data: &'a [T],
    dims: ImageDims,
}

impl<T: AffineSample> Source<'_, T> {
    fn pixel(&self, x: i64, y: i64) -> Option<&[T]> {
        let ImageDims { height, width, channels } = self.dims;
        let inside = (0..width as i64).contains(&x) && (0..height as i64).contains(&y);
        inside.then(|| &self.data[(y as usize * width + x as usize) * channels..][..channels])
    }

    fn sample(&self, x: i64, y: i64, channel: usize) -> f64 {
        let ImageDims { height, width, channels } = self.dims;
        let (x, y) = (x.clamp(0, width as i64 - 1) as usize, y.clamp(0, height as i64 - 1) as usize);
        self.data[(y * width + x) * channels + channel].into()
    }

    fn bilinear(&self, x: f64, y: f64, channel: usize) -> T {
        let mix = |a: f64, b: f64, by: f64| a + (b - a) * by;
        let (left, top) = (x.floor(), y.floor());
        let row = |y: i64| {
            let at = |offset: i64| self.sample(left as i64 + offset, y, channel);
            mix(at(0), at(1), x - left)
        };
        T::from_f64(mix(row(top as i64), row(top as i64 + 1), y - top))
    }

    fn bicubic(&self, x: f64, y: f64, channel: usize) -> T {
        let mix = |[a, b, c, d]: [f64; 4], by: f64| {
            let (p2, p3, p4) = (c - a, 2.0 * (a - b) + c - d, b - a - c + d);
            b + by * (p2 + by * (p3 + by * p4))
        };
        let (left, top) = (x.floor(), y.floor());
        let offsets = [-1, 0, 1, 2];
        let row = |y: i64| mix(offsets.map(|offset| self.sample(left as i64 + offset, y, channel)), x - left);
        T::from_f64(mix(offsets.map(|offset| row(top as i64 + offset)), y - top))
    }
}
