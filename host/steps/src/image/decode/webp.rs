//! WebP: the picture, or the first frame of an animation.

use image::ImageDecoder;
use image::codecs::webp::WebPDecoder;

use crate::deadline::{Deadline, DeadlineReader};

/// Most levels of chunks: a frame of an animation holds the picture.
const MAX_DEPTH: usize = 2;

/// Seconds that a pixel takes at least: the fastest of several pictures, halved.
const PER_PIXEL: f64 = 4e-9;

/// Bytes of tables for a byte of a lossless file at most, as measured.
const TABLES: u64 = 300;

pub(super) fn open(bytes: DeadlineReader<'_>) -> Result<WebPDecoder<DeadlineReader<'_>>, String> {
    WebPDecoder::new(bytes).map_err(|error| error.to_string())
}

/// The decoder allocates the size that the picture's chunk claims before it compares it with
/// the file's size, so it is compared here first.
pub(super) fn check(bytes: &[u8], decoder: &dyn ImageDecoder, deadline: &Deadline) -> Result<(), String> {
    let (width, height) = decoder.dimensions();
    let (wide, high) = largest(bytes.get(12..).unwrap_or_default(), MAX_DEPTH);
    if wide > width || high > height {
        return Err(format!("a frame is {wide} × {high} pixels, the picture {width} × {height}"));
    }
    // The decoder reads a picture in one call.
    deadline.check_time_for(PER_PIXEL * f64::from(width) * f64::from(height)).map_err(|late| late.to_string())
}

/// Bytes that the codes of a lossless picture can take: an entry of a table for up to 2^13 symbols of
/// a group, which a file names in some bits.
pub(super) fn tables(bytes: &[u8]) -> u64 {
    bytes.len() as u64 * TABLES
}

/// The largest width and height that a picture chunk claims.
fn largest(mut chunks: &[u8], depth: usize) -> (u32, u32) {
    let mut most = (0, 0);
    while let Some((head, rest)) = chunks.split_first_chunk::<8>() {
        let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let body = &rest[..length.min(rest.len())];
        let (width, height) = match &head[..4] {
            b"VP8 " => lossy(body),
            b"VP8L" => lossless(body),
            // Place, size and time of the frame come first.
            b"ANMF" if depth > 1 => largest(body.get(16..).unwrap_or_default(), depth - 1),
            _ => (0, 0),
        };
        most = (width.max(most.0), height.max(most.1));
        chunks = rest.get(length.saturating_add(length & 1)..).unwrap_or_default();
    }
    most
}

fn lossy(body: &[u8]) -> (u32, u32) {
    match body {
        [_, _, _, 0x9d, 0x01, 0x2a, w0, w1, h0, h1, ..] => {
            let side = |low: &u8, high: &u8| u32::from(u16::from_le_bytes([*low, *high]) & 0x3fff);
            (side(w0, w1), side(h0, h1))
        }
        _ => (0, 0),
    }
}

fn lossless(body: &[u8]) -> (u32, u32) {
    match body {
        [0x2f, a, b, c, d, ..] => {
            let bits = u32::from_le_bytes([*a, *b, *c, *d]);
            ((bits & 0x3fff) + 1, ((bits >> 14) & 0x3fff) + 1)
        }
        _ => (0, 0),
    }
}
