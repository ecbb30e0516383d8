//! PNG.

use image::codecs::png::PngDecoder;
use image::{ImageDecoder, Limits};

use crate::deadline::{Deadline, DeadlineReader};

/// Most bytes that zlib packs into one.
const MAX_PACKED: u64 = 1032;
/// Most bytes of pixels that a byte before packing can stand for: a 1-bit palette index becomes 4 bytes.
const MAX_WIDENING: u64 = 32;
/// Bytes of pixels that are made between two deadline checks.
const PIXELS: u64 = 8 << 20;

pub(super) fn open<'a>(bytes: &'a [u8], deadline: &'a Deadline) -> Result<PngDecoder<DeadlineReader<'a>>, String> {
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(super::BUFFERS);
    let piece = PIXELS / (MAX_PACKED * widening(bytes));
    let bytes = DeadlineReader::new(bytes, piece as usize, deadline);
    PngDecoder::with_limits(bytes, limits).map_err(|error| error.to_string())
}

/// Bytes of pixels that a byte before packing becomes, by the bit depth and the kind of colour that
/// stand in the head, which every file begins with.
fn widening(bytes: &[u8]) -> u64 {
    match (bytes.get(24), bytes.get(25)) {
        // An alpha channel may be added to gray.
        (Some(8 | 16), Some(0 | 2 | 4 | 6)) => 2,
        (Some(depth @ (1 | 2 | 4 | 8)), _) => MAX_WIDENING / u64::from(*depth),
        _ => MAX_WIDENING,
    }
}

pub(super) fn check(bytes: &[u8], decoder: &dyn ImageDecoder) -> Result<(), String> {
    if decoder.total_bytes() / (MAX_PACKED * MAX_WIDENING) > bytes.len() as u64 {
        return Err(super::too_short(decoder));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_the_deadline_by_the_size_in_the_header() {
        let head = |depth, color| [[0; 24].as_slice(), &[depth, color]].concat();
        let ways =
            [(1, 3), (2, 3), (4, 0), (8, 3), (8, 2), (16, 6)].map(|(depth, color)| widening(&head(depth, color)));
        assert_eq!(ways, [32, 16, 8, 4, 2, 2]);
        assert_eq!([widening(&head(0, 7)), widening(b"")], [MAX_WIDENING; 2]);
    }
}
