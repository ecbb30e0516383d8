//! `pad-or-trim`: a sound of any length → one of a certain length.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::decode::MAX_VALUES;
use super::sound::{self, Sound};
use crate::deadline::{Deadline, DeadlineExceeded, ELEMENTS_PER_CHECK};
use crate::operation::{BuiltinStep, Inputs, Operation};
use crate::ports;
use gpux_core::{Builtin, Dim, Group, Kind, Signature, StepFailure, Tensor, TensorKind, Value};

/// Options of `pad-or-trim`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Options {
    /// Samples that are wanted, such as 480000 for 30 seconds at 16 kHz, at most 134217728. Required.
    #[schemars(range(min = 1, max = 134_217_728))]
    length: usize,
}

/// Cuts a float32 sound, `[samples]` or `[channels, samples]`, to a length, or fills it up with silence
/// behind.
///
/// Follows OpenAI Whisper's `pad_or_trim`.
struct PadOrTrim {
    length: usize,
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "pad-or-trim",
        summary: "Brings a sound to a length, with silence behind or by cutting",
        group: Group::Audio,
        follows: "OpenAI Whisper: pad_or_trim",
        example: "pad-or-trim: { length: 16000 }",
        schema: || schemars::schema_for!(Options),
        build: |options, _| Ok(Box::new(PadOrTrim::new(&ports::options(options)?))),
    }
}

impl PadOrTrim {
    fn new(options: &Options) -> BuiltinStep<Self> {
        let length = options.length;
        let output = sound::port(&format!("the same, of {length} samples"));
        let signature = Signature::unary(sound::port("a sound"), output);
        BuiltinStep::new(signature, json!(options), Self { length })
    }
}

impl Operation for PadOrTrim {
    fn infer_tensor(&self, given: &TensorKind, outputs: &mut Vec<Kind>) -> Result<(), String> {
        sound::set_length(given, Dim::Fixed(self.length), outputs)
    }

    fn run(&self, mut inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        let tensor = inputs.tensor()?;
        let sound = Sound::new(&tensor, "pad-or-trim")?;
        if sound.frames == self.length {
            return Ok(vec![tensor.into()]);
        }
        let values = self.length.checked_mul(sound.channels.unwrap_or(1)).filter(|values| *values <= MAX_VALUES);
        let Some(values) = values else {
            let message = format!("pad-or-trim gives at most {MAX_VALUES} values; there are too many channels");
            return Err(StepFailure::InvalidInput(message));
        };
        let output = pad_or_trim_to(sound, self.length, values, deadline)?;
        let shape = sound.shape_with(&[self.length]);
        Ok(vec![Tensor::new(shape, output)?.with_metadata(tensor.metadata).into()])
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
