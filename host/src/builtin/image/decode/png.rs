//! PNG.

use image::codecs::png::PngDecoder;
use image::{ImageDecoder, Limits};

use crate::builtin::watch::Paced;

/// Most bytes of pixels that a byte of a PNG file can stand for: zlib packs at most 1032 bytes into
/// one, and a 1-bit palette index becomes 4 bytes.
const MAX_RATIO: u64 = 1032 * 32;

pub(super) fn open(bytes: Paced<'_>) -> Result<PngDecoder<Paced<'_>>, String> {
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(super::BUFFERS);
    PngDecoder::with_limits(bytes, limits).map_err(|error| error.to_string())
}

pub(super) fn check(bytes: &[u8], decoder: &dyn ImageDecoder) -> Result<(), String> {
    if decoder.total_bytes() / MAX_RATIO > bytes.len() as u64 {
        return Err(super::too_short(decoder));
    }
    Ok(())
}
