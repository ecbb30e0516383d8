#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![allow(clippy::inline_always, reason = "the loops over coefficients stay in registers only as one function")]
#![allow(clippy::many_single_char_names, reason = "rows and values of a block")]

mod bit_reader;
mod coefficients;
mod color;
mod entropy_coded;
mod error;
mod frame;
mod header;
mod huffman;
mod idct;
mod marker_segments;
mod simd;
mod smoothing;
mod standard_tables;
mod tables;
#[cfg(test)]
mod tests;
mod upsample;
mod zigzag;

pub use error::Error;

use error::CancelCheck;
use frame::FrameDecoder;
use header::{ColorSpace, Header};
use simd::with_vectors;
use upsample::{Plane, Upsampler};

/// Rows of pixels written between two cancellation checks: a megapixel of the widest image.
const ROWS_PER_CHECK: usize = 16;

/// The channels of a decoded pixel, a byte each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PixelFormat {
    /// One channel.
    Gray,
    /// Three channels: red, green, blue.
    Rgb,
}

impl PixelFormat {
    /// Bytes of a pixel.
    pub fn channels(self) -> usize {
        match self {
            Self::Gray => 1,
            Self::Rgb => 3,
        }
    }
}

/// The size and the format of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// Pixels in a row.
    pub width: u16,
    /// Rows.
    pub height: u16,
    /// Gray for a file of one component, else RGB.
    pub format: PixelFormat,
}

impl Info {
    /// Bytes of the decoded pixels, which lie in rows from the top without gaps.
    pub fn byte_len(&self) -> usize {
        usize::from(self.width) * usize::from(self.height) * self.format.channels()
    }
}

/// A file whose header was read.
pub struct Decoder<'a> {
    bytes: &'a [u8],
    header: Header<'a>,
}

impl<'a> Decoder<'a> {
    /// Reads the header, up to the first scan. Allocates nothing for the pixels.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`] or [`Error::Unsupported`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        let decoder = Self { bytes, header: Header::read(bytes)? };
        // Where an address has 32 bits, the largest images do not fit.
        let pixels = 3 * decoder.header.width as u64 * decoder.header.height as u64;
        if usize::try_from(decoder.memory() + pixels).is_err() {
            return Err(Error::unsupported("it is larger than the memory that this machine can address"));
        }
        Ok(decoder)
    }

    /// The size and the format of the decoded image. The orientation of its Exif data is not applied.
    pub fn info(&self) -> Info {
        let Header { width, height, color_space, .. } = self.header;
        let format = if color_space == ColorSpace::Gray { PixelFormat::Gray } else { PixelFormat::Rgb };
        Info { width: width as u16, height: height as u16, format }
    }

    /// The Exif data, as a TIFF file.
    pub fn exif(&self) -> Option<&'a [u8]> {
        self.header.exif
    }

    /// The XMP packet.
    pub fn xmp(&self) -> Option<&'a [u8]> {
        self.header.xmp
    }

    /// Bytes that decoding allocates beside the pixels. A small file can claim 65535 × 65535 pixels: bound this
    /// and [`Info::byte_len`] before decoding.
    pub fn memory(&self) -> u64 {
        frame::memory(&self.header) + 2 * self.bytes.len() as u64
    }

    /// Decodes into a new buffer.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`], also where libjpeg only warns: a scan that ends early, or bits that are no code.
    pub fn decode(&self) -> Result<Vec<u8>, Error> {
        let mut pixels = vec![0; self.info().byte_len()];
        self.decode_into(&mut pixels, &|| false)?;
        Ok(pixels)
    }

    /// Decodes into `pixels`, as long as [`Info::byte_len`]. Calls `is_cancelled` for each row of blocks of each
    /// scan, and for every 16 rows of pixels; where it returns true, decoding ends.
    ///
    /// # Errors
    ///
    /// As [`decode`](Self::decode); [`Error::Cancelled`]; [`Error::BufferLength`]. After an error, the content of
    /// `pixels` is unspecified.
    pub fn decode_into(&self, pixels: &mut [u8], is_cancelled: &dyn Fn() -> bool) -> Result<(), Error> {
        let (expected, found) = (self.info().byte_len(), pixels.len());
        if expected != found {
            return Err(Error::BufferLength { expected, found });
        }
        let cancel = CancelCheck(is_cancelled);
        let planes = FrameDecoder::new(self.bytes, &self.header, cancel).decode()?;
        self.write_pixels(&planes, pixels, cancel)
    }

    fn write_pixels(&self, planes: &[Plane], pixels: &mut [u8], cancel: CancelCheck<'_>) -> Result<(), Error> {
        let Header { width, color_space, .. } = self.header;
        let mut upsamplers: Vec<_> = planes.iter().map(|_| Upsampler::new(width)).collect();
        for (y, row) in pixels.chunks_exact_mut(width * self.info().format.channels()).enumerate() {
            if y.is_multiple_of(ROWS_PER_CHECK) {
                cancel.check()?;
            }
            with_vectors(
                #[inline(always)]
                |wide| {
                    let mut components = [&[][..]; 4];
                    for ((component, plane), upsampler) in components.iter_mut().zip(planes).zip(&mut upsamplers) {
                        *component = &upsampler.row(plane, y)[..width];
                    }
                    color::convert(wide, color_space, components, row);
                },
            );
        }
        Ok(())
    }
}
