//! The packets of a Vorbis stream, decoded: by symphonia where its numbers are right, else by lewton.

use lewton::audio::{PreviousWindowRight, read_audio_packet_generic};
use lewton::header::{IdentHeader, SetupHeader, read_header_ident, read_header_setup};
use symphonia::core::codecs::audio::well_known::CODEC_ID_VORBIS;
use symphonia::core::codecs::audio::{AudioCodecParameters, AudioDecoder, AudioDecoderOptions};
use symphonia::core::io::{BitReaderRtl, ReadBitsRtl};
use symphonia::core::packet::PacketRef;
use symphonia::core::units::{Duration, Timestamp};
use symphonia::default::codecs::VorbisDecoder;

use super::planar_packets::{PlanarBuffer, read};
use super::sample_sink::{SampleSink, StreamInfo, damaged};
use gpux_core::StepFailure;

/// Most memory that the code books of a file may take, in bytes; those of libvorbis take some millions.
pub(super) const MAX_BOOKS: u64 = 64 << 20;

/// Bytes of an entry of a code book beside its vector: its word and length, and its part of the
/// tables that eight bits of a word are looked up in at once, most of which may stand for few words.
const ENTRY: u64 = 320;

/// Decodes the packets of one stream, in order.
pub(super) enum Decoder {
    Symphonia(Box<VorbisDecoder>, PlanarBuffer),
    Lewton(Box<Lewton>),
}

pub(super) struct Lewton {
    identification: IdentHeader,
    setup: SetupHeader,
    previous: PreviousWindowRight,
}

impl Decoder {
    /// symphonia is four times as fast, but 0.6.1 gets two layouts of residues wrong. Where several channels have a
    /// residue of type 0 or 1, the last classes of a channel overwrite the first of the next one. Where two
    /// channels that are not the first two share a residue of type 2, it writes to the wrong ones. One channel, and
    /// two in a residue of type 2, have neither.
    pub(super) fn new(identification: &[u8], setup: &[u8], shape: StreamInfo) -> Result<Self, StepFailure> {
        if shape.channels == 1 || shape.channels == 2 && are_residues_interleaved(setup) == Some(true) {
            let mut parameters = AudioCodecParameters::new();
            let headers = [identification, setup].concat();
            parameters.for_codec(CODEC_ID_VORBIS).with_sample_rate(shape.rate).with_extra_data(headers.into());
            let decoder = VorbisDecoder::try_new(&parameters, &AudioDecoderOptions::default()).map_err(broken)?;
            return Ok(Self::Symphonia(Box::new(decoder), PlanarBuffer::default()));
        }
        let identification = read_header_ident(identification).map_err(broken)?;
        let blocks = (identification.blocksize_0, identification.blocksize_1);
        let setup = read_header_setup(setup, identification.audio_channels, blocks).map_err(broken)?;
        Ok(Self::Lewton(Box::new(Lewton { identification, setup, previous: PreviousWindowRight::new() })))
    }

    /// Adds what becomes of a packet, with the channels in the order of the stream, as libsndfile has them.
    pub(super) fn decode(&mut self, packet: &[u8], sink: &mut SampleSink) -> Result<(), StepFailure> {
        match self {
            Self::Symphonia(decoder, scratch) => {
                let packet = PacketRef::new(0, Timestamp::ZERO, Duration::ZERO, packet);
                read(&decoder.decode_ref(&packet).map_err(broken)?, scratch, sink)
            }
            Self::Lewton(lewton) => {
                let Lewton { identification, setup, previous } = &mut **lewton;
                let planes: Vec<Vec<f32>> =
                    read_audio_packet_generic(identification, setup, packet, previous).map_err(broken)?;
                sink.planar(&planes.iter().map(Vec::as_slice).collect::<Vec<_>>())
            }
        }
    }
}

fn broken(why: impl ToString) -> StepFailure {
    damaged("Ogg Vorbis", &why)
}

/// Memory that the code books of this setup header take, in bytes (Vorbis I, 3.2.1).
pub(super) fn books(setup: &[u8]) -> Option<u64> {
    skip_books(&mut BitReaderRtl::new(setup.get(7..)?))
}

fn skip_books(bits: &mut BitReaderRtl<'_>) -> Option<u64> {
    let mut read = |count: u32| bits.read_bits_leq32(count).ok();
    let mut total = 0_u64;
    for _ in 0..=read(8)? {
        if read(24)? != 0x56_4342 {
            return None;
        }

        let (dimensions, entries) = (read(16)?, read(24)?);
        // More than the decoder takes.
        if entries > 1 << 17 {
            return None;
        }

        if read(1)? == 1 {
            read(5)?;
            let mut known = 0;
            while known < entries {
                known += read(32 - (entries - known).leading_zeros())?;
            }
        } else {
            let sparse = read(1)? == 1;
            for _ in 0..entries {
                if !sparse || read(1)? == 1 {
                    read(5)?;
                }
            }
        }

        let lookup = read(4)?;
        let values = match lookup {
            0 => 0,
            1 => first_values(entries, dimensions),
            2 => u64::from(entries) * u64::from(dimensions),
            _ => return None,
        };
        if lookup > 0 {
            read(32)?;
            read(32)?;
            let size = read(4)? + 1;
            read(1)?;
            for _ in 0..values {
                read(size)?;
            }
        }

        let vectors = if lookup > 0 { u64::from(entries) * u64::from(dimensions) * 4 } else { 0 };
        total = total.checked_add(vectors + values * 2 + u64::from(entries) * ENTRY)?;
        if total > MAX_BOOKS {
            return Some(total);
        }
    }

    Some(total)
}

/// The greatest number whose power of `dimensions` is at most `entries` (Vorbis I, 9.2.3).
fn first_values(entries: u32, dimensions: u32) -> u64 {
    let fits = |value: u64| {
        let mut product = 1_u64;
        // 2 to the 25th is more than there can be.
        (0..dimensions.min(25)).all(|_| {
            product = product.saturating_mul(value);
            product <= u64::from(entries)
        })
    };
    if dimensions == 0 {
        return 0;
    }
    (1..=u64::from(entries)).take_while(|value| fits(*value)).last().unwrap_or(0)
}

/// Whether every residue of this setup header is of type 2, which interleaves its channels (Vorbis I, 4.2.4).
fn are_residues_interleaved(setup: &[u8]) -> Option<bool> {
    let mut bits = BitReaderRtl::new(setup.get(7..)?);
    skip_books(&mut bits)?;
    let mut read = |count: u32| bits.read_bits_leq32(count).ok();
    // Times, which have no meaning.
    for _ in 0..=read(6)? {
        read(16)?;
    }
    for _ in 0..=read(6)? {
        if read(16)? == 0 {
            [8, 16, 16, 6, 8].into_iter().try_for_each(|size| read(size).map(drop))?;
            for _ in 0..=read(4)? {
                read(8)?;
            }
            continue;
        }
        let count = read(5)?;
        let partitions: Vec<u32> = (0..count).map(|_| read(4)).collect::<Option<_>>()?;
        let mut dimensions = [0; 16];
        for class in 0..=partitions.iter().max().map_or(-1, |class| i64::from(*class)) {
            dimensions[class as usize] = read(3)? + 1;
            let subclasses = read(2)?;
            if subclasses > 0 {
                read(8)?;
            }
            for _ in 0..1 << subclasses {
                read(8)?;
            }
        }
        read(2)?;
        let size = read(4)?;
        for class in partitions {
            for _ in 0..dimensions[class as usize] {
                read(size)?;
            }
        }
    }
    for _ in 0..=read(6)? {
        if read(16)? != 2 {
            return Some(false);
        }
        read(24)?;
        read(24)?;
        read(24)?;
        let classes = read(6)? + 1;
        read(8)?;
        let mut books = 0;
        for _ in 0..classes {
            let low = read(3)?;
            let high = if read(1)? == 1 { read(5)? } else { 0 };
            books += low.count_ones() + high.count_ones();
        }
        for _ in 0..books {
            read(8)?;
        }
    }
    Some(true)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// A setup header of code books that say in a few bytes how many long vectors they have.
    fn setup(count: u32, entries: u32, dimensions: u32) -> Vec<u8> {
        let mut bits = Vec::new();
        let mut write = |value: u32, size: u32| bits.extend((0..size).map(|bit| value >> bit & 1 == 1));
        write(count - 1, 8);
        for _ in 0..count {
            write(0x56_4342, 24);
            write(dimensions, 16);
            write(entries, 24);
            // All words are equally long.
            write(1, 1);
            write(16, 5);
            write(entries, 32 - entries.leading_zeros());
            write(1, 4);
            write(0, 32);
            write(0, 32);
            write(0, 4);
            write(0, 1);
            write(0, first_values(entries, dimensions) as u32);
        }
        let bytes = bits.chunks(8).map(|bits| bits.iter().rev().fold(0, |byte, bit| byte << 1 | u8::from(*bit)));
        b"\x05vorbis".iter().copied().chain(bytes).collect()
    }

    #[test]
    fn rejects_large_code_books_before_allocating() {
        let bomb = setup(200, 1 << 17, 32);
        assert!(bomb.len() < 10_000);
        assert!(books(&bomb).unwrap() > MAX_BOOKS);
        assert!((ENTRY * 256..ENTRY * 256 + 16 * 1024).contains(&books(&setup(1, 256, 8)).unwrap()));
        assert_eq!(books(&setup(1, 1 << 20, 32)), None);
        assert_eq!(books(b"\x05vorbis"), None);
        let real = crate::reference::read("audio/decode/stereo.ogg");
        let setup = crate::audio::decode::ogg::setup(&real);
        assert!((100_000..4 << 20).contains(&books(&setup).unwrap()), "{:?}", books(&setup));
    }

    #[test]
    fn rounds_roots_down() {
        assert_eq!(
            [first_values(81, 4), first_values(80, 4), first_values(7, 1), first_values(5, 65_535)],
            [3, 2, 7, 1]
        );
        assert_eq!([first_values(5, 0), first_values(0, 3)], [0, 0]);
    }

    #[test]
    fn detects_interleaved_residues() {
        for (name, interleaved) in [("stereo.ogg", true), ("mono.ogg", false)] {
            let real = crate::reference::read(&format!("audio/decode/{name}"));
            let setup = crate::audio::decode::ogg::setup(&real);
            assert_eq!(are_residues_interleaved(&setup), Some(interleaved), "{name}");
            assert_eq!(are_residues_interleaved(&setup[..setup.len() / 2]), None, "{name}");
        }
    }
}
