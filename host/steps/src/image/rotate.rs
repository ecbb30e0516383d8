//! `rotate`: an image turned by an angle.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::affine::{Affine, Interpolation};
use super::dims::ImageDims;
use super::geometry::{CoordinateChange, update_geometry, update_transform};
use super::image_step::{ImageOperation, image_step};
use super::window::FillValue;
use crate::deadline::Deadline;
use crate::homography::Homography;
use crate::ports;
use gpux_core::with_elements;
use gpux_core::{BuildError, Builtin, ElementSet, ElementType, Group, Step, StepFailure, Tensor, TensorElement};

/// Options of `rotate`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Rotate {
    /// By how much, in degrees, counter-clockwise. Multiples of 90 move pixels and change none.
    /// Required.
    degrees: f64,
    /// Whether the result is as large as the whole turned image needs; else it keeps its size and
    /// corners are cut off. Default: true.
    #[serde(default = "crate::ports::default_true")]
    expand: bool,
    /// How pixels are found at other angles: `nearest` (default), `bilinear` or `bicubic`.
    #[serde(default)]
    filter: Interpolation,
    /// What the corners are filled with: one number, or one for each channel. Default: 0.
    #[serde(default)]
    fill: FillValue,
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "rotate",
        summary: "Turns an image by an angle",
        group: Group::Image,
        follows: "Pillow: Image.rotate",
        example: "rotate: { degrees: 90 }",
        schema: || schemars::schema_for!(Rotate),
        build: |options, _| step(ports::options(options)?),
    }
}

fn step(options: Rotate) -> Result<Box<dyn Step>, BuildError> {
    if !options.degrees.is_finite() || options.degrees.abs() > 1e6 {
        return Err(BuildError::option("degrees", format!("`degrees` is {}, not an angle", options.degrees)));
    }
    image_step(options)
}

impl Rotate {
    fn angle(&self) -> f64 {
        self.degrees.rem_euclid(360.0)
    }

    /// Quarter turns, where nothing but those is needed for an image of this size.
    fn quarters(&self, height: usize, width: usize) -> Option<usize> {
        let quarters = self.angle() / 90.0;
        let whole = quarters.fract() == 0.0;
        let fits = self.expand || height == width || quarters % 2.0 == 0.0;
        (whole && fits).then_some(quarters as usize % 4)
    }
}

impl ImageOperation for Rotate {
    const NAME: &'static str = "rotate";
    const GIVES: &'static str = "the turned image";

    fn elements(&self) -> ElementSet {
        if self.angle() % 90.0 == 0.0 && self.expand {
            ElementSet::numeric()
        } else {
            ElementSet::of(&[ElementType::Uint8, ElementType::Float32])
        }
    }

    fn target(&self, sides: [Option<usize>; 2]) -> Result<[Option<usize>; 2], String> {
        let [Some(height), Some(width)] = sides else {
            return Ok(if self.expand && self.angle() % 180.0 != 0.0 { [None, None] } else { sides });
        };
        Ok(match self.quarters(height, width) {
            Some(quarters) if quarters % 2 == 1 => [Some(width), Some(height)],
            Some(_) => sides,
            None => Affine::rotation(self.angle(), height, width, self.expand).1.map(Some),
        })
    }

    fn channels(&self, channels: usize) -> Result<usize, String> {
        self.fill.check(channels).map(|()| channels)
    }

    fn buffers(&self, tensor: &Tensor, _: ImageDims) -> usize {
        // Colours weighed by their opacity are a copy.
        tensor.byte_len()
    }

    fn make(
        &self,
        tensor: Tensor,
        dims: ImageDims,
        target: ImageDims,
        deadline: &Deadline,
    ) -> Result<Tensor, StepFailure> {
        let metadata = match self.quarters(dims.height, dims.width) {
            Some(0) => return Ok(tensor),
            Some(2) => {
                let change = CoordinateChange { scale: [-1.0, -1.0], offset: [dims.width as f32, dims.height as f32] };
                update_geometry(tensor.metadata, dims, change)
            }
            Some(quarters) => update_transform(tensor.metadata, quarter_turn(dims, quarters)),
            None => {
                let (affine, _) = Affine::rotation(self.angle(), dims.height, dims.width, self.expand);
                update_transform(tensor.metadata, affine.homography())
            }
        };
        let turned = if let Some(quarters) = self.quarters(dims.height, dims.width) {
            with_elements!(tensor.data(), data => apply_orientation(data, dims, target, quarters, deadline))?
        } else {
            let (affine, _) = Affine::rotation(self.angle(), dims.height, dims.width, self.expand);
            affine.apply(&tensor, dims, target, self.filter, &self.fill, deadline)?
        };
        Ok(turned.with_metadata(metadata))
    }
}

/// From the coordinates of an image after one or three quarter turns counter-clockwise to those of the image, of size
/// `dims`, before.
pub(super) const fn quarter_turn(dims: ImageDims, quarters: usize) -> Homography {
    match quarters {
        1 => Homography::affine([0.0, -1.0, dims.width as f64, 1.0, 0.0, 0.0]),
        _ => Homography::affine([0.0, 1.0, 0.0, -1.0, 0.0, dims.height as f64]),
    }
}

/// The pixels after `quarters` quarter turns counter-clockwise.
pub(super) fn apply_orientation<T: TensorElement>(
    data: &[T],
    dims: ImageDims,
    target: ImageDims,
    quarters: usize,
    deadline: &Deadline,
) -> Result<Tensor, StepFailure> {
    let ImageDims { height, width, channels } = dims;
    let mut result = Vec::with_capacity(data.len());
    for y in 0..target.height {
        deadline.check_after(target.width * channels * 4)?;
        for x in 0..target.width {
            let (row, column) = match quarters {
                1 => (x, width - 1 - y),
                2 => (height - 1 - y, width - 1 - x),
                _ => (height - 1 - x, y),
            };
            result.extend_from_slice(&data[(row * width + column) * channels..][..channels]);
        }
    }
    Ok(Tensor::new([target.height, target.width, channels], result)?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::reference;
    use gpux_core::{Dim, Kind, TensorKind};

    #[test]
    fn quarter_turns_move_pixels() {
        let image = Tensor::new([2, 3, 1], vec![1_i64, 2, 3, 4, 5, 6]).unwrap();
        for (degrees, shape, expected) in [
            (0, [2, 3, 1], [1, 2, 3, 4, 5, 6]),
            (90, [3, 2, 1], [3, 6, 2, 5, 1, 4]),
            (180, [2, 3, 1], [6, 5, 4, 3, 2, 1]),
            (-90, [3, 2, 1], [4, 1, 5, 2, 6, 3]),
            (630, [3, 2, 1], [4, 1, 5, 2, 6, 3]),
        ] {
            let step = reference::step("rotate", json!({ "degrees": degrees }));
            let turned = reference::run_tensor(&*step, image.clone());
            assert_eq!((turned.shape(), turned.as_slice::<i64>().unwrap()), (shape.as_slice(), expected.as_slice()));
            assert_eq!(turned.metadata.geometry.is_some(), degrees == 180);
        }
    }

    #[test]
    fn transform_maps_points_to_the_source() {
        let image = || Tensor::new([2, 3, 1], vec![1_u8, 2, 3, 4, 5, 6]).unwrap();
        for (degrees, expand, here, expected) in [
            (90, true, [0.5, 0.5], [2.5, 0.5]),
            (270, true, [0.5, 0.5], [0.5, 1.5]),
            (90, false, [1.5, 1.0], [1.5, 1.0]),
            (45, false, [1.5, 1.0], [1.5, 1.0]),
        ] {
            let step = reference::step("rotate", json!({ "degrees": degrees, "expand": expand }));
            let turned = reference::run_tensor(&*step, image());
            let source = Homography::to_source(&turned.metadata).unwrap().apply(here);
            assert!(source.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9), "{degrees}: {source:?}");
        }
    }

    #[test]
    fn handles_empty_and_invalid_inputs() {
        for options in [json!({}), json!({"degrees": "90"}), json!({"degrees": 1e300})] {
            assert!(reference::build(builtin(), options.clone()).is_err(), "{options}");
        }
        let odd = vec![f32::NAN, f32::INFINITY, f32::MIN, f32::MAX, -0.0, 1e-40];
        for filter in ["nearest", "bilinear", "bicubic"] {
            let step = reference::step("rotate", json!({"degrees": 33.3, "filter": filter}));
            reference::run_tensor(&*step, Tensor::new([2, 3, 1], odd.clone()).unwrap());
            reference::run_tensor(&*step, Tensor::new([1, 1, 1], vec![1_u8]).unwrap());
            reference::run_tensor(&*step, Tensor::new([1, 3000, 1], vec![1_u8; 3000]).unwrap());
            let long = Tensor::new([1, 1 << 20, 1], vec![0_u8; 1 << 20]).unwrap();
            let error = step.run(vec![Some(long.into())], &mut gpux_core::Context::default()).unwrap_err();
            assert!(error.to_string().contains("is too much"), "{error}");
        }
    }

    #[test]
    fn infers_size() {
        let infer = |options| {
            let kind = TensorKind::shaped(ElementType::Uint8, [Dim::Fixed(10), Dim::Fixed(20), Dim::Fixed(3)]);
            reference::step("rotate", options).infer(&[Some(Kind::Tensor(kind))]).unwrap()[0].to_string()
        };
        assert_eq!(infer(json!({"degrees": 90})), "tensor uint8[20, 10, 3] HWC");
        assert_eq!(infer(json!({"degrees": 90, "expand": false})), "tensor uint8[10, 20, 3] HWC");
        assert_eq!(infer(json!({"degrees": 45})), "tensor uint8[22, 22, 3] HWC");
    }
}
