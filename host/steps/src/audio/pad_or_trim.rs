//! `pad-or-trim`: a sound of any length → one of a certain length.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::decode::MAX_VALUES;
use super::sound::{self, Sound};
use crate::deadline::{Deadline, DeadlineExceeded, ELEMENTS_PER_CHECK};
use crate::ports;
use gpux_core::{
    BuildError, Builtin, Context, Dim, Group, Kind, Mismatch, Signature, Step, StepFailure, Tensor, Value,
};

/// Options of `pad-or-trim`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Options {
    /// Samples that are wanted, such as 480000 for 30 seconds at 16 kHz. Required.
    length: NonZeroU32,
}

/// Cuts a float32 sound, `[samples]` or `[channels, samples]`, to a length, or fills it up with silence
/// behind.
///
/// Follows OpenAI Whisper's `pad_or_trim`.
struct PadOrTrim {
    length: usize,
    signature: Signature,
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "pad-or-trim",
        summary: "Brings a sound to a length, with silence behind or by cutting",
        group: Group::Audio,
        follows: "OpenAI Whisper: pad_or_trim",
        example: "pad-or-trim: { length: 16000 }",
        schema: || schemars::schema_for!(Options),
        build: |options, _| Ok(Box::new(PadOrTrim::new(&ports::options(options)?)?)),
    }
}

impl PadOrTrim {
    fn new(options: &Options) -> Result<Self, BuildError> {
        let length = options.length.get() as usize;
        if length > MAX_VALUES {
            return Err(BuildError::option("length", format!("`length` is {length}; at most {MAX_VALUES} are given")));
        }
        let output = sound::port(&format!("the same, of {length} samples"));
        Ok(Self { length, signature: Signature::unary(sound::port("a sound"), output) })
    }
}

impl Step for PadOrTrim {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn infer(&self, inputs: &[Option<Kind>]) -> Result<Vec<Kind>, Mismatch> {
        sound::with_length(&self.signature, inputs, Dim::Fixed(self.length))
    }

    fn run(&self, inputs: Vec<Option<Value>>, context: &mut Context) -> Result<Vec<Value>, StepFailure> {
        let tensor = ports::first_tensor(inputs, "audio")?;
        let sound = Sound::new(&tensor, "pad-or-trim")?;
        if sound.frames == self.length {
            return Ok(vec![tensor.into()]);
        }
        let values = self.length.checked_mul(sound.channels.unwrap_or(1)).filter(|values| *values <= MAX_VALUES);
        let Some(values) = values else {
            let message = format!("pad-or-trim gives at most {MAX_VALUES} values; there are too many channels");
            return Err(StepFailure::InvalidInput(message));
        };
        let output = pad_or_trim_to(sound, self.length, values, &Deadline::from_context(context))?;
        let shape = sound.shape_with(&[self.length]);
        Ok(vec![Tensor::new(shape, output)?.with_metadata(tensor.metadata).into()])
    }

    fn details(&self) -> serde_json::Value {
        serde_json::json!({ "length": self.length })
    }
}

/// Each channel cut or filled up to `length` samples: `values` in all.
fn pad_or_trim_to(
    sound: Sound<'_>,
    length: usize,
    values: usize,
    deadline: &Deadline,
) -> Result<Vec<f32>, DeadlineExceeded> {
    let mut output = Vec::with_capacity(values);
    for (place, channel) in sound.channels().enumerate() {
        for block in channel[..channel.len().min(length)].chunks(ELEMENTS_PER_CHECK) {
            deadline.check_after(block.len())?;
            output.extend_from_slice(block);
        }
        let end = (place + 1) * length;
        while output.len() < end {
            let block = ELEMENTS_PER_CHECK.min(end - output.len());
            deadline.check_after(block)?;
            output.resize(output.len() + block, 0.0);
        }
    }
    Ok(output)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn stops_at_the_deadline() {
        const MANY: usize = 3_000_000;
        let (short, long) = ([1.0, 2.0], vec![0.5; MANY]);
        for (samples, length) in [(&short[..], MANY), (&long, MANY - 1)] {
            let sound = Sound { samples, channels: None, frames: samples.len() };
            let whole = pad_or_trim_to(sound, length, length, &Deadline::default()).unwrap();
            assert_eq!((whole.len(), whole[0]), (length, samples[0]));
            assert_eq!(pad_or_trim_to(sound, length, length, &Deadline::exceeded_after(1)), Err(DeadlineExceeded));
            assert_eq!(pad_or_trim_to(sound, length, length, &Deadline::exceeded_after(9)).unwrap(), whole);
        }
    }
}
