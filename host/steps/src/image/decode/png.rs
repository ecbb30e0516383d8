//! PNG.

use std::borrow::Cow;
use std::io::Read;

use flate2::read::ZlibDecoder;
use image::codecs::png::PngDecoder;
use image::{ImageDecoder, Limits};

use crate::deadline::{Deadline, DeadlineReader};

/// Most bytes that zlib packs into one.
const MAX_PACKED: u64 = 1032;
/// Most bytes of pixels that a byte before packing can stand for: a 1-bit palette index becomes 4 bytes.
const MAX_WIDENING: u64 = 32;
/// Most bytes of a text that was packed, as for Pillow.
const MAX_TEXT: u64 = 1 << 20;
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

/// The Exif data and the XMP of a file, wherever they lie in it.
pub(super) fn metadata(bytes: &[u8]) -> [Option<Cow<'_, [u8]>>; 2] {
    let (mut chunk, mut profile, mut xmp) = (None, None, None);
    let mut rest = bytes.get(8..).unwrap_or_default();
    while let Some((head, after)) = rest.split_first_chunk::<8>() {
        let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let Some(body) = after.get(..length) else { break };
        match &head[4..] {
            b"eXIf" => chunk = Some(Cow::Borrowed(body)),
            kind => match split_at_zero(body) {
                Some((b"Raw profile type exif", value)) => profile = text(kind, value).or(profile),
                Some((b"XML:com.adobe.xmp", value)) => xmp = text(kind, value).or(xmp),
                _ => {}
            },
        }
        // A checksum.
        rest = after.get(length + 4..).unwrap_or_default();
    }
    let exif = chunk.or_else(|| Some(Cow::Owned(unhex(&profile?)?)));
    [exif, xmp]
}

/// The text of a chunk behind its keyword; nothing of chunks that hold none.
fn text<'a>(kind: &[u8], value: &'a [u8]) -> Option<Cow<'a, [u8]>> {
    let inflate = |packed: &[u8]| {
        let mut text = Vec::new();
        ZlibDecoder::new(packed).take(MAX_TEXT).read_to_end(&mut text).ok()?;
        Some(Cow::Owned(text))
    };
    match (kind, value) {
        (b"tEXt", text) => Some(Cow::Borrowed(text)),
        (b"zTXt", [_, packed @ ..]) => inflate(packed),
        (b"iTXt", [is_packed, _, rest @ ..]) => {
            // Behind the language and the translated keyword.
            let (_, rest) = split_at_zero(rest)?;
            let (_, text) = split_at_zero(rest)?;
            if *is_packed == 0 { Some(Cow::Borrowed(text)) } else { inflate(text) }
        }
        _ => None,
    }
}

/// What lies before and behind the first zero.
fn split_at_zero(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|byte| *byte == 0)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}

/// The bytes of a profile as ImageMagick writes it: hexadecimal digits behind three lines, of which one is empty.
fn unhex(profile: &[u8]) -> Option<Vec<u8>> {
    let lines = profile.split(|byte| *byte == b'\n').skip(3).flatten();
    let digits = lines.filter(|byte| !byte.is_ascii_whitespace()).map(|byte| char::from(*byte).to_digit(16));
    let digits = digits.collect::<Option<Vec<_>>>()?;
    Some(digits.as_chunks::<2>().0.iter().map(|[high, low]| (high << 4 | low) as u8).collect())
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
