//! TIFF: the first picture of the file.

use image::codecs::tiff::TiffDecoder;
use image::{ExtendedColorType, ImageDecoder, ImageError, Limits};

use crate::builtin::watch::Paced;

/// Most bytes of samples that a byte of a TIFF file can stand for: a code of LZW, at least 9 bits,
/// holds at most 4096 bytes; deflate packs less.
const MAX_RATIO: u64 = 4096;

pub(super) fn open<'a>(bytes: &[u8], paced: Paced<'a>) -> Result<TiffDecoder<Paced<'a>>, String> {
    TiffDecoder::new(paced).map_err(|error| match (error, colors(bytes)) {
        (ImageError::Unsupported(_), Some(colors)) => format!("its colours are {colors}, which are not decoded"),
        (error, _) => error.to_string(),
    })
}

/// What the first picture's samples stand for, where that is not decoded.
fn colors(bytes: &[u8]) -> Option<&'static str> {
    const PHOTOMETRIC: u16 = 262;
    let little = bytes.starts_with(b"II");
    let short = |at: usize| {
        let two = bytes.get(at..)?.first_chunk()?;
        Some(if little { u16::from_le_bytes(*two) } else { u16::from_be_bytes(*two) })
    };
    let four = bytes.get(4..)?.first_chunk()?;
    let directory = if little { u32::from_le_bytes(*four) } else { u32::from_be_bytes(*four) } as usize;
    let mut entries = (0..usize::from(short(directory)?)).map(|entry| directory + 2 + entry * 12);
    match short(entries.find(|at| short(*at) == Some(PHOTOMETRIC))? + 8)? {
        3 => Some("those of a palette"),
        6 => Some("YCbCr"),
        8..=10 => Some("CIE L*a*b*"),
        _ => None,
    }
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
