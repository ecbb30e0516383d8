//! `draw-boxes`: a picture and its detections → the picture with boxes, as a PNG file.

use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::{ExtendedColorType, ImageEncoder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::color::to_rgb;
use super::decode_image::DecodeImage;
use super::detections::{self, Detection};
use super::dims::{ImageDims, supports_channels};
use super::drawing::{Canvas, LETTER};
use crate::deadline::{Deadline, DeadlineExceeded};
use crate::homography::Homography;
use crate::operation::{BuiltinStep, Inputs, Operation};
use crate::ports;
use gpux_core::{
    Builtin, Dim, ElementSet, ElementType, Geometry, Group, Kind, Metadata, Mismatch, OptionOrigin, Port, Signature,
    StepFailure, Tensor, TensorKind, Value,
};

/// Colours of the boxes, one after the other for each label: bright, and far from each other.
const PALETTE: [[u8; 3]; 12] = [
    [255, 56, 56],
    [0, 148, 255],
    [46, 204, 64],
    [255, 178, 29],
    [177, 76, 255],
    [0, 212, 187],
    [255, 112, 31],
    [255, 55, 199],
    [146, 204, 23],
    [52, 69, 255],
    [207, 210, 49],
    [131, 91, 60],
];

/// Seconds that a pixel of a PNG file takes at least.
const PNG_PER_PIXEL: f64 = 4e-9;

/// Options of `draw-boxes`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Options {
    /// The colour of every box, `[red, green, blue]`. Default: a colour for each label.
    #[serde(skip_serializing_if = "Option::is_none")]
    color: Option<[u8; 3]>,
    /// How wide the lines are, in pixels, 1 to 50. Default: 0.3 % of the picture's sides, at least 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 50))]
    thickness: Option<u32>,
    /// Whether to write label and score at each box. Default: true.
    text: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { color: None, thickness: None, text: true }
    }
}

/// Draws boxes on a picture. Boxes are in pixels of the source image: where the picture was resized,
/// cropped or letterboxed on its way, they are put where they belong.
struct DrawBoxes {
    options: Options,
    decode: DecodeImage,
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "draw-boxes",
        summary: "Draws detections on a picture: boxes with label and score",
        group: Group::Image,
        follows: "",
        example: "draw-boxes: { thickness: 3 }",
        schema: || schemars::schema_for!(Options),
        build: |options, site| Ok(Box::new(DrawBoxes::new(ports::options(options)?, site))),
    }
}

fn levels() -> ElementSet {
    ElementType::Uint8.into()
}

impl DrawBoxes {
    fn new(options: Options, site: &OptionOrigin<'_>) -> BuiltinStep<Self> {
        let signature = Signature {
            inputs: vec![
                Port {
                    description: "a picture file, or its pixels (uint8, height × width × channels)".into(),
                    ..Port::new("image", Kind::Any)
                },
                Port {
                    description: "a JSON list of `{box: [left, top, right, bottom], score, class, label}`, as `nms` \
                                  gives it, or of `{points, score}`, as `find-boxes` does, or a tensor with such \
                                  rows; in pixels of the source image"
                        .into(),
                    ..Port::new("detections", Kind::Any)
                },
            ],
            outputs: vec![Port { description: "a PNG file".into(), ..Port::new("image", Kind::Bytes) }],
        };
        BuiltinStep::new(signature, json!(options), Self { options, decode: DecodeImage::rgb(site) })
    }

    /// The picture as RGB, and the way from its source to it.
    fn picture(&self, value: Value, deadline: &Deadline) -> Result<(Tensor, SourcePlacement), StepFailure> {
        match value {
            Value::Bytes(bytes) => Ok((self.decode.decode(&bytes, deadline)?, SourcePlacement::Same)),
            Value::Tensor(tensor) => {
                let dims = ImageDims::from_tensor(&tensor)?;
                if tensor.element() != ElementType::Uint8 {
                    let message = format!(
                        "draw-boxes takes pixels of uint8, but gets {}; take the picture before it is normalized",
                        tensor.element()
                    );
                    return Err(StepFailure::InvalidInput(message));
                }
                let placement = SourcePlacement::new(&tensor.metadata)?;
                Ok((to_rgb(tensor, dims, deadline)?, placement))
            }
            other => Err(StepFailure::InvalidInput(format!(
                "`image` takes a picture file or a tensor, but gets {}",
                other.kind()
            ))),
        }
    }

    fn draw(
        &self,
        canvas: &mut Canvas<'_>,
        dims: ImageDims,
        found: &Detection,
        color: [u8; 3],
        deadline: &Deadline,
    ) -> Result<(), DeadlineExceeded> {
        let usual = ((dims.width + dims.height) as f64 / 2.0 * 0.003).round().max(2.0) as u32;
        let thickness = i64::from(self.options.thickness.unwrap_or(usual));
        let [left, top, right, bottom] = found.corners.map(|x| x.round().clamp(-1e9, 1e9) as i64);
        let (left, right) = (left.min(right), left.max(right));
        let (top, bottom) = (top.min(bottom), top.max(bottom));
        if found.outline.is_empty() {
            canvas.outline([left, top, right, bottom], thickness, color);
        }
        for (from, to) in found.outline.iter().zip(found.outline.iter().cycle().skip(1)) {
            deadline.check()?;
            canvas.line(*from, *to, thickness, color);
        }
        let caption = if self.options.text { found.caption() } else { String::new() };
        if caption.is_empty() {
            return Ok(());
        }
        let scale = (dims.width.min(dims.height) / 400).clamp(1, 8) as i64;
        let (wide, high) = ((caption.chars().count() * LETTER) as i64 * scale, (LETTER as i64 + 2) * scale);
        // Above the box; inside where the picture ends; and not over its right edge.
        let top = if top >= high { top - high } else { top };
        let left = left.min(dims.width as i64 - wide).max(0);
        canvas.fill([left, top, left + wide, top + high], color);
        let light = u32::from(color[0]) * 299 + u32::from(color[1]) * 587 + u32::from(color[2]) * 114;
        let ink = if light > 140_000 { [0; 3] } else { [255; 3] };
        canvas.text(&caption, left, top + scale, scale, ink);
        Ok(())
    }
}

impl Operation for DrawBoxes {
    fn infer(&self, _: &Signature, inputs: &[Option<Kind>]) -> Result<Vec<Kind>, Mismatch> {
        let image = TensorKind::image(levels(), None, None, None);
        match inputs.first() {
            Some(Some(Kind::Tensor(given))) => {
                Kind::Tensor(image.clone()).accepts(&Kind::Tensor(given.clone()))?;
                let channels = given.shape.as_ref().and_then(|shape| shape.get(2)).and_then(ports::fixed);
                if let Some(channels) = channels.filter(|channels| !supports_channels(*channels)) {
                    let because = Some(format!("there are {channels} channels on the last axis, not 1, 3 or 4"));
                    let given = Kind::Tensor(given.clone());
                    return Err(Mismatch { expected: Kind::Tensor(image), given, because });
                }
            }
            Some(Some(given @ (Kind::Text | Kind::Json))) => {
                let because = Some("a picture is a file's bytes, or a tensor".to_owned());
                return Err(Mismatch { expected: Kind::Tensor(image), given: given.clone(), because });
            }
            _ => {}
        }
        match inputs.get(1) {
            Some(Some(Kind::Tensor(given))) => {
                let columns = given.shape.as_ref().and_then(|shape| shape.last()).and_then(ports::fixed);
                if columns.is_some_and(|columns| !(4..=6).contains(&columns)) {
                    let rows = TensorKind::shaped(ElementSet::numeric(), [Dim::Dynamic, Dim::Fixed(4)]);
                    let because = Some("a row is a box, then a score, then a class: 4 to 6 columns".to_owned());
                    let given = Kind::Tensor(given.clone());
                    return Err(Mismatch { expected: Kind::Tensor(rows), given, because });
                }
            }
            Some(Some(given @ (Kind::Text | Kind::Bytes))) => {
                let because = Some("detections are a JSON list, or a tensor".to_owned());
                return Err(Mismatch { expected: Kind::Json, given: given.clone(), because });
            }
            _ => {}
        }
        Ok(vec![Kind::Bytes])
    }

    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        // The pixels, and the file, which is hardly larger.
        match inputs.first() {
            Some(Some(Value::Bytes(bytes))) => self.decode.memory(bytes).saturating_mul(2),
            Some(Some(Value::Tensor(tensor))) => tensor.len().saturating_mul(6),
            _ => 0,
        }
    }

    fn run(&self, mut inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        let (_, image) = inputs.named()?;
        let found = detections::read(&inputs.named()?.1)?;
        let (mut picture, placement) = self.picture(image, deadline)?;
        let dims = ImageDims::from_tensor(&picture)?;
        let pixels = picture.as_mut_slice::<u8>().unwrap_or_default();
        let mut labels: Vec<Option<String>> = Vec::new();
        for mut detection in found {
            deadline.check()?;
            let known = labels.iter().position(|label| *label == detection.label);
            let index = known.unwrap_or_else(|| {
                labels.push(detection.label.clone());
                labels.len() - 1
            });
            let color = self.options.color.unwrap_or(PALETTE[index % PALETTE.len()]);
            detection.corners = placement.apply(detection.corners);
            if !detection.outline.is_empty() {
                detection.outline.iter_mut().for_each(|point| *point = placement.apply_point(*point));
                detection = detection.surround();
            }
            self.draw(&mut Canvas::new(pixels, dims), dims, &detection, color, deadline)?;
        }
        // The encoder writes the whole file at once.
        deadline.check_time_for(PNG_PER_PIXEL * (dims.height * dims.width) as f64)?;
        Ok(vec![png(pixels, dims)?.into()])
    }
}

/// The position of the source image in a picture.
enum SourcePlacement {
    /// It is the picture.
    Same,
    Scaled(Geometry),
    /// From the source's coordinates to the picture's, which was rotated or warped.
    Mapped(Homography),
}

impl SourcePlacement {
    fn new(metadata: &Metadata) -> Result<Self, StepFailure> {
        let Some(back) = metadata.transform else {
            return Ok(metadata.geometry.map_or(Self::Same, Self::Scaled));
        };
        let no_way = || StepFailure::InvalidInput("the picture's transform has no inverse".into());
        Ok(Self::Mapped(Homography(back).inverse().ok_or_else(no_way)?))
    }

    /// Corners in the source image as they lie in the picture: of a rotated or warped one, those of the upright box
    /// around them.
    fn apply(&self, corners: [f64; 4]) -> [f64; 4] {
        match self {
            Self::Same => corners,
            Self::Scaled(at) => {
                let across = |x: f64| x * f64::from(at.scale_x) + f64::from(at.offset_x);
                let down = |y: f64| y * f64::from(at.scale_y) + f64::from(at.offset_y);
                let [x0, y0, x1, y1] = corners;
                [across(x0), down(y0), across(x1), down(y1)]
            }
            Self::Mapped(map) => map.enclosing_box(corners),
        }
    }

    fn apply_point(&self, [x, y]: [f64; 2]) -> [f64; 2] {
        if let Self::Mapped(map) = self {
            return map.apply([x, y]);
        }
        let [x, y, ..] = self.apply([x, y, x, y]);
        [x, y]
    }
}

fn png(pixels: &[u8], dims: ImageDims) -> Result<Vec<u8>, StepFailure> {
    let mut file = Vec::new();
    PngEncoder::new_with_quality(&mut file, CompressionType::Fast, FilterType::Adaptive)
        .write_image(pixels, dims.width as u32, dims.height as u32, ExtendedColorType::Rgb8)
        .map_err(|error| StepFailure::Failed(format!("cannot write the PNG file: {error}")))?;
    Ok(file)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;
    use crate::reference::{read, run, step};
    use gpux_core::{Color, Context, Metadata};

    fn drawn(options: serde_json::Value, image: Value, found: Value) -> image::RgbImage {
        let png = run(&*step("draw-boxes", options), vec![image, found]).remove(0);
        let Value::Bytes(png) = png else { panic!("{png:?}") };
        image::load_from_memory(&png).unwrap().into_rgb8()
    }

    fn black(height: usize, width: usize, channels: usize) -> Tensor {
        Tensor::new([height, width, channels], vec![0_u8; height * width * channels]).unwrap()
    }

    #[test]
    fn draws_boxes_in_their_color_and_position() {
        let found = json!([{"box": [2, 3, 12, 13]}]);
        let options = json!({"color": [255, 0, 0], "thickness": 1});
        for channels in [1, 3, 4] {
            let picture = drawn(options.clone(), black(20, 30, channels).into(), found.clone().into());
            assert_eq!(picture.dimensions(), (30, 20));
            let red = picture.enumerate_pixels().filter(|(_, _, pixel)| pixel.0 == [255, 0, 0]);
            let places: Vec<_> = red.map(|(x, y, _)| (x, y)).collect();
            assert_eq!(places.len(), 36);
            assert!(places.contains(&(2, 3)) && places.contains(&(11, 12)) && !places.contains(&(12, 13)));
        }
    }

    #[test]
    fn draws_turned_boxes() {
        let found = json!([{"points": [[10, 2], [18, 10], [10, 18], [2, 10]]}]);
        let options = json!({"color": [255, 0, 0], "thickness": 1});
        let picture = drawn(options, black(20, 30, 3).into(), found.into());
        let red: Vec<_> = picture.enumerate_pixels().filter(|(_, _, pixel)| pixel.0 == [255, 0, 0]).collect();
        assert_eq!(red.len(), 32);
        assert!(red.iter().all(|(x, y, _)| x.abs_diff(10) + y.abs_diff(10) == 8));
    }

    #[test]
    fn applies_geometry_to_boxes() {
        let boxed = run(&*step("letterbox", json!({"size": 64})), vec![black(20, 40, 3).into()]).remove(0);
        let found = json!([{"box": [0, 0, 40, 20]}]);
        let picture = drawn(json!({"color": [255, 0, 0], "thickness": 1}), boxed, found.into());
        let red: Vec<_> = picture.enumerate_pixels().filter(|(_, _, pixel)| pixel.0 == [255, 0, 0]).collect();
        assert_eq!((red[0].0, red[0].1), (0, 16));
        assert_eq!((red[red.len() - 1].0, red[red.len() - 1].1), (63, 47));
    }

    #[test]
    fn applies_transform_to_boxes() {
        let turned = run(&*step("rotate", json!({"degrees": 90})), vec![black(20, 40, 3).into()]).remove(0);
        let found = json!([{"box": [30, 0, 40, 5]}]);
        let picture = drawn(json!({"color": [255, 0, 0], "thickness": 1}), turned, found.into());
        assert_eq!(picture.dimensions(), (20, 40));
        let red: Vec<_> = picture.enumerate_pixels().filter(|(_, _, pixel)| pixel.0 == [255, 0, 0]).collect();
        assert_eq!((red[0].0, red[0].1), (0, 0));
        assert_eq!((red[red.len() - 1].0, red[red.len() - 1].1), (4, 9));
    }

    #[test]
    fn writes_labels_in_color() {
        let found = json!([
            {"box": [10, 30, 60, 60], "label": "cat", "score": 0.5},
            {"box": [70, 0, 99, 20], "label": "größer als das Bild", "score": 1},
        ]);
        let picture = drawn(json!({}), black(80, 100, 3).into(), found.into());
        let count = |color: [u8; 3]| picture.pixels().filter(|pixel| pixel.0 == color).count();
        assert!(count(PALETTE[0]) > 300 && count(PALETTE[1]) > 300);
        assert!(count([255; 3]) > 20, "white letters");
        let silent = drawn(
            json!({"text": false}),
            black(80, 100, 3).into(),
            json!([{"box": [10, 30, 60, 60], "label": "cat"}]).into(),
        );
        assert_eq!(silent.pixels().filter(|pixel| pixel.0 == [255; 3]).count(), 0);
    }

    #[test]
    fn handles_invalid_boxes_and_files() {
        let file: Value = read("decode/photo.jpg").into();
        let boxes = json!([
            {"box": [-1e300, -1e300, 1e300, 1e300], "label": "everything"},
            {"box": [5, 5, 1, 1]},
            {"box": [0, 0, 0, 0]},
            {"box": [1e9, 1e9, 2e9, 2e9]},
            {"points": [[-1e7, -1e7], [1e7, 1e7], [1e7, -1e7]], "label": "a triangle"},
        ]);
        assert_eq!(drawn(json!({"thickness": 50}), file.clone(), boxes.into()).dimensions(), (51, 45));
        let bgr = Metadata { color: Some(Color::Bgr), ..Metadata::default() };
        let blue = Tensor::new([1, 1, 3], vec![255_u8, 0, 0]).unwrap().with_metadata(bgr);
        assert_eq!(drawn(json!({}), blue.into(), json!([]).into()).get_pixel(0, 0).0, [0, 0, 255]);

        let step = step("draw-boxes", json!({}));
        let refused = |image: Value, found: Value| {
            let failure = step.run(vec![Some(image), Some(found)], &mut Context::default()).unwrap_err();
            assert!(matches!(failure, StepFailure::InvalidInput(_)), "{failure}");
        };
        refused(b"no picture".to_vec().into(), json!([]).into());
        refused("text".into(), json!([]).into());
        refused(Tensor::new([2, 2, 3], vec![0_f32; 12]).unwrap().into(), json!([]).into());
        refused(Tensor::new([0, 2, 3], Vec::<u8>::new()).unwrap().into(), json!([]).into());
        refused(file, json!([{"box": "all"}]).into());
        assert!(step.run(vec![None, None], &mut Context::default()).is_err());
    }

    #[test]
    fn rejects_undrawable_images_when_planned() {
        let step = step("draw-boxes", json!({}));
        let infer = |image: Kind, found: Kind| step.infer(&[Some(image), Some(found)]).map_err(|why| why.to_string());
        let image = |element: ElementType| Kind::Tensor(TensorKind::image(element, None, None, Some(3)));
        let rows =
            |columns| Kind::Tensor(TensorKind::shaped(ElementType::Float32, [Dim::Dynamic, Dim::Fixed(columns)]));
        assert_eq!(infer(Kind::Bytes, Kind::Json).unwrap(), [Kind::Bytes]);
        assert_eq!(infer(image(ElementType::Uint8), rows(4)).unwrap(), [Kind::Bytes]);
        assert!(infer(image(ElementType::Float32), Kind::Json).unwrap_err().contains("uint8"));
        assert!(infer(Kind::Text, Kind::Json).unwrap_err().contains("a picture is"));
        assert!(infer(Kind::Bytes, Kind::Text).unwrap_err().contains("detections are"));
        assert!(infer(Kind::Bytes, rows(3)).unwrap_err().contains("4 to 6 columns"));
        for options in [json!({"thickness": 0}), json!({"thickness": 51}), json!({"color": "red"})] {
            assert!(crate::reference::build(builtin(), options.clone()).is_err(), "{options}");
        }
    }
}
