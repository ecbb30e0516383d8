//! FLAC and MP3 through symphonia's readers.

use std::io::Cursor;

use symphonia::core::audio::{Audio, GenericAudioBufferRef};
use symphonia::core::codecs::audio::{AudioCodecParameters, AudioDecoder, AudioDecoderOptions};
use symphonia::core::errors::{Error, Result as Decoded};
use symphonia::core::formats::{FormatOptions, FormatReader, TrackType};
use symphonia::core::io::{MediaSourceStream, MediaSourceStreamOptions, ReadOnlySource};
use symphonia::default::codecs::{FlacDecoder, MpaDecoder};
use symphonia::default::formats::{FlacReader, MpaReader};

use super::sample_sink::{DecodeLimits, SampleSink, StreamInfo, damaged};
use gpux_core::StepFailure;

/// A buffer for the float32 samples of a packet, reused by all packets.
#[derive(Default)]
pub(super) struct PlanarBuffer(Vec<Vec<f32>>);

/// Adds the decoded samples of a packet.
pub(super) fn read(
    decoded: &GenericAudioBufferRef<'_>,
    scratch: &mut PlanarBuffer,
    sink: &mut SampleSink,
) -> Result<(), StepFailure> {
    if decoded.num_planes() != sink.channels() {
        return Err(damaged("sound", &"the number of its channels changes on the way"));
    }
    if let GenericAudioBufferRef::F32(buffer) = decoded {
        let planes: Vec<_> = buffer.iter_planes().collect();
        return sink.planar(&planes);
    }
    decoded.copy_to_vecs_planar(&mut scratch.0);
    let planes: Vec<_> = scratch.0.iter().map(Vec::as_slice).collect();
    sink.planar(&planes)
}

fn stream(bytes: Vec<u8>) -> MediaSourceStream<'static> {
    MediaSourceStream::new(Box::new(Cursor::new(bytes)), MediaSourceStreamOptions::default())
}

fn parameters(reader: &dyn FormatReader) -> Option<AudioCodecParameters> {
    reader.default_track(TrackType::Audio)?.codec_params.as_ref()?.audio().cloned()
}

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
        if !self.frames.is_empty() {
            let file = [b"fLaC", &[0x80, 0, 0, 34][..], self.information, self.frames].concat();
            let mut reader =
                FlacReader::try_new(stream(file), FormatOptions::default()).map_err(|error| damaged("FLAC", &error))?;
            let parameters = parameters(&reader).ok_or_else(|| damaged("FLAC", &"it holds no sound"))?;
            let mut decoder = FlacDecoder::try_new(&parameters, &AudioDecoderOptions::default())
                .map_err(|error| damaged("FLAC", &error))?;
            let mut scratch = PlanarBuffer::default();
            while let Some(packet) = next(&mut reader).map_err(|error| damaged("FLAC", &error))? {
                let decoded = decoder.decode(&packet).map_err(|error| damaged("FLAC", &error))?;
                read(&decoded, &mut scratch, &mut sink)?;
                // Memory was reserved for the length in the header.
                if self.shape.frames.is_some_and(|frames| sink.frames() as u64 > frames) {
                    break;
                }
            }
        }
        let decoded = sink.frames() as u64;
        if self.shape.frames.is_some_and(|frames| frames != decoded) {
            let frames = self.shape.frames.unwrap_or_default();
            let more = if decoded > frames { " or more" } else { "" };
            let why = format!("it says that it has {frames} samples, but there are {decoded}{more}");
            return Err(damaged("FLAC", &why));
        }
        Ok(sink)
    }
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
    while let Some(packet) = next(&mut reader).map_err(|error| damaged("MP3", &error))? {
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
