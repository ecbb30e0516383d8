//! The entropy-coded data of a scan, without stuffed bytes and markers.

use crate::bit_reader::{BitReader, PADDING};
use crate::error::Error;
use crate::marker_segments::find_marker;

pub(crate) struct EntropyCodedData {
    data: Vec<u8>,
    /// where each restart interval ends
    interval_ends: Vec<usize>,
}

impl EntropyCodedData {
    /// Reads from `at` to the first marker that does not belong to the scan; also returns the offset of that.
    pub(crate) fn read(bytes: &[u8], mut at: usize) -> Result<(Self, usize), Error> {
        let mut data = Vec::with_capacity(bytes.len() - at + PADDING);
        let mut interval_ends = Vec::new();
        loop {
            let rest = &bytes[at..];
            let next = find_marker(rest).ok_or_else(Error::truncated)?;
            data.extend_from_slice(&rest[..next]);
            at += next;
            match rest.get(next + 1).ok_or_else(Error::truncated)? {
                0 => {
                    data.push(0xff);
                    at += 2;
                }
                0xff => at += 1,
                restart @ 0xd0..=0xd7 => {
                    if usize::from(restart & 7) != interval_ends.len() % 8 {
                        return Err(Error::damaged("the parts of a scan are out of order"));
                    }
                    interval_ends.push(data.len());
                    at += 2;
                }
                _ => break,
            }
        }
        interval_ends.push(data.len());
        data.extend([0; PADDING]);
        Ok((Self { data, interval_ends }, at))
    }

    /// A reader of the restart interval of this number.
    pub(crate) fn interval(&self, number: usize) -> Result<BitReader<'_>, Error> {
        let end = self.interval_ends.get(number);
        let end = *end.ok_or_else(|| Error::damaged("a scan ends before its last block"))?;
        let start = number.checked_sub(1).map_or(0, |before| self.interval_ends[before]);
        Ok(BitReader::new(&self.data, start, end))
    }
}
