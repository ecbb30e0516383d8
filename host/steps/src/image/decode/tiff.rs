//! TIFF: the first picture of the file.

use std::borrow::Cow;

use image::codecs::tiff::TiffDecoder;
use image::{DynamicImage, ExtendedColorType, ImageDecoder, Limits, RgbImage};
use tiff::decoder::{Decoder, DecodingResult};

use super::directory::Directory;
use super::samples::map_pixels;
use super::tiff_jpeg::JpegTiff;
use super::tiff_tags::{
    COMPRESSION, EXTRA_SAMPLES, FILL_ORDER, HEIGHT, JPEG, PHOTOMETRIC, PLANAR, TILE_HEIGHT, XMP, chunks,
};
use crate::deadline::{Deadline, DeadlineReader};
use crate::image::premultiply::multiply_samples;

/// Most bytes of samples that a byte of a TIFF file can stand for: a code of LZW, at least 9 bits,
/// holds at most 4096 bytes; deflate packs less.
const MAX_RATIO: u64 = 4096;

pub(super) fn open<'a>(
    bytes: &'a [u8],
    paced: DeadlineReader<'a>,
    deadline: &'a Deadline,
) -> Result<Box<dyn ImageDecoder + 'a>, String> {
    if let Some(jpeg) = Directory::first(bytes).and_then(|directory| JpegTiff::new(bytes, directory, deadline)) {
        return Ok(Box::new(jpeg));
    }
    Ok(Box::new(TiffDecoder::new(paced).map_err(|error| error.to_string())?))
}

/// Why a file is not decoded although it may be whole, by the tags of its first picture.
pub(super) fn unsupported(bytes: &[u8]) -> Option<String> {
    let directory = Directory::first(bytes)?;
    let method = match directory.number(COMPRESSION) {
        // None, CCITT Group 4, LZW, JPEG, deflate, PackBits, and deflate by its older number.
        None | Some(1 | 4 | 5 | JPEG | 8 | 32_773 | 32_946) => None,
        Some(2) => Some("CCITT runs of Huffman codes (a fax)".to_owned()),
        Some(3) => Some("CCITT Group 3 (a fax); Group 4 is decoded".to_owned()),
        Some(6) => Some("JPEG of the kind that TIFF gave up".to_owned()),
        Some(34_925) => Some("LZMA".to_owned()),
        Some(50_000) => Some("Zstandard".to_owned()),
        Some(50_001) => Some("WebP".to_owned()),
        Some(number) => Some(format!("the method {number}")),
    };
    if let Some(method) = method {
        return Some(format!("its samples are compressed by {method}, which is not decoded"));
    }
    // `tiff` 0.11.3 pads only the tiles of the first colour.
    let tile = directory.number(TILE_HEIGHT).filter(|_| directory.number(PLANAR) == Some(2));
    if tile.is_some_and(|height| directory.number(HEIGHT).unwrap_or(0) % height.max(1) != 0) {
        return Some("its colours lie in tiles of their own that reach below the picture, which is not decoded".into());
    }
    let colors = match directory.number(PHOTOMETRIC)? {
        3 => "those of a palette",
        6 if !JpegTiff::can_decode(directory) => "YCbCr",
        8..=10 => "CIE L*a*b*",
        _ => return None,
    };
    Some(format!("its colours are {colors}, which are not decoded"))
}

/// The file with the bits of its samples in the usual order; `tiff` does not look at it.
pub(super) fn normalized(bytes: &[u8]) -> Cow<'_, [u8]> {
    let Some(directory) = Directory::first(bytes) else { return Cow::Borrowed(bytes) };
    // The bits of JPEG have one order.
    if directory.number(FILL_ORDER) != Some(2) || directory.number(COMPRESSION) == Some(JPEG) {
        return Cow::Borrowed(bytes);
    }
    let mut file = bytes.to_vec();
    for range in chunks(directory) {
        for byte in file.get_mut(range).unwrap_or_default() {
            *byte = byte.reverse_bits();
        }
    }
    Cow::Owned(file)
}

/// Whether the picture is one that `tiff_jpeg` decodes.
pub(super) fn is_jpeg(bytes: &[u8]) -> bool {
    Directory::first(bytes).is_some_and(JpegTiff::can_decode)
}

/// Whether the colours were multiplied by their opacity.
pub(super) fn is_premultiplied(bytes: &[u8]) -> bool {
    Directory::first(bytes).is_some_and(|directory| directory.number(EXTRA_SAMPLES) == Some(1))
}

/// The XMP packet.
pub(super) fn xmp(bytes: &[u8]) -> Option<&[u8]> {
    Some(Directory::first(bytes)?.field(XMP)?.bytes)
}

pub(super) fn check(bytes: &[u8], decoder: &mut dyn ImageDecoder) -> Result<(), String> {
    // A line of black and white may be one bit, so that any size is possible.
    let bits = decoder.original_color_type() == ExtendedColorType::L1;
    if !bits && decoder.total_bytes() / MAX_RATIO > bytes.len() as u64 {
        return Err(super::too_short(decoder));
    }
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(most(decoder));
    decoder.set_limits(limits).map_err(|error| error.to_string())
}

/// Bytes that the decoder may take: CMYK has a sample more than what becomes of it, and a tile may reach over the
/// edge.
fn most(decoder: &dyn ImageDecoder) -> u64 {
    decoder.total_bytes().saturating_mul(3).saturating_add(super::BUFFERS)
}

/// A picture in CMYK of 8 bits, which was checked, as RGB by Pillow's rounding; `image` cuts off.
pub(super) fn cmyk(
    paced: DeadlineReader<'_>,
    head: &dyn ImageDecoder,
    deadline: &Deadline,
) -> Result<DynamicImage, String> {
    let mut limits = tiff::decoder::Limits::default();
    let most = usize::try_from(most(head)).unwrap_or(usize::MAX);
    (limits.decoding_buffer_size, limits.intermediate_buffer_size, limits.ifd_value_size) = (most, most, most);
    let mut decoder = Decoder::new(paced).map_err(|error| error.to_string())?.with_limits(limits);
    let mut inks = DecodingResult::U8(Vec::new());
    let layout = decoder.read_image_to_buffer(&mut inks).map_err(|error| error.to_string())?;
    let (width, height) = head.dimensions();
    let DecodingResult::U8(inks) = inks else { return Err("its inks have not 8 bits".to_owned()) };
    if layout.planes > 1 {
        return Err("its inks lie apart, which is not decoded".to_owned());
    }
    let light = |[cyan, magenta, yellow, black]: [u8; 4]| {
        let white = 255 - black;
        [cyan, magenta, yellow].map(|ink| white - multiply_samples(ink, white))
    };
    let samples = map_pixels(&inks, deadline, light).map_err(|_| "the request's time is over".to_owned())?;
    let image = RgbImage::from_raw(width, height, samples).ok_or_else(|| super::too_short(head))?;
    Ok(DynamicImage::ImageRgb8(image))
}
