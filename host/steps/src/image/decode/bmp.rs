//! BMP.

use image::ImageDecoder;
use image::codecs::bmp::BmpDecoder;

use crate::deadline::DeadlineReader;

pub(super) fn open(bytes: DeadlineReader<'_>) -> Result<BmpDecoder<DeadlineReader<'_>>, String> {
    BmpDecoder::new(bytes).map_err(|error| error.to_string())
}

/// Unless runs are packed, each pixel takes the bits that the header says.
pub(super) fn check(bytes: &[u8], decoder: &dyn ImageDecoder) -> Result<(), String> {
    let number = |at: usize| bytes.get(at..at + 4).map(|four| [four[0], four[1], four[2], four[3]]);
    let header = number(14).map_or(0, u32::from_le_bytes);
    // The oldest header has 16-bit sizes and no packing.
    let (bits, packing) = if header == 12 { (24, [0; 4]) } else { (28, number(30).unwrap_or_default()) };
    let bits = number(bits).map_or(0, |found| u64::from(u16::from_le_bytes([found[0], found[1]])));
    let (width, height) = decoder.dimensions();
    let packed = matches!(u32::from_le_bytes(packing), 1 | 2);
    if !packed && u64::from(width) * bits / 8 * u64::from(height) > bytes.len() as u64 {
        return Err(super::too_short(decoder));
    }
    Ok(())
}
