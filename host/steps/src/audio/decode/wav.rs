//! WAV: a few chunks of headers before plain numbers.

use super::sample_sink::{DecodeLimits, SampleSink, StreamInfo, damaged, unsupported};
use gpux_core::StepFailure;

/// Divisors of whole numbers of 16 and 32 bits.
const INT16: f32 = 32_768.0;
const INT32: f32 = 2_147_483_648.0;

/// The coding of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    Uint8,
    Int16,
    Int24,
    Int32,
    Float32,
    Float64,
    ALaw,
    MuLaw,
}

impl Coding {
    /// Bytes of a sample.
    const fn size(self) -> usize {
        match self {
            Self::Uint8 | Self::ALaw | Self::MuLaw => 1,
            Self::Int16 => 2,
            Self::Int24 => 3,
            Self::Int32 | Self::Float32 => 4,
            Self::Float64 => 8,
        }
    }
}

/// A WAV file taken apart.
#[derive(Debug)]
pub(super) struct Wav<'b> {
    pub(super) shape: StreamInfo,
    coding: Coding,
    /// the samples, whole frames
    data: &'b [u8],
}

/// Whether these bytes begin as a WAV file does.
pub(super) fn is_wav(bytes: &[u8]) -> bool {
    matches!(bytes.get(..4), Some(b"RIFF" | b"RF64" | b"BW64")) && bytes.get(8..12) == Some(b"WAVE")
}

/// Finds format and samples. Sizes are believed only as far as there are bytes, as libsndfile does:
/// files of a recorder that was cut off, or of a pipe, state wrong ones. RF64 and BW64 state that of the samples in 64
/// bits, in a chunk before them.
pub(super) fn parse(bytes: &[u8]) -> Result<Wav<'_>, StepFailure> {
    let whole = bytes.get(4..8).map_or(0, |size| u32::from_le_bytes([size[0], size[1], size[2], size[3]]));
    let mut rest = bytes.get(12..).unwrap_or_default();
    let (mut format, mut long_size) = (None, None);
    while let Some((header, body)) = rest.split_at_checked(8) {
        let stated = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
        let size = stated.min(body.len());
        match &header[..4] {
            b"ds64" if !bytes.starts_with(b"RIFF") => {
                let size = body[..size].get(8..16).and_then(|size| size.first_chunk());
                long_size = size.map(|size| usize::try_from(u64::from_le_bytes(*size)).unwrap_or(usize::MAX));
            }
            b"fmt " => format = Some(read_format(&body[..size])?),
            b"data" => {
                let Some((coding, rate, channels)) = format else {
                    return Err(damaged("WAV", &"the samples come before their format"));
                };
                // An unfinished header has neither its size nor that of the samples.
                let unfinished = stated == 0 && whole <= 8;
                let size = match long_size {
                    Some(size) if stated == u32::MAX as usize => size.min(body.len()),
                    _ if unfinished => body.len(),
                    _ => size,
                };
                let data = &body[..size];
                let frame = coding.size() * channels;
                let data = &data[..data.len() - data.len() % frame];
                let shape = StreamInfo { rate, channels, frames: Some((data.len() / frame) as u64) };
                return Ok(Wav { shape, coding, data });
            }
            _ => {}
        }
        rest = body.get(size + size % 2..).unwrap_or_default();
    }
    Err(damaged("WAV", &"there are no samples in it"))
}

/// Coding, sample rate and channels of a `fmt ` chunk.
fn read_format(chunk: &[u8]) -> Result<(Coding, u32, usize), StepFailure> {
    let word = |at: usize| chunk.get(at..at + 2).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
    let (Some(mut tag), Some(channels), Some(low), Some(high), Some(frame), Some(bits)) =
        (word(0), word(2), word(4), word(6), word(12), word(14))
    else {
        return Err(damaged("WAV", &"its format is cut off"));
    };
    // An extensible one holds the tag where its GUID starts.
    if tag == 0xfffe {
        tag = word(24).ok_or_else(|| damaged("WAV", &"its format is cut off"))?;
    }
    let coding = match (tag, bits) {
        // Fewer bits are the high ones of whole bytes.
        (1, 1..=8) => Coding::Uint8,
        (1, 9..=16) => Coding::Int16,
        (1, 17..=24) => Coding::Int24,
        (1, 25..=32) => Coding::Int32,
        (3, 32) => Coding::Float32,
        (3, 64) => Coding::Float64,
        // Always 8 bits; encoders state those of the decoded samples, or none.
        (6, _) => Coding::ALaw,
        (7, _) => Coding::MuLaw,
        _ => {
            let why = "PCM of up to 32 bits, floats, A-law and µ-law are decoded";
            return Err(unsupported(&format!("a WAV file of format {tag} with {bits} bits; {why}")));
        }
    };
    if channels == 0 {
        return Err(damaged("WAV", &"it has no channel"));
    }
    let expected = coding.size() * usize::from(channels);
    if frame != 0 && usize::from(frame) != expected {
        let why = format!(
            "a WAV file that contradicts itself: samples of {bits} bits in {channels} channels take {expected} bytes, \
             but it says {frame} (block align)"
        );
        return Err(unsupported(&why));
    }
    Ok((coding, u32::from(high) << 16 | u32::from(low), usize::from(channels)))
}

impl Wav<'_> {
    pub(super) fn decode(&self, mono: bool, limits: DecodeLimits) -> Result<SampleSink, StepFailure> {
        let mut sink = SampleSink::new(self.shape, mono, limits)?;
        let size = self.coding.size();
        sink.reserve(self.data.len() / size / self.shape.channels)?;
        let data = self.data;
        let int32 = |bytes: &[u8]| i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as f32;
        match self.coding {
            Coding::Uint8 => sink.interleaved(data, size, |byte| (f32::from(byte[0]) - 128.0) / 128.0),
            Coding::Int16 => {
                sink.interleaved(data, size, |bytes| f32::from(i16::from_le_bytes([bytes[0], bytes[1]])) / INT16)
            }
            Coding::Int24 => sink.interleaved(data, size, |bytes| int32(&[0, bytes[0], bytes[1], bytes[2]]) / INT32),
            Coding::Int32 => sink.interleaved(data, size, |bytes| int32(bytes) / INT32),
            Coding::Float32 => sink.interleaved(data, size, float32),
            Coding::Float64 => sink.interleaved(data, size, float64),
            Coding::ALaw => sink.interleaved(data, size, |byte| f32::from(a_law(byte[0])) / INT16),
            Coding::MuLaw => sink.interleaved(data, size, |byte| f32::from(mu_law(byte[0])) / INT16),
        }?;
        Ok(sink)
    }
}

fn float32(bytes: &[u8]) -> f32 {
    f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn float64(bytes: &[u8]) -> f32 {
    let mut whole = [0; 8];
    whole.copy_from_slice(bytes);
    f64::from_le_bytes(whole) as f32
}

/// ITU-T G.711, A-law, in 16 bits.
fn a_law(byte: u8) -> i16 {
    let byte = byte ^ 0x55;
    let (segment, low) = ((byte >> 4) & 7, i16::from(byte & 15) << 4);
    let size = if segment == 0 { low + 8 } else { (low + 0x108) << (segment - 1) };
    if byte & 0x80 == 0 { -size } else { size }
}

/// ITU-T G.711, µ-law, in 16 bits.
fn mu_law(byte: u8) -> i16 {
    let byte = !byte;
    let size = (((i16::from(byte & 15) << 3) + 0x84) << ((byte >> 4) & 7)) - 0x84;
    if byte & 0x80 == 0 { size } else { -size }
}
