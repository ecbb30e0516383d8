//! JPEG, decoded to the numbers of libjpeg-turbo: the same transform, the same upsampling of colours,
//! the same roundings. Sequential and progressive files of 8 bits, in gray, RGB, YCbCr, CMYK or YCCK.
//!
//! What libjpeg only warns of and fills with gray (a scan that ends early, bits that are no code) is
//! an error here.
#![allow(clippy::inline_always, reason = "the loops over coefficients stay in registers only as one function")]
#![allow(clippy::many_single_char_names, reason = "rows and values of a block")]

mod bits;
mod colors;
mod decoder;
mod head;
mod huffman;
mod idct;
mod planes;
mod scan;
mod tables;
mod vectors;

use image::error::{ImageError, ImageResult};
use image::{ColorType, ImageDecoder};

use self::colors::convert;
use self::decoder::Decoder;
use self::head::{Colors, Head};
use self::planes::{Plane, Upsampler};
use crate::pacing::{Deadline, DeadlineExceeded};
use crate::wide::with_vectors;

/// Rows between two looks at the clock: of the widest picture, a megapixel.
const ROWS: usize = 16;

/// Why there is no picture.
#[derive(Debug)]
pub(super) enum Stop {
    /// the file's fault
    Damaged(String),
    /// the request's time is over
    DeadlineExceeded,
}

impl Stop {
    fn damaged(why: impl Into<String>) -> Self {
        Self::Damaged(why.into())
    }

    fn cut() -> Self {
        Self::damaged("the file ends before the image does")
    }
}

impl From<DeadlineExceeded> for Stop {
    fn from(_: DeadlineExceeded) -> Self {
        Self::DeadlineExceeded
    }
}

impl From<Stop> for ImageError {
    /// The message alone; that it was late, the watch remembers.
    fn from(stop: Stop) -> Self {
        Self::IoError(match stop {
            Stop::Damaged(why) => std::io::Error::other(why),
            Stop::DeadlineExceeded => DeadlineExceeded.into(),
        })
    }
}

/// A file whose head was read.
pub(super) struct Jpeg<'a> {
    bytes: &'a [u8],
    head: Head<'a>,
    watch: &'a Deadline,
}

pub(super) fn open<'a>(bytes: &'a [u8], watch: &'a Deadline) -> Result<Jpeg<'a>, String> {
    match Head::read(bytes) {
        Ok(head) => Ok(Jpeg { bytes, head, watch }),
        Err(Stop::Damaged(why)) => Err(why),
        Err(Stop::DeadlineExceeded) => Err(DeadlineExceeded.to_string()),
    }
}

/// Bytes that lie beside the pixels: planes, coefficients, and a copy of the coded data.
pub(super) fn memory(bytes: &[u8]) -> u64 {
    Head::read(bytes).map_or(0, |head| decoder::memory(&head) + 2 * bytes.len() as u64)
}

impl Jpeg<'_> {
    /// Writes the pixels that the planes stand for.
    fn write(&self, planes: &[Plane], pixels: &mut [u8]) -> Result<(), DeadlineExceeded> {
        let row = self.head.width * usize::from(self.color_type().channel_count());
        let mut upsamplers: Vec<_> = planes.iter().map(|_| Upsampler::new(self.head.width)).collect();
        for (y, out) in pixels.chunks_exact_mut(row).enumerate() {
            if y.is_multiple_of(ROWS) {
                self.watch.check()?;
            }
            with_vectors(
                #[inline(always)]
                |wide| {
                    let mut parts = [&[][..]; 4];
                    for ((part, plane), upsampler) in parts.iter_mut().zip(planes).zip(&mut upsamplers) {
                        *part = &upsampler.row(plane, y)[..self.head.width];
                    }
                    convert(wide, self.head.colors, parts, out);
                },
            );
        }
        Ok(())
    }
}

impl ImageDecoder for Jpeg<'_> {
    fn dimensions(&self) -> (u32, u32) {
        (self.head.width as u32, self.head.height as u32)
    }

    fn color_type(&self) -> ColorType {
        if self.head.colors == Colors::Gray { ColorType::L8 } else { ColorType::Rgb8 }
    }

    fn exif_metadata(&mut self) -> ImageResult<Option<Vec<u8>>> {
        Ok(self.head.exif.map(<[u8]>::to_vec))
    }

    fn read_image(self, pixels: &mut [u8]) -> ImageResult<()> {
        let planes = Decoder::new(self.bytes, &self.head, self.watch).planes()?;
        self.write(&planes, pixels).map_err(|late| Stop::from(late).into())
    }

    fn read_image_boxed(self: Box<Self>, pixels: &mut [u8]) -> ImageResult<()> {
        (*self).read_image(pixels)
    }
}
