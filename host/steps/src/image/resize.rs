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

/// An image whose proportions decide about its size is not enlarged to more pixels than this, but by this factor: a
/// strip of a few pixels would else fill the memory.
const MAX_ENLARGED: usize = 16 << 20;
const MAX_FACTOR: usize = 16;

/// Options of `resize`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Options {
    /// `[height, width]` in pixels, or one number for both. With `mode: shortest` or `longest`, one
    /// number is the length of that side. At most 64 Mi pixels. Required, unless there are bounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    size: Option<Size>,
    /// `stretch` (default): exactly `size`, whatever becomes of the proportions; `shortest`: keep
    /// them, the image covers `size` (torchvision's `Resize(int)`); `longest`: keep them, the image
    /// fits within `size`; `line`: the height of `size`, with the width that keeps them, rounded up
    /// within the width of `size` and down beyond it (PaddleOCR's for a line of text).
    #[serde(default)]
    mode: Mode,
    /// Bounds in place of `size`: an image with a shorter edge below it, in pixels, is enlarged to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_048_576))]
    min_edge: Option<usize>,
    /// Bounds in place of `size`: an image with a longer edge above it, in pixels, is made smaller, even
    /// if it has `min_edge` no more. With `mode: line`, the most pixels of width.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_048_576))]
    max_edge: Option<usize>,
    /// Both sides become the nearest multiple of this, such as the 32 of a model; at least one of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65_536))]
    multiple_of: Option<usize>,
    /// Whether an image within the bounds stays as it is, whatever `multiple_of`. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    keep_within: bool,
    /// How pixels are weighed: `nearest`, `bilinear` (default), `bicubic`, `lanczos`, or `area` (mean
    /// of the pixels that are covered; Pillow's BOX). With `library: opencv` there is no `lanczos`,
    /// with `library: torch` neither that nor `area`, but `nearest_exact`, torch's nearest pixel by its middle.
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
    Line,
}

/// Resizes a height × width × channels image of uint8 or float32.
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
    let has_bounds = options.min_edge.is_some() || options.max_edge.is_some();
    match options.size {
        None if !has_bounds && options.multiple_of.is_none() => {
            let message = "resize needs `size`, or one of `min_edge`, `max_edge` and `multiple_of`".into();
            let error = BuildError { option: Vec::new(), message, hint: None };
            return Err(error.with_hint("for example `resize: { size: 224 }` or `resize: { min_edge: 736 }`"));
        }
        None if options.mode != Mode::Stretch => {
            return Err(BuildError::option("mode", "`mode` is for `size`; bounds keep the proportions"));
        }
        Some(_) if options.min_edge.is_some() || options.max_edge.is_some() && options.mode != Mode::Line => {
            let name = if options.min_edge.is_some() { "min_edge" } else { "max_edge" };
            return Err(BuildError::option(name, format!("`{name}` is a bound in place of `size`"))
                .with_hint("leave `size` out"));
        }
        Some(_) if options.keep_within => {
            return Err(BuildError::option("keep_within", "`keep_within` is for `min_edge` and `max_edge`"));
        }
        Some(size) => {
            let [height, width] = size.height_width();
            check_limits(height, width).map_err(|message| BuildError::option("size", message))?;
        }
        None => {}
    }
    image_step(Resize { options, sampling })
}

impl Resize {
    /// Height and width of what becomes of an image of `height` × `width`.
    fn scaled_size(&self, height: usize, width: usize) -> (usize, usize) {
        let scaled = match self.options.size {
            Some(size) => self.sized(size.height_width(), height, width),
            None => self.bounded(height, width),
        };
        if self.options.keep_within && scaled == (height, width) {
            return scaled;
        }
        let multiple = self.options.multiple_of.unwrap_or(1);
        // Python rounds halves to the even.
        let rounded = |side: usize| {
            let times = (side as f64 / multiple as f64).round_ties_even() as usize;
            times.max(1).saturating_mul(multiple)
        };
        (rounded(scaled.0), rounded(scaled.1))
    }

    fn sized(&self, [wanted_height, wanted_width]: [usize; 2], height: usize, width: usize) -> (usize, usize) {
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
            Mode::Line => {
                // In the floats of PaddleOCR, whose errors count where a width is nearly whole.
                let exact = wanted_height as f64 * (width as f64 / height as f64);
                let width = if exact.ceil() as usize <= wanted_width {
                    exact.ceil() as usize
                } else {
                    wanted_width.max(exact as usize)
                };
                (wanted_height, width.max(1).min(self.options.max_edge.unwrap_or(usize::MAX)))
            }
        }
    }

    /// An error where the proportions of an image ask for far more pixels than it has.
    fn check_enlargement(&self, from: (usize, usize), to: (usize, usize)) -> Result<(), String> {
        let is_given = self.options.size.is_some() && matches!(self.options.mode, Mode::Stretch | Mode::Longest);
        let pixels = |(height, width): (usize, usize)| height.saturating_mul(width);
        if is_given || pixels(to) <= MAX_ENLARGED.max(pixels(from).saturating_mul(MAX_FACTOR)) {
            return Ok(());
        }
        Err(format!(
            "enlarging an image of {} × {} pixels to {} × {} is too much: at most {MAX_ENLARGED} pixels, or {MAX_FACTOR} \
             times its own; bound the longer edge by `max_edge`, or give it a border by `pad` first",
            from.0, from.1, to.0, to.1
        ))
    }

    /// Within `min_edge` and `max_edge`, the proportions kept as PaddleOCR does: in floats, rounded down.
    fn bounded(&self, height: usize, width: usize) -> (usize, usize) {
        let (shorter, longer) = (height.min(width), height.max(width));
        let scale = |side: usize, bound: usize, edge: usize| {
            let scaled = (side as f64 * (bound as f64 / edge as f64)) as usize;
            if side == edge { bound } else { scaled.max(1) }
        };
        let by = |bound: usize, edge: usize| (scale(height, bound, edge), scale(width, bound, edge));
        let enlarged = self.options.min_edge.filter(|least| shorter < *least).map(|least| by(least, shorter));
        let (high, wide) = enlarged.unwrap_or((height, width));
        match self.options.max_edge {
            Some(most) if high.max(wide) > most => by(most, longer),
            _ => (high, wide),
        }
    }
}

impl ImageOperation for Resize {
    const NAME: &'static str = "resize";
    const GIVES: &'static str = "the same at the new size";

    fn elements(&self) -> ElementSet {
        Sampling::elements()
    }

    fn takes_any_channels(&self) -> bool {
        true
    }

    fn target(&self, sides: [Option<usize>; 2]) -> Result<[Option<usize>; 2], String> {
        match (self.options.mode, sides) {
            (_, [Some(height), Some(width)]) => {
                let from = (height, width);
                let (height, width) = self.scaled_size(height, width);
                self.check_enlargement(from, (height, width))?;
                Ok([Some(height), Some(width)])
            }
            (mode, _) => {
                let Some(size) = self.options.size.filter(|_| matches!(mode, Mode::Stretch | Mode::Line)) else {
                    return Ok([None, None]);
                };
                let [height, width] = size.height_width();
                let (height, width) = self.scaled_size(height, width);
                Ok([Some(height), Some(width).filter(|_| mode == Mode::Stretch)])
            }
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
    fn keeps_within_bounds_as_paddleocr_does() {
        let target = |options: serde_json::Value, (height, width): (usize, usize)| {
            let options: Options = ports::options(options).unwrap();
            let sampling = Sampling::new(options.library, options.filter, None).unwrap();
            Resize { options, sampling }.scaled_size(height, width)
        };
        assert_eq!(target(json!({"min_edge": 736}), (480, 640)), (736, 981));
        assert_eq!(target(json!({"min_edge": 736, "multiple_of": 32}), (480, 640)), (736, 992));
        assert_eq!(target(json!({"min_edge": 736, "multiple_of": 32}), (1000, 1010)), (992, 1024));
        assert_eq!(target(json!({"max_edge": 2000}), (4000, 3000)), (2000, 1500));
        assert_eq!(target(json!({"max_edge": 2000, "multiple_of": 32}), (4000, 3000)), (1984, 1504));
        let both = json!({"max_edge": 2000, "multiple_of": 32, "keep_within": true});
        assert_eq!(target(both, (501, 777)), (501, 777));
        assert_eq!(target(json!({"min_edge": 100, "max_edge": 300}), (10, 90)), (33, 300));
        assert_eq!(target(json!({"min_edge": 100, "max_edge": 300}), (1, 100_000)), (1, 300));
        assert_eq!(target(json!({"multiple_of": 32}), (5, 48)), (32, 64));
        let line = json!({"size": [48, 320], "mode": "line"});
        assert_eq!(target(line.clone(), (30, 100)), (48, 160));
        assert_eq!(target(line.clone(), (31, 100)), (48, 155));
        assert_eq!(target(line.clone(), (31, 1000)), (48, 1548));
        assert_eq!(target(line.clone(), (3, 20)), (48, 320));
        assert_eq!(target(line, (1000, 1)), (48, 1));
        assert_eq!(target(json!({"size": [48, 320], "mode": "line", "max_edge": 1200}), (31, 1000)), (48, 1200));
        for options in [
            json!({}),
            json!({"size": 8, "min_edge": 8}),
            json!({"size": 8, "max_edge": 8}),
            json!({"min_edge": 8, "mode": "shortest"}),
            json!({"size": 8, "keep_within": true}),
            json!({"min_edge": 0}),
        ] {
            assert!(crate::reference::build(builtin(), options.clone()).is_err(), "{options}");
        }
    }

    #[test]
    fn resizes_any_number_of_channels() {
        for (library, filter) in [("pillow", "bicubic"), ("opencv", "bilinear"), ("torch", "bilinear")] {
            let step = step(json!({"size": [5, 9], "library": library, "filter": filter}));
            let run = |tensor: Tensor| {
                let found = step.run(vec![Some(tensor.into())], &mut Context::default()).unwrap();
                found[0].as_tensor().unwrap().as_slice::<f32>().unwrap().to_vec()
            };
            let numbers: Vec<f32> = (0..7 * 6 * 5).map(|at| (at * at % 97) as f32).collect();
            let all = run(Tensor::new([7, 6, 5], numbers.clone()).unwrap());
            for channel in 0..5 {
                let plane: Vec<f32> = numbers.iter().skip(channel).step_by(5).copied().collect();
                let one = run(Tensor::new([7, 6, 1], plane).unwrap());
                assert!(all.iter().skip(channel).step_by(5).eq(&one), "{library}");
            }
        }
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
        // A strip, 51 million pixels for the detector of a page of text.
        let strip = || Tensor::new([2000, 20, 1], vec![0_u8; 40_000]).unwrap();
        let error = run(json!({"min_edge": 736, "multiple_of": 32}), strip()).unwrap_err();
        assert!(error.to_string().contains("2000 × 20 pixels to 73600 × 736 is too much"), "{error}");
        let bounded = run(json!({"min_edge": 736, "max_edge": 4096, "multiple_of": 32}), strip()).unwrap();
        assert_eq!(bounded[0].as_tensor().unwrap().shape(), [4096, 32, 1]);
        // The result is small, but what lies between the two passes is not.
        let tall = Tensor::new([1 << 20, 1, 1], vec![0_u8; 1 << 20]).unwrap();
        assert!(matches!(run(json!({"size": [1, 1 << 20]}), tall), Err(StepFailure::InvalidInput(_))));
        for tensor in [
            Tensor::new([0, 4, 3], Vec::<u8>::new()).unwrap(),
            Tensor::new([4, 0, 1], Vec::<u8>::new()).unwrap(),
            Tensor::new([2, 2, 0], Vec::<u8>::new()).unwrap(),
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
