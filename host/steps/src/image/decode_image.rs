//! `decode-image`: the bytes of a picture file → pixels.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use image::metadata::Orientation;

use super::decode::{FORMATS, Format, IntegerSample, Samples, apply_orientation, convert, unpremultiply};
use super::dims::MAX_PIXELS;
use crate::deadline::Deadline;
use crate::operation::{BuiltinStep, Inputs, Operation};
use crate::ports;
use gpux_core::catch_panic::catch_panic;
use gpux_core::{
    Builtin, Color, ElementType, Group, Kind, Layout, Metadata, OptionOrigin, Port, Signature, StepFailure, Tensor,
    TensorElement, TensorKind, Value,
};

/// The most pixels for a component, whose deadline cannot end the decoding: at most 16 MiB, in some
/// tens of milliseconds.
const MAX_PIXELS_IN_COMPONENT: u64 = 4 << 20;

/// Options of `decode-image`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Options {
    /// What each pixel holds: `rgb` (default), `gray` (luminance, ITU-R 601-2 as Pillow rounds it)
    /// or `rgba`. Opacity is dropped, not blended, where it is not asked for.
    channels: Channels,
    /// Bits of a sample: 8 (default), as uint8, or 16, as uint16. A file of 16 bits keeps the high
    /// byte of each sample at 8; a file of 8 bits has each sample times 257 at 16.
    #[schemars(extend("enum" = [8, 16]))]
    depth: u8,
    /// Whether to turn the image upright as its orientation in EXIF, or else in XMP, says. Default: true.
    orientation: bool,
    /// Most pixels (width × height) an image may have; a larger one is refused before any memory is
    /// taken for it. Default: 67108864 (64 Mi), at most 268435456.
    #[schemars(range(min = 1, max = 268_435_456))]
    max_pixels: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { channels: Channels::Rgb, depth: 8, orientation: true, max_pixels: MAX_PIXELS }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Channels {
    Rgb,
    Gray,
    Rgba,
}

impl Channels {
    const fn color(self) -> Color {
        match self {
            Self::Rgb => Color::Rgb,
            Self::Gray => Color::Gray,
            Self::Rgba => Color::Rgba,
        }
    }
}

/// Decodes a JPEG, PNG, WebP, GIF, BMP or TIFF file to a tensor, height × width × channels. Of an
/// animation or several pages, the first.
///
/// Follows Pillow: `ImageOps.exif_transpose(Image.open(file)).convert("RGB" | "L" | "RGBA")`. Every
/// format is identical to it, JPEG and lossy WebP too; BMP of 16 bits a pixel differs by a level.
/// 16-bit samples keep their high byte; Pillow does that too, except that it clips 16-bit gray to 255, which leaves
/// nothing of the picture.
pub(super) struct DecodeImage(Options);

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "decode-image",
        summary: "Decodes a JPEG, PNG, WebP, GIF, BMP or TIFF file to pixels",
        group: Group::Image,
        follows: "Pillow: Image.open, ImageOps.exif_transpose, convert",
        example: "decode-image: { channels: rgb }",
        schema: || schemars::schema_for!(Options),
        build: |options, site| Ok(Box::new(DecodeImage::at(ports::options(options)?, site))),
    }
}

impl DecodeImage {
    /// A decoder of any picture to upright 8-bit RGB, for another step.
    pub(super) fn rgb(site: &OptionOrigin<'_>) -> Self {
        Self::at(Options::default(), site).operation
    }

    fn at(mut options: Options, site: &OptionOrigin<'_>) -> BuiltinStep<Self> {
        if matches!(site, OptionOrigin::Component) {
            options.max_pixels = options.max_pixels.min(MAX_PIXELS_IN_COMPONENT);
        }
        Self::new(options)
    }

    fn new(options: Options) -> BuiltinStep<Self> {
        let element = if options.depth == 8 { ElementType::Uint8 } else { ElementType::Uint16 };
        let channels = options.channels.color().channels();
        let image = TensorKind::image(element, None, None, Some(channels));
        let most = if options.depth == 8 { 255 } else { 65535 };
        let signature = Signature::unary(
            Port { description: format!("a {} file", FORMATS.replace("and", "or")), ..Port::new("image", Kind::Bytes) },
            Port { description: format!("its pixels, 0 to {most}"), ..Port::new("image", Kind::Tensor(image)) },
        );
        BuiltinStep::new(signature, json!(options), Self(options))
    }

    fn decode_file(&self, bytes: &[u8], deadline: &Deadline) -> Result<Tensor, StepFailure> {
        deadline.check()?;
        let format = Format::detect(bytes).map_err(|why| not_an_image(&why))?;
        if let Some(why) = format.unsupported(bytes) {
            return Err(not_an_image(&format!("a {format} file, but {why}")));
        }
        let damaged = |why: String| not_an_image(&format!("a damaged {format} file: {why}"));
        let bytes = &*format.normalized(bytes, self.0.max_pixels, deadline).map_err(damaged)?;
        let mut head = format.open(bytes, deadline).map_err(damaged)?;
        let (width, height) = head.size();
        let limit = self.0.max_pixels;
        if u64::from(width) * u64::from(height) > limit {
            let message = format!("the image is {width} × {height} pixels; at most {limit} pixels are decoded");
            return Err(StepFailure::InvalidInput(format!("{message} (option `max_pixels`)")));
        }
        let turn = if self.0.orientation { head.orientation() } else { Orientation::NoTransforms };
        let is_premultiplied = head.is_premultiplied();
        let image = head.decode().map_err(damaged)?;
        let sides = [image.height() as usize, image.width() as usize];
        let samples = Samples::from_image(image).map_err(|why| not_an_image(&why))?;
        let tensor = if self.0.depth == 16 {
            let (mut samples, found) = samples.into_16_bit(deadline)?;
            if is_premultiplied && found == 4 {
                samples = unpremultiply(&samples, deadline)?;
            }
            self.upright(samples, found, sides, turn, deadline)?
        } else {
            let (mut samples, found) = samples.into_8_bit(deadline)?;
            if is_premultiplied && found == 4 {
                samples = unpremultiply(&samples, deadline)?;
            }
            self.upright(samples, found, sides, turn, deadline)?
        };
        let color = Some(self.0.channels.color());
        Ok(tensor.with_metadata(Metadata { layout: Some(Layout::Hwc), color, ..Metadata::default() }))
    }

    /// The pixels that are wanted, of samples of `found` channels that are to be turned.
    fn upright<T: IntegerSample + TensorElement + Default>(
        &self,
        samples: Vec<T>,
        found: usize,
        sides: [usize; 2],
        turn: Orientation,
        deadline: &Deadline,
    ) -> Result<Tensor, StepFailure> {
        let color = self.0.channels.color();
        let samples = convert(samples, found, color, deadline)?;
        let (samples, [height, width]) = match color.channels() {
            1 => apply_orientation::<_, 1>(samples, sides, turn, deadline)?,
            3 => apply_orientation::<_, 3>(samples, sides, turn, deadline)?,
            _ => apply_orientation::<_, 4>(samples, sides, turn, deadline)?,
        };
        Ok(Tensor::new([height, width, color.channels()], samples)?)
    }

    /// The pixels. The decoders hold asserts about their input that a hostile file may find.
    pub(super) fn decode(&self, bytes: &[u8], deadline: &Deadline) -> Result<Tensor, StepFailure> {
        let decoded = catch_panic(|| self.decode_file(bytes, deadline));
        // A stopped decoder's own error is ignored.
        if deadline.check_cached().is_err() {
            return Err(StepFailure::Timeout);
        }
        decoded.unwrap_or_else(|_| Err(not_an_image("the decoder gave up on it")))
    }

    /// Bytes that decoding takes.
    pub(super) fn memory(&self, bytes: &[u8]) -> usize {
        // As in `decoded`: the decoder may give up.
        catch_panic(|| self.size(bytes)).ok().flatten().unwrap_or(0)
    }

    /// Bytes of the pixels as they lie in the file, and again as they are wanted.
    fn size(&self, bytes: &[u8]) -> Option<usize> {
        let deadline = Deadline::default();
        let format = Format::detect(bytes).ok()?;
        // Without unpacking runs of pixels, which `memory` counts.
        let file = format.normalized(bytes, 0, &deadline).ok()?;
        let rewritten = if matches!(file, Cow::Owned(_)) { file.len() as u64 } else { 0 };
        let mut head = format.open(&file, &deadline).ok()?;
        let (width, height) = head.size();
        let pixels = u64::from(width) * u64::from(height);
        // A larger one is refused before anything is taken for it.
        if pixels > self.0.max_pixels {
            return None;
        }
        let wanted = pixels * self.0.channels.color().channels() as u64 * u64::from(self.0.depth / 8);
        let turned = self.0.orientation && head.orientation() != Orientation::NoTransforms;
        let wanted = if turned { wanted * 2 } else { wanted };
        usize::try_from(head.memory().saturating_add(wanted).saturating_add(rewritten)).ok()
    }
}

impl Operation for DecodeImage {
    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        let Some(Some(Value::Bytes(bytes))) = inputs.first() else { return 0 };
        self.memory(bytes)
    }

    fn run(&self, mut inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        Ok(vec![self.decode(&inputs.bytes()?, deadline)?.into()])
    }
}

fn not_an_image(why: &str) -> StepFailure {
    StepFailure::InvalidInput(format!("not an image: {why}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;
    use crate::reference;
    use gpux_core::{Context, Step as _};

    fn decode(options: serde_json::Value, bytes: &[u8]) -> Result<Tensor, StepFailure> {
        let step = DecodeImage::new(ports::options(options).unwrap());
        let mut values = step.run(vec![Some(bytes.to_vec().into())], &mut Context::default())?;
        Ok(values.remove(0).as_tensor().unwrap().clone())
    }

    fn refusal(bytes: &[u8]) -> String {
        match decode(json!({}), bytes) {
            Err(StepFailure::InvalidInput(message)) => message,
            other => panic!("{other:?}"),
        }
    }

    /// A PNG that claims this size and holds nothing.
    fn claiming(width: u32, height: u32) -> Vec<u8> {
        let mut header = b"IHDR".to_vec();
        header.extend(width.to_be_bytes());
        header.extend(height.to_be_bytes());
        header.extend([8, 2, 0, 0, 0]);
        let crc = header.iter().fold(u32::MAX, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 * (crc & 1)))
        });
        let idat = [0, 0, 0, 0, b'I', b'D', b'A', b'T', 0x35, 0xaf, 0x06, 0x1e];
        [&b"\x89PNG\r\n\x1a\n\0\0\0\x0d"[..], &header, &(!crc).to_be_bytes(), &idat].concat()
    }

    #[test]
    fn describes_bytes_that_are_no_image() {
        assert_eq!(refusal(b""), "not an image: there are no bytes");
        assert!(refusal(b"{\"image\": 1}").contains("it starts with the text \"{\\\"image"));
        assert!(refusal(b"\0\0\x01\0\x01\0\x10\x10").contains("it is a ICO file"));
        assert!(refusal(b"GIF89a\x01\0\x01\0").contains("a damaged GIF file"));
        assert!(refusal(b"RIFF\0\0\0\0WEBPVP8 ").contains("a damaged WebP file"));
        assert!(refusal(&[0, 1, 2]).contains("the bytes [00, 01, 02]"));
    }

    #[test]
    fn rejects_sizes_before_allocating() {
        assert!(refusal(&claiming(100_000, 100_000)).contains("100000 × 100000 pixels; at most 67108864"));
        assert!(refusal(&claiming(8000, 8000)).contains("too short for its 8000 × 8000"));
        assert!(refusal(&claiming(u32::MAX, u32::MAX)).contains("not an image"), "over what PNG allows");
        let png = reference::read("decode/rgb.png");
        assert!(decode(json!({"max_pixels": 17 * 23}), &png).is_ok());
        assert!(decode(json!({"max_pixels": 17 * 23 - 1}), &png).unwrap_err().to_string().contains("max_pixels"));
        let jpeg = reference::read("decode/photo.jpg");
        assert!(decode(json!({"max_pixels": 100}), &jpeg).unwrap_err().to_string().contains("max_pixels"));
        assert!(reference::build(builtin(), json!({"max_pixels": 0})).is_err());
        assert!(reference::build(builtin(), json!({"max_pixels": u64::MAX})).is_err());
        assert!(reference::build(builtin(), json!({"depth": 12})).is_err());
    }

    #[test]
    fn rejects_truncated_files() {
        for name in ["rgb.png", "palette.png", "photo.jpg", "progressive.jpg", "gray.jpg"] {
            let whole = reference::read(&format!("decode/{name}"));
            for length in (0..whole.len() - 12).step_by(7) {
                refusal(&whole[..length]);
            }
            if name.ends_with("jpg") {
                assert!(refusal(&whole[..whole.len() - 2]).contains("ends before"), "{name}");
            }
        }
    }

    #[test]
    fn mutated_files_never_panic() {
        let mut random = reference::random();
        let names = [
            "rgb.png",
            "palette-transparent.png",
            "interlaced.png",
            "alpha-16bit.png",
            "photo.jpg",
            "progressive.jpg",
            "cmyk.jpg",
            "exif-6.jpg",
        ];
        for name in names {
            let whole = reference::read(&format!("decode/{name}"));
            for _ in 0..80 {
                let mut bytes = whole.clone();
                for _ in 0..=random(6) {
                    let near = if random(2) == 0 { 700 } else { usize::MAX };
                    let at = random(bytes.len().min(near));
                    bytes[at] = [0, 0xff, random(256) as u8, bytes[at] ^ (1 << random(8))][random(4)];
                }
                match decode(json!({"channels": "rgb", "max_pixels": 1 << 20}), &bytes) {
                    Ok(tensor) => assert_eq!(tensor.shape()[2], 3),
                    Err(error) => assert!(matches!(error, StepFailure::InvalidInput(_)), "{error}"),
                }
            }
        }
    }

    #[test]
    fn rejects_inputs_other_than_bytes() {
        let step = DecodeImage::new(Options::default());
        assert!(step.infer(&[Some(Kind::Text)]).is_err());
        let text = vec![Some("seven.png".into())];
        assert!(step.run(text, &mut Context::default()).unwrap_err().to_string().contains("takes bytes"));
        assert!(step.run(vec![None], &mut Context::default()).is_err());
    }

    /// Components are charged for their calls afterwards, so they get less memory beforehand.
    #[test]
    fn components_cannot_decode_large_images() {
        let mut png = std::io::Cursor::new(Vec::new());
        image::GrayImage::new(2049, 2048).write_to(&mut png, image::ImageFormat::Png).unwrap();
        let png = Value::from(png.into_inner());
        let run = |site: &OptionOrigin<'_>| {
            let step = reference::build_at(builtin(), json!({"max_pixels": 64 << 20}), site).unwrap();
            step.run(vec![Some(png.clone())], &mut Context::default())
        };
        let files = gpux_core::ProjectFiles::new(".", false);
        assert!(run(&OptionOrigin::folder(&files)).is_ok());
        assert!(run(&OptionOrigin::Component).unwrap_err().to_string().contains("max_pixels"));
    }
}
