//! `mono`: the channels of a sound → their mean.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::sound::{self, Sound};
use crate::deadline::{Deadline, DeadlineExceeded, ELEMENTS_PER_CHECK};
use crate::operation::{self, BuiltinStep, Inputs, Operation};
use crate::ports;
use gpux_core::{Builtin, Dim, ElementType, Group, Kind, Mismatch, Signature, StepFailure, Tensor, TensorKind, Value};

/// `mono` takes no options.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Options {}

/// Mixes the channels of a float32 sound, `[channels, samples]`, into their mean, `[samples]`. A sound
/// without an axis of channels passes as it is.
///
/// Follows `librosa.to_mono`.
struct Mono;

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "mono",
        summary: "Mixes the channels of a sound into one",
        group: Group::Audio,
        follows: "librosa: to_mono",
        example: "mono",
        schema: || schemars::schema_for!(Options),
        build: |options, _| {
            let Options {} = ports::options(options)?;
            let signature = Signature::unary(sound::port("a sound"), sound::port("[samples]"));
            Ok(Box::new(BuiltinStep::new(signature, json!({}), Mono)))
        },
    }
}

impl Operation for Mono {
    fn infer(&self, signature: &Signature, inputs: &[Option<Kind>]) -> Result<Vec<Kind>, Mismatch> {
        let given = operation::known_tensor(inputs);
        let shape =
            given.map(|given| sound::known_shape(given).map_err(|why| operation::mismatch(signature, given, why)));
        let samples = shape.transpose()?.flatten().and_then(<[_]>::last).cloned().unwrap_or(Dim::Dynamic);
        Ok(vec![Kind::Tensor(TensorKind::shaped(ElementType::Float32, vec![samples]))])
    }

    fn run(&self, mut inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        let tensor = inputs.tensor()?;
        let sound = Sound::new(&tensor, "mono")?;
        let count = match sound.channels {
            None => return Ok(vec![tensor.into()]),
            Some(0) => return Err(StepFailure::InvalidInput("mono takes a sound, but it has no channel".to_owned())),
            Some(1) => return Ok(vec![tensor.clone().reshape([sound.frames])?.into()]),
            Some(count) => count,
        };
        let mean = mean(sound, count, deadline)?;
        Ok(vec![Tensor::new([sound.frames], mean)?.with_metadata(tensor.metadata).into()])
    }
}

/// The mean of this many channels.
fn mean(sound: Sound<'_>, channels: usize, deadline: &Deadline) -> Result<Vec<f32>, DeadlineExceeded> {
    let mut mean = Vec::with_capacity(sound.frames);
    for start in (0..sound.frames).step_by(ELEMENTS_PER_CHECK) {
        let end = sound.frames.min(start + ELEMENTS_PER_CHECK);
        for (number, channel) in sound.channels().enumerate() {
            deadline.check_after(end - start)?;
            let samples = &channel[start..end];
            if number == 0 {
                mean.extend_from_slice(samples);
                continue;
            }
            for (mean, sample) in mean[start..].iter_mut().zip(samples) {
                *mean += sample;
            }
        }
        for mean in &mut mean[start..] {
            *mean /= channels as f32;
        }
    }
    Ok(mean)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn stops_at_the_deadline() {
        let samples: Vec<_> = (0..2_500_000).map(|sample| sample as f32).collect();
        let sound = Sound { samples: &samples, channels: Some(2), frames: samples.len() / 2 };
        let whole = mean(sound, 2, &Deadline::default()).unwrap();
        assert_eq!((whole.len(), whole[0], whole[999_999]), (1_250_000, 625_000.0, 1_624_999.0));
        assert_eq!(mean(sound, 2, &Deadline::exceeded_after(1)), Err(DeadlineExceeded));
        assert_eq!(mean(sound, 2, &Deadline::exceeded_after(9)).unwrap(), whole);
    }
}
