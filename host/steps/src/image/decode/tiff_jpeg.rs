//! JPEG in TIFF by `gpux-jpeg`: strips or tiles of gray, RGB or YCbCr, with the pixels that libtiff gives. `tiff` has
//! another decoder, whose roundings differ.

use gpux_jpeg::Decoder;
use image::error::{ImageError, ImageResult};
use image::{ColorType, ImageDecoder};

use super::directory::Directory;
use super::tiff_tags::{
    BITS, CHANNELS, COMPRESSION, HEIGHT, JPEG, JPEG_TABLES, PHOTOMETRIC, PLANAR, ROWS_PER_STRIP, TILE_HEIGHT,
    TILE_WIDTH, WIDTH, chunks,
};
use crate::deadline::Deadline;

/// A marker of Adobe that says whether colours are RGB (0) or YCbCr (1).
const ADOBE: [u8; 15] = *b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0";

/// A picture whose tags were read.
pub(super) struct JpegTiff<'a> {
    bytes: &'a [u8],
    directory: Directory<'a>,
    size: [usize; 2],
    /// rows and columns of a strip or tile
    chunk: [usize; 2],
    channels: usize,
    deadline: &'a Deadline,
}

impl<'a> JpegTiff<'a> {
    /// Whether a picture is of a kind that is decoded here.
    pub(super) fn can_decode(directory: Directory<'_>) -> bool {
        let channels = match directory.number(PHOTOMETRIC) {
            Some(1) => 1,
            Some(2 | 6) => 3,
            _ => return false,
        };
        let has_8_bits = directory.field(BITS).is_some_and(|bits| bits.numbers().all(|bits| bits as u16 == 8));
        let is_chunky = channels == 1 || directory.number(PLANAR).unwrap_or(1) == 1;
        let is_jpeg = directory.number(COMPRESSION) == Some(JPEG);
        is_jpeg && has_8_bits && is_chunky && directory.number(CHANNELS).unwrap_or(1) == channels
    }

    /// The picture of these tags, if it is of such a kind.
    pub(super) fn new(bytes: &'a [u8], directory: Directory<'a>, deadline: &'a Deadline) -> Option<Self> {
        if !Self::can_decode(directory) {
            return None;
        }
        let side = |tag: u16| directory.number(tag).filter(|side| (1..=1 << 28).contains(side));
        let size @ [height, width] = [side(HEIGHT)?, side(WIDTH)?];
        let chunk = match (side(TILE_HEIGHT), side(TILE_WIDTH)) {
            (Some(height), Some(width)) => [height, width],
            _ => [side(ROWS_PER_STRIP).map_or(height, |rows| rows.min(height)), width],
        };
        let channels = directory.number(CHANNELS).unwrap_or(1);
        Some(Self { bytes, directory, size, chunk, channels, deadline })
    }

    /// A strip or tile as a file of its own: with the tables that all share, and with the colours that the tags say.
    fn file(&self, chunk: &[u8]) -> Vec<u8> {
        let behind_start = |bytes: &'_ [u8]| bytes.strip_prefix(b"\xff\xd8").unwrap_or(bytes).to_vec();
        let is_ycbcr = self.directory.number(PHOTOMETRIC) == Some(6);
        let mut file = [b"\xff\xd8", &ADOBE[..], &[u8::from(is_ycbcr)]].concat();
        if let Some(tables) = self.directory.field(JPEG_TABLES) {
            let tables = behind_start(tables.bytes);
            file.extend_from_slice(tables.strip_suffix(b"\xff\xd9").unwrap_or(&tables));
        }
        let mut chunk = behind_start(chunk);
        // A JFIF marker would decide about the colours.
        if let [0xff, 0xe0, high, low, ..] = chunk[..] {
            chunk.drain(..(2 + usize::from(u16::from_be_bytes([high, low]))).min(chunk.len()));
        }
        file.extend(chunk);
        file
    }

    fn decode(&self, pixels: &mut [u8]) -> Result<(), String> {
        let ([height, width], [rows, columns]) = (self.size, self.chunk);
        let across = width.div_ceil(columns);
        let mut found = 0;
        for (number, range) in chunks(self.directory).take(across * height.div_ceil(rows)).enumerate() {
            let (top, left) = (number / across * rows, number % across * columns);
            let file = self.file(self.bytes.get(range).ok_or("a strip or tile lies outside the file")?);
            let decoder = Decoder::new(&file).map_err(|error| error.to_string())?;
            let info = decoder.info();
            let [kept_rows, kept_columns] = [rows.min(height - top), columns.min(width - left)];
            let fits = usize::from(info.width) == columns
                && (kept_rows..=rows).contains(&info.height.into())
                && info.format.channels() == self.channels;
            if !fits {
                return Err("the JPEG data of a strip or tile has another size or other colours".into());
            }
            let mut decoded = vec![0; info.byte_len()];
            let is_cancelled = || self.deadline.check().is_err();
            decoder.decode_into(&mut decoded, &is_cancelled).map_err(|error| error.to_string())?;
            let row_bytes = |columns: usize| columns * self.channels;
            let to = pixels[row_bytes(top * width)..].chunks_mut(row_bytes(width)).take(kept_rows);
            for (to, from) in to.zip(decoded.chunks_exact(row_bytes(columns))) {
                to[row_bytes(left)..][..row_bytes(kept_columns)].copy_from_slice(&from[..row_bytes(kept_columns)]);
            }
            found += 1;
        }
        if found < across * height.div_ceil(rows) { Err("strips or tiles are missing".into()) } else { Ok(()) }
    }
}

impl ImageDecoder for JpegTiff<'_> {
    fn dimensions(&self) -> (u32, u32) {
        (self.size[1] as u32, self.size[0] as u32)
    }

    fn color_type(&self) -> ColorType {
        if self.channels == 1 { ColorType::L8 } else { ColorType::Rgb8 }
    }

    fn read_image(self, pixels: &mut [u8]) -> ImageResult<()> {
        self.decode(pixels).map_err(|why| ImageError::IoError(std::io::Error::other(why)))
    }

    fn read_image_boxed(self: Box<Self>, pixels: &mut [u8]) -> ImageResult<()> {
        (*self).read_image(pixels)
    }
}
