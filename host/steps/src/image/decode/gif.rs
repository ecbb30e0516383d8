//! GIF: the first frame.

use image::codecs::gif::GifDecoder;
use image::{ImageDecoder, Limits};

use crate::deadline::DeadlineReader;

pub(super) fn open(bytes: DeadlineReader<'_>) -> Result<GifDecoder<DeadlineReader<'_>>, String> {
    GifDecoder::new(bytes).map_err(|error| error.to_string())
}

/// A frame may claim to be larger than the picture it lies in; it gets no more memory than that.
pub(super) fn check(decoder: &mut dyn ImageDecoder) -> Result<(), String> {
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(decoder.total_bytes());
    decoder.set_limits(limits).map_err(|error| error.to_string())
}
