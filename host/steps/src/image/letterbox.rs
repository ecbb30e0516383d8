//! `letterbox`: an image → the same image within a size, its proportions kept, the rest filled.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::dims::{ImageDims, Size, check_limits};
use super::geometry::{CoordinateChange, update_geometry};
use super::image_step::{ImageOperation, image_step};
use super::resample::{Filter, Library, Sampling};
use super::window::{BorderMode, FillValue, Window, cut};
use crate::deadline::Deadline;
use crate::ports;
use gpux_core::{BuildError, Builtin, ElementSet, Group, Step, StepFailure, Tensor};

/// Options of `letterbox`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Options {
    /// `[height, width]` in pixels that the image is fitted into, or one number for both. Required.
    size: Size,
    /// What the rest is filled with: one number, or one for each channel. Default: 114.
    #[serde(default = "gray")]
    fill: FillValue,
    /// Whether to fill up to a multiple of `stride` only, instead of the whole size. Default: false.
    #[serde(default)]
    auto: bool,
    /// The stride of the model, in pixels; for `auto`. Default: 32.
    #[serde(default = "stride")]
    #[schemars(range(min = 1, max = 65536))]
    stride: usize,
    /// Whether a smaller image is enlarged. Default: true.
    #[serde(default = "crate::ports::default_true")]
    scaleup: bool,
    /// Whether the image lies in the middle; else at the top left. Default: true.
    #[serde(default = "crate::ports::default_true")]
    center: bool,
    /// How pixels are weighed: `nearest`, `bilinear` (default), `bicubic`, `lanczos` or `area`.
    #[serde(default)]
    filter: Filter,
    /// Whose numbers the filter gives: `opencv` (default; as Ultralytics), `pillow` or `torch`; see `resize`.
    #[serde(default = "opencv")]
    library: Library,
}

const fn gray() -> FillValue {
    FillValue::All(114.0)
}

const fn stride() -> usize {
    32
}

const fn opencv() -> Library {
    Library::Opencv
}

/// Fits an image into a size by the rule of Ultralytics' `LetterBox`, whose boxes are mapped back
/// with the geometry that it leaves on the tensor.
#[derive(Serialize)]
struct Letterbox {
    #[serde(flatten)]
    options: Options,
    #[serde(skip)]
    sampling: Sampling,
}

/// The position of the image in the result.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Placement {
    scale: f64,
    /// height and width of the image
    inner: [usize; 2],
    /// pixels above it and left of it
    before: [usize; 2],
    /// height and width with what is filled
    outer: [usize; 2],
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "letterbox",
        summary: "Fits an image into a size, keeps its proportions and fills up the rest",
        group: Group::Image,
        follows: "Ultralytics: LetterBox (OpenCV: cv2.resize, cv2.copyMakeBorder)",
        example: "letterbox: { size: [640, 640] }",
        schema: || schemars::schema_for!(Options),
        build: |options, _| step(ports::options(options)?),
    }
}

fn step(options: Options) -> Result<Box<dyn Step>, BuildError> {
    let [height, width] = options.size.height_width();
    check_limits(height, width).map_err(|message| BuildError::option("size", message))?;
    let sampling = Sampling::new(options.library, options.filter, None)?;
    image_step(Letterbox { options, sampling })
}

impl Letterbox {
    fn placement(&self, sides: [usize; 2]) -> Placement {
        let size = self.options.size.height_width();
        let ratio = |axis: usize| size[axis] as f64 / sides[axis] as f64;
        let scale = ratio(0).min(ratio(1));
        let scale = if self.options.scaleup { scale } else { scale.min(1.0) };
        // Python rounds halves to the even. A line may come out without any width.
        let inner = sides.map(|side| (side as f64 * scale).round_ties_even() as usize).map(|side| side.max(1));
        let mut before = [0; 2];
        let mut outer = [0; 2];
        for axis in 0..2 {
            let rest = size[axis].saturating_sub(inner[axis]);
            let rest = if self.options.auto { rest % self.options.stride } else { rest };
            // The larger half of an odd rest lies behind.
            before[axis] = if self.options.center { rest / 2 } else { 0 };
            outer[axis] = inner[axis] + rest;
        }
        Placement { scale, inner, before, outer }
    }
}

impl ImageOperation for Letterbox {
    const NAME: &'static str = "letterbox";
    const GIVES: &'static str = "the image within the size";

    fn elements(&self) -> ElementSet {
        Sampling::elements()
    }

    fn target(&self, sides: [Option<usize>; 2]) -> Result<[Option<usize>; 2], String> {
        match sides {
            [Some(height), Some(width)] if height > 0 && width > 0 => {
                Ok(self.placement([height, width]).outer.map(Some))
            }
            _ if self.options.auto => Ok([None, None]),
            _ => Ok(self.options.size.height_width().map(Some)),
        }
    }

    fn channels(&self, channels: usize) -> Result<usize, String> {
        self.options.fill.check(channels).map(|()| channels)
    }

    fn buffers(&self, tensor: &Tensor, dims: ImageDims) -> usize {
        let [height, width] = self.placement([dims.height, dims.width]).inner;
        let inner = ImageDims { height, width, ..dims };
        let sample = tensor.element().size().unwrap_or(1);
        self.sampling.buffers(tensor, dims, inner).saturating_add(height * width * dims.channels * sample)
    }

    fn make(&self, tensor: Tensor, dims: ImageDims, _: ImageDims, deadline: &Deadline) -> Result<Tensor, StepFailure> {
        let Placement { scale, inner: [height, width], before, outer } = self.placement([dims.height, dims.width]);
        let inner = ImageDims { height, width, ..dims };
        let scale = scale as f32;
        let change = CoordinateChange { scale: [scale, scale], offset: [before[1] as f32, before[0] as f32] };
        let metadata = update_geometry(tensor.metadata, dims, change);
        let resized = if inner == dims { tensor } else { self.sampling.resize(&tensor, dims, inner, deadline)? };
        let [top, left] = before.map(|before| -(before as i64));
        let window = Window { top, left, height: outer[0], width: outer[1] };
        Ok(cut(resized, inner, window, BorderMode::Constant, &self.options.fill, deadline)?.with_metadata(metadata))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::reference;
    use gpux_core::{Dim, ElementType, Kind, TensorKind};

    fn run(options: serde_json::Value, height: usize, width: usize) -> Tensor {
        let image = Tensor::new([height, width, 3], vec![200_u8; height * width * 3]).unwrap();
        reference::run_tensor(&*reference::step("letterbox", options), image)
    }

    #[test]
    fn geometry_maps_boxes_to_the_source() {
        let boxed = run(json!({"size": 64}), 20, 40);
        assert_eq!(boxed.shape(), [64, 64, 3]);
        let geometry = boxed.metadata.geometry.unwrap();
        assert_eq!((geometry.source_width, geometry.source_height), (40, 20));
        assert_eq!((geometry.scale_x, geometry.scale_y), (1.6, 1.6));
        assert_eq!((geometry.offset_x, geometry.offset_y), (0.0, 16.0));
        let row = |y: usize| boxed.as_slice::<u8>().unwrap()[y * 64 * 3];
        assert_eq!([row(15), row(16), row(47), row(48)], [114, 200, 200, 114]);
    }

    #[test]
    fn computes_sizes() {
        assert_eq!(run(json!({"size": 640, "auto": true}), 480, 641).shape(), [480, 640, 3]);
        assert_eq!(run(json!({"size": 64, "scaleup": false}), 10, 20).shape(), [64, 64, 3]);
        assert_eq!(run(json!({"size": 64, "auto": true, "scaleup": false}), 10, 20).shape(), [32, 32, 3]);
        assert_eq!(run(json!({"size": 64, "auto": true, "stride": 16}), 10, 20).shape(), [32, 64, 3]);
        assert_eq!(run(json!({"size": [8, 8]}), 1, 5000).shape(), [8, 8, 3]);
        assert_eq!(run(json!({"size": [8, 8]}), 5000, 1).shape(), [8, 8, 3]);
    }

    #[test]
    fn infers_size() {
        let infer = |options| {
            let shape = [Dim::Dynamic, Dim::Dynamic, Dim::Fixed(3)];
            let kind = Kind::Tensor(TensorKind::shaped(ElementType::Uint8, shape));
            reference::step("letterbox", options).infer(&[Some(kind)]).unwrap()[0].to_string()
        };
        assert_eq!(infer(json!({"size": [64, 32]})), "tensor uint8[64, 32, 3] HWC");
        assert_eq!(infer(json!({"size": 64, "auto": true})), "tensor uint8[?, ?, 3] HWC");
        for options in [
            json!({}),
            json!({"size": 0}),
            json!({"size": 100_000}),
            json!({"size": 8, "stride": 0}),
            json!({"size": 8, "filter": "lanczos"}),
            json!({"size": 8, "fill": [1, 2, 3, "4"]}),
        ] {
            assert!(reference::build(builtin(), options.clone()).is_err(), "{options}");
        }
    }
}
