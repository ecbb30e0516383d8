//! What the segments between the scans say: how coefficients are quantized and coded.

use super::Stop;
use super::huffman::Huffman;
use super::scan::ZIGZAG;

/// The tables in force.
#[derive(Default)]
pub(super) struct Tables {
    pub(super) quantization: [Option<[i16; 64]>; 4],
    pub(super) dc: [Option<Huffman>; 4],
    pub(super) ac: [Option<Huffman>; 4],
    /// units after which a scan starts anew; 0 for never
    pub(super) restart: usize,
}

impl Tables {
    /// Takes what a segment says; those that say nothing of this are passed over.
    pub(super) fn read(&mut self, kind: u8, body: &[u8]) -> Result<(), Stop> {
        match kind {
            0xdb => self.quantization(body),
            0xc4 => self.huffman(body),
            0xdd => {
                let [high, low, ..] = body else { return Err(Stop::damaged("a restart interval is cut off")) };
                self.restart = usize::from(u16::from_be_bytes([*high, *low]));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn quantization(&mut self, mut body: &[u8]) -> Result<(), Stop> {
        while let [kind, rest @ ..] = body {
            let wide = kind >> 4 != 0;
            let steps = rest.get(..if wide { 128 } else { 64 });
            let table = self.quantization.get_mut(usize::from(kind & 15));
            let (Some(steps), Some(table)) = (steps, table) else {
                return Err(Stop::damaged("a quantization table is cut off or has no such number"));
            };
            let step = |at: usize| {
                if wide { i16::from_be_bytes([steps[2 * at], steps[2 * at + 1]]) } else { i16::from(steps[at]) }
            };
            let mut placed = [0; 64];
            for (at, place) in ZIGZAG.iter().enumerate() {
                placed[usize::from(*place) & 63] = step(at);
            }
            *table = Some(placed);
            body = &rest[steps.len()..];
        }
        Ok(())
    }

    fn huffman(&mut self, mut body: &[u8]) -> Result<(), Stop> {
        let cut = || Stop::damaged("a Huffman table is cut off or has no such number");
        while let [kind, rest @ ..] = body {
            let (counts, rest) = rest.split_first_chunk::<16>().ok_or_else(cut)?;
            let total: usize = counts.iter().map(|count| usize::from(*count)).sum();
            let table = Huffman::new(counts, rest.get(..total).ok_or_else(cut)?)?;
            match (kind >> 4, usize::from(kind & 15)) {
                (0, number @ 0..4) => self.dc[number] = Some(table),
                (1, number @ 0..4) => self.ac[number] = Some(table),
                _ => return Err(cut()),
            }
            body = &rest[total..];
        }
        Ok(())
    }
}
