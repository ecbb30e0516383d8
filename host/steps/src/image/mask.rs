//! `mask`: a class map or a matte → a coloured picture, or a picture with opacity.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::affine::Interpolation;
use super::color::to_rgb;
use super::dims::{ImageDims, check_limits};
use super::remap::Remap;
use super::resample::{Filter, Library, Sampling};
use super::window::{BorderMode, FillValue};
use crate::deadline::Deadline;
use crate::homography::Homography;
use crate::operation::{BuiltinStep, Inputs, Operation, expect_tensor};
use crate::ports;
use gpux_core::{
    BuildError, Builtin, Color, ElementSet, ElementType, Group, Kind, Layout, Metadata, Port, Signature, StepFailure,
    Tensor, TensorKind, Value,
};

/// Most colours of a palette.
const MAX_COLORS: usize = 4096;

/// Outside of the mask: no class, and nothing of a matte.
const OUTSIDE: f32 = -1.0;

/// How much longer than an addition it takes to colour a pixel.
const WORK: usize = 8;

/// Options of `mask`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Options {
    /// What the mask holds: `classes`, a whole number for each pixel; or `matte`, from 0 to 1 how much a pixel belongs
    /// to it (of uint8 from 0 to 255). Default: matte for floats, classes for whole numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    holds: Option<MaskKind>,
    /// `color`: a picture with the classes, or the matte, in colour; `alpha`: the picture, opaque where the mask is.
    /// Default: color for classes, alpha for a matte.
    #[serde(skip_serializing_if = "Option::is_none")]
    gives: Option<Gives>,
    /// `[red, green, blue]` of each class; after the last of them the first follows. A matte has the second one. Default:
    /// the 256 colours of PASCAL VOC.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    palette: Option<Vec<[u8; 3]>>,
    /// How much of the colour is seen over the picture, or how opaque the mask makes it, 0 to 1. Default: 0.5 over a
    /// picture, else 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    opacity: Option<f64>,
    /// Classes that are not seen, such as the background. Default: [0].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    hidden: Option<Vec<u32>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum MaskKind {
    Classes,
    Matte,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Gives {
    Color,
    Alpha,
}

/// Shows a mask as a picture. With `image`, the mask is laid over it: stretched to its size, or, with `seen`, the
/// picture that the model saw, where that lies in it.
struct Mask {
    options: Options,
    palette: Vec<[u8; 3]>,
    hidden: Vec<u32>,
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "mask",
        summary: "Shows a class map in colours, or a matte as opacity, alone or over a picture",
        group: Group::Image,
        follows: "OpenCV: cv2.addWeighted (Pillow: Image.putalpha)",
        example: "mask: { opacity: 0.5 }",
        schema: || schemars::schema_for!(Options),
        build: |options, _| Ok(Box::new(Mask::step(ports::options(options)?)?)),
    }
}

/// The colours of PASCAL VOC: bits of the class, spread over red, green and blue from the highest down.
fn voc_palette() -> Vec<[u8; 3]> {
    let bit = |class: u32, at: u32| (class >> at & 1) as u8;
    let channel = |class: u32, first: u32| (0..3).fold(0, |sum, step| sum | bit(class, first + 3 * step) << (7 - step));
    (0..256).map(|class| [0, 1, 2].map(|first| if class >> first == 0 { 0 } else { channel(class, first) })).collect()
}

/// The mask with its height and width, without axes of size 1 around them.
fn sides(shape: &[usize]) -> Result<[usize; 2], String> {
    let wrong = || {
        let hint = "take the classes of logits by `argmax` first";
        format!("a mask is [height, width] with other axes of size 1 at most, but its shape is {shape:?}; {hint}")
    };
    let [height, width] = match shape {
        [height, width] | [1, height, width] | [1, 1, height, width] => [*height, *width],
        [height, width, 1] | [1, height, width, 1] => [*height, *width],
        _ => return Err(wrong()),
    };
    if height == 0 || width == 0 {
        return Err("the mask has no pixel".into());
    }
    check_limits(height, width)?;
    Ok([height, width])
}

/// What is seen of a pixel: its colour, and how much of it.
type Paint = ([u8; 3], f32);

impl Mask {
    fn step(options: Options) -> Result<BuiltinStep<Self>, BuildError> {
        let count = options.palette.as_ref().map_or(1, Vec::len);
        if count == 0 || count > MAX_COLORS {
            return Err(BuildError::option("palette", format!("a palette has 1 to {MAX_COLORS} colours")));
        }
        if options.holds == Some(MaskKind::Matte) && options.hidden.is_some() {
            return Err(BuildError::option("hidden", "`hidden` is for classes; a matte has none"));
        }
        let image = |elements: ElementSet| Kind::Tensor(TensorKind::of_elements(elements));
        let signature = Signature {
            inputs: vec![
                Port {
                    description: "classes or a matte, [height, width], with other axes of size 1 at most".into(),
                    ..Port::new("mask", image(ElementSet::numeric()))
                },
                Port {
                    description: "the picture that it is laid over, uint8, height × width × channels".into(),
                    ..Port::optional("image", image(ElementType::Uint8.into()))
                },
                Port {
                    description: "the picture that the model saw, if `image` is the one that it was made of".into(),
                    ..Port::optional("seen", image(ElementSet::ANY))
                },
            ],
            outputs: vec![Port {
                description: "the picture: gray, RGB or RGBA".into(),
                ..Port::new("image", Kind::Tensor(TensorKind::image(ElementType::Uint8, None, None, None)))
            }],
        };
        let details = json!(options);
        let palette = options.palette.clone().unwrap_or_else(voc_palette);
        let mut hidden = options.hidden.clone().unwrap_or_else(|| vec![0]);
        hidden.sort_unstable();
        Ok(BuiltinStep::new(signature, details, Self { options, palette, hidden }))
    }

    fn kind(&self, element: ElementType) -> MaskKind {
        let usual = if element.is_float() { MaskKind::Matte } else { MaskKind::Classes };
        self.options.holds.unwrap_or(usual)
    }

    fn gives(&self, kind: MaskKind) -> Gives {
        self.options.gives.unwrap_or(if kind == MaskKind::Matte { Gives::Alpha } else { Gives::Color })
    }

    /// The colour of a number of the mask. `scale` makes a matte of it.
    fn paint(&self, number: f32, kind: MaskKind, scale: f32) -> Paint {
        if kind == MaskKind::Matte {
            let share = if number.is_nan() { 0.0 } else { (number * scale).clamp(0.0, 1.0) };
            return (self.palette[1 % self.palette.len()], share);
        }
        // Classes above 4096 Mi, and none, are no colour.
        if !(0.0..4e9).contains(&number) {
            return ([0; 3], 0.0);
        }
        let class = number as u32;
        let share = if self.hidden.binary_search(&class).is_ok() { 0.0 } else { 1.0 };
        (self.palette[class as usize % self.palette.len()], share)
    }

    /// The mask as float32 at the size of `target`, where it lies in the picture.
    fn placed(
        mask: &Tensor,
        [height, width]: [usize; 2],
        target: ImageDims,
        seen: Option<&Tensor>,
        kind: MaskKind,
        deadline: &Deadline,
    ) -> Result<Tensor, StepFailure> {
        let mask = mask.cast(ElementType::Float32)?.reshape([height, width, 1])?;
        let (given, target) = (ImageDims { height, width, channels: 1 }, ImageDims { channels: 1, ..target });
        let Some(seen) = seen else {
            let (library, filter) = match kind {
                MaskKind::Matte => (Library::Opencv, Filter::Bilinear),
                MaskKind::Classes => (Library::Pillow, Filter::Nearest),
            };
            let sampling = Sampling { library, filter, antialias: false };
            return if given == target { Ok(mask) } else { sampling.resize(&mask, given, target, deadline) };
        };

        let invalid = |why: &str| StepFailure::InvalidInput(format!("mask: {why}"));
        let size = match (seen.metadata.layout, seen.shape()) {
            (Some(Layout::Hwc), [.., height, width, _]) | (Some(Layout::Chw), [.., _, height, width]) => {
                [*height, *width].map(|side| side.max(1))
            }
            _ => return Err(invalid("`seen` is not known to be a picture, so that its size is not known")),
        };
        let to_seen = Homography::to_source(&seen.metadata).and_then(Homography::inverse);
        let to_seen = to_seen.ok_or_else(|| invalid("`seen` is not known to be made of another picture"))?;
        let [x, y] = [width as f64 / size[1] as f64, height as f64 / size[0] as f64];
        let back = Homography::affine([x, 0.0, 0.0, 0.0, y, 0.0]).after(to_seen).with_pixel_centers();
        let filter = if kind == MaskKind::Matte { Interpolation::Bilinear } else { Interpolation::Nearest };
        let remap = Remap { back, filter, border: BorderMode::Nearest, fill: &FillValue::All(0.0) };
        let mut placed = remap.apply(&mask, given, target, deadline)?;
        for (at, number) in placed.as_mut_slice::<f32>().unwrap_or_default().iter_mut().enumerate() {
            deadline.check_after(WORK)?;
            let [x, y] = back.apply([(at % target.width) as f64, (at / target.width) as f64]);
            let is_within = (-0.5..width as f64 - 0.5).contains(&x) && (-0.5..height as f64 - 0.5).contains(&y);
            if !is_within {
                *number = OUTSIDE;
            }
        }
        Ok(placed)
    }

    fn show(
        &self,
        mask: &Tensor,
        kind: MaskKind,
        scale: f32,
        image: Option<&Tensor>,
        deadline: &Deadline,
    ) -> Result<(Vec<u8>, usize), StepFailure> {
        let numbers = mask.as_slice::<f32>().unwrap_or_default();
        let pixels = image.and_then(Tensor::as_slice::<u8>).map(|pixels| pixels.as_chunks::<3>().0);
        let gives = self.gives(kind);
        let usual = if gives == Gives::Color && image.is_some() { 0.5 } else { 1.0 };
        let opacity = self.options.opacity.unwrap_or(usual) as f32;
        let level = |number: f32| number.round_ties_even() as u8;

        let channels = match (gives, image) {
            (Gives::Color, _) => 3,
            (Gives::Alpha, Some(_)) => 4,
            (Gives::Alpha, None) => 1,
        };
        let mut result = Vec::with_capacity(numbers.len() * channels);
        for (at, number) in numbers.iter().enumerate() {
            deadline.check_after(WORK)?;
            let (color, share) = self.paint(*number, kind, scale);
            let share = share * opacity;
            let pixel = pixels.and_then(|pixels| pixels.get(at)).copied();
            match (gives, pixel) {
                (Gives::Color, pixel) => {
                    let pixel = pixel.unwrap_or_default();
                    let mix = |axis: usize| f32::from(pixel[axis]) * (1.0 - share) + f32::from(color[axis]) * share;
                    result.extend([0, 1, 2].map(|axis| level(mix(axis))));
                }
                (Gives::Alpha, Some([red, green, blue])) => result.extend([red, green, blue, level(share * 255.0)]),
                (Gives::Alpha, None) => result.push(level(share * 255.0)),
            }
        }
        Ok((result, channels))
    }
}

impl Operation for Mask {
    fn infer_tensor(&self, given: &TensorKind, _: &mut Vec<Kind>) -> Result<(), String> {
        let shape: Option<Vec<usize>> = given.shape.as_ref().and_then(|shape| shape.iter().map(ports::fixed).collect());
        shape.map_or(Ok(()), |shape| sides(&shape).map(|_| ()))
    }

    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        let tensor = |at: usize| inputs.get(at).and_then(Option::as_ref).and_then(Value::as_tensor);
        let samples = tensor(0).map_or(0, Tensor::len);
        // The mask in float32, and between the passes to the picture's size; there too; the picture in RGB; the result.
        let (pixels, between) = match (tensor(0), tensor(1).and_then(|image| ImageDims::from_tensor(image).ok())) {
            (Some(mask), Some(dims)) => {
                let height = sides(mask.shape()).map_or(0, |[height, _]| height);
                (dims.height.saturating_mul(dims.width), height.saturating_mul(dims.width))
            }
            _ => (samples, 0),
        };
        let numbers = samples.saturating_add(between).saturating_mul(4);
        numbers.saturating_add(pixels.saturating_mul(4 + 3 + 4)).saturating_add(1 << 16)
    }

    fn run(&self, mut inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        let invalid = |why: String| StepFailure::InvalidInput(format!("mask: {why}"));
        let mask = inputs.tensor()?;
        let image = inputs.optional().map(|value| expect_tensor("image", value)).transpose()?;
        let seen = inputs.optional().map(|value| expect_tensor("seen", value)).transpose()?;
        let [height, width] = sides(mask.shape()).map_err(invalid)?;
        if seen.is_some() && image.is_none() {
            return Err(invalid("`seen` says where the mask lies in `image`, which is missing".into()));
        }
        let kind = self.kind(mask.element());
        let scale = if mask.element() == ElementType::Uint8 { 1.0 / 255.0 } else { 1.0 };

        let mut target = ImageDims { height, width, channels: 1 };
        let mut metadata = Metadata::default();
        let image = match image {
            Some(image) => {
                target = ImageDims::from_tensor(&image)?;
                if image.element() != ElementType::Uint8 {
                    let element = image.element();
                    return Err(invalid(format!(
                        "`image` is of uint8, but is {element}; take it before it is normalized"
                    )));
                }
                metadata = image.metadata;
                Some(to_rgb(image, target, deadline)?)
            }
            None => None,
        };
        let placed = Self::placed(&mask, [height, width], target, seen.as_ref(), kind, deadline)?;
        drop(mask);

        let (pixels, channels) = self.show(&placed, kind, scale, image.as_ref(), deadline)?;
        metadata.layout = Some(Layout::Hwc);
        metadata.color = Some(match channels {
            1 => Color::Gray,
            3 => Color::Rgb,
            _ => Color::Rgba,
        });
        let result = Tensor::new([target.height, target.width, channels], pixels)?;
        Ok(vec![result.with_metadata(metadata).into()])
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;
    use crate::reference::{build, run, step};
    use gpux_core::Context;

    fn shown(options: serde_json::Value, inputs: Vec<Option<Tensor>>) -> Tensor {
        let mut inputs: Vec<_> = inputs.into_iter().map(|tensor| tensor.map(Value::from)).collect();
        inputs.resize(3, None);
        let step = step("mask", options);
        let kinds: Vec<_> = inputs.iter().map(|value| value.as_ref().map(Value::kind)).collect();
        step.infer(&kinds).unwrap();
        step.run(inputs, &mut Context::default()).unwrap()[0].as_tensor().unwrap().clone()
    }

    fn classes() -> Tensor {
        Tensor::new([1, 2, 2], vec![0_i64, 1, 2, 15]).unwrap()
    }

    fn gray(height: usize, width: usize) -> Tensor {
        Tensor::new([height, width, 1], vec![100_u8; height * width]).unwrap()
    }

    #[test]
    fn colors_classes() {
        let alone = shown(json!({}), vec![Some(classes())]);
        assert_eq!(alone.shape(), [2, 2, 3]);
        assert_eq!(alone.as_slice::<u8>().unwrap(), [0, 0, 0, 128, 0, 0, 0, 128, 0, 192, 128, 128]);
        let over = shown(json!({"palette": [[0, 0, 0], [200, 0, 1]]}), vec![Some(classes()), Some(gray(2, 2))]);
        assert_eq!(over.as_slice::<u8>().unwrap(), [100, 100, 100, 150, 50, 50, 50, 50, 50, 150, 50, 50]);
        let alpha = shown(json!({"gives": "alpha", "hidden": [0, 2]}), vec![Some(classes()), Some(gray(2, 2))]);
        let levels: Vec<_> = alpha.as_slice::<u8>().unwrap().chunks(4).map(|pixel| pixel[3]).collect();
        assert_eq!((alpha.shape(), levels), ([2, 2, 4].as_slice(), vec![0, 255, 0, 255]));
        let wide = shown(json!({}), vec![Some(classes()), Some(gray(4, 2))]);
        assert_eq!(wide.shape(), [4, 2, 3]);
        assert_eq!(wide.metadata.color, Some(Color::Rgb));
    }

    #[test]
    fn mattes_become_opacity() {
        let matte = || Tensor::new([1, 1, 1, 3], vec![0.0_f32, 0.5, f32::NAN]).unwrap();
        assert_eq!(shown(json!({}), vec![Some(matte())]).as_slice::<u8>().unwrap(), [0, 128, 0]);
        let cut = shown(json!({}), vec![Some(matte()), Some(gray(1, 3))]);
        assert_eq!(cut.as_slice::<u8>().unwrap(), [100, 100, 100, 0, 100, 100, 100, 128, 100, 100, 100, 0]);
        let levels = Tensor::new([1, 2], vec![0_u8, 51]).unwrap();
        let tinted = shown(json!({"holds": "matte", "gives": "color", "opacity": 1}), vec![Some(levels)]);
        assert_eq!(tinted.as_slice::<u8>().unwrap(), [0, 0, 0, 26, 0, 0]);
    }

    #[test]
    fn lies_where_the_model_saw_it() {
        let boxed = run(&*step("letterbox", json!({"size": 8})), vec![gray(4, 8).into()]).remove(0);
        let boxed = boxed.as_tensor().unwrap().clone();
        // The upper half of the model's picture: two rows of filling and two of the source.
        let mask = Tensor::new([4, 4], (0..16).map(|at| i64::from(at < 8)).collect::<Vec<_>>()).unwrap();
        let options = json!({"palette": [[0, 0, 0], [200, 200, 200]], "opacity": 1});
        let over = shown(options, vec![Some(mask), Some(gray(4, 8)), Some(boxed)]);
        let rows: Vec<_> = over.as_slice::<u8>().unwrap().chunks(24).map(|row| row[0]).collect();
        assert_eq!(rows, [200, 200, 100, 100]);
    }

    #[test]
    fn rejects_invalid_masks() {
        for options in [json!({"palette": []}), json!({"opacity": 2}), json!({"holds": "matte", "hidden": [1]})] {
            assert!(build(builtin(), options.clone()).is_err(), "{options}");
        }
        let refused = |inputs: Vec<Option<Tensor>>| {
            let mut inputs: Vec<_> = inputs.into_iter().map(|tensor| tensor.map(Value::from)).collect();
            inputs.resize(3, None);
            match step("mask", json!({})).run(inputs, &mut Context::default()) {
                Err(StepFailure::InvalidInput(message)) => message,
                other => panic!("{other:?}"),
            }
        };
        let zeros = |shape: &[usize]| Tensor::zeros(ElementType::Int64, shape).unwrap();
        assert!(refused(vec![Some(zeros(&[1, 21, 4, 4]))]).contains("argmax"));
        assert!(refused(vec![Some(zeros(&[0, 4]))]).contains("no pixel"));
        assert!(refused(vec![Some(classes()), None, Some(gray(2, 2))]).contains("`image`, which is missing"));
        assert!(
            refused(vec![Some(classes()), Some(gray(2, 2)), Some(zeros(&[2]))]).contains("not known to be a picture")
        );
        let odd = Tensor::new([1, 3], vec![-1_i64, i64::MAX, i64::MIN]).unwrap();
        assert_eq!(shown(json!({}), vec![Some(odd)]).as_slice::<u8>().unwrap(), [0; 9]);
    }
}
