//! JPEG: what is missing or endless is found before decoding, for the decoder says nothing.

use std::io::Cursor;

use image::codecs::jpeg::JpegDecoder;

/// A progressive JPEG has about ten scans; each costs a pass over the whole image, so a small file
/// with thousands of them is an attack.
const MAX_SCANS: usize = 100;

pub(super) fn open(bytes: &[u8]) -> Result<JpegDecoder<Cursor<&[u8]>>, String> {
    JpegDecoder::new(Cursor::new(bytes)).map_err(|error| error.to_string())
}

pub(super) fn check(bytes: &[u8]) -> Result<(), String> {
    match scans(bytes) {
        None => Err("the file ends before the image does".to_owned()),
        Some(scans) if scans > MAX_SCANS => Err(format!("it has {scans} scans; at most {MAX_SCANS} are decoded")),
        Some(_) => Ok(()),
    }
}

/// How many scans a JPEG holds; `None` if the file ends before its end marker. The decoder fills
/// what is missing with gray and says nothing, so that must be found here.
pub(super) fn scans(bytes: &[u8]) -> Option<usize> {
    let mut rest = bytes.get(2..)?;
    let mut scans = 0;
    loop {
        let start = marker(rest)?;
        rest = &rest[start + 1..];
        match *rest.first()? {
            0xd9 => return Some(scans),
            // Stuffed bytes, restarts and fill: inside a scan, or nothing that has a length.
            0x00 | 0x01 | 0xd0..=0xd8 => rest = &rest[1..],
            0xff => {}
            marker => {
                scans += usize::from(marker == 0xda);
                let length = usize::from(u16::from_be_bytes([*rest.get(1)?, *rest.get(2)?]));
                rest = rest.get(1 + length..)?;
            }
        }
    }
}

/// Where the next 0xff is. In blocks, which are searched many bytes at a time.
fn marker(bytes: &[u8]) -> Option<usize> {
    const BLOCK: usize = 128;
    let block = bytes.chunks(BLOCK).position(|block| block.contains(&0xff))?;
    bytes[block * BLOCK..].iter().position(|byte| *byte == 0xff).map(|at| block * BLOCK + at)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;
    use crate::builtin::reference;

    #[test]
    fn scans_are_counted() {
        let progressive = reference::read("decode/progressive.jpg");
        let found = scans(&progressive).unwrap();
        assert!((2..20).contains(&found), "{found}");
        assert_eq!(scans(&reference::read("decode/photo.jpg")), Some(1));
        // The same last scan over and over.
        let start = progressive.windows(2).rposition(|pair| pair == [0xff, 0xda]).unwrap();
        let scan = &progressive[start..progressive.len() - 2];
        let many = [&progressive[..start], &scan.repeat(2000), &[0xff, 0xd9]].concat();
        assert!(check(&many).unwrap_err().contains("scans; at most 100"));
    }
}
