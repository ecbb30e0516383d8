//! `frame`: a sound → its stretches of one length.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::decode::MAX_VALUES;
use super::sound::{self, Sound};
use crate::deadline::Deadline;
use crate::operation::{BuiltinStep, Inputs, Operation};
use crate::ports;
use gpux_core::{Builtin, Dim, ElementType, Group, Kind, Signature, StepFailure, Tensor, TensorKind, Value};

/// Options of `frame`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Options {
    /// Samples of a frame. Required.
    frame_length: NonZeroU32,
    /// Samples from the start of a frame to that of the next. Required.
    hop_length: NonZeroU32,
    /// Where the axis of frames lies: `last` (default) gives `[frame_length, frames]`, librosa's `axis=-1`; `first` gives
    /// `[frames, frame_length]`, librosa's `axis=0`.
    #[serde(default)]
    frames: Axis,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Axis {
    #[default]
    Last,
    First,
}

/// Cuts a float32 sound, `[samples]` or `[channels, samples]`, into frames that may overlap. Samples at the
/// end that fill no frame are dropped.
///
/// Follows `librosa.util.frame`.
struct Frame {
    options: Options,
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "frame",
        summary: "Cuts a sound into overlapping frames",
        group: Group::Audio,
        follows: "librosa: util.frame",
        example: "frame: { frame_length: 400, hop_length: 160 }",
        schema: || schemars::schema_for!(Options),
        build: |options, _| {
            let options: Options = ports::options(options)?;
            let signature = Signature::unary(sound::port("a sound"), sound::port("its frames"));
            Ok(Box::new(BuiltinStep::new(signature, json!(options), Frame { options })))
        },
    }
}

impl Frame {
    /// Frames of a sound of this many samples, or why there are none.
    fn count(&self, samples: usize) -> Result<usize, String> {
        let (length, hop) = (self.options.frame_length.get() as usize, self.options.hop_length.get() as usize);
        match samples.checked_sub(length) {
            Some(rest) => Ok(rest / hop + 1),
            None => Err(format!("a frame has {length} samples, but the sound has {samples}")),
        }
    }

    fn arrange<T>(&self, length: T, frames: T) -> [T; 2] {
        match self.options.frames {
            Axis::Last => [length, frames],
            Axis::First => [frames, length],
        }
    }
}

impl Operation for Frame {
    fn infer_tensor(&self, given: &TensorKind, outputs: &mut Vec<Kind>) -> Result<(), String> {
        let Some(shape) = sound::known_shape(given)? else { return Ok(()) };
        let frames = match shape.last().and_then(ports::fixed) {
            Some(samples) => Dim::Fixed(self.count(samples)?),
            None => Dim::Dynamic,
        };
        let mut dims = shape[..shape.len() - 1].to_vec();
        dims.extend(self.arrange(Dim::Fixed(self.options.frame_length.get() as usize), frames));
        outputs[0] = Kind::Tensor(TensorKind::shaped(ElementType::Float32, dims));
        Ok(())
    }

    fn run(&self, mut inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        let tensor = inputs.tensor()?;
        let sound = Sound::new(&tensor, "frame")?;
        let frames = self.count(sound.frames).map_err(StepFailure::InvalidInput)?;
        let (length, hop) = (self.options.frame_length.get() as usize, self.options.hop_length.get() as usize);
        let values = frames.checked_mul(length).and_then(|values| values.checked_mul(sound.channels.unwrap_or(1)));
        let Some(values) = values.filter(|values| *values <= MAX_VALUES) else {
            let message = format!("frame gives at most {MAX_VALUES} values, but {frames} frames of {length} are more");
            return Err(StepFailure::InvalidInput(message));
        };
        let mut output = Vec::with_capacity(values);
        for channel in sound.channels() {
            match self.options.frames {
                Axis::First => {
                    for frame in channel.windows(length).step_by(hop) {
                        deadline.check_after(length)?;
                        output.extend_from_slice(frame);
                    }
                }
                Axis::Last => {
                    for place in 0..length {
                        deadline.check_after(frames)?;
                        output.extend(channel[place..].iter().step_by(hop).take(frames));
                    }
                }
            }
        }
        let shape = sound.shape_with(&self.arrange(length, frames));
        Ok(vec![Tensor::new(shape, output)?.with_metadata(tensor.metadata).into()])
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;
    use crate::reference::step;
    use gpux_core::Context;

    #[test]
    fn rejects_unframable_inputs() {
        let run = |options: serde_json::Value, shape: &[usize]| {
            let tensor = Tensor::zeros(ElementType::Float32, shape).unwrap();
            step("frame", options).run(vec![Some(tensor.into())], &mut Context::default())
        };
        assert!(
            run(json!({"frame_length": 4, "hop_length": 1}), &[3]).unwrap_err().to_string().contains("the sound has 3")
        );
        assert!(run(json!({"frame_length": 4, "hop_length": 1}), &[0]).is_err());
        assert!(
            run(json!({"frame_length": 60_000, "hop_length": 1}), &[120_000])
                .unwrap_err()
                .to_string()
                .contains("at most")
        );
        assert!(run(json!({"frame_length": u32::MAX, "hop_length": u32::MAX}), &[10]).is_err());
        assert!(run(json!({"frame_length": 2, "hop_length": 1}), &[0, 5]).is_ok());
        assert!(crate::reference::build(builtin(), json!({"frame_length": 0, "hop_length": 1})).is_err());
        let known = |samples| {
            let kind = Kind::Tensor(TensorKind::shaped(ElementType::Float32, [Dim::Fixed(samples)]));
            step("frame", json!({"frame_length": 4, "hop_length": 2, "frames": "first"})).infer(&[Some(kind)])
        };
        assert_eq!(known(9).unwrap()[0].to_string(), "tensor float32[3, 4]");
        assert!(known(3).is_err());
    }
}
