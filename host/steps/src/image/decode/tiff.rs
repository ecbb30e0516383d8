//! TIFF: the first picture of the file.

use image::codecs::tiff::TiffDecoder;
use image::{DynamicImage, ExtendedColorType, ImageDecoder, Limits, RgbImage};
use tiff::decoder::{Decoder, DecodingResult};

use super::samples::map_pixels;
use crate::deadline::{Deadline, DeadlineReader};
use crate::image::premultiply::multiply_samples;

/// Most bytes of samples that a byte of a TIFF file can stand for: a code of LZW, at least 9 bits,
/// holds at most 4096 bytes; deflate packs less.
const MAX_RATIO: u64 = 4096;

pub(super) fn open(paced: DeadlineReader<'_>) -> Result<TiffDecoder<DeadlineReader<'_>>, String> {
    TiffDecoder::new(paced).map_err(|error| error.to_string())
}

/// Why a file is not decoded although it may be whole, by the tags of its first picture.
pub(super) fn unsupported(bytes: &[u8]) -> Option<String> {
    const COMPRESSION: u16 = 259;
    const PHOTOMETRIC: u16 = 262;
    let method = match tag(bytes, COMPRESSION) {
        // None, CCITT Group 4, LZW, JPEG, deflate, PackBits, and deflate by its older number.
        None | Some(1 | 4 | 5 | 7 | 8 | 32_773 | 32_946) => None,
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
    let colors = match tag(bytes, PHOTOMETRIC)? {
        3 => "those of a palette",
        6 => "YCbCr",
        8..=10 => "CIE L*a*b*",
        _ => return None,
    };
    Some(format!("its colours are {colors}, which are not decoded"))
}

/// A tag of the first picture whose value is a number of 16 bits.
fn tag(bytes: &[u8], number: u16) -> Option<u16> {
    let little = bytes.starts_with(b"II");
    let short = |at: usize| {
        let two = bytes.get(at..)?.first_chunk()?;
        Some(if little { u16::from_le_bytes(*two) } else { u16::from_be_bytes(*two) })
    };
    // BigTIFF lies otherwise.
    if short(2)? != 42 {
        return None;
    }
    let four = bytes.get(4..)?.first_chunk()?;
    let directory = if little { u32::from_le_bytes(*four) } else { u32::from_be_bytes(*four) } as usize;
    let mut entries = (0..usize::from(short(directory)?)).map(|entry| directory + 2 + entry * 12);
    short(entries.find(|at| short(*at) == Some(number))? + 8)
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
