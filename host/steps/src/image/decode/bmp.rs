//! BMP.

use std::borrow::Cow;

use image::ImageDecoder;
use image::codecs::bmp::BmpDecoder;

use crate::deadline::{Deadline, DeadlineReader};

/// Bytes before the header of the picture.
const FILE_HEADER: usize = 14;
/// Bytes of the header that `image` reads, which all newer ones begin with.
const INFO_HEADER: usize = 40;
/// Bytes of the header of OS/2 2.
const OS2_HEADER: usize = 64;

/// The facts of a header.
struct Header {
    size: usize,
    width: usize,
    height: usize,
    bits: u16,
    /// 1 and 2: runs of 8 and of 4 bits
    packing: u32,
    colors: usize,
    /// where the pixels begin
    pixels: usize,
    /// whether the file says that they begin at its palette
    forgets_palette: bool,
}

impl Header {
    /// The header of a file, except the oldest, which has sizes of 16 bits and no packing.
    fn read(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| bytes.get(at..)?.first_chunk().map(|four| u32::from_le_bytes(*four));
        let size = number(FILE_HEADER)? as usize;
        if size < INFO_HEADER {
            return None;
        }
        let (bits, colors, stated) = ((number(28)? & 0xffff) as u16, number(46)? as usize, number(10)? as usize);
        // Some writers forget the palette.
        let forgets_palette = stated == FILE_HEADER + size && bits <= 8;
        let palette = 4 * if colors == 0 { 1 << bits.min(8) } else { colors.min(1 << 16) };
        Some(Self {
            size,
            width: number(18)? as usize,
            height: number(22)?.cast_signed().unsigned_abs() as usize,
            bits,
            packing: number(30)?,
            colors,
            pixels: if forgets_palette { stated + palette } else { stated },
            forgets_palette,
        })
    }

    fn has_runs(&self) -> bool {
        matches!((self.packing, self.bits), (1, 8) | (2, 4))
    }
}

/// Why a file is not decoded although it may be whole.
pub(super) fn unsupported(bytes: &[u8]) -> Option<String> {
    let size = bytes.get(FILE_HEADER..)?.first_chunk().map(|four| u32::from_le_bytes(*four))?;
    let packing = Header::read(bytes).map_or(0, |header| header.packing);
    match size {
        12 | 40 | 52 | 56 | 108 | 124 => None,
        64 if packing <= 2 => None,
        64 => Some(format!("its pixels are packed by a method of OS/2 ({packing}), which is not decoded")),
        _ => Some(format!("its header has {size} bytes; those of Windows and of OS/2 with 12 or 64 are decoded")),
    }
}

/// The file as one that `image` decodes as Pillow does: with a header of Windows, and with pixels instead of runs.
/// `image` leaves pixels black that runs skip; Pillow gives them the first colour of the palette.
pub(super) fn normalized<'a>(bytes: &'a [u8], max_pixels: u64, deadline: &Deadline) -> Result<Cow<'a, [u8]>, String> {
    let Some(header) = Header::read(bytes) else { return Ok(Cow::Borrowed(bytes)) };
    let fits = (header.width as u64).saturating_mul(header.height as u64) <= max_pixels;
    if !(header.has_runs() && fits || header.size == OS2_HEADER || header.forgets_palette) {
        return Ok(Cow::Borrowed(bytes));
    }
    if header.size != OS2_HEADER && !header.has_runs() {
        let mut file = bytes.to_vec();
        file[10..14].copy_from_slice(&(header.pixels as u32).to_le_bytes());
        return Ok(Cow::Owned(file));
    }
    let cut_off = || "the file ends within its header".to_owned();
    let mut file = bytes.get(..FILE_HEADER + INFO_HEADER).ok_or_else(cut_off)?.to_vec();
    let rest = bytes.get(FILE_HEADER + header.size..).ok_or_else(cut_off)?;
    file[FILE_HEADER..FILE_HEADER + 4].copy_from_slice(&(INFO_HEADER as u32).to_le_bytes());
    if !(header.has_runs() && fits) {
        let pixels = header.pixels.checked_sub(header.size - INFO_HEADER).ok_or_else(cut_off)?;
        file[10..14].copy_from_slice(&(pixels as u32).to_le_bytes());
        file.extend_from_slice(rest);
        return Ok(Cow::Owned(file));
    }

    let most = 1 << header.bits;
    let colors = if header.colors == 0 { most } else { header.colors.min(most) };
    let mut palette = rest.get(..4 * colors).ok_or_else(cut_off)?.to_vec();
    palette.resize(4 * 256, 0);
    let start = file.len() + palette.len();
    file[10..14].copy_from_slice(&(start as u32).to_le_bytes());
    file[28..30].copy_from_slice(&8_u16.to_le_bytes());
    // No packing, and neither the size of the pixels nor the number of colours.
    file[30..38].fill(0);
    file[46..54].fill(0);
    file.extend(palette);
    let indices = unpack_runs(bytes.get(header.pixels..).ok_or_else(cut_off)?, &header, deadline)?;
    if header.width > 0 {
        let padding = [0; 3];
        for row in indices.chunks(header.width) {
            file.extend_from_slice(row);
            file.extend_from_slice(&padding[..row.len().wrapping_neg() % 4]);
        }
    }
    Ok(Cow::Owned(file))
}

/// Bytes that unpacking the runs of a file takes: an index for each pixel, and the same in a file.
pub(super) fn unpacked(bytes: &[u8]) -> u64 {
    let header = Header::read(bytes).filter(Header::has_runs);
    header.map_or(0, |header| (header.width as u64).saturating_mul(2 * header.height as u64))
}

/// The index of each pixel's colour, in the order of the file, by Pillow's rules: what is skipped has index 0, and a
/// run ends with its row.
fn unpack_runs(mut runs: &[u8], header: &Header, deadline: &Deadline) -> Result<Vec<u8>, String> {
    let (width, length) = (header.width, header.width * header.height);
    let mut indices = Vec::with_capacity(length);
    let mut column = 0;
    let mut rows = 0;

    while indices.len() < length {
        if indices.len() / width.max(1) != rows {
            rows = indices.len() / width.max(1);
            deadline.check().map_err(|late| late.to_string())?;
        }

        let [count, value, after @ ..] = runs else { break };
        runs = after;
        match (*count, *value) {
            (0, 0) => {
                indices.resize(indices.len().next_multiple_of(width), 0);
                column = 0;
            }
            (0, 1) => break,
            (0, 2) => {
                let [right, up, after @ ..] = runs else { break };
                runs = after;
                let skipped = usize::from(*right) + usize::from(*up) * width;
                indices.resize(indices.len() + skipped.min(length - indices.len()), 0);
                column = indices.len() % width;
            }
            (0, count) => {
                let pixels = usize::from(count).min(length - indices.len());
                let bytes = if header.bits == 4 { pixels.div_ceil(2) } else { pixels };
                let Some((literal, after)) = runs.split_at_checked(bytes) else { break };
                push(&mut indices, literal.iter().copied(), header.bits, pixels);
                // Each ends at an even offset.
                runs = after.get(bytes % 2..).unwrap_or_default();
                column += usize::from(count);
            }
            (count, value) => {
                let pixels = usize::from(count).min(width.saturating_sub(column));
                push(&mut indices, std::iter::repeat(value), header.bits, pixels);
                column += pixels;
            }
        }
    }

    if indices.len() < length {
        return Err(format!("its runs end after {} of its {length} pixels", indices.len()));
    }
    indices.truncate(length);
    Ok(indices)
}

/// Adds `pixels` indices of 8 or 4 bits.
fn push(indices: &mut Vec<u8>, bytes: impl Iterator<Item = u8>, bits: u16, pixels: usize) {
    if bits == 4 {
        indices.extend(bytes.flat_map(|byte| [byte >> 4, byte & 15]).take(pixels));
    } else {
        indices.extend(bytes.take(pixels));
    }
}

pub(super) fn open(bytes: DeadlineReader<'_>) -> Result<BmpDecoder<DeadlineReader<'_>>, String> {
    BmpDecoder::new(bytes).map_err(|error| error.to_string())
}

/// Unless runs are packed, each pixel takes the bits that the header says.
pub(super) fn check(bytes: &[u8], decoder: &dyn ImageDecoder) -> Result<(), String> {
    let oldest = bytes.get(24..26).map_or(0, |two| u16::from_le_bytes([two[0], two[1]]));
    let (bits, has_runs) = Header::read(bytes).map_or((oldest, false), |header| (header.bits, header.has_runs()));
    let (width, height) = decoder.dimensions();
    if !has_runs && u64::from(width) * u64::from(bits) / 8 * u64::from(height) > bytes.len() as u64 {
        return Err(super::too_short(decoder));
    }
    Ok(())
}
