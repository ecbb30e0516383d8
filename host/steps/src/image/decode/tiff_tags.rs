//! Tags of a TIFF picture.

use std::ops::Range;

use super::directory::{Directory, Field};

pub(super) const WIDTH: u16 = 256;
pub(super) const HEIGHT: u16 = 257;
pub(super) const BITS: u16 = 258;
pub(super) const COMPRESSION: u16 = 259;
pub(super) const PHOTOMETRIC: u16 = 262;
pub(super) const FILL_ORDER: u16 = 266;
const STRIP_OFFSETS: u16 = 273;
pub(super) const CHANNELS: u16 = 277;
pub(super) const ROWS_PER_STRIP: u16 = 278;
const STRIP_LENGTHS: u16 = 279;
pub(super) const PLANAR: u16 = 284;
pub(super) const TILE_WIDTH: u16 = 322;
pub(super) const TILE_HEIGHT: u16 = 323;
const TILE_OFFSETS: u16 = 324;
const TILE_LENGTHS: u16 = 325;
pub(super) const EXTRA_SAMPLES: u16 = 338;
pub(super) const JPEG_TABLES: u16 = 347;
pub(super) const XMP: u16 = 700;

/// JPEG, as a compression method.
pub(super) const JPEG: usize = 7;

/// Where the strips or tiles of a picture lie.
pub(super) fn chunks(directory: Directory<'_>) -> impl Iterator<Item = Range<usize>> {
    let numbers = move |tags: [u16; 2]| tags.into_iter().find_map(|tag| directory.field(tag)).into_iter();
    let offsets = numbers([TILE_OFFSETS, STRIP_OFFSETS]).flat_map(Field::numbers);
    let lengths = numbers([TILE_LENGTHS, STRIP_LENGTHS]).flat_map(Field::numbers);
    offsets.zip(lengths).map(|(start, length)| start as usize..(start + length) as usize)
}
