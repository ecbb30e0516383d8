//! The picture formats that `decode-image` reads, each behind the same three questions: can the
//! file hold what it claims, what does its head say, and what are its samples.

mod bmp;
mod gif;
#[cfg(test)]
mod hostile;
mod jpeg;
mod png;
mod samples;
mod tiff;
mod webp;

use std::fmt;

use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageFormat};

pub(super) use self::samples::{Level, Samples, convert, each};

/// The formats, as an error lists them.
pub(super) const FORMATS: &str = "JPEG, PNG, WebP, GIF, BMP and TIFF";

/// Memory that a decoder may take beside the pixels: for rows, profiles and text, in bytes.
const BUFFERS: u64 = 16 << 20;

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
    /// The format of a file, by its first bytes; the error names what it is instead.
    pub(super) fn of(bytes: &[u8]) -> Result<Self, String> {
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
            Err(_) => Err(unknown(bytes)),
        }
    }

    /// Reads the head of a file; takes no memory for its pixels.
    pub(super) fn head(self, bytes: &[u8]) -> Result<Head<'_>, String> {
        let decoder: Box<dyn ImageDecoder + '_> = match self {
            Self::Jpeg => Box::new(jpeg::open(bytes)?),
            Self::Png => Box::new(png::open(bytes)?),
            Self::Webp => Box::new(webp::open(bytes)?),
            Self::Gif => Box::new(gif::open(bytes)?),
            Self::Bmp => Box::new(bmp::open(bytes)?),
            Self::Tiff => Box::new(tiff::open(bytes)?),
        };
        Ok(Head { format: self, bytes, decoder })
    }
}

/// A file whose head was read.
pub(super) struct Head<'a> {
    pub(super) format: Format,
    bytes: &'a [u8],
    decoder: Box<dyn ImageDecoder + 'a>,
}

impl Head<'_> {
    /// Width and height in pixels.
    pub(super) fn size(&self) -> (u32, u32) {
        self.decoder.dimensions()
    }

    /// Bytes that decoding takes: the samples as they lie in the file, and what lies between.
    pub(super) fn memory(&mut self, orientation: bool) -> u64 {
        let samples = self.decoder.total_bytes();
        // Samples of 16 bits are copied to 8.
        let pixel = self.decoder.color_type();
        let wide = pixel.bytes_per_pixel() > pixel.channel_count();
        let copied = if wide { samples.saturating_add(samples / 2) } else { samples };
        let turned = if orientation && self.decoder.orientation().is_ok_and(lies_down) { 2 } else { 1 };
        copied.max(samples.saturating_mul(turned)).max(self.decoding())
    }

    fn decoding(&self) -> u64 {
        let samples = self.decoder.total_bytes();
        match self.format {
            // A progressive one is collected as numbers of two bytes.
            Format::Jpeg if jpeg::scans(self.bytes).is_some_and(|scans| scans > 1) => samples.saturating_mul(2),
            Format::Jpeg | Format::Png | Format::Bmp => samples,
            // Planes of brightness and colour, a canvas, or a strip before it is unpacked.
            Format::Webp | Format::Gif | Format::Tiff => samples.saturating_mul(2),
        }
    }

    /// The samples, upright if `orientation` is to be followed. Call it only where [`size`](Self::size)
    /// is within bounds.
    pub(super) fn read(mut self, orientation: bool) -> Result<DynamicImage, String> {
        match self.format {
            Format::Jpeg => jpeg::check(self.bytes)?,
            Format::Png => png::check(self.bytes, &*self.decoder)?,
            Format::Bmp => bmp::check(self.bytes, &*self.decoder)?,
            Format::Tiff => tiff::check(self.bytes, &mut *self.decoder)?,
            Format::Webp => webp::check(self.bytes, &*self.decoder)?,
            Format::Gif => gif::check(&mut *self.decoder)?,
        }
        let turn = if orientation { self.decoder.orientation().ok() } else { None };
        let mut image = DynamicImage::from_decoder(self.decoder).map_err(|error| error.to_string())?;
        image.apply_orientation(turn.unwrap_or(Orientation::NoTransforms));
        Ok(image)
    }
}

/// Whether width and height change places when the picture is turned upright.
const fn lies_down(orientation: Orientation) -> bool {
    use Orientation::{Rotate90, Rotate90FlipH, Rotate270, Rotate270FlipH};
    matches!(orientation, Rotate90 | Rotate270 | Rotate90FlipH | Rotate270FlipH)
}

/// The file cannot hold as many pixels as it claims.
fn too_short(decoder: &dyn ImageDecoder) -> String {
    let (width, height) = decoder.dimensions();
    format!("the file is too short for its {width} × {height} pixels")
}

/// Describes bytes that are no image, so that who sent them sees what they sent.
fn unknown(bytes: &[u8]) -> String {
    let start = &bytes[..bytes.len().min(16)];
    if bytes.is_empty() {
        "there are no bytes".to_owned()
    } else if start.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace()) {
        let text = String::from_utf8_lossy(start);
        format!("it starts with the text {text:?}; {FORMATS} are decoded")
    } else {
        format!("it starts with the bytes {start:02x?}; {FORMATS} are decoded")
    }
}
