//! `encode-image`: an image → a PNG, JPEG or WebP file.

use std::io::{self, Write};

use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::codecs::webp::WebPEncoder;
use image::{ExtendedColorType, ImageEncoder, ImageError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::color::in_rgb_order;
use super::dims::{ImageDims, supports_channels};
use crate::deadline::Deadline;
use crate::operation::{BuiltinStep, Inputs, Operation};
use crate::ports;
use gpux_core::{
    BuildError, Builtin, ElementType, Group, Kind, Port, Signature, StepFailure, Tensor, TensorKind, Value,
};

/// Longest side of a WebP file, in pixels.
const WEBP_SIDE: usize = 16_383;

/// Longest side of a JPEG file, in pixels.
const JPEG_SIDE: usize = 65_535;

/// Options of `encode-image`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Options {
    /// `png` (default), `jpeg`, or `webp` without loss.
    format: Format,
    /// How much of a JPEG's detail is kept, 1 to 100. Default: 90.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    quality: Option<u8>,
    /// How long a PNG is compressed: `fast` (default), `default` or `best`. The pixels are the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    compression: Option<Compression>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Format {
    #[default]
    Png,
    Jpeg,
    Webp,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Compression {
    #[default]
    Fast,
    Default,
    Best,
}

/// Writes uint8 pixels to a file. BGR is written as the RGB that it is.
struct EncodeImage(Options);

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "encode-image",
        summary: "Writes pixels to a PNG, JPEG or WebP file",
        group: Group::Image,
        follows: "",
        example: "encode-image: { format: jpeg, quality: 90 }",
        schema: || schemars::schema_for!(Options),
        build: |options, _| Ok(Box::new(EncodeImage::step(ports::options(options)?)?)),
    }
}

impl EncodeImage {
    fn step(options: Options) -> Result<BuiltinStep<Self>, BuildError> {
        if options.quality.is_some() && options.format != Format::Jpeg {
            return Err(BuildError::option("quality", "`quality` is for `format: jpeg`; PNG and WebP lose nothing"));
        }
        if options.compression.is_some() && options.format != Format::Png {
            return Err(BuildError::option("compression", "`compression` is for `format: png`"));
        }
        let image = Kind::Tensor(TensorKind::image(ElementType::Uint8, None, None, None));
        let channels = if options.format == Format::Jpeg { "1 or 3 channels" } else { "1, 3 or 4 channels" };
        let signature = Signature::unary(
            Port { description: format!("height × width × channels, {channels}"), ..Port::new("image", image) },
            Port { description: "the file".into(), ..Port::new("file", Kind::Bytes) },
        );
        let details = json!(options);
        Ok(BuiltinStep::new(signature, details, Self(options)))
    }

    fn check_channels(&self, channels: usize) -> Result<(), String> {
        if !supports_channels(channels) {
            return Err(format!("there are {channels} channels on the last axis, not 1, 3 or 4"));
        }
        if self.0.format == Format::Jpeg && channels == 4 {
            return Err("a JPEG has no opacity, but the image has 4 channels; drop it by `color: { to: rgb }`".into());
        }
        Ok(())
    }

    /// Errors of an image that the format cannot hold.
    fn check(&self, dims: ImageDims) -> Result<(), String> {
        self.check_channels(dims.channels)?;
        let (name, longest) = match self.0.format {
            Format::Png => return Ok(()),
            Format::Jpeg => ("JPEG", JPEG_SIDE),
            Format::Webp => ("WebP", WEBP_SIDE),
        };
        if dims.height.max(dims.width) > longest {
            let ImageDims { height, width, .. } = dims;
            return Err(format!(
                "a side of a {name} has at most {longest} pixels, but the image is {height} × {width}"
            ));
        }
        Ok(())
    }

    /// Seconds that a sample takes at least, for what cannot be stopped on the way.
    const fn seconds_per_sample(&self) -> f64 {
        match (self.0.format, self.0.compression) {
            (Format::Png, None | Some(Compression::Fast)) => 1e-9,
            (Format::Png | Format::Jpeg, _) => 3e-9,
            (Format::Webp, _) => 6e-9,
        }
    }

    fn encode(&self, pixels: &[u8], dims: ImageDims, to: &mut File<'_>) -> Result<(), ImageError> {
        let (width, height) = (dims.width as u32, dims.height as u32);
        let color = match dims.channels {
            1 => ExtendedColorType::L8,
            3 => ExtendedColorType::Rgb8,
            _ => ExtendedColorType::Rgba8,
        };
        match self.0.format {
            Format::Png => {
                let compression = match self.0.compression.unwrap_or_default() {
                    Compression::Fast => CompressionType::Fast,
                    Compression::Default => CompressionType::Default,
                    Compression::Best => CompressionType::Best,
                };
                let encoder = PngEncoder::new_with_quality(to, compression, FilterType::Adaptive);
                encoder.write_image(pixels, width, height, color)
            }
            Format::Jpeg => {
                let quality = self.0.quality.unwrap_or(90);
                JpegEncoder::new_with_quality(to, quality).write_image(pixels, width, height, color)
            }
            Format::Webp => WebPEncoder::new_lossless(to).write_image(pixels, width, height, color),
        }
    }
}

/// A file that is written until the deadline.
struct File<'a> {
    bytes: Vec<u8>,
    deadline: &'a Deadline,
}

impl Write for File<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A byte of a file takes much longer than an addition.
        self.deadline.check_after(bytes.len().saturating_mul(64))?;
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Operation for EncodeImage {
    fn infer_tensor(&self, given: &TensorKind, _: &mut Vec<Kind>) -> Result<(), String> {
        let channels = given.shape.as_ref().and_then(|shape| shape.get(2)).and_then(ports::fixed);
        channels.map_or(Ok(()), |channels| self.check_channels(channels))
    }

    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        // The pixels in the order of the file, and the file, whose list may have grown to twice the length.
        let samples = ports::given_tensor(inputs).map_or(0, Tensor::len);
        let times = match self.0.format {
            Format::Png => 6,
            Format::Jpeg => 6,
            Format::Webp => 24,
        };
        samples.saturating_mul(times).saturating_add(1 << 20)
    }

    fn run(&self, mut inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        let invalid = |why: String| StepFailure::InvalidInput(format!("encode-image: {why}"));
        let tensor = inputs.tensor()?;
        let dims = ImageDims::from_tensor(&tensor)?;
        if tensor.element() != ElementType::Uint8 {
            let element = tensor.element();
            let hint = "take the image before it is normalized, or `scale` it to 0 to 255 and `cast` it";
            return Err(invalid(format!("it takes uint8, but gets {element}; {hint}")));
        }
        self.check(dims).map_err(invalid)?;
        let tensor = in_rgb_order(tensor, dims, deadline)?;
        let pixels = tensor.as_slice::<u8>().unwrap_or_default();
        deadline.check_time_for(self.seconds_per_sample() * pixels.len() as f64)?;
        let mut file = File { bytes: Vec::new(), deadline };
        let written = self.encode(pixels, dims, &mut file);
        deadline.check_cached()?;
        written.map_err(|error| StepFailure::Failed(format!("cannot write the file: {error}")))?;
        Ok(vec![file.bytes.into()])
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;
    use crate::reference::{build, run, run_tensor, step};
    use gpux_core::{Color, Context, Metadata};

    fn image(channels: usize) -> Tensor {
        let level = |at: usize| ((at / 37 + at % 23 * 7) % 256) as u8;
        Tensor::new([21, 34, channels], (0..21 * 34 * channels).map(level).collect::<Vec<_>>()).unwrap()
    }

    fn encoded(options: serde_json::Value, image: Tensor) -> Vec<u8> {
        let Value::Bytes(file) = run(&*step("encode-image", options), vec![image.into()]).remove(0) else { panic!() };
        file.to_vec()
    }

    #[test]
    fn files_hold_the_pixels() {
        for (format, channels) in [("png", 1), ("png", 3), ("png", 4), ("webp", 3), ("webp", 4)] {
            let file = encoded(json!({ "format": format }), image(channels));
            let names = ["", "gray", "", "rgb", "rgba"];
            let to = json!({ "channels": names[channels] });
            let decoded = run_tensor(&*step("decode-image", to), file);
            assert_eq!(decoded.as_slice::<u8>().unwrap(), image(channels).as_slice::<u8>().unwrap(), "{format}");
        }
        let bgr = Metadata { color: Some(Color::Bgr), ..Metadata::default() };
        let blue = Tensor::new([1, 1, 3], vec![255_u8, 1, 2]).unwrap().with_metadata(bgr);
        let decoded = run_tensor(&*step("decode-image", json!({})), encoded(json!({}), blue));
        assert_eq!(decoded.as_slice::<u8>().unwrap(), [2, 1, 255]);
    }

    #[test]
    fn quality_and_compression_change_the_size() {
        let smooth: Vec<u8> = (0..64 * 64 * 3).map(|at| (at / 3 % 64 * 2 + at / 192) as u8).collect();
        let smooth = || Tensor::new([64, 64, 3], smooth.clone()).unwrap();
        let jpeg = |quality: u8| encoded(json!({"format": "jpeg", "quality": quality}), smooth());
        assert!(jpeg(20).len() < jpeg(95).len());
        let decoded = run_tensor(&*step("decode-image", json!({})), jpeg(95));
        let pairs =
            decoded.as_slice::<u8>().unwrap().to_vec().into_iter().zip(smooth().as_slice::<u8>().unwrap().to_vec());
        assert!(pairs.map(|(ours, given)| ours.abs_diff(given)).max().unwrap() < 16);
        let png = |compression: &str| encoded(json!({ "compression": compression }), smooth());
        assert!(png("best").len() <= png("fast").len());
    }

    #[test]
    fn rejects_what_no_file_can_hold() {
        for options in [
            json!({"format": "gif"}),
            json!({"quality": 9}),
            json!({"format": "jpeg", "quality": 0}),
            json!({"format": "webp", "compression": "best"}),
        ] {
            assert!(build(builtin(), options.clone()).is_err(), "{options}");
        }
        let refused = |options, tensor: Tensor| match step("encode-image", options)
            .run(vec![Some(tensor.into())], &mut Context::default())
        {
            Err(StepFailure::InvalidInput(message)) => message,
            other => panic!("{other:?}"),
        };
        let line = || Tensor::new([1, 70_000, 1], vec![0_u8; 70_000]).unwrap();
        assert!(refused(json!({"format": "jpeg"}), line()).contains("at most 65535"));
        assert!(refused(json!({"format": "webp"}), line()).contains("at most 16383"));
        assert!(refused(json!({"format": "jpeg"}), image(4)).contains("no opacity"));
        assert!(refused(json!({}), Tensor::new([1, 1, 1], vec![0.5_f32]).unwrap()).contains("takes uint8"));
        assert!(refused(json!({}), image(2)).contains("1, 3 or 4 channels"));
        let kind = TensorKind::image(ElementType::Uint8, None, None, Some(4));
        let error = step("encode-image", json!({"format": "jpeg"})).infer(&[Some(Kind::Tensor(kind))]).unwrap_err();
        assert!(error.to_string().contains("no opacity"), "{error}");
    }
}
