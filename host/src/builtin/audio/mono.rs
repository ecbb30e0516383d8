//! `mono`: the channels of a sound → their mean.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::sound::{self, Sound};
use crate::builtin::ports;
use crate::pipeline::{
    Builtin, Context, ElementType, Group, Kind, Mismatch, Signature, Step, StepFailure, Tensor, TensorKind, Value,
};

/// `mono` takes no options.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Options {}

/// Mixes the channels of a float32 sound, `[channels, samples]`, into their mean, `[samples]`. A sound
/// without an axis of channels passes as it is.
///
/// Follows `librosa.to_mono`.
struct Mono {
    signature: Signature,
}

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
            Ok(Box::new(Mono { signature: Signature::unary(sound::port("a sound"), sound::port("[samples]")) }))
        },
    }
}

impl Step for Mono {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn infer(&self, inputs: &[Option<Kind>]) -> Result<Vec<Kind>, Mismatch> {
        let shape = sound::known(&self.signature, inputs)?.and_then(<[_]>::last).cloned();
        let shape = shape.unwrap_or(crate::pipeline::Dim::Dynamic);
        Ok(vec![Kind::Tensor(TensorKind::shaped(ElementType::Float32, vec![shape]))])
    }

    fn run(&self, inputs: Vec<Option<Value>>, _: &mut Context) -> Result<Vec<Value>, StepFailure> {
        let tensor = ports::first_tensor(inputs, "audio")?;
        let sound = Sound::of(&tensor, "mono")?;
        let count = match sound.channels {
            None => return Ok(vec![tensor.into()]),
            Some(0) => return Err(StepFailure::InvalidInput("mono takes a sound, but it has no channel".to_owned())),
            Some(1) => return Ok(vec![tensor.clone().reshape([sound.frames])?.into()]),
            Some(count) => count as f32,
        };
        let mut channels = sound.channels();
        let mut mean = channels.next().unwrap_or_default().to_vec();
        for channel in channels {
            for (mean, sample) in mean.iter_mut().zip(channel) {
                *mean += sample;
            }
        }
        for mean in &mut mean {
            *mean /= count;
        }
        Ok(vec![Tensor::new([sound.frames], mean)?.with_metadata(tensor.metadata).into()])
    }
}
