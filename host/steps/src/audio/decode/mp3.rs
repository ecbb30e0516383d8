//! MP3 through symphonia's reader.

use std::io::Cursor;

use symphonia::core::codecs::audio::{AudioCodecParameters, AudioDecoder, AudioDecoderOptions};
use symphonia::core::errors::{Error, Result as Decoded};
use symphonia::core::formats::{FormatOptions, FormatReader, TrackType};
use symphonia::core::io::{MediaSourceStream, MediaSourceStreamOptions, ReadOnlySource};
use symphonia::default::codecs::MpaDecoder;
use symphonia::default::formats::MpaReader;

use super::planar_packets::{PlanarBuffer, read};
use super::sample_sink::{DecodeLimits, SampleSink, StreamInfo, damaged};
use gpux_core::StepFailure;

/// Bytes that are searched for the first frame.
const MAX_LEAD: usize = 1 << 16;

/// Headers that follow each other where a stream begins behind other bytes.
const HEADERS: usize = 3;

/// The frames behind bytes that are none: zeros of a tag, or the end of a frame whose start was cut off. Nothing where
/// there are no frames.
pub(super) fn find_frames(bytes: &[u8]) -> Option<&[u8]> {
    (0..bytes.len().min(MAX_LEAD)).map(|start| &bytes[start..]).find(|bytes| begins_with_frames(bytes))
}

/// Whether headers of the same kind follow each other, to the end if there are few.
fn begins_with_frames(bytes: &[u8]) -> bool {
    let Some(kind) = bytes.get(..3).map(|header| [header[1] & 0xfe, header[2] & 0x0c]) else { return false };
    let mut rest = bytes;
    for _ in 0..HEADERS {
        let Some(length) = frame_length(rest) else { return false };
        if [rest[1] & 0xfe, rest[2] & 0x0c] != kind {
            return false;
        }
        rest = rest.get(length..).unwrap_or_default();
        if rest.is_empty() {
            break;
        }
    }
    true
}

/// Bytes of the frame of layer III with this header; nothing for other bytes, and for a bit rate that it does not say.
fn frame_length(header: &[u8]) -> Option<usize> {
    const VERSION_1: [usize; 14] = [32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320];
    const VERSION_2: [usize; 14] = [8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160];
    let [0xff, second, third, _, ..] = header else { return None };
    // Hertz of version 1; versions 2 and 2.5 have half and a quarter.
    let rate = [44_100, 48_000, 32_000].get(usize::from(third >> 2 & 3))?;
    let (kilobits, bytes, rate) = match second & 0xfe {
        0xfa => (VERSION_1, 144_000, *rate),
        0xf2 => (VERSION_2, 72_000, rate / 2),
        0xe2 => (VERSION_2, 72_000, rate / 4),
        _ => return None,
    };
    let kilobits = kilobits.get(usize::from(third >> 4).checked_sub(1)?)?;
    Some(bytes * kilobits / rate + usize::from(third >> 1 & 1))
}

fn parameters(reader: &dyn FormatReader) -> Option<AudioCodecParameters> {
    reader.default_track(TrackType::Audio)?.codec_params.as_ref()?.audio().cloned()
}

/// The next packet; the end of the bytes is the end of the sound.
fn next(reader: &mut dyn FormatReader) -> Decoded<Option<symphonia::core::packet::Packet>> {
    match reader.next_packet() {
        Err(Error::IoError(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(None),
        other => other,
    }
}

/// The header's facts of an MPEG file; counts the frames without decoding them.
pub(super) fn mp3(bytes: &[u8]) -> Result<StreamInfo, StepFailure> {
    let mut reader = mpeg(bytes)?;
    let parameters = parameters(&reader);
    let known = parameters.and_then(|parameters| Some((parameters.sample_rate?, parameters.channels?.count())));
    let (rate, channels) = known.ok_or_else(|| damaged("MP3", &"it does not say how it is coded"))?;
    let mut frames = 0_u64;
    while let Some(packet) = next(&mut reader).map_err(|error| damaged("MP3", &error))? {
        let kept = packet.dur.get().saturating_sub(packet.trim_start.get()).saturating_sub(packet.trim_end.get());
        frames = frames.saturating_add(kept);
    }
    Ok(StreamInfo { rate, channels, frames: Some(frames) })
}

/// A reader without seeking: with seeking, symphonia guesses a missing length from the
/// first frames, and truncates longer files.
fn mpeg(bytes: &[u8]) -> Result<MpaReader<'_>, StepFailure> {
    let source = ReadOnlySource::new(Cursor::new(bytes));
    let stream = MediaSourceStream::new(Box::new(source), MediaSourceStreamOptions::default());
    MpaReader::try_new(stream, FormatOptions::default()).map_err(|error| damaged("MP3", &error))
}

/// Decodes MPEG frames. Skips damaged ones, as mpg123 does: streams are cut anywhere.
pub(super) fn decode_mp3(
    bytes: &[u8],
    shape: StreamInfo,
    mono: bool,
    limits: DecodeLimits,
) -> Result<SampleSink, StepFailure> {
    let mut reader = mpeg(bytes)?;
    let parameters = parameters(&reader).ok_or_else(|| damaged("MP3", &"it holds no sound"))?;
    let mut sink = SampleSink::new(shape, mono, limits)?;
    let mut decoder =
        MpaDecoder::try_new(&parameters, &AudioDecoderOptions::default()).map_err(|error| damaged("MP3", &error))?;
    let (mut scratch, mut decoded_any) = (PlanarBuffer::default(), false);
    let mut reservoir = Reservoir(0);
    while let Some(mut packet) = next(&mut reader).map_err(|error| damaged("MP3", &error))? {
        reservoir.admit(&mut packet.data);
        match decoder.decode(&packet) {
            Ok(decoded) => {
                decoded_any = true;
                read(&decoded, &mut scratch, &mut sink)?;
            }
            Err(Error::DecodeError(_) | Error::IoError(_)) => {}
            Err(error) => return Err(damaged("MP3", &error)),
        }
    }
    if !decoded_any {
        return Err(damaged("MP3", &"none of its frames can be decoded"));
    }
    Ok(sink)
}

/// Bytes of the frames before, where the data of a frame may begin.
struct Reservoir(usize);

impl Reservoir {
    /// Adds a frame. Silences one whose data begins before the stream does, as mpg123: its side information says then
    /// that it has no data, but its bytes remain for later frames. symphonia would decode the rest of the data.
    fn admit(&mut self, frame: &mut [u8]) {
        let [_, second, _, fourth, ..] = *frame else { return };
        let (is_version_1, is_mono, is_checked) = (second & 8 != 0, fourth >> 6 == 3, second & 1 == 0);
        let most = if is_version_1 { 511 } else { 255 };
        let length = match (is_version_1, is_mono) {
            (true, false) => 32,
            (true, true) | (false, false) => 17,
            (false, true) => 9,
        };
        let start = if is_checked { 6 } else { 4 };
        let Some(side_information) = frame.get_mut(start..start + length) else { return };
        let (first, next) = (usize::from(side_information[0]), usize::from(side_information[1]));
        let begin = if is_version_1 { first << 1 | next >> 7 } else { first };
        if begin > self.0 {
            side_information.fill(0);
            // Keeps the bytes before for later frames.
            if is_version_1 {
                [side_information[0], side_information[1]] = ((self.0 << 7) as u16).to_be_bytes();
            } else {
                side_information[0] = self.0 as u8;
            }
        }
        self.0 = (self.0 + frame.len() - start - length).min(most);
    }
}
