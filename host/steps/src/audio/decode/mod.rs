//! The decoders behind `decode-audio`: one file a format.

mod flac;
mod mp3;
mod ogg;
mod planar_packets;
mod sample_sink;
mod vorbis;
mod wav;

use sample_sink::{StreamInfo, unsupported};

use gpux_core::{StepFailure, Tensor, what_instead};

pub(super) use sample_sink::{DecodeLimits, MAX_RATE, MAX_VALUES, SAMPLES_PER_BYTE};

/// A file that was recognized.
enum SoundFile<'b> {
    Wav(wav::Wav<'b>),
    Flac(flac::Flac<'b>),
    Vorbis(Box<ogg::VorbisFile<'b>>),
    Mp3(&'b [u8], StreamInfo),
}

impl<'b> SoundFile<'b> {
    fn open(bytes: &'b [u8]) -> Result<Self, StepFailure> {
        let sound = without_tags(bytes);
        match sound {
            _ if wav::is_wav(sound) => Ok(Self::Wav(wav::parse(sound)?)),
            [b'f', b'L', b'a', b'C', ..] => Ok(Self::Flac(flac::flac(sound)?)),
            [b'O', b'g', b'g', b'S', ..] => Ok(Self::Vorbis(Box::new(ogg::parse(sound)?))),
            // Eleven bits of sync, then layer III.
            [0xff, second, ..] if second & 0xe6 == 0xe2 => Ok(Self::Mp3(sound, mp3::mp3(sound)?)),
            _ if what_instead(sound).is_none() => match mp3::find_frames(sound) {
                Some(frames) => Ok(Self::Mp3(frames, mp3::mp3(frames)?)),
                None => Err(unsupported(&unknown(sound))),
            },
            _ => Err(unsupported(&unknown(sound))),
        }
    }

    fn shape(&self) -> StreamInfo {
        match self {
            Self::Wav(wav) => wav.shape,
            Self::Flac(flac) => flac.shape,
            Self::Vorbis(vorbis) => vorbis.shape,
            Self::Mp3(_, shape) => *shape,
        }
    }
}

/// Decodes a WAV, FLAC, MP3 or Ogg Vorbis file.
pub(super) fn decode(bytes: &[u8], mono: bool, limits: DecodeLimits) -> Result<Tensor, StepFailure> {
    let sink = match SoundFile::open(bytes)? {
        SoundFile::Wav(wav) => wav.decode(mono, limits),
        SoundFile::Flac(flac) => flac.decode(mono, limits),
        SoundFile::Vorbis(vorbis) => vorbis.decode(mono, limits),
        SoundFile::Mp3(sound, shape) => mp3::decode_mp3(sound, shape, mono, limits),
    };
    sink?.tensor()
}

/// The memory that decoding a file takes.
pub(super) struct DecodeMemory {
    /// values that it holds, as far as it says: `None` for as many as are allowed
    pub(super) values: Option<usize>,
    /// bytes of the decoder's tables
    pub(super) tables: usize,
}

/// The memory that decoding takes; none for bytes that are no sound.
pub(super) fn size(bytes: &[u8], mono: bool) -> DecodeMemory {
    let Ok(file) = SoundFile::open(bytes) else { return DecodeMemory { values: Some(0), tables: 0 } };
    let shape = file.shape();
    let channels = if mono { 1 } else { shape.channels as u64 };
    let values = shape.frames.and_then(|frames| usize::try_from(frames.checked_mul(channels)?).ok());
    let tables = if let SoundFile::Vorbis(vorbis) = &file { vorbis.books } else { 0 };
    DecodeMemory { values, tables }
}

/// The bytes after any ID3v2 tags.
fn without_tags(mut bytes: &[u8]) -> &[u8] {
    while let [b'I', b'D', b'3', _, _, flags, a, b, c, d, ..] = bytes {
        let size = [a, b, c, d].iter().fold(0_usize, |size, byte| size << 7 | usize::from(**byte & 0x7f));
        let footer = if flags & 0x10 != 0 { 10 } else { 0 };
        bytes = bytes.get(10 + size + footer..).unwrap_or_default();
    }
    bytes
}

/// Describes bytes that are no sound.
fn unknown(bytes: &[u8]) -> String {
    const DECODED: &str = "WAV, FLAC, MP3 and Ogg Vorbis are decoded";
    let start = &bytes[..bytes.len().min(16)];
    if bytes.is_empty() {
        "there are no bytes".to_owned()
    } else if let Some(what) = what_instead(bytes) {
        format!("{what}; {DECODED}")
    } else if bytes.get(4..8) == Some(b"ftyp") {
        format!("it is an MP4 file (M4A); {DECODED}")
    } else if start.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace()) {
        format!("it starts with the text {:?}; {DECODED}", String::from_utf8_lossy(start))
    } else {
        format!("it starts with the bytes {start:02x?}; {DECODED}")
    }
}
