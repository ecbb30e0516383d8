//! `resize`: an image → the same image at another size.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::dims::{ImageDims, Size, check_limits};
use super::geometry::{CoordinateChange, update_geometry};
use super::image_step::{ImageOperation, image_step};
use super::resample::{Filter, Library, Sampling};
use crate::deadline::Deadline;
use crate::ports;
use gpux_core::{BuildError, Builtin, ElementSet, Group, Step, StepFailure, Tensor};

/// Options of `resize`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Options {
    /// `[height, width]` in pixels, or one number for both. With `mode: shortest` or `longest`, one
    /// number is the length of that side. At most 64 Mi pixels. Required.
    size: Size,
    /// `stretch` (default): exactly `size`, whatever becomes of the proportions; `shortest`: keep
    /// them, the image covers `size` (torchvision's `Resize(int)`); `longest`: keep them, the image
    /// fits within `size`.
    #[serde(default)]
    mode: Mode,
    /// How pixels are weighed: `nearest`, `bilinear` (default), `bicubic`, `lanczos`, or `area` (mean
    /// of the pixels that are covered; Pillow's BOX). With `library: opencv` there is no `lanczos`,
    /// with `library: torch` neither that nor `area`.
    #[serde(default)]
    filter: Filter,
    /// Whose numbers to reproduce: `pillow` (default), which averages over everything that a smaller
    /// pixel covers; `opencv`, which does not (`cv2.resize`; but for `area`); or `torch`, which is
    /// torchvision's `resize` of tensors.
    #[serde(default)]
    library: Library,
    /// Whether a smaller pixel is the average of everything it covers. A choice with `library: torch`
    /// only. Default: what the library does by itself, true for torch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    antialias: Option<bool>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Mode {
    #[default]
    Stretch,
    Shortest,
    Longest,
}

/// Resizes a height × width × channels image of uint8 or float32 with 1, 3 or 4 channels.
///
/// Follows Pillow's `Image.resize` of version 13: uint8 identical, float32 to the last bits. Where the
/// tensor is known to be RGBA, colours are weighed by their opacity, as Pillow does.
/// OpenCV's and torchvision's numbers are reproduced within one level.
#[derive(Serialize)]
struct Resize {
    #[serde(flatten)]
    options: Options,
    #[serde(skip)]
    sampling: Sampling,
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "resize",
        summary: "Resizes an image",
        group: Group::Image,
        follows: "Pillow: Image.resize; by option OpenCV: cv2.resize, torchvision: resize",
        example: "resize: { size: [224, 224], filter: bicubic }",
        schema: || schemars::schema_for!(Options),
        build: |options, _| step(ports::options(options)?),
    }
}

fn step(options: Options) -> Result<Box<dyn Step>, BuildError> {
    let sampling = Sampling::new(options.library, options.filter, options.antialias)?;
    let [height, width] = options.size.height_width();
    check_limits(height, width).map_err(|message| BuildError::option("size", message))?;
    image_step(Resize { options, sampling })
}

impl Resize {
    /// Height and width of what becomes of an image of `height` × `width`.
    fn scaled_size(&self, height: usize, width: usize) -> (usize, usize) {
        let [wanted_height, wanted_width] = self.options.size.height_width();
        // Proportions are kept as torchvision does: the other side is rounded down.
        let scaled = |side: usize, to: usize, of: usize| {
            let scaled = side as u128 * to as u128 / (of as u128).max(1);
            usize::try_from(scaled).unwrap_or(usize::MAX).max(1)
        };
        let by_width = (scaled(height, wanted_width, width), wanted_width);
        let by_height = (wanted_height, scaled(width, wanted_height, height));
        // Whether the width asks for more enlargement than the height does.
        let width_first = wanted_width as u128 * height as u128 >= wanted_height as u128 * width as u128;
        match self.options.mode {
            Mode::Stretch => (wanted_height, wanted_width),
            Mode::Shortest if width_first => by_width,
            Mode::Longest if !width_first => by_width,
            Mode::Shortest | Mode::Longest => by_height,
        }
    }
}

impl ImageOperation for Resize {
    const NAME: &'static str = "resize";
    const GIVES: &'static str = "the same at the new size";

    fn elements(&self) -> ElementSet {
        Sampling::elements()
    }

    fn target(&self, sides: [Option<usize>; 2]) -> Result<[Option<usize>; 2], String> {
        match (self.options.mode, sides) {
            (_, [Some(height), Some(width)]) => {
                let (height, width) = self.scaled_size(height, width);
                Ok([Some(height), Some(width)])
            }
            (Mode::Stretch, _) => Ok(self.options.size.height_width().map(Some)),
            _ => Ok([None, None]),
        }
    }

    fn buffers(&self, tensor: &Tensor, dims: ImageDims) -> usize {
        let (height, width) = self.scaled_size(dims.height, dims.width);
        self.sampling.buffers(tensor, dims, ImageDims { height, width, ..dims })
    }

    fn make(
        &self,
        tensor: Tensor,
        dims: ImageDims,
        target: ImageDims,
        deadline: &Deadline,
    ) -> Result<Tensor, StepFailure> {
        let metadata = update_geometry(tensor.metadata, dims, CoordinateChange::between(dims, target));
        let tensor = if dims == target { tensor } else { self.sampling.resize(&tensor, dims, target, deadline)? };
        Ok(tensor.with_metadata(metadata))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;
    use gpux_core::{Color, Context, Dim, ElementType, Kind, Layout, TensorKind};

    fn step(options: serde_json::Value) -> Box<dyn Step> {
        super::step(ports::options(options).unwrap()).unwrap()
    }

    fn given(elements: impl Into<ElementSet>, shape: &[Dim]) -> Vec<Option<Kind>> {
        vec![Some(Kind::Tensor(TensorKind::shaped(elements, shape)))]
    }

    #[test]
    fn infers_size() {
        let open = [Dim::Dynamic, Dim::Dynamic, Dim::Fixed(1)];
        let shown = |options, shape: &[Dim]| {
            step(options).infer(&given(ElementType::Uint8, shape)).unwrap().remove(0).to_string()
        };
        assert_eq!(shown(json!({"size": [8, 9]}), &open), "tensor uint8[8, 9, 1] HWC");
        assert_eq!(shown(json!({"size": 8}), &open), "tensor uint8[8, 8, 1] HWC");
        assert_eq!(shown(json!({"size": 8, "mode": "shortest"}), &open), "tensor uint8[?, ?, 1] HWC");
        let fixed = [Dim::Fixed(20), Dim::Fixed(50), Dim::Dynamic];
        assert_eq!(shown(json!({"size": 8, "mode": "shortest"}), &fixed), "tensor uint8[8, 20, ?] HWC");

        let refused = |kind: Vec<Option<Kind>>| step(json!({"size": 8})).infer(&kind).unwrap_err().to_string();
        assert!(refused(given(ElementType::Int64, &open)).contains("element type"));
        assert!(refused(given(ElementType::Uint8, &open[..2])).contains("it has 2 axes, not 3"));
        assert!(
            refused(given(ElementType::Uint8, &[Dim::Fixed(3), Dim::Fixed(8), Dim::Fixed(8)])).contains("8 channels")
        );
        assert!(refused(vec![Some(Kind::Text)]).contains("text"));
        let mut chw = TensorKind::of_elements(ElementType::Uint8);
        chw.layout = Some(Layout::Chw);
        assert!(refused(vec![Some(Kind::Tensor(chw))]).contains("layout is CHW"));
    }

    #[test]
    fn keeps_proportions_as_torchvision_does() {
        let target = |mode: &str, size: serde_json::Value, from: (usize, usize)| {
            let options: Options = ports::options(json!({"size": size, "mode": mode})).unwrap();
            let sampling = Sampling::new(options.library, options.filter, None).unwrap();
            Resize { options, sampling }.scaled_size(from.0, from.1)
        };
        assert_eq!(target("shortest", json!(256), (480, 641)), (256, 341));
        assert_eq!(target("shortest", json!(256), (641, 480)), (341, 256));
        assert_eq!(target("longest", json!(640), (480, 641)), (479, 640));
        assert_eq!(target("longest", json!([100, 300]), (50, 100)), (100, 200));
        assert_eq!(target("shortest", json!([100, 300]), (50, 100)), (150, 300));
        assert_eq!(target("longest", json!(10), (1, 5000)), (1, 10));
        assert_eq!(target("stretch", json!(10), (1, 5000)), (10, 10));
    }

    #[test]
    fn rejects_extreme_sizes() {
        for size in
            [json!(0), json!(-1), json!([0, 4]), json!([1, 2, 3]), json!(1.5), json!("8"), json!(4_294_967_295_u32)]
        {
            let built = crate::reference::build(builtin(), json!({"size": size}));
            assert!(built.is_err(), "{size}");
        }
        assert!(crate::reference::build(builtin(), serde_json::Value::Null).is_err());
        let run = |options, tensor: Tensor| step(options).run(vec![Some(tensor.into())], &mut Context::default());
        let line = || Tensor::new([1, 1000, 1], vec![0_u8; 1000]).unwrap();
        // 8192 high, and so 8 million wide.
        let error = run(json!({"size": 8192, "mode": "shortest"}), line()).unwrap_err();
        assert!(error.to_string().contains("is too much"), "{error}");
        // The result is small, but what lies between the two passes is not.
        let tall = Tensor::new([1 << 20, 1, 1], vec![0_u8; 1 << 20]).unwrap();
        assert!(matches!(run(json!({"size": [1, 1 << 20]}), tall), Err(StepFailure::InvalidInput(_))));
        for tensor in [
            Tensor::new([0, 4, 3], Vec::<u8>::new()).unwrap(),
            Tensor::new([4, 0, 1], Vec::<u8>::new()).unwrap(),
            Tensor::new([2, 2, 2], vec![0_u8; 8]).unwrap(),
            Tensor::new([4], vec![0_u8; 4]).unwrap(),
            Tensor::new([2, 2, 1], vec![0_i64; 4]).unwrap(),
            Tensor::new([(1 << 20) + 1, 1, 1], vec![0_u8; (1 << 20) + 1]).unwrap(),
        ] {
            assert!(matches!(run(json!({"size": 2}), tensor), Err(StepFailure::InvalidInput(_))));
        }
        let line = run(json!({"size": [1, 300_000], "filter": "lanczos"}), line()).unwrap().remove(0);
        assert_eq!(line.as_tensor().unwrap().shape(), [1, 300_000, 1]);
    }

    #[test]
    fn resizes_infinities_and_nan() {
        let odd = vec![f32::NAN, f32::INFINITY, f32::MIN, f32::MAX, -0.0, 1e-40, 3.0, f32::NEG_INFINITY];
        for filter in ["nearest", "bilinear", "bicubic", "lanczos", "area"] {
            let tensor = Tensor::new([2, 1, 4], odd.clone()).unwrap();
            let metadata = gpux_core::Metadata { color: Some(Color::Rgba), ..tensor.metadata };
            let options = json!({"size": [3, 5], "filter": filter});
            let input = tensor.with_metadata(metadata).into();
            assert!(step(options).run(vec![Some(input)], &mut Context::default()).is_ok());
        }
    }

    #[test]
    fn geometry_maps_back_to_the_source() {
        let tensor = Tensor::new([10, 20, 1], vec![0_u8; 200]).unwrap();
        let resized = |tensor: Tensor, size| {
            let step = step(json!({"size": size}));
            let mut result = step.run(vec![Some(tensor.into())], &mut Context::default()).unwrap();
            result.remove(0).as_tensor().unwrap().clone()
        };
        let once = resized(tensor, [5, 5]);
        let twice = resized(once, [10, 10]).metadata.geometry.unwrap();
        assert_eq!((twice.source_height, twice.source_width), (10, 20));
        assert_eq!((twice.scale_y, twice.scale_x, twice.offset_x), (1.0, 0.5, 0.0));
    }
}
