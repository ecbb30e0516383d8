//! JPEG: `gpux-jpeg` as a decoder of `image`, which ends with the request's time.

use gpux_jpeg::{Decoder, Error, PixelFormat};
use image::error::{ImageError, ImageResult};
use image::{ColorType, ImageDecoder};

use crate::deadline::{Deadline, DeadlineExceeded};

struct Jpeg<'a> {
    decoder: Decoder<'a>,
    deadline: &'a Deadline,
}

pub(super) fn open<'a>(bytes: &'a [u8], deadline: &'a Deadline) -> Result<impl ImageDecoder + 'a, String> {
    let decoder = Decoder::new(bytes).map_err(|error| error.to_string())?;
    Ok(Jpeg { decoder, deadline })
}

/// Bytes that decoding takes beside the pixels.
pub(super) fn memory(bytes: &[u8]) -> u64 {
    Decoder::new(bytes).map_or(0, |decoder| decoder.memory())
}

impl ImageDecoder for Jpeg<'_> {
    fn dimensions(&self) -> (u32, u32) {
        let info = self.decoder.info();
        (info.width.into(), info.height.into())
    }

    fn color_type(&self) -> ColorType {
        match self.decoder.info().format {
            PixelFormat::Gray => ColorType::L8,
            PixelFormat::Rgb => ColorType::Rgb8,
        }
    }

    fn exif_metadata(&mut self) -> ImageResult<Option<Vec<u8>>> {
        Ok(self.decoder.exif().map(<[u8]>::to_vec))
    }

    fn xmp_metadata(&mut self) -> ImageResult<Option<Vec<u8>>> {
        Ok(self.decoder.xmp().map(<[u8]>::to_vec))
    }

    fn read_image(self, pixels: &mut [u8]) -> ImageResult<()> {
        let decoded = self.decoder.decode_into(pixels, &|| self.deadline.check().is_err());
        decoded.map_err(|error| {
            ImageError::IoError(match error {
                Error::Cancelled => DeadlineExceeded.into(),
                error => std::io::Error::other(error),
            })
        })
    }

    fn read_image_boxed(self: Box<Self>, pixels: &mut [u8]) -> ImageResult<()> {
        (*self).read_image(pixels)
    }
}
