//! The picture formats of `decode-image`, each with the same three functions: a check that the
//! file can hold the claimed size, the header, and the samples.

mod bmp;
mod directory;
mod gif;
#[cfg(test)]
mod hostile;
mod jpeg;
mod orientation;
mod png;
mod samples;
mod tiff;
mod tiff_jpeg;
mod tiff_tags;
mod webp;

use std::borrow::Cow;
use std::fmt;

use image::metadata::Orientation;
use image::{DynamicImage, ExtendedColorType, ImageDecoder, ImageFormat};

use crate::deadline::{Deadline, DeadlineReader};
use gpux_core::what_instead;

use self::orientation::orientation;

pub(super) use self::orientation::apply_orientation;
pub(super) use self::samples::{IntegerSample, Samples, convert, map_pixels, unpremultiply};

/// The formats, as an error lists them.
pub(super) const FORMATS: &str = "JPEG, PNG, WebP, GIF, BMP and TIFF";

/// Memory that a decoder may take beside the pixels: for rows, profiles and text, in bytes.
const BUFFERS: u64 = 16 << 20;

/// Memory that unpacking a PNG file takes beside the pixels.
const INFLATING: u64 = 1 << 19;

/// Bytes of a file that are decoded between two deadline checks.
const PIECE: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Jpeg,
    Png,
    Webp,
    Gif,
    Bmp,
    Tiff,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Jpeg => "JPEG",
            Self::Png => "PNG",
            Self::Webp => "WebP",
            Self::Gif => "GIF",
            Self::Bmp => "BMP",
            Self::Tiff => "TIFF",
        })
    }
}

impl Format {
    /// The format of a file, by its first bytes; the error names the recognized other type.
    pub(super) fn detect(bytes: &[u8]) -> Result<Self, String> {
        match image::guess_format(bytes) {
            Ok(ImageFormat::Jpeg) => Ok(Self::Jpeg),
            Ok(ImageFormat::Png) => Ok(Self::Png),
            Ok(ImageFormat::WebP) => Ok(Self::Webp),
            Ok(ImageFormat::Gif) => Ok(Self::Gif),
            Ok(ImageFormat::Bmp) => Ok(Self::Bmp),
            Ok(ImageFormat::Tiff) => Ok(Self::Tiff),
            Ok(other) => {
                let name = format!("{other:?}").to_uppercase();
                Err(format!("it is a {name} file; {FORMATS} are decoded"))
            }
            // BigTIFF.
            Err(_) if bytes.starts_with(b"II\x2b\0") || bytes.starts_with(b"MM\0\x2b") => Ok(Self::Tiff),
            Err(_) => Err(unknown(bytes)),
        }
    }

    /// Says what of a file is not decoded although it may be whole.
    pub(super) fn unsupported(self, bytes: &[u8]) -> Option<String> {
        match self {
            Self::Tiff => tiff::unsupported(bytes),
            Self::Bmp => bmp::unsupported(bytes),
            _ => None,
        }
    }

    /// The file as the decoders take it: rewritten where they would give other pixels than Pillow.
    pub(super) fn normalized<'a>(
        self,
        bytes: &'a [u8],
        max_pixels: u64,
        deadline: &Deadline,
    ) -> Result<Cow<'a, [u8]>, String> {
        match self {
            Self::Tiff => Ok(tiff::normalized(bytes)),
            Self::Bmp => bmp::normalized(bytes, max_pixels, deadline),
            _ => Ok(Cow::Borrowed(bytes)),
        }
    }

    /// Reads the header of a file. Allocates nothing for its pixels.
    pub(super) fn open<'a>(self, bytes: &'a [u8], deadline: &'a Deadline) -> Result<EncodedImage<'a>, String> {
        let paced = DeadlineReader::new(bytes, PIECE, deadline);
        let decoder: Box<dyn ImageDecoder + 'a> = match self {
            Self::Jpeg => Box::new(jpeg::open(bytes, deadline)?),
            Self::Png => Box::new(png::open(bytes, deadline)?),
            Self::Webp => Box::new(webp::open(paced)?),
            Self::Gif => Box::new(gif::open(paced)?),
            Self::Bmp => Box::new(bmp::open(paced)?),
            Self::Tiff => tiff::open(bytes, paced, deadline)?,
        };
        Ok(EncodedImage { format: self, bytes, decoder, deadline })
    }
}

/// A file whose head was read.
pub(super) struct EncodedImage<'a> {
    pub(super) format: Format,
    bytes: &'a [u8],
    decoder: Box<dyn ImageDecoder + 'a>,
    deadline: &'a Deadline,
}

impl EncodedImage<'_> {
    /// Width and height in pixels.
    pub(super) fn size(&self) -> (u32, u32) {
        self.decoder.dimensions()
    }

    /// Bytes that decoding takes: the samples as they lie in the file, and what lies between.
    pub(super) fn memory(&self) -> u64 {
        let samples = self.decoder.total_bytes();
        // Samples of 16 bits are copied to 8.
        let pixel = self.decoder.color_type();
        let wide = pixel.bytes_per_pixel() > pixel.channel_count();
        let copied = if wide { samples.saturating_add(samples / 2) } else { samples };
        copied.max(match self.format {
            Format::Jpeg => samples.saturating_add(jpeg::memory(self.bytes)),
            Format::Png => samples.saturating_add(INFLATING),
            Format::Bmp => samples.saturating_add(bmp::unpacked(self.bytes)),
            Format::Webp => samples.saturating_mul(2).saturating_add(webp::tables(self.bytes)),
            // There is one more ink than colors.
            Format::Tiff if self.decoder.original_color_type() == ExtendedColorType::Cmyk8 => samples.saturating_mul(3),
            // A canvas, or a strip before it is unpacked.
            Format::Gif => samples.saturating_mul(2),
            Format::Tiff => samples.saturating_mul(if tiff::is_jpeg(self.bytes) { 5 } else { 2 }),
        })
    }

    /// The orientation in the file's Exif data or XMP.
    pub(super) fn orientation(&mut self) -> Orientation {
        match self.format {
            Format::Gif | Format::Bmp => Orientation::NoTransforms,
            Format::Tiff => orientation(Some(self.bytes), tiff::xmp(self.bytes)),
            Format::Png => {
                let [exif, xmp] = png::metadata(self.bytes);
                orientation(exif.as_deref(), xmp.as_deref())
            }
            Format::Jpeg | Format::Webp => {
                let exif = self.decoder.exif_metadata().ok().flatten();
                let xmp = self.decoder.xmp_metadata().ok().flatten();
                orientation(exif.as_deref(), xmp.as_deref())
            }
        }
    }

    /// Whether samples of four channels hold colours that were multiplied by their opacity.
    pub(super) fn is_premultiplied(&self) -> bool {
        self.format == Format::Tiff && tiff::is_premultiplied(self.bytes)
    }

    /// The samples, as they lie in the file. Call it only where [`size`](Self::size) is within bounds.
    pub(super) fn decode(mut self) -> Result<DynamicImage, String> {
        match self.format {
            Format::Jpeg => {}
            Format::Png => png::check(self.bytes, &*self.decoder)?,
            Format::Bmp => bmp::check(self.bytes, &*self.decoder)?,
            Format::Tiff => tiff::check(self.bytes, &mut *self.decoder)?,
            Format::Webp => webp::check(self.bytes, &*self.decoder, self.deadline)?,
            Format::Gif => gif::check(&mut *self.decoder)?,
        }
        if self.format == Format::Tiff && self.decoder.original_color_type() == ExtendedColorType::Cmyk8 {
            return tiff::cmyk(DeadlineReader::new(self.bytes, PIECE, self.deadline), &*self.decoder, self.deadline);
        }
        DynamicImage::from_decoder(self.decoder).map_err(|error| error.to_string())
    }
}

/// The file cannot hold as many pixels as it claims.
fn too_short(decoder: &dyn ImageDecoder) -> String {
    let (width, height) = decoder.dimensions();
    format!("the file is too short for its {width} × {height} pixels")
}

/// Describes bytes that are no image.
fn unknown(bytes: &[u8]) -> String {
    let start = &bytes[..bytes.len().min(16)];
    if bytes.is_empty() {
        "there are no bytes".to_owned()
    } else if let Some(what) = what_instead(bytes) {
        format!("{what}; {FORMATS} are decoded")
    } else if start.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace()) {
        let text = String::from_utf8_lossy(start);
        format!("it starts with the text {text:?}; {FORMATS} are decoded")
    } else {
        format!("it starts with the bytes {start:02x?}; {FORMATS} are decoded")
    }
}
