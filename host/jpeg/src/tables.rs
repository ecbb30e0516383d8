//! The quantization tables, Huffman tables and restart interval, which segments before each scan define.

use crate::error::Error;
use crate::huffman::HuffmanTable;
use crate::standard_tables::STANDARD_HUFFMAN_TABLES;
use crate::zigzag::ZIGZAG;

#[derive(Default)]
pub(crate) struct Tables {
    pub(crate) quantization: [Option<[i16; 64]>; 4],
    pub(crate) dc: [Option<HuffmanTable>; 4],
    pub(crate) ac: [Option<HuffmanTable>; 4],
    /// MCUs between restarts; 0 for none
    pub(crate) restart_interval: usize,
}

impl Tables {
    /// Reads a segment; ignores those that define none of these.
    pub(crate) fn read(&mut self, kind: u8, body: &[u8]) -> Result<(), Error> {
        match kind {
            0xdb => self.read_quantization(body),
            0xc4 => self.read_huffman(body, |_| true),
            0xdd => {
                let [high, low, ..] = body else { return Err(Error::damaged("a restart interval is cut off")) };
                self.restart_interval = usize::from(u16::from_be_bytes([*high, *low]));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn read_quantization(&mut self, mut body: &[u8]) -> Result<(), Error> {
        while let [kind, rest @ ..] = body {
            let wide = kind >> 4 != 0;
            let steps = rest.get(..if wide { 128 } else { 64 });
            let table = self.quantization.get_mut(usize::from(kind & 15));
            let (Some(steps), Some(table)) = (steps, table) else {
                return Err(Error::damaged("a quantization table is cut off or has no such number"));
            };
            let step = |at: usize| {
                if wide { i16::from_be_bytes([steps[2 * at], steps[2 * at + 1]]) } else { i16::from(steps[at]) }
            };
            let mut natural_order = [0; 64];
            for (at, index) in ZIGZAG.iter().enumerate() {
                natural_order[usize::from(*index) & 63] = step(at);
            }
            *table = Some(natural_order);
            body = &rest[steps.len()..];
        }
        Ok(())
    }

    /// Defines the standard's Huffman tables where the file has defined none, as libjpeg does before the first scan of
    /// a sequential file.
    pub(crate) fn add_standard_huffman(&mut self) -> Result<(), Error> {
        if self.dc[..2].iter().chain(&self.ac[..2]).all(Option::is_some) {
            return Ok(());
        }
        self.read_huffman(&STANDARD_HUFFMAN_TABLES, Option::is_none)
    }

    /// Reads tables; keeps those that may be `replace`d.
    fn read_huffman(&mut self, mut body: &[u8], replace: impl Fn(&Option<HuffmanTable>) -> bool) -> Result<(), Error> {
        let truncated = || Error::damaged("a Huffman table is cut off or has no such number");
        while let [kind, rest @ ..] = body {
            let (counts, rest) = rest.split_first_chunk::<16>().ok_or_else(truncated)?;
            let total: usize = counts.iter().map(|count| usize::from(*count)).sum();
            let table = HuffmanTable::new(counts, rest.get(..total).ok_or_else(truncated)?)?;
            let place = match (kind >> 4, usize::from(kind & 15)) {
                (0, number @ 0..4) => &mut self.dc[number],
                (1, number @ 0..4) => &mut self.ac[number],
                _ => return Err(truncated()),
            };
            if replace(place) {
                *place = Some(table);
            }
            body = &rest[total..];
        }
        Ok(())
    }
}
