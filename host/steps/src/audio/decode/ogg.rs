//! Ogg Vorbis: the packets of an Ogg file, checked before a decoder sees them.
//!
//! The pages are taken apart here: a few bytes of a Vorbis header can ask for gigabytes, and a
//! general reader of Ogg would open every stream that a file holds.

use std::borrow::Cow;

use symphonia::core::checksum::Crc32;
use symphonia::core::io::Monitor;

use super::sample_sink::{DecodeLimits, SampleSink, StreamInfo, damaged, unsupported};
use super::vorbis::{Decoder, MAX_BOOKS, books};
use gpux_core::StepFailure;

/// Most bytes of a packet; those of libvorbis have some thousands.
const MAX_PACKET: usize = 4 << 20;

/// The three headers of a Vorbis stream, and its parameters.
pub(super) struct VorbisFile<'b> {
    pub(super) shape: StreamInfo,
    identification: Cow<'b, [u8]>,
    setup: Cow<'b, [u8]>,
    /// bytes that the code books take
    pub(super) books: usize,
    packets: Packets<'b>,
    /// position of the last page: samples of each channel since the start of the stream
    end: u64,
}

pub(super) fn parse(bytes: &[u8]) -> Result<VorbisFile<'_>, StepFailure> {
    let end = check_pages(bytes)?;
    let mut packets = Packets::new(bytes);
    let mut header = |kind: u8| {
        let (packet, _) = packets.next()?.ok_or_else(cut_off)?;
        if packet.first() == Some(&kind) && packet.get(1..7) == Some(b"vorbis") {
            return Ok(packet);
        }
        let what = match packet.get(..8) {
            Some(b"OpusHead") => "its sound is in Opus",
            Some([0x7f, b'F', b'L', b'A', b'C', ..]) => "its sound is in FLAC",
            _ => "its headers are not those of Vorbis",
        };
        Err(unsupported(&format!("an Ogg file, but {what}; Ogg Vorbis is decoded")))
    };
    let (identification, _, setup) = (header(1)?, header(3)?, header(5)?);
    if identification.len() < 30 {
        return Err(damaged("Ogg Vorbis", &"its first header is cut off"));
    }
    let rate = u32::from_le_bytes([identification[12], identification[13], identification[14], identification[15]]);
    let channels = usize::from(identification[11]);
    let books = match books(&setup) {
        Some(bytes) if bytes <= MAX_BOOKS => bytes as usize,
        Some(bytes) => {
            let why = format!("its code books take {bytes} bytes; at most {MAX_BOOKS} are taken");
            return Err(damaged("Ogg Vorbis", &why));
        }
        None => return Err(damaged("Ogg Vorbis", &"its code books cannot be read")),
    };
    let shape = StreamInfo { rate, channels, frames: Some(end) };
    Ok(VorbisFile { shape, identification, setup, books, packets, end })
}

impl VorbisFile<'_> {
    pub(super) fn decode(mut self, mono: bool, limits: DecodeLimits) -> Result<SampleSink, StepFailure> {
        // The position counts played samples; decoding may begin earlier.
        let mut sink = SampleSink::new(StreamInfo { frames: None, ..self.shape }, mono, limits)?;
        let mut decoder = Decoder::new(&self.identification, &self.setup, self.shape)?;
        sink.reserve_expected(self.end, self.packets.rest.len())?;
        let mut start = None;
        while let Some((packet, position)) = self.packets.next()? {
            if packet.is_empty() || packet[0] & 1 == 1 {
                continue;
            }
            decoder.decode(&packet, &mut sink)?;
            if let Some(position) = position {
                // A stream cut out of a longer one begins at another position than 0.
                start.get_or_insert_with(|| position.saturating_sub(sink.frames() as u64));
            }
            // Samples behind the end are dropped; memory was counted for those before.
            if sink.frames() as u64 >= self.end.saturating_sub(start.unwrap_or(0)) {
                break;
            }
        }
        let length = self.end.saturating_sub(start.unwrap_or(0));
        sink.trim(0, usize::try_from(length).unwrap_or(usize::MAX));
        Ok(sink)
    }
}

fn cut_off() -> StepFailure {
    damaged("Ogg", &"the file ends before the sound does")
}

/// A page: its flags, position and stream, the lengths of its segments, and the bytes of them.
struct Page<'b> {
    flags: u8,
    position: u64,
    serial: u32,
    lengths: &'b [u8],
    body: &'b [u8],
    whole: &'b [u8],
}

/// The page at the start of these bytes, and what follows it.
fn page(bytes: &[u8]) -> Result<(Page<'_>, &[u8]), StepFailure> {
    let header = bytes.get(..27).ok_or_else(cut_off)?;
    if &header[..5] != b"OggS\0" {
        return Err(damaged("Ogg", &"a page does not start where the one before ends"));
    }
    let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let lengths = bytes.get(27..27 + usize::from(header[26])).ok_or_else(cut_off)?;
    let start = 27 + lengths.len();
    let end = start + lengths.iter().map(|length| usize::from(*length)).sum::<usize>();
    let body = bytes.get(start..end).ok_or_else(cut_off)?;
    let position = u64::from(word(6)) | u64::from(word(10)) << 32;
    let page = Page { flags: header[5], position, serial: word(14), lengths, body, whole: &bytes[..end] };
    Ok((page, &bytes[end..]))
}

/// The position of the last page, if all pages are whole and of one stream.
fn check_pages(bytes: &[u8]) -> Result<u64, StepFailure> {
    let (first, _) = page(bytes)?;
    let (mut rest, mut end, mut ended) = (bytes, 0, false);
    while !rest.is_empty() && !ended {
        let (page, after) = page(rest)?;
        let starts = page.flags & 2 != 0;
        if page.serial != first.serial || starts != (rest.len() == bytes.len()) {
            return Err(unsupported("an Ogg file of several streams; one stream of Vorbis is decoded"));
        }
        let mut sum = Crc32::new(0);
        sum.process_buf_bytes(&page.whole[..22]);
        sum.process_buf_bytes(&[0; 4]);
        sum.process_buf_bytes(&page.whole[26..]);
        if sum.crc().to_le_bytes() != page.whole[22..26] {
            return Err(damaged("Ogg", &"the checksum of a page is wrong"));
        }
        // All ones: no packet ends on the page.
        if page.position != u64::MAX {
            end = page.position;
        }
        ended = page.flags & 4 != 0;
        rest = after;
    }
    if ended && rest.get(..4) == Some(b"OggS") {
        return Err(unsupported("an Ogg file of several streams; one stream of Vorbis is decoded"));
    }
    // Interrupted recordings have no last page; the existing pages are complete.
    Ok(end)
}

/// The packets of a checked file, in order.
struct Packets<'b> {
    rest: &'b [u8],
    lengths: &'b [u8],
    body: &'b [u8],
    position: u64,
    ended: bool,
}

impl<'b> Packets<'b> {
    fn new(bytes: &'b [u8]) -> Self {
        Self { rest: bytes, lengths: &[], body: &[], position: u64::MAX, ended: false }
    }

    /// The next packet, and the position after it where its page ends with it.
    #[expect(clippy::type_complexity, reason = "one use")]
    fn next(&mut self) -> Result<Option<(Cow<'b, [u8]>, Option<u64>)>, StepFailure> {
        let mut packet: Cow<'b, [u8]> = Cow::Borrowed(&[]);
        loop {
            if self.lengths.is_empty() {
                // Packets behind the end, and a last one without an end, are dropped.
                if self.rest.is_empty() || self.ended {
                    return Ok(None);
                }
                let (page, rest) = page(self.rest)?;
                (self.lengths, self.body, self.rest) = (page.lengths, page.body, rest);
                (self.position, self.ended) = (page.position, page.flags & 4 != 0);
                continue;
            }
            let segments = self.lengths.iter().position(|length| *length < 255);
            let (taken, whole) = segments.map_or((self.lengths.len(), false), |last| (last + 1, true));
            let length = self.lengths[..taken].iter().map(|length| usize::from(*length)).sum();
            let (part, body) = self.body.split_at_checked(length).ok_or_else(cut_off)?;
            (self.lengths, self.body) = (&self.lengths[taken..], body);
            if packet.len() + part.len() > MAX_PACKET {
                return Err(damaged("Ogg", &"a packet is too long"));
            }
            if packet.is_empty() {
                packet = Cow::Borrowed(part);
            } else {
                packet.to_mut().extend_from_slice(part);
            }
            if whole {
                let last = !self.lengths.iter().any(|length| *length < 255);
                let position = (last && self.position != u64::MAX).then_some(self.position);
                return Ok(Some((packet, position)));
            }
        }
    }
}

/// The setup header of a file.
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
pub(super) fn setup(bytes: &[u8]) -> Vec<u8> {
    let mut packets = Packets::new(bytes);
    (0..3).map(|_| packets.next().unwrap().unwrap().0).last().unwrap().into_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn rejects_several_or_damaged_streams() {
        let real = crate::reference::read("audio/decode/mono.ogg");
        let message = |bytes: &[u8]| parse(bytes).err().unwrap().to_string();
        assert!(message(&real.repeat(2)).contains("several streams"));
        let mut damaged = real.clone();
        *damaged.last_mut().unwrap() ^= 1;
        assert!(message(&damaged).contains("checksum"));
        assert!(message(&real[..real.len() - 1]).contains("ends before"));
    }
}
