//! TIFF: the first picture of the file.

use image::codecs::tiff::TiffDecoder;
use image::{ExtendedColorType, ImageDecoder, Limits};

use crate::builtin::watch::Paced;

/// Most bytes of samples that a byte of a TIFF file can stand for: a code of LZW, at least 9 bits,
/// holds at most 4096 bytes; deflate packs less.
const MAX_RATIO: u64 = 4096;

pub(super) fn open(bytes: Paced<'_>) -> Result<TiffDecoder<Paced<'_>>, String> {
    TiffDecoder::new(bytes).map_err(|error| error.to_string())
}

pub(super) fn check(bytes: &[u8], decoder: &mut dyn ImageDecoder) -> Result<(), String> {
    // A line of black and white may be one bit, so that any size is possible.
    let bits = decoder.original_color_type() == ExtendedColorType::L1;
    if !bits && decoder.total_bytes() / MAX_RATIO > bytes.len() as u64 {
        return Err(super::too_short(decoder));
    }
    // CMYK has a sample more than what becomes of it, and a tile may reach over the edge.
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(decoder.total_bytes().saturating_mul(3).saturating_add(super::BUFFERS));
    decoder.set_limits(limits).map_err(|error| error.to_string())
}
