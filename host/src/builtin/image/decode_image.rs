//! `decode-image`: the bytes of a JPEG or PNG file → pixels.

use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};

use image::codecs::{jpeg::JpegDecoder, png::PngDecoder};
use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageFormat, Limits};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::dims::MAX_PIXELS;
use crate::builtin::ports;
use crate::pipeline::{
    BuildError, Builtin, Color, Context, ElementType, Group, Kind, Layout, Metadata, Port, Signature, Site, Step,
    StepFailure, Tensor, TensorKind, Value,
};

/// The most pixels for a component, whose deadline cannot end the decoding: at most 16 MiB, in some
/// tens of milliseconds.
const MAX_PIXELS_IN_COMPONENT: u64 = 4 << 20;

/// Highest value of the option `max_pixels`.
const MAX_PIXELS_CEILING: u64 = 256 << 20;

/// A progressive JPEG has about ten scans; each costs a pass over the whole image, so a small file
/// with thousands of them is an attack.
const MAX_SCANS: usize = 100;

/// Most bytes of pixels that a byte of a PNG file can stand for: zlib packs at most 1032 bytes into
/// one, and a 1-bit palette index becomes 4 bytes.
const MAX_PNG_RATIO: u64 = 1032 * 32;

/// Memory that the PNG decoder may take beside the pixels: for rows, profiles and text, in bytes.
const PNG_BUFFERS: u64 = 16 << 20;

/// Options of `decode-image`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Options {
    /// What each pixel holds: `rgb` (default), `gray` (luminance, ITU-R 601-2 as Pillow rounds it)
    /// or `rgba`. Opacity is dropped, not blended, where it is not asked for.
    channels: Channels,
    /// Whether to turn the image upright as its EXIF orientation says. Default: true.
    orientation: bool,
    /// Most pixels (width × height) an image may have; a larger one is refused before any memory is
    /// taken for it. Default: 67108864 (64 Mi), at most 268435456.
    #[schemars(range(min = 1, max = 268_435_456))]
    max_pixels: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { channels: Channels::Rgb, orientation: true, max_pixels: MAX_PIXELS }
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

/// Decodes a JPEG or PNG file to a uint8 tensor, height × width × channels.
///
/// Follows Pillow: `ImageOps.exif_transpose(Image.open(file)).convert("RGB" | "L" | "RGBA")`. PNG is
/// identical to it. JPEG differs by a few levels, since the inverse DCT and the chroma upsampling
/// are not libjpeg-turbo's. 16-bit samples keep their high byte; Pillow does that too, except that
/// it clips 16-bit gray to 255, which leaves nothing of the picture.
struct DecodeImage {
    options: Options,
    signature: Signature,
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "decode-image",
        summary: "Decodes a JPEG or PNG file to pixels",
        group: Group::Image,
        follows: "Pillow: Image.open, ImageOps.exif_transpose, convert",
        example: "decode-image: { channels: rgb }",
        schema: || schemars::schema_for!(Options),
        build: |options, site| {
            let mut options: Options = ports::options(options)?;
            if matches!(site, Site::Component) {
                options.max_pixels = options.max_pixels.min(MAX_PIXELS_IN_COMPONENT);
            }
            Ok(Box::new(DecodeImage::new(options)?))
        },
    }
}

impl DecodeImage {
    fn new(options: Options) -> Result<Self, BuildError> {
        if !(1..=MAX_PIXELS_CEILING).contains(&options.max_pixels) {
            let message = format!("`max_pixels` is {}, not 1 to {MAX_PIXELS_CEILING}", options.max_pixels);
            return Err(BuildError::option("max_pixels", message));
        }
        let channels = options.channels.color().channels();
        let image = TensorKind::image(ElementType::Uint8, None, None, Some(channels));
        let signature = Signature::unary(
            Port { description: "a JPEG or PNG file".into(), ..Port::new("image", Kind::Bytes) },
            Port { description: "its pixels, 0 to 255".into(), ..Port::new("image", Kind::Tensor(image)) },
        );
        Ok(Self { options, signature })
    }

    fn decode(&self, bytes: &[u8]) -> Result<Tensor, StepFailure> {
        match image::guess_format(bytes) {
            Ok(ImageFormat::Png) => {
                let decoder = png(bytes).map_err(|error| damaged("PNG", &error))?;
                self.check_size(&decoder)?;
                if decoder.total_bytes() / MAX_PNG_RATIO > bytes.len() as u64 {
                    let (width, height) = decoder.dimensions();
                    return Err(damaged("PNG", &format!("the file is too short for its {width} × {height} pixels")));
                }
                self.pixels("PNG", decoder)
            }
            Ok(ImageFormat::Jpeg) => {
                match jpeg_scans(bytes) {
                    None => return Err(damaged("JPEG", &"the file ends before the image does")),
                    Some(scans) if scans > MAX_SCANS => {
                        return Err(damaged("JPEG", &format!("it has {scans} scans; at most {MAX_SCANS} are decoded")));
                    }
                    Some(_) => {}
                }
                let decoder = JpegDecoder::new(Cursor::new(bytes)).map_err(|error| damaged("JPEG", &error))?;
                self.check_size(&decoder)?;
                self.pixels("JPEG", decoder)
            }
            Ok(other) => {
                let name = format!("{other:?}").to_uppercase();
                Err(not_an_image(&format!("it is a {name} file; JPEG and PNG are decoded")))
            }
            Err(_) => Err(not_an_image(&unknown(bytes))),
        }
    }

    /// Bytes of the pixels as they lie in the file, and again as they are wanted.
    fn size(&self, bytes: &[u8]) -> Option<usize> {
        let wanted = self.options.channels.color().channels() as u64;
        let both = |decoder: &dyn ImageDecoder| {
            let (width, height) = decoder.dimensions();
            let pixels = u64::from(width) * u64::from(height);
            // A larger one is refused before anything is taken for it.
            (pixels <= self.options.max_pixels).then(|| decoder.total_bytes().saturating_add(pixels * wanted))
        };
        let size = match image::guess_format(bytes).ok()? {
            ImageFormat::Png => both(&png(bytes).ok()?)?,
            ImageFormat::Jpeg => {
                let size = both(&JpegDecoder::new(Cursor::new(bytes)).ok()?)?;
                // A progressive one is collected as numbers of two bytes.
                if jpeg_scans(bytes)? > 1 { size.saturating_mul(2) } else { size }
            }
            _ => return None,
        };
        usize::try_from(size).ok()
    }

    fn check_size(&self, decoder: &impl ImageDecoder) -> Result<(), StepFailure> {
        let (width, height) = decoder.dimensions();
        let limit = self.options.max_pixels;
        if u64::from(width) * u64::from(height) > limit {
            let message = format!("the image is {width} × {height} pixels; at most {limit} pixels are decoded");
            return Err(StepFailure::InvalidInput(format!("{message} (option `max_pixels`)")));
        }
        Ok(())
    }

    fn pixels(&self, format: &str, mut decoder: impl ImageDecoder) -> Result<Tensor, StepFailure> {
        let orientation = if self.options.orientation {
            decoder.orientation().unwrap_or(Orientation::NoTransforms)
        } else {
            Orientation::NoTransforms
        };
        let mut image = DynamicImage::from_decoder(decoder).map_err(|error| damaged(format, &error))?;
        image.apply_orientation(orientation);
        let (width, height) = (image.width() as usize, image.height() as usize);
        let (samples, found) = samples(image);
        let samples = convert(samples, found, self.options.channels);
        let color = self.options.channels.color();
        let metadata = Metadata { layout: Some(Layout::Hwc), color: Some(color), ..Metadata::default() };
        Ok(Tensor::new([height, width, color.channels()], samples)?.with_metadata(metadata))
    }
}

impl Step for DecodeImage {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        let Some(Some(Value::Bytes(bytes))) = inputs.first() else { return 0 };
        // As in `run`: the decoder may give up.
        catch_unwind(AssertUnwindSafe(|| self.size(bytes))).ok().flatten().unwrap_or(0)
    }

    fn run(&self, inputs: Vec<Option<Value>>, _: &mut Context) -> Result<Vec<Value>, StepFailure> {
        let bytes = match ports::first(inputs, "image")? {
            Value::Bytes(bytes) => bytes,
            other => return Err(StepFailure::InvalidInput(format!("`image` takes bytes, but gets {}", other.kind()))),
        };
        // The JPEG decoder holds asserts about its input that a hostile file may find.
        let decoded = catch_unwind(AssertUnwindSafe(|| self.decode(&bytes)));
        let tensor = decoded.unwrap_or_else(|_| Err(damaged("image", &"the decoder gave up on it")))?;
        Ok(vec![tensor.into()])
    }

    fn details(&self) -> serde_json::Value {
        serde_json::to_value(&self.options).unwrap_or_default()
    }
}

fn png(bytes: &[u8]) -> image::ImageResult<PngDecoder<Cursor<&[u8]>>> {
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(PNG_BUFFERS);
    PngDecoder::with_limits(Cursor::new(bytes), limits)
}

fn not_an_image(why: &str) -> StepFailure {
    StepFailure::InvalidInput(format!("not an image: {why}"))
}

fn damaged(format: &str, why: &impl ToString) -> StepFailure {
    StepFailure::InvalidInput(format!("not an image: a damaged {format} file: {}", why.to_string()))
}

/// Describes bytes that are no image, so that who sent them sees what they sent.
fn unknown(bytes: &[u8]) -> String {
    let start = &bytes[..bytes.len().min(16)];
    if bytes.is_empty() {
        "there are no bytes".to_owned()
    } else if start.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace()) {
        let text = String::from_utf8_lossy(start);
        format!("it starts with the text {text:?}; JPEG and PNG are decoded")
    } else {
        format!("it starts with the bytes {start:02x?}; JPEG and PNG are decoded")
    }
}

/// The 8-bit samples of an image and how many make a pixel: 1 gray, 2 gray and opacity, 3 RGB, 4 RGBA.
fn samples(image: DynamicImage) -> (Vec<u8>, usize) {
    let high = |samples: Vec<u16>| samples.into_iter().map(|sample| (sample >> 8) as u8).collect();
    match image {
        DynamicImage::ImageLuma8(image) => (image.into_raw(), 1),
        DynamicImage::ImageLumaA8(image) => (image.into_raw(), 2),
        DynamicImage::ImageRgb8(image) => (image.into_raw(), 3),
        DynamicImage::ImageRgba8(image) => (image.into_raw(), 4),
        DynamicImage::ImageLuma16(image) => (high(image.into_raw()), 1),
        DynamicImage::ImageLumaA16(image) => (high(image.into_raw()), 2),
        DynamicImage::ImageRgb16(image) => (high(image.into_raw()), 3),
        other => (high(other.into_rgba16().into_raw()), 4),
    }
}

fn convert(samples: Vec<u8>, found: usize, wanted: Channels) -> Vec<u8> {
    let gray = |pixel: &[u8]| {
        let [red, green, blue] = [pixel[0], pixel[1], pixel[2]].map(u32::from);
        ((red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16) as u8
    };
    match (found, wanted) {
        (1, Channels::Gray) | (3, Channels::Rgb) | (4, Channels::Rgba) => samples,
        (2, Channels::Gray) => samples.chunks_exact(2).map(|pixel| pixel[0]).collect(),
        (_, Channels::Gray) => samples.chunks_exact(found).map(gray).collect(),
        (1 | 2, Channels::Rgb) => samples.chunks_exact(found).flat_map(|pixel| [pixel[0]; 3]).collect(),
        (_, Channels::Rgb) => samples.chunks_exact(found).flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect(),
        (1 | 2, Channels::Rgba) => {
            let opaque = |pixel: &[u8]| [pixel[0], pixel[0], pixel[0], pixel.get(1).copied().unwrap_or(255)];
            samples.chunks_exact(found).flat_map(opaque).collect()
        }
        (_, Channels::Rgba) => {
            samples.chunks_exact(found).flat_map(|pixel| [pixel[0], pixel[1], pixel[2], 255]).collect()
        }
    }
}

/// How many scans a JPEG holds; `None` if the file ends before its end marker. The decoder fills
/// what is missing with gray and says nothing, so that must be found here.
fn jpeg_scans(bytes: &[u8]) -> Option<usize> {
    let mut rest = bytes.get(2..)?;
    let mut scans = 0;
    loop {
        let start = rest.iter().position(|byte| *byte == 0xff)?;
        rest = &rest[start + 1..];
        match *rest.first()? {
            0xd9 => return Some(scans),
            // Stuffed bytes, restarts and fill: inside a scan, or nothing that has a length.
            0x00 | 0x01 | 0xd0..=0xd8 => rest = &rest[1..],
            0xff => {}
            marker => {
                scans += usize::from(marker == 0xda);
                let length = usize::from(u16::from_be_bytes([*rest.get(1)?, *rest.get(2)?]));
                rest = rest.get(1 + length..)?;
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::builtin::reference;

    fn decode(options: serde_json::Value, bytes: &[u8]) -> Result<Tensor, StepFailure> {
        let step = DecodeImage::new(ports::options(options).unwrap()).unwrap();
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
    fn what_is_no_image_is_named() {
        assert_eq!(refusal(b""), "not an image: there are no bytes");
        assert!(refusal(b"{\"image\": 1}").contains("it starts with the text \"{\\\"image"));
        assert!(refusal(b"GIF89a\x01\0\x01\0").contains("it is a GIF file"));
        assert!(refusal(b"RIFF\0\0\0\0WEBPVP8 ").contains("it is a WEBP file"));
        assert!(refusal(&[0, 1, 2]).contains("the bytes [00, 01, 02]"));
    }

    #[test]
    fn a_size_is_refused_before_memory_is_taken() {
        assert!(refusal(&claiming(100_000, 100_000)).contains("100000 × 100000 pixels; at most 67108864"));
        assert!(refusal(&claiming(8000, 8000)).contains("too short for its 8000 × 8000"));
        assert!(refusal(&claiming(u32::MAX, u32::MAX)).contains("not an image"), "over what PNG allows");
        let png = reference::read("decode/rgb.png");
        assert!(decode(json!({"max_pixels": 17 * 23}), &png).is_ok());
        assert!(decode(json!({"max_pixels": 17 * 23 - 1}), &png).unwrap_err().to_string().contains("max_pixels"));
        let jpeg = reference::read("decode/photo.jpg");
        assert!(decode(json!({"max_pixels": 100}), &jpeg).unwrap_err().to_string().contains("max_pixels"));
        assert!(DecodeImage::new(Options { max_pixels: 0, ..Options::default() }).is_err());
        assert!(DecodeImage::new(Options { max_pixels: u64::MAX, ..Options::default() }).is_err());
    }

    #[test]
    fn a_part_of_a_file_is_refused() {
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
    fn scans_are_counted() {
        let progressive = reference::read("decode/progressive.jpg");
        let scans = jpeg_scans(&progressive).unwrap();
        assert!((2..20).contains(&scans), "{scans}");
        assert_eq!(jpeg_scans(&reference::read("decode/photo.jpg")), Some(1));
        // The same last scan over and over.
        let start = progressive.windows(2).rposition(|pair| pair == [0xff, 0xda]).unwrap();
        let scan = &progressive[start..progressive.len() - 2];
        let many = [&progressive[..start], &scan.repeat(2000), &[0xff, 0xd9]].concat();
        assert!(refusal(&many).contains("scans; at most 100"));
    }

    #[test]
    fn no_mutation_panics() {
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
    fn only_bytes_are_taken() {
        let step = DecodeImage::new(Options::default()).unwrap();
        assert!(step.infer(&[Some(Kind::Text)]).is_err());
        let text = vec![Some("seven.png".into())];
        assert!(step.run(text, &mut Context::default()).unwrap_err().to_string().contains("takes bytes"));
        assert!(step.run(vec![None], &mut Context::default()).is_err());
    }

    /// What a component asks for is charged only afterwards, so it gets less room beforehand.
    #[test]
    fn a_component_decodes_no_large_pictures() {
        let mut png = Cursor::new(Vec::new());
        image::GrayImage::new(2049, 2048).write_to(&mut png, ImageFormat::Png).unwrap();
        let png = Value::from(png.into_inner());
        let run = |site: &Site<'_>| {
            let step = (builtin().build)(json!({"max_pixels": 64 << 20}), site).unwrap();
            step.run(vec![Some(png.clone())], &mut Context::default())
        };
        let files = crate::pipeline::ProjectFiles::new(".", false);
        assert!(run(&Site::Pipeline(&files)).is_ok());
        assert!(run(&Site::Component).unwrap_err().to_string().contains("max_pixels"));
    }
}
