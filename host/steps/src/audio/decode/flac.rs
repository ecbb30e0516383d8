//! FLAC: frames that follow each other without a gap, each decoded by symphonia.
//!
//! symphonia's own reader skips what is no frame, so that samples would be missing without an error.

use symphonia::core::checksum::{Crc8Ccitt, Crc16Ansi};
use symphonia::core::codecs::audio::well_known::CODEC_ID_FLAC;
use symphonia::core::codecs::audio::{AudioCodecParameters, AudioDecoder, AudioDecoderOptions};
use symphonia::core::io::Monitor;
use symphonia::core::packet::PacketRef;
use symphonia::core::units::{Duration, Timestamp};
use symphonia::default::codecs::FlacDecoder;

use super::planar_packets::{PlanarBuffer, read};
use super::sample_sink::{DecodeLimits, SampleSink, StreamInfo, damaged};
use gpux_core::StepFailure;

/// Samples of a frame by the standard, at least and at most.
const BLOCK: [u16; 2] = [16, u16::MAX];

/// Most bytes of a frame: 65,535 samples of 8 channels, not packed.
const MAX_FRAME: usize = 65_535 * 8 * 5;

/// Bytes within a frame at which its checksum may be right by chance: one of 65,536 is.
const MAX_ENDS: usize = 64;

/// A FLAC file taken apart.
pub(super) struct Flac<'b> {
    pub(super) shape: StreamInfo,
    /// the one block of headers that says how the frames are coded
    information: &'b [u8],
    frames: &'b [u8],
}

/// Finds the frames. Skips all headers except the first: nothing in them is needed, and the file
/// chooses their sizes.
pub(super) fn flac(bytes: &[u8]) -> Result<Flac<'_>, StepFailure> {
    let cut_off = || damaged("FLAC", &"the file ends within its headers");
    let mut rest = bytes.get(4..).ok_or_else(cut_off)?;
    let mut information = None;
    loop {
        let (header, body) = rest.split_at_checked(4).ok_or_else(cut_off)?;
        let size = u32::from_be_bytes([0, header[1], header[2], header[3]]) as usize;
        let (block, after) = body.split_at_checked(size).ok_or_else(cut_off)?;
        if header[0] % 0x80 == 0 && size == 34 {
            information.get_or_insert(block);
        }
        rest = after;
        if header[0] & 0x80 != 0 {
            break;
        }
    }
    let information = information.ok_or_else(|| damaged("FLAC", &"it does not say how it is coded"))?;
    let facts = information[10..18].iter().fold(0_u64, |facts, byte| facts << 8 | u64::from(*byte));
    let frames = facts & ((1 << 36) - 1);
    let shape = StreamInfo {
        rate: (facts >> 44) as u32,
        channels: (facts >> 41 & 7) as usize + 1,
        // 0: the encoder did not know.
        frames: (frames > 0).then_some(frames),
    };
    Ok(Flac { shape, information, frames: rest })
}

impl Flac<'_> {
    pub(super) fn decode(&self, mono: bool, limits: DecodeLimits) -> Result<SampleSink, StepFailure> {
        let mut sink = SampleSink::new(self.shape, mono, limits)?;
        sink.reserve_expected(self.shape.frames.unwrap_or(0), self.frames.len())?;
        let mut parameters = AudioCodecParameters::new();
        parameters.for_codec(CODEC_ID_FLAC).with_extra_data(self.stream_information().into());
        let mut decoder = FlacDecoder::try_new(&parameters, &AudioDecoderOptions::default())
            .map_err(|error| damaged("FLAC", &error))?;

        let (mut scratch, mut rest, mut number) = (PlanarBuffer::default(), self.frames, 0);
        while let Some(header) = Header::parse(rest) {
            let done = sink.frames() as u64;
            let expected = header.position(number, done);
            if header.number != expected {
                let why = format!("frame {} stands where frame {expected} belongs", header.number);
                return Err(damaged("FLAC", &why));
            }
            let after = done + u64::from(header.samples);
            if self.shape.frames.is_some_and(|frames| after > frames) {
                return Err(self.miscounted(after, " or more"));
            }
            let length = self.decode_frame(&mut decoder, rest, number, after)?;
            read(&decoder.last_decoded(), &mut scratch, &mut sink)?;
            (rest, number) = (&rest[length..], number + 1);
        }

        let done = sink.frames() as u64;
        match self.shape.frames {
            Some(frames) if done < frames && !rest.is_empty() => {
                Err(damaged("FLAC", &format!("behind {done} of its {frames} samples, there is no frame")))
            }
            Some(frames) if done != frames => Err(self.miscounted(done, "")),
            None if !rest.is_empty() && !is_tag(rest) => {
                Err(damaged("FLAC", &format!("behind {done} samples, there is neither a frame nor a tag")))
            }
            // A length that was reached ends the sound.
            _ => Ok(sink),
        }
    }

    /// Decodes the frame at the start of `bytes`, whose samples end at `after`. Returns its length.
    fn decode_frame(
        &self,
        decoder: &mut FlacDecoder,
        bytes: &[u8],
        number: u64,
        after: u64,
    ) -> Result<usize, StepFailure> {
        let (mut sum, mut ends) = (Crc16Ansi::new(0), 0);
        for (end, byte) in (1..=MAX_FRAME).zip(bytes) {
            sum.process_byte(*byte);
            // Also the checksum's own bytes were added.
            if sum.crc() != 0 {
                continue;
            }
            let packet = PacketRef::new(0, Timestamp::ZERO, Duration::ZERO, &bytes[..end]);
            if decoder.decode_ref(&packet).is_err() {
                ends += 1;
                if ends >= MAX_ENDS {
                    break;
                }
                continue;
            }
            // Decoding takes the bytes before the checksum, which may end in zeros.
            let zeros = bytes[end..].iter().take(2).take_while(|byte| **byte == 0).count();
            let is_end = |end: &usize| {
                let rest = &bytes[*end..];
                rest.is_empty() || Header::parse(rest).is_some() || is_tag(rest)
            };
            let is_last = self.shape.frames == Some(after);
            match (end..=end + zeros).find(is_end).or(is_last.then_some(end)) {
                Some(end) => return Ok(end),
                None => break,
            }
        }
        let why = format!("frame {number} is damaged or cut off, or neither a frame nor a tag follows it");
        Err(damaged("FLAC", &why))
    }

    /// The information for the decoder, without the bounds that encoders leave out.
    fn stream_information(&self) -> Vec<u8> {
        let mut information = self.information.to_vec();
        let largest = u16::from_be_bytes([information[2], information[3]]);
        information[..2].copy_from_slice(&BLOCK[0].to_be_bytes());
        information[2..4].copy_from_slice(&if largest < BLOCK[0] { BLOCK[1] } else { largest }.to_be_bytes());
        information[4..10].fill(0);
        information
    }

    fn miscounted(&self, found: u64, more: &str) -> StepFailure {
        let stated = self.shape.frames.unwrap_or_default();
        damaged("FLAC", &format!("it says that it has {stated} samples, but there are {found}{more}"))
    }
}

/// Whether bytes behind the last frame are a tag: ID3v1, APE, ID3v2 or Lyrics3.
fn is_tag(bytes: &[u8]) -> bool {
    let starts = [&b"APETAGEX"[..], b"ID3", b"LYRICSBEGIN"];
    bytes.len() == 128 && bytes.starts_with(b"TAG") || starts.iter().any(|start| bytes.starts_with(start))
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    /// of the frame, or of its first sample where frames differ in length
    number: u64,
    has_sample_number: bool,
    /// of each channel
    samples: u32,
}

impl Header {
    /// The header that `bytes` begin with, if its checksum is right.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let [0xff, strategy @ 0xf8..=0xf9, sizes, _, rest @ ..] = bytes else { return None };
        let (number, coded) = coded_number(rest)?;
        let mut rest = &rest[coded..];
        let mut word = |bytes: usize| {
            let (word, after) = rest.split_at_checked(bytes)?;
            rest = after;
            Some(word.iter().fold(0, |word, byte| word << 8 | u32::from(*byte)))
        };
        let samples = match sizes >> 4 {
            0 => return None,
            1 => 192,
            size @ 2..=5 => 576 << (size - 2),
            6 => word(1)? + 1,
            7 => word(2)? + 1,
            size => 256 << (size - 8),
        };
        // A sample rate of its own.
        word(match sizes & 15 {
            12 => 1,
            13 | 14 => 2,
            15 => return None,
            _ => 0,
        })?;
        let (checksum, _) = rest.split_first()?;
        let mut sum = Crc8Ccitt::new(0);
        sum.process_buf_bytes(&bytes[..bytes.len() - rest.len()]);
        (sum.crc() == *checksum).then_some(Self { number, has_sample_number: strategy & 1 == 1, samples })
    }

    /// The number of a frame of this stream, by the frames and the samples before it.
    fn position(self, frames: u64, samples: u64) -> u64 {
        if self.has_sample_number { samples } else { frames }
    }
}

/// A number in as many bytes as the first one says, as in UTF-8; and how many.
fn coded_number(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let length = match first.leading_ones() as usize {
        0 => 1,
        ones @ 2..=7 => ones,
        _ => return None,
    };
    let start = if length == 1 { first } else { first & 0x7f >> length };
    let number = bytes.get(1..length)?.iter().try_fold(u64::from(start), |number, byte| {
        (byte & 0xc0 == 0x80).then_some(number << 6 | u64::from(byte & 0x3f))
    })?;
    Some((number, length))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    const LIMITS: DecodeLimits = DecodeLimits { max_duration: 60, max_values: 1 << 20, deadline: None };

    fn decode(bytes: &[u8]) -> Result<usize, String> {
        let sink = flac(bytes).and_then(|flac| flac.decode(false, LIMITS));
        sink.map(|sink| sink.frames()).map_err(|error| error.to_string())
    }

    /// A file of two frames of 4096 and 904 samples, which states `samples`; where its frames begin.
    fn file(samples: u32) -> (Vec<u8>, [usize; 2]) {
        let mut bytes = crate::reference::read("audio/decode/s16.flac");
        bytes[21] &= 0xf0;
        bytes[22..26].copy_from_slice(&samples.to_be_bytes());
        let starts: Vec<_> = (0..bytes.len()).filter(|at| Header::parse(&bytes[*at..]).is_some()).collect();
        (bytes, starts.try_into().unwrap())
    }

    #[test]
    fn rejects_damaged_or_missing_frames() {
        for samples in [0, 5000] {
            let (whole, [first, second]) = file(samples);
            assert_eq!(decode(&whole), Ok(5000));
            for at in (first + 8..whole.len()).step_by(97) {
                let mut damaged = whole.clone();
                damaged[at] ^= 4;
                let error = decode(&damaged).unwrap_err();
                assert!(error.contains("is damaged or cut off") || error.contains("there is no"), "{at}: {error}");
                assert!(decode(&whole[..at]).is_err() || at == second, "{at}");
            }
            let without_first = [&whole[..first], &whole[second..]].concat();
            assert!(decode(&without_first).unwrap_err().contains("frame 1 stands where frame 0 belongs"));
            let twice = [&whole[..second], &whole[first..]].concat();
            assert!(decode(&twice).unwrap_err().contains("frame 0 stands where frame 1 belongs"));
        }
        let (more, _) = file(4096);
        assert!(decode(&more).unwrap_err().contains("4096 samples, but there are 5000 or more"));
        let (fewer, _) = file(5001);
        assert!(decode(&fewer).unwrap_err().contains("5001 samples, but there are 5000"));
    }

    #[test]
    fn only_tags_follow_a_sound_of_unknown_length() {
        let (whole, _) = file(0);
        let behind = |bytes: &[u8]| decode(&[&whole, bytes].concat());
        let id3 = [&b"TAG"[..], &[7; 125]].concat();
        for tag in [&id3, &b"APETAGEX and more"[..], b"ID3\x04\0\0\0\0\0\0"] {
            assert_eq!(behind(tag), Ok(5000));
        }
        for junk in [&[0; 128][..], b"TAG", &[0xff; 9], b"more"] {
            assert!(behind(junk).unwrap_err().contains("is damaged or cut off"), "{junk:?}");
        }
    }

    #[test]
    fn reads_numbers_of_one_to_seven_bytes() {
        assert_eq!(coded_number(&[0x7f]), Some((0x7f, 1)));
        assert_eq!(coded_number(&[0xc2, 0x80]), Some((0x80, 2)));
        assert_eq!(coded_number(&[0xfe, 0xbf, 0xbf, 0xbf, 0xbf, 0xbf, 0xbf]), Some((0xf_ffff_ffff, 7)));
        for invalid in [&[][..], &[0x80], &[0xc2], &[0xc2, 0x41], &[0xff; 8]] {
            assert_eq!(coded_number(invalid), None);
        }
    }
}
