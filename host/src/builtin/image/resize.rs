//! `resize`: an image → the same image at another size.

use std::num::NonZeroU32;

use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::area;
use super::dims::{ImageDims, MAX_PIXELS, MAX_SIDE, takes_channels};
use crate::builtin::ports;
use crate::pipeline::{
    BuildError, Builtin, Color, Context, ElementSet, ElementType, Geometry, Group, Kind, Layout, Mismatch, Port,
    Signature, Step, StepFailure, Tensor, TensorData, TensorElement, TensorKind, Value,
};

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
    /// of the pixels that are covered; Pillow's BOX). All but `nearest` average over everything a
    /// smaller pixel covers (antialias), as Pillow does.
    #[serde(default)]
    filter: Filter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum Size {
    Side(NonZeroU32),
    HeightWidth([NonZeroU32; 2]),
}

impl Size {
    fn height_width(self) -> [usize; 2] {
        let [height, width] = match self {
            Self::Side(side) => [side, side],
            Self::HeightWidth(sides) => sides,
        };
        [height.get() as usize, width.get() as usize]
    }
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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Filter {
    Nearest,
    #[default]
    Bilinear,
    Bicubic,
    Lanczos,
    Area,
}

/// Resizes a height × width × channels image of uint8 or float32 with 1, 3 or 4 channels.
///
/// Follows Pillow's `Image.resize` up to version 12 (13 may resize down before across, which rounds
/// differently): uint8 within one level in all but a sample
/// in fifty thousand, and identical in 98 to 99.9 % (weights are rounded to 16 bits); `nearest` and `area`
/// identical;
/// float32 to the last bits. Where the tensor is known to be RGBA, colours are
/// weighed by their opacity, as Pillow does.
struct Resize {
    options: Options,
    signature: Signature,
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "resize",
        summary: "Resizes an image",
        group: Group::Image,
        follows: "Pillow: Image.resize",
        example: "resize: { size: [224, 224], filter: bicubic }",
        schema: || schemars::schema_for!(Options),
        build: |options, _| Ok(Box::new(Resize::new(ports::options(options)?)?)),
    }
}

fn elements() -> ElementSet {
    ElementSet::of(&[ElementType::Uint8, ElementType::Float32])
}

impl Resize {
    fn new(options: Options) -> Result<Self, BuildError> {
        let [height, width] = options.size.height_width();
        fits(height, width).map_err(|message| BuildError::option("size", message))?;
        let (known_height, known_width) =
            if options.mode == Mode::Stretch { (Some(height), Some(width)) } else { (None, None) };
        let input = TensorKind::image(elements(), None, None, None);
        let output = TensorKind::image(elements(), known_height, known_width, None);
        let signature = Signature::unary(
            Port {
                description: "height × width × channels, 1, 3 or 4 channels".into(),
                ..Port::new("image", Kind::Tensor(input))
            },
            Port { description: "the same at the new size".into(), ..Port::new("image", Kind::Tensor(output)) },
        );
        Ok(Self { options, signature })
    }

    /// Height and width of what becomes of an image of `height` × `width`.
    fn target(&self, height: usize, width: usize) -> (usize, usize) {
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

    fn filter(&self) -> ResizeAlg {
        match self.options.filter {
            Filter::Nearest => ResizeAlg::Nearest,
            Filter::Bilinear => ResizeAlg::Convolution(FilterType::Bilinear),
            Filter::Bicubic => ResizeAlg::Convolution(FilterType::CatmullRom),
            Filter::Lanczos => ResizeAlg::Convolution(FilterType::Lanczos3),
            Filter::Area => ResizeAlg::Convolution(FilterType::Box),
        }
    }
}

impl Step for Resize {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn infer(&self, inputs: &[Option<Kind>]) -> Result<Vec<Kind>, Mismatch> {
        ports::check(&self.signature, inputs)?;
        let Some(given) = ports::known_tensor(inputs) else {
            return Ok(vec![self.signature.outputs[0].kind.clone()]);
        };
        let elements = given.elements.intersection(elements());
        let known = |axis: usize| given.shape.as_ref().and_then(|shape| shape.get(axis)).and_then(ports::fixed);
        let channels = known(2);
        if let Some(channels) = channels.filter(|channels| !takes_channels(*channels)) {
            let why = format!("there are {channels} channels on the last axis, not 1, 3 or 4");
            return Err(ports::refuse(&self.signature, given, why));
        }
        let (height, width) = match (self.options.mode, known(0), known(1)) {
            (Mode::Stretch, ..) => {
                let (height, width) = self.target(1, 1);
                (Some(height), Some(width))
            }
            (_, Some(height), Some(width)) => {
                let (height, width) = self.target(height, width);
                fits(height, width).map_err(|why| ports::refuse(&self.signature, given, why))?;
                (Some(height), Some(width))
            }
            _ => (None, None),
        };
        Ok(vec![Kind::Tensor(TensorKind::image(elements, height, width, channels))])
    }

    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        let Some((tensor, dims)) =
            ports::given_tensor(inputs).and_then(|tensor| Some((tensor, ImageDims::of(tensor).ok()?)))
        else {
            return 0;
        };
        let row = |width: usize| width.saturating_mul(dims.channels * tensor.element().size().unwrap_or(1));
        let between = dims.height.saturating_mul(row(self.target(dims.height, dims.width).1));
        // Colours weighed by their opacity are a copy.
        if dims.channels == 4 { between.saturating_add(tensor.byte_len()) } else { between }
    }

    fn run(&self, inputs: Vec<Option<Value>>, _: &mut Context) -> Result<Vec<Value>, StepFailure> {
        let tensor = ports::first_tensor(inputs, "image")?;
        let dims = ImageDims::of(&tensor)?;
        if !elements().contains(tensor.element()) {
            let message = format!("resize takes uint8 or float32, but gets {}; cast it first", tensor.element());
            return Err(StepFailure::InvalidInput(message));
        }
        let (height, width) = self.target(dims.height, dims.width);
        fits(height, width).map_err(StepFailure::InvalidInput)?;
        // Between its two passes the resizer holds an image as wide as one and as high as the other.
        fits(dims.height, width).map_err(StepFailure::InvalidInput)?;
        let mut metadata = tensor.metadata;
        metadata.layout = Some(Layout::Hwc);
        metadata.geometry = Some(geometry(metadata.geometry, dims, (height, width)));
        if (height, width) == (dims.height, dims.width) {
            return Ok(vec![tensor.with_metadata(metadata).into()]);
        }
        let weigh_by_opacity = metadata.color == Some(Color::Rgba) && dims.channels == 4;
        let target = ImageDims { height, width, channels: dims.channels };
        let alg = self.filter();
        // Floats weighed by opacity go the general way.
        let averages = self.options.filter == Filter::Area && !weigh_by_opacity;
        let resized = match tensor.data() {
            TensorData::Float32(data) if averages => to_tensor(target, area::resize(data, dims, target))?,
            TensorData::Uint8(data) if alg == ResizeAlg::Nearest => to_tensor(target, nearest(data, dims, target))?,
            TensorData::Float32(data) if alg == ResizeAlg::Nearest => to_tensor(target, nearest(data, dims, target))?,
            TensorData::Uint8(data) => to_tensor(target, resize_levels(data, dims, target, alg, weigh_by_opacity)?)?,
            TensorData::Float32(data) => to_tensor(target, resize_floats(data, dims, target, alg, weigh_by_opacity)?)?,
            other => return Err(StepFailure::Failed(format!("cannot resize {}", other.element()))),
        };
        Ok(vec![resized.with_metadata(metadata).into()])
    }

    fn details(&self) -> serde_json::Value {
        serde_json::to_value(&self.options).unwrap_or_default()
    }
}

fn to_tensor<T: TensorElement>(dims: ImageDims, samples: Vec<T>) -> Result<Tensor, StepFailure> {
    Ok(Tensor::new([dims.height, dims.width, dims.channels], samples)?)
}

/// Pillow's nearest neighbour: the source pixel under the middle of each new one, found by adding up
/// steps, so that rounding falls where Pillow's does.
fn nearest<T: Copy>(from: &[T], dims: ImageDims, target: ImageDims) -> Vec<T> {
    let places = |old: usize, new: usize| {
        let step = old as f64 / new as f64;
        let mut at = step * 0.5;
        (0..new)
            .map(|_| {
                let place = (at as usize).min(old - 1);
                at += step;
                place
            })
            .collect::<Vec<_>>()
    };
    let columns = places(dims.width, target.width);
    let channels = dims.channels;
    let mut result = Vec::with_capacity(target.height * target.width * channels);
    for row in places(dims.height, target.height) {
        let from = &from[row * dims.width * channels..][..dims.width * channels];
        for column in &columns {
            result.extend_from_slice(&from[column * channels..][..channels]);
        }
    }
    result
}

/// Resizes uint8 samples as Pillow does: across, rounded to 8 bits, then down. The resizer alone
/// would go down first, which puts a third of the samples of a noisy image elsewhere, some by 40.
fn resize_levels(
    from: &[u8],
    dims: ImageDims,
    target: ImageDims,
    alg: ResizeAlg,
    weigh_by_opacity: bool,
) -> Result<Vec<u8>, StepFailure> {
    let weighed = weigh_by_opacity.then(|| weighed_by_opacity(from));
    let from = weighed.as_deref().unwrap_or(from);
    let across = ImageDims { width: target.width, ..dims };
    let wide = if across == dims { None } else { Some(pass(from, dims, across, alg)?) };
    let from = wide.as_deref().unwrap_or(from);
    let mut result = if across == target { from.to_vec() } else { pass(from, across, target, alg)? };
    if weigh_by_opacity {
        undo_weighing(&mut result);
    }
    Ok(result)
}

/// One pass of [`resize_levels`]: only the width or only the height changes.
fn pass(from: &[u8], dims: ImageDims, target: ImageDims, alg: ResizeAlg) -> Result<Vec<u8>, StepFailure> {
    if alg == ResizeAlg::Convolution(FilterType::Box) {
        return Ok(area::resize(from, dims, target));
    }
    let of = match dims.channels {
        1 => PixelType::U8,
        3 => PixelType::U8x3,
        _ => PixelType::U8x4,
    };
    let mut result = vec![0; target.height * target.width * target.channels];
    let sizes = [(dims.width, dims.height), (target.width, target.height)];
    convolve(from, &mut result, sizes, of, alg, false)?;
    Ok(result)
}

fn resize_floats(
    from: &[f32],
    dims: ImageDims,
    target: ImageDims,
    alg: ResizeAlg,
    weigh_by_opacity: bool,
) -> Result<Vec<f32>, StepFailure> {
    let of = match dims.channels {
        1 => PixelType::F32,
        3 => PixelType::F32x3,
        _ => PixelType::F32x4,
    };
    let mut result = vec![0_f32; target.height * target.width * target.channels];
    let sizes = [(dims.width, dims.height), (target.width, target.height)];
    let (from, to) = (bytemuck::cast_slice(from), bytemuck::cast_slice_mut(&mut result));
    convolve(from, to, sizes, of, alg, weigh_by_opacity)?;
    Ok(result)
}

/// Calls the resizer on samples as bytes; the two sizes are (width, height) before and after.
fn convolve(
    from: &[u8],
    to: &mut [u8],
    sizes: [(usize, usize); 2],
    of: PixelType,
    alg: ResizeAlg,
    weigh_by_opacity: bool,
) -> Result<(), StepFailure> {
    let fail = |error: &dyn std::fmt::Display| StepFailure::Failed(format!("cannot resize: {error}"));
    let [before, after] = sizes.map(|(width, height)| (width as u32, height as u32));
    let source = ImageRef::new(before.0, before.1, from, of).map_err(|error| fail(&error))?;
    let mut result = Image::from_slice_u8(after.0, after.1, to, of).map_err(|error| fail(&error))?;
    let options = ResizeOptions::new().resize_alg(alg).use_alpha(weigh_by_opacity);
    Resizer::new().resize(&source, &mut result, &options).map_err(|error| fail(&error))
}

/// RGBA with its colours multiplied by their opacity, rounded as Pillow does (`RGBa`).
fn weighed_by_opacity(rgba: &[u8]) -> Vec<u8> {
    let weigh = |level: u8, opacity: u8| {
        let product = u32::from(level) * u32::from(opacity) + 128;
        (((product >> 8) + product) >> 8) as u8
    };
    rgba.chunks_exact(4)
        .flat_map(|pixel| [weigh(pixel[0], pixel[3]), weigh(pixel[1], pixel[3]), weigh(pixel[2], pixel[3]), pixel[3]])
        .collect()
}

fn undo_weighing(rgba: &mut [u8]) {
    for pixel in rgba.chunks_exact_mut(4) {
        let opacity = u32::from(pixel[3]);
        if opacity != 0 && opacity != 255 {
            for level in &mut pixel[..3] {
                *level = (255 * u32::from(*level) / opacity).min(255) as u8;
            }
        }
    }
}

/// Whether an image of this size may be made.
fn fits(height: usize, width: usize) -> Result<(), String> {
    if height > MAX_SIDE || width > MAX_SIDE || height as u64 * width as u64 > MAX_PIXELS {
        return Err(format!(
            "resizing to {height} × {width} pixels is too much: at most {MAX_PIXELS} pixels, no side over {MAX_SIDE}"
        ));
    }
    Ok(())
}

fn geometry(before: Option<Geometry>, dims: ImageDims, (height, width): (usize, usize)) -> Geometry {
    let (scale_x, scale_y) = (width as f32 / dims.width as f32, height as f32 / dims.height as f32);
    let before = before.unwrap_or(Geometry {
        source_width: dims.width as u32,
        source_height: dims.height as u32,
        scale_x: 1.0,
        scale_y: 1.0,
        offset_x: 0.0,
        offset_y: 0.0,
    });
    Geometry {
        scale_x: before.scale_x * scale_x,
        scale_y: before.scale_y * scale_y,
        offset_x: before.offset_x * scale_x,
        offset_y: before.offset_y * scale_y,
        ..before
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pipeline::Dim;

    fn step(options: serde_json::Value) -> Resize {
        Resize::new(ports::options(options).unwrap()).unwrap()
    }

    fn given(elements: impl Into<ElementSet>, shape: &[Dim]) -> Vec<Option<Kind>> {
        vec![Some(Kind::Tensor(TensorKind::shaped(elements, shape)))]
    }

    #[test]
    fn the_plan_knows_the_new_size() {
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
    fn proportions_follow_torchvision() {
        let target = |mode: &str, size: serde_json::Value, from: (usize, usize)| {
            step(json!({"size": size, "mode": mode})).target(from.0, from.1)
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
    fn absurd_sizes_are_refused() {
        for size in
            [json!(0), json!(-1), json!([0, 4]), json!([1, 2, 3]), json!(1.5), json!("8"), json!(4_294_967_295_u32)]
        {
            let built = (builtin().build)(json!({"size": size}), &crate::pipeline::Site::Component);
            assert!(built.is_err(), "{size}");
        }
        assert!((builtin().build)(serde_json::Value::Null, &crate::pipeline::Site::Component).is_err());
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
    fn odd_floats_do_no_harm() {
        let odd = vec![f32::NAN, f32::INFINITY, f32::MIN, f32::MAX, -0.0, 1e-40, 3.0, f32::NEG_INFINITY];
        for filter in ["nearest", "bilinear", "bicubic", "lanczos", "area"] {
            let tensor = Tensor::new([2, 1, 4], odd.clone()).unwrap();
            let metadata = crate::pipeline::Metadata { color: Some(Color::Rgba), ..tensor.metadata };
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
