//! `decode-audio`: the bytes of a sound file → samples.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::decode::{self, DecodeLimits, MAX_VALUES, SAMPLES_PER_BYTE};
use crate::deadline::Deadline;
use crate::operation::{BuiltinStep, Inputs, Operation};
use crate::ports;
use gpux_core::catch_panic::catch_panic;
use gpux_core::{
    Builtin, Dim, ElementType, Group, Kind, OptionOrigin, Port, Signature, StepFailure, TensorKind, Value,
};

/// The most values for a component, whose memory is counted only afterwards: 64 MiB.
const MAX_VALUES_IN_COMPONENT: usize = 16 << 20;

/// Options of `decode-audio`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Options {
    /// Whether to mix all channels into one, their mean: `[samples]`. Otherwise `[channels, samples]`.
    /// Default: true, what most models take.
    mono: bool,
    /// Longest sound in seconds; a longer one is refused before more memory is taken for it.
    /// Default: 600, at most 86400. Whatever it says, a sound has at most 134217728 values.
    #[schemars(range(min = 1, max = 86_400))]
    max_duration: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { mono: true, max_duration: 600 }
    }
}

/// Decodes a WAV, FLAC, MP3 or Ogg Vorbis file to a float32 tensor, `[samples]` or
/// `[channels, samples]`, with the sample rate of the file in its metadata.
///
/// Follows `librosa.load(file, sr=None, mono=…)`, which reads through libsndfile: WAV (PCM of up to 32 bits,
/// floats, A-law, µ-law) and FLAC are identical to it, MP3 and Vorbis are as far away as
/// the rounding of two decoders. What an MP3 encoder put before and behind the sound is cut off where
/// the file says how much it is. A sound of one channel has two axes too without `mono`, unlike librosa's.
struct DecodeAudio {
    options: Options,
    max_values: usize,
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "decode-audio",
        summary: "Decodes a WAV, FLAC, MP3 or Ogg Vorbis file to samples",
        group: Group::Audio,
        follows: "librosa: load(file, sr=None, mono=…)",
        example: "decode-audio: { mono: true }",
        schema: || schemars::schema_for!(Options),
        build: |options, site| {
            let max_values = if matches!(site, OptionOrigin::Component) { MAX_VALUES_IN_COMPONENT } else { MAX_VALUES };
            Ok(Box::new(DecodeAudio::new(ports::options(options)?, max_values)))
        },
    }
}

impl DecodeAudio {
    fn new(options: Options, max_values: usize) -> BuiltinStep<Self> {
        let axes = if options.mono { vec![Dim::Dynamic] } else { vec![Dim::Dynamic; 2] };
        let shape = if options.mono { "[samples]" } else { "[channels, samples]" };
        let samples = TensorKind::shaped(ElementType::Float32, axes);
        let signature = Signature::unary(
            Port { description: "a WAV, FLAC, MP3 or Ogg Vorbis file".into(), ..Port::new("audio", Kind::Bytes) },
            Port { description: format!("its samples, -1 to 1, {shape}"), ..Port::new("audio", Kind::Tensor(samples)) },
        );
        BuiltinStep::new(signature, json!(options), Self { options, max_values })
    }
}

impl Operation for DecodeAudio {
    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        let Some(Some(Value::Bytes(bytes))) = inputs.first() else { return 0 };
        // As in `run`: the reader may give up.
        let size = catch_panic(|| decode::size(bytes, self.options.mono));
        let decode::DecodeMemory { values, tables } =
            size.unwrap_or(decode::DecodeMemory { values: Some(0), tables: 0 });
        // A larger one is refused before anything is taken for it.
        let values = values.map_or(self.max_values, |values| if values > self.max_values { 0 } else { values });
        // The channels are collected apart, and frames of FLAC are copied.
        let copies = if self.options.mono { 1 } else { 2 };
        // At high compression ratios the buffer grows by doubling.
        let copies = if values / SAMPLES_PER_BYTE > bytes.len() { 2 * copies } else { copies };
        values.saturating_mul(4 * copies).saturating_add(bytes.len()).saturating_add(tables)
    }

    fn run(&self, mut inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        let bytes = inputs.bytes()?;
        let limits = DecodeLimits {
            max_duration: self.options.max_duration,
            max_values: self.max_values,
            deadline: deadline.instant(),
        };
        // The decoders hold asserts about their input that a hostile file may find.
        let decoded = catch_panic(|| decode::decode(&bytes, self.options.mono, limits));
        let tensor = decoded.unwrap_or_else(|_| {
            let message = "not a sound: a damaged file: the decoder gave up on it";
            Err(StepFailure::InvalidInput(message.to_owned()))
        })?;
        Ok(vec![tensor.into()])
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::reference;
    use gpux_core::{Context, Step as _, Tensor};

    fn decode(options: serde_json::Value, bytes: &[u8]) -> Result<Tensor, StepFailure> {
        let step = DecodeAudio::new(ports::options(options).unwrap(), MAX_VALUES);
        let mut values = step.run(vec![Some(bytes.to_vec().into())], &mut Context::default())?;
        Ok(values.remove(0).as_tensor().unwrap().clone())
    }

    fn refusal(bytes: &[u8]) -> String {
        match decode(json!({}), bytes) {
            Err(StepFailure::InvalidInput(message)) => message,
            other => panic!("{other:?}"),
        }
    }

    fn file(name: &str) -> Vec<u8> {
        reference::read(&format!("audio/decode/{name}"))
    }

    /// 8 bits at 8 kHz, from something that did not know its end.
    fn endless_wav(samples: usize) -> Vec<u8> {
        let mut header = file("u8.wav")[..44].to_vec();
        header[40..].fill(0xff);
        header.resize(44 + samples, 128);
        header
    }

    #[test]
    fn describes_bytes_that_are_no_sound() {
        assert_eq!(refusal(b""), "not a sound: there are no bytes");
        assert!(refusal(b"{\"audio\": 1}").contains("it starts with the text \"{\\\"audio"));
        assert!(refusal(b"\0\0\0\x20ftypM4A \0").contains("it is an MP4 file"));
        assert!(refusal(&[0, 1, 2]).contains("the bytes [00, 01, 02]"));
        assert!(refusal(b"RIFF\x04\0\0\0WAVE").contains("there are no samples"));
        assert!(refusal(b"ID3\x04\0\0\x7f\x7f\x7f\x7f").contains("there are no bytes"));
        let mut adpcm = file("s16.wav");
        adpcm[20] = 2;
        assert!(refusal(&adpcm).contains("format 2 with 16 bits"));
    }

    /// Bytes of a tag, of a page's end, or of a frame that was cut.
    #[test]
    fn finds_mp3_frames_behind_other_bytes() {
        for name in ["mono.mp3", "22k.mp3", "8k.mp3", "short.mp3"] {
            let plain = file(name);
            let expected = decode(json!({"mono": false}), &plain).unwrap();
            for lead in [&b"junkjunk"[..], &[0; 3000], b"ID3\x04\0\0\0\0\0\0\0\0\0", &[0xff; 5], &plain[100..180]] {
                let found = decode(json!({"mono": false}), &[lead, &plain].concat()).unwrap();
                assert_eq!(found, expected, "{name}");
            }
        }
        let far = [&vec![0; 1 << 16], &file("mono.mp3")[..]].concat();
        assert!(refusal(&far).contains("it starts with the bytes"));
    }

    #[test]
    fn rejects_wav_that_contradicts_itself() {
        let mut padded = file("s24.wav");
        padded[32] = 4;
        let message = refusal(&padded);
        assert!(message.contains("samples of 24 bits in 1 channels take 3 bytes, but it says 4"), "{message}");
        padded[32] = 0;
        assert_eq!(decode(json!({}), &padded).unwrap(), decode(json!({}), &file("s24.wav")).unwrap());
    }

    /// Of the same structure.
    #[test]
    fn decodes_bw64_as_rf64() {
        for name in ["rf64.wav", "rf64-odd.wav", "rf64-list.wav"] {
            let rf64 = file(name);
            let bw64 = [b"BW64", &rf64[4..]].concat();
            assert_eq!(decode(json!({}), &bw64).unwrap(), decode(json!({}), &rf64).unwrap());
        }
    }

    #[test]
    fn rejects_too_long_audio() {
        let limit = json!({"max_duration": 1});
        let too_long = |bytes: &[u8]| decode(limit.clone(), bytes).unwrap_err().to_string();
        // A file says that it is long.
        let mut flac = file("s16.flac");
        flac[21] |= 0xf;
        assert!(refusal(&flac).contains("at least 4026532.2 seconds long; at most 600.0 are decoded"));
        // The header has no length, or a wrong one: decoded samples are counted.
        assert!(too_long(&endless_wav(20_000)).contains("the sound is at least 2.5 seconds"));
        let mut mp3 = file("silence.mp3");
        let tag = mp3.windows(4).position(|tag| tag == b"Xing").unwrap();
        mp3[tag..tag + 4].fill(0);
        let endless = mp3.repeat(20);
        assert!(too_long(&endless).contains("at most 1.0 are decoded"));
        assert!(decode(json!({"max_duration": 60}), &endless).unwrap().len() > 100_000);
        let mut flac = file("silence.flac");
        flac[21] &= 0xf0;
        flac[22..26].fill(0);
        assert_eq!(decode(json!({}), &flac).unwrap().shape(), [9000], "it need not say");
        let step = DecodeAudio::new(Options::default(), 5000);
        let outcome = step.run(vec![Some(flac.into())], &mut Context::default());
        assert!(outcome.unwrap_err().to_string().contains("at most 0.2 are decoded"));
        // Samples without end at a rate without bounds.
        let mut wav = file("u8.wav");
        wav[24..28].fill(0xff);
        assert!(refusal(&wav).contains("sample rate is 4294967295 Hz"));
        assert!(reference::build(builtin(), json!({"max_duration": 0})).is_err());
        assert!(reference::build(builtin(), json!({"max_duration": u32::MAX})).is_err());
    }

    /// Silence is packed tightly: a file could hold much more than it says, which was counted.
    #[test]
    fn decodes_no_more_than_the_header_states() {
        let mut flac = file("silence.flac");
        flac[21] &= 0xf0;
        flac[22..26].copy_from_slice(&10_u32.to_be_bytes());
        assert!(refusal(&flac).contains("it says that it has 10 samples, but there are"));
        assert!(refusal(&flac).contains("or more"));
        let mut ogg = file("mono.ogg");
        let starts: Vec<_> = (0..ogg.len() - 4).filter(|at| &ogg[*at..at + 4] == b"OggS").collect();
        for start in starts {
            ogg[start + 6..start + 14].copy_from_slice(&100_u64.to_le_bytes());
        }
        with_checksums(&mut ogg);
        assert_eq!(decode(json!({}), &ogg).unwrap().len(), 100);
    }

    #[test]
    fn truncated_files_never_panic() {
        for name in ["s16.wav", "s16.flac", "mono.ogg", "mono.mp3", "extensible.wav"] {
            let whole = file(name);
            let frames = decode(json!({}), &whole).unwrap().len();
            for length in (0..whole.len()).step_by(31) {
                match decode(json!({}), &whole[..length]) {
                    Ok(tensor) => assert!(tensor.len() <= frames && !name.ends_with("flac"), "{name} {length}"),
                    Err(error) => assert!(matches!(error, StepFailure::InvalidInput(_)), "{error}"),
                }
            }
        }
        assert!(refusal(&file("mono.ogg")[..4000]).contains("ends before the sound does"));
        let flac = file("s16.flac");
        assert!(refusal(&flac[..flac.len() - 9]).contains("a damaged FLAC file"));
    }

    /// Gives each page of an Ogg file its checksum again.
    fn with_checksums(bytes: &mut [u8]) {
        let mut rest = bytes;
        while rest.len() > 27 {
            let lengths = rest.get(27..27 + usize::from(rest[26])).unwrap_or_default();
            let size = 27 + lengths.len() + lengths.iter().map(|length| usize::from(*length)).sum::<usize>();
            let size = size.min(rest.len());
            let (page, after) = rest.split_at_mut(size);
            page[22..26].fill(0);
            let sum = page.iter().fold(0_u32, |sum, byte| {
                (0..8).fold(sum ^ u32::from(*byte) << 24, |sum, _| (sum << 1) ^ (0x04c1_1db7 * (sum >> 31)))
            });
            page[22..26].copy_from_slice(&sum.to_le_bytes());
            rest = after;
        }
    }

    #[test]
    fn mutated_files_never_panic() {
        let mut random = reference::random();
        for name in
            ["s24.wav", "with-a-list.wav", "s16.flac", "noise.flac", "mono.ogg", "stereo.ogg", "mono.mp3", "stereo.mp3"]
        {
            let whole = file(name);
            for _ in 0..60 {
                let mut bytes = whole.clone();
                for _ in 0..=random(6) {
                    let near = [60, 700, usize::MAX][random(3)];
                    let at = random(bytes.len().min(near));
                    bytes[at] = [0, 0xff, random(256) as u8, bytes[at] ^ (1 << random(8))][random(4)];
                }
                if name.ends_with("ogg") {
                    with_checksums(&mut bytes);
                }
                let _ = decode::size(&bytes, false);
                match decode(json!({"mono": random(2) == 0, "max_duration": 10}), &bytes) {
                    Ok(tensor) => assert!(tensor.metadata.sample_rate.is_some()),
                    Err(error) => assert!(matches!(error, StepFailure::InvalidInput(_)), "{error}"),
                }
            }
        }
    }

    #[test]
    fn stops_at_the_deadline() {
        let step = DecodeAudio::new(Options::default(), MAX_VALUES);
        for name in ["s16.wav", "s16.flac", "mono.ogg", "mono.mp3"] {
            let mut context = Context { deadline: Some(Instant::now()), ..Context::default() };
            let outcome = step.run(vec![Some(file(name).into())], &mut context);
            assert_eq!(outcome, Err(StepFailure::Timeout), "{name}");
        }
    }

    /// Components are charged for their calls afterwards, so they get less memory beforehand.
    #[test]
    fn components_cannot_decode_long_audio() {
        let long: Value = endless_wav(MAX_VALUES_IN_COMPONENT + 1).into();
        let run = |site: &OptionOrigin<'_>| {
            let step = reference::build_at(builtin(), json!({"max_duration": 86_400}), site).unwrap();
            step.run(vec![Some(long.clone())], &mut Context::default())
        };
        let files = gpux_core::ProjectFiles::new(".", false);
        assert!(run(&OptionOrigin::Component).unwrap_err().to_string().contains("max_duration"));
        assert!(run(&OptionOrigin::folder(&files)).is_ok());
    }

    #[test]
    fn estimates_memory_before_decoding() {
        let step = DecodeAudio::new(Options::default(), MAX_VALUES);
        for (name, values) in [("s16.wav", 700), ("s16.flac", 5000), ("mono.ogg", 6000), ("mono.mp3", 6000)] {
            let bytes = file(name);
            let least = values * 4 + bytes.len();
            let told = step.buffers(&[Some(bytes.into())]);
            // Code books are counted apart from the samples.
            let books = if name.ends_with("ogg") { 4 << 20 } else { 0 };
            assert!((least..4 * least + books).contains(&told), "{name}: {told}");
        }
        assert!(step.infer(&[Some(Kind::Text)]).is_err());
        let text = vec![Some("sound.wav".into())];
        assert!(step.run(text, &mut Context::default()).unwrap_err().to_string().contains("takes bytes"));
        assert!(step.run(vec![None], &mut Context::default()).is_err());
    }
}
