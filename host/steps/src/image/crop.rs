//! `crop`: a part of an image.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::dims::ImageDims;
use super::geometry::{CoordinateChange, update_geometry};
use super::image_step::{ImageOperation, image_step};
use super::window::{BorderMode, FillValue, Window, cut};
use crate::deadline::Deadline;
use crate::ports;
use gpux_core::{Builtin, Group, StepFailure, Tensor};

/// Options of `crop`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Crop {
    /// The first row, counted from 0; a negative one lies above the image. Default: 0.
    #[serde(default)]
    #[schemars(range(min = -1_048_576, max = 1_048_576))]
    top: i64,
    /// The first column, counted from 0; a negative one lies left of the image. Default: 0.
    #[serde(default)]
    #[schemars(range(min = -1_048_576, max = 1_048_576))]
    left: i64,
    /// How many rows. Required.
    #[schemars(range(min = 1, max = 1_048_576))]
    height: usize,
    /// How many columns. Required.
    #[schemars(range(min = 1, max = 1_048_576))]
    width: usize,
    /// What lies outside of the image: one number, or one for each channel. Default: 0.
    #[serde(default)]
    fill: FillValue,
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "crop",
        summary: "Cuts a part out of an image",
        group: Group::Image,
        follows: "torchvision: transforms.v2.functional.crop (Pillow: Image.crop)",
        example: "crop: { top: 10, left: 20, height: 100, width: 100 }",
        schema: || schemars::schema_for!(Crop),
        build: |options, _| image_step(ports::options::<Crop>(options)?),
    }
}

impl ImageOperation for Crop {
    const NAME: &'static str = "crop";
    const GIVES: &'static str = "the part of the image";

    fn target(&self, _: [Option<usize>; 2]) -> Result<[Option<usize>; 2], String> {
        Ok([Some(self.height), Some(self.width)])
    }

    fn channels(&self, channels: usize) -> Result<usize, String> {
        self.fill.check(channels).map(|()| channels)
    }

    fn make(
        &self,
        tensor: Tensor,
        dims: ImageDims,
        target: ImageDims,
        deadline: &Deadline,
    ) -> Result<Tensor, StepFailure> {
        let metadata = update_geometry(
            tensor.metadata,
            dims,
            CoordinateChange::translation([-(self.left as f32), -(self.top as f32)]),
        );
        let window = Window { top: self.top, left: self.left, height: target.height, width: target.width };
        Ok(cut(tensor, dims, window, BorderMode::Constant, &self.fill, deadline)?.with_metadata(metadata))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::reference;

    #[test]
    fn geometry_maps_boxes_to_the_source() {
        let image = Tensor::new([4, 6, 1], (0..24_u8).collect::<Vec<_>>()).unwrap();
        let step = reference::step("crop", json!({"top": 1, "left": -2, "height": 2, "width": 4, "fill": 9}));
        let cropped = reference::run_tensor(&*step, image);
        assert_eq!(cropped.as_slice::<u8>().unwrap(), [9, 9, 6, 7, 9, 9, 12, 13]);
        let geometry = cropped.metadata.geometry.unwrap();
        assert_eq!((geometry.source_width, geometry.source_height), (6, 4));
        assert_eq!((geometry.offset_x, geometry.offset_y, geometry.scale_x), (2.0, -1.0, 1.0));
    }

    #[test]
    fn fills_far_outside_windows() {
        for (top, left) in [(-100, 0), (100, 0), (0, -100), (0, 100), (-1 << 20, 1 << 20)] {
            let step = reference::step("crop", json!({"top": top, "left": left, "height": 2, "width": 3, "fill": 7}));
            let cropped = reference::run_tensor(&*step, Tensor::new([1, 1, 1], vec![1_u8]).unwrap());
            assert_eq!(cropped.as_slice::<u8>().unwrap(), [7; 6]);
        }
    }

    #[test]
    fn rejects_invalid_options() {
        for options in [
            json!({}),
            json!({"height": 0, "width": 1}),
            json!({"height": 1_048_576, "width": 1_048_576}),
            json!({"height": 1, "width": 1, "top": i64::MIN}),
            json!({"height": -1, "width": 1}),
        ] {
            assert!(reference::build(builtin(), options.clone()).is_err(), "{options}");
        }
        let step = reference::step("crop", json!({"height": 1, "width": 1, "fill": [1, 2]}));
        let image = Tensor::new([1, 1, 3], vec![0_u8; 3]).unwrap();
        let error = step.run(vec![Some(image.into())], &mut gpux_core::Context::default()).unwrap_err();
        assert!(error.to_string().contains("`fill` lists 2 numbers, but the image has 3 channels"), "{error}");
    }
}
