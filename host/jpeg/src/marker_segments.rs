//! The segments of a file: a marker and its body.

use crate::error::Error;

/// The segments, in the order of the file.
pub(crate) struct Segments<'a> {
    bytes: &'a [u8],
    /// where the next one begins
    pub(crate) at: usize,
}

impl<'a> Segments<'a> {
    /// Segments of a whole file, behind its first marker.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 2 }
    }

    /// The next marker with its body. Skips markers without a body, except the end of the image.
    pub(crate) fn next(&mut self) -> Result<(u8, &'a [u8]), Error> {
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let start = find_marker(rest).ok_or_else(Error::truncated)?;
            self.at += start + 1;
            match rest.get(start + 1).ok_or_else(Error::truncated)? {
                // Fill bytes.
                0xff => {}
                0x00 | 0x01 | 0xd0..=0xd8 => self.at += 1,
                0xd9 => return Ok((0xd9, &[])),
                kind => {
                    let length = rest.get(start + 2..start + 4).ok_or_else(Error::truncated)?;
                    let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
                    if length < 2 {
                        return Err(Error::damaged("a segment is shorter than its own length"));
                    }
                    let body = rest.get(start + 4..start + 2 + length).ok_or_else(Error::truncated)?;
                    self.at += 1 + length;
                    return Ok((*kind, body));
                }
            }
        }
    }
}

/// The index of the next 0xff. Searches whole blocks, which compile to vectors.
pub(crate) fn find_marker(bytes: &[u8]) -> Option<usize> {
    const BLOCK: usize = 32;
    let has_marker = |block: &[u8]| block.iter().fold(0, |found, byte| found | u8::from(*byte == 0xff)) > 0;
    let (blocks, _) = bytes.as_chunks::<BLOCK>();
    let start = blocks.iter().position(|block| has_marker(block)).unwrap_or(blocks.len()) * BLOCK;
    bytes[start..].iter().position(|byte| *byte == 0xff).map(|at| start + at)
}
