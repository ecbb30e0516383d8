//! `decode-audio`: the bytes of a sound file → samples.

use std::panic::{AssertUnwindSafe, catch_unwind};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::decode::{self, Bounds, MAX_VALUES};
use crate::builtin::ports;
use crate::pipeline::{
    BuildError, Builtin, Context, Dim, ElementType, Group, Kind, Port, Signature, Site, Step, StepFailure, TensorKind,
    Value,
};

/// The most values for a component, whose memory is counted only afterwards: 64 MiB.
const MAX_VALUES_IN_COMPONENT: usize = 16 << 20;

/// Highest value of the option `max_duration`, in seconds.
const MAX_DURATION: u32 = 86_400;

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
/// Follows `librosa.load(file, sr=None, mono=…)`, which reads through libsndfile: WAV (PCM of 8, 16, 24
/// and 32 bits, floats, A-law, µ-law) and FLAC are identical to it, MP3 and Vorbis are as far away as
/// the rounding of two decoders. What an MP3 encoder put before and behind the sound is cut off where
/// the file says how much it is. A sound of one channel has two axes too without `mono`, unlike librosa's.
struct DecodeAudio {
    options: Options,
    max_values: usize,
    signature: Signature,
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
            let max_values = if matches!(site, Site::Component) { MAX_VALUES_IN_COMPONENT } else { MAX_VALUES };
            Ok(Box::new(DecodeAudio::new(ports::options(options)?, max_values)?))
        },
    }
}

impl DecodeAudio {
    fn new(options: Options, max_values: usize) -> Result<Self, BuildError> {
        if !(1..=MAX_DURATION).contains(&options.max_duration) {
            let message = format!("`max_duration` is {}, not 1 to {MAX_DURATION} seconds", options.max_duration);
            return Err(BuildError::option("max_duration", message));
        }
        let axes = if options.mono { vec![Dim::Dynamic] } else { vec![Dim::Dynamic; 2] };
        let shape = if options.mono { "[samples]" } else { "[channels, samples]" };
        let samples = TensorKind::shaped(ElementType::Float32, axes);
        let signature = Signature::unary(
            Port { description: "a WAV, FLAC, MP3 or Ogg Vorbis file".into(), ..Port::new("audio", Kind::Bytes) },
            Port {
                description: format!("its samples, -1 to 1, {shape}"),
                ..Port::new("audio", Kind::Tensor(samples))
            },
        );
        Ok(Self { options, max_values, signature })
    }
}

impl Step for DecodeAudio {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        let Some(Some(Value::Bytes(bytes))) = inputs.first() else { return 0 };
        // As in `run`: the reader may give up.
        let values = catch_unwind(AssertUnwindSafe(|| decode::values(bytes, self.options.mono))).unwrap_or(Some(0));
        // A larger one is refused before anything is taken for it.
        let values = values.map_or(self.max_values, |values| if values > self.max_values { 0 } else { values });
        // The channels are collected apart, and frames of FLAC are copied.
        let copies = if self.options.mono { 1 } else { 2 };
        values.saturating_mul(4 * copies).saturating_add(bytes.len())
    }

    fn run(&self, inputs: Vec<Option<Value>>, context: &mut Context) -> Result<Vec<Value>, StepFailure> {
        let bytes = match ports::first(inputs, "audio")? {
            Value::Bytes(bytes) => bytes,
            other => return Err(StepFailure::InvalidInput(format!("`audio` takes bytes, but gets {}", other.kind()))),
        };
        let bounds = Bounds {
            max_duration: self.options.max_duration,
            max_values: self.max_values,
            deadline: context.deadline,
        };
        // The decoders hold asserts about their input that a hostile file may find.
        let decoded = catch_unwind(AssertUnwindSafe(|| decode::decode(&bytes, self.options.mono, bounds)));
        let tensor = decoded.unwrap_or_else(|_| {
            let message = "not a sound: a damaged file: the decoder gave up on it";
            Err(StepFailure::InvalidInput(message.to_owned()))
        })?;
        Ok(vec![tensor.into()])
    }

    fn details(&self) -> serde_json::Value {
        serde_json::to_value(&self.options).unwrap_or_default()
    }
}
