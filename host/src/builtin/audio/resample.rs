//! `resample`: a sound → the same sound at another sample rate.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::decode::{MAX_RATE, MAX_VALUES};
use super::filter_bank::{FilterBank, ratio, resampled};
use super::sound::{self, PerRate, Sound};
use crate::builtin::ports;
use crate::pipeline::{
    BuildError, Builtin, Context, Dim, ElementType, Group, Kind, Mismatch, Signature, Step, StepFailure, Tensor,
    TensorKind, Value,
};

/// Options of `resample`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Options {
    /// The sample rate that is wanted, in hertz, such as 16000. Required, at most 384000.
    #[schemars(range(min = 1, max = 384_000))]
    to: u32,
    /// The sample rate of a sound whose metadata does not say it, in hertz. No default: such a sound is
    /// refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 384_000))]
    from: Option<u32>,
    /// `sinc` (default): torchaudio's, a sinc of 6 zero crossings under a Hann window; `polyphase`: SciPy's, one
    /// of 10 under a Kaiser window, which cuts more sharply and takes longer.
    #[serde(default)]
    method: Method,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Method {
    #[default]
    Sinc,
    Polyphase,
}

/// Brings a float32 sound, `[samples]` or `[channels, samples]`, to another sample rate. The rate it has
/// is read from the tensor's metadata, where `decode-audio` put it.
///
/// Follows `torchaudio.functional.resample` with its defaults, which most code around speech models
/// calls, transformers' speech pipelines included; or `scipy.signal.resample_poly(x, to, from)`.
struct Resample {
    options: Options,
    signature: Signature,
    banks: PerRate<FilterBank>,
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "resample",
        summary: "Brings a sound to another sample rate",
        group: Group::Audio,
        follows: "torchaudio: functional.resample; SciPy: signal.resample_poly",
        example: "resample: { to: 16000 }",
        schema: || schemars::schema_for!(Options),
        build: |options, _| Ok(Box::new(Resample::new(ports::options(options)?)?)),
    }
}

impl Resample {
    fn new(options: Options) -> Result<Self, BuildError> {
        for (name, rate) in [("to", Some(options.to)), ("from", options.from)] {
            if let Some(rate) = rate.filter(|rate| !(1..=MAX_RATE).contains(rate)) {
                return Err(BuildError::option(name, format!("`{name}` is {rate}, not 1 to {MAX_RATE} Hz")));
            }
        }
        let signature =
            Signature::unary(sound::port("a sound"), sound::port(&format!("the same at {} Hz", options.to)));
        Ok(Self { options, signature, banks: PerRate::default() })
    }

    fn rate(&self, tensor: &Tensor) -> Result<u32, StepFailure> {
        sound::rate(tensor, self.options.from, "from", "resample")
    }

    /// Values of the result, if there are not too many.
    fn values(&self, sound: Sound<'_>, from: u32) -> Option<usize> {
        let (up, down) = ratio(from, self.options.to);
        let values = resampled(sound.frames, up, down)?.checked_mul(sound.channels.unwrap_or(1))?;
        (values <= MAX_VALUES).then_some(values)
    }
}

impl Step for Resample {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn infer(&self, inputs: &[Option<Kind>]) -> Result<Vec<Kind>, Mismatch> {
        let Some(shape) = sound::known(&self.signature, inputs)? else {
            return Ok(vec![self.signature.outputs[0].kind.clone()]);
        };
        // How long it becomes depends on the rate, which only the tensor itself knows.
        let mut shape = shape.to_vec();
        if let Some(last) = shape.last_mut() {
            *last = Dim::Dynamic;
        }
        Ok(vec![Kind::Tensor(TensorKind::shaped(ElementType::Float32, shape))])
    }

    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        let size = |tensor: &Tensor| {
            let from = self.rate(tensor).ok()?;
            let values = self.values(Sound::of(tensor, "resample").ok()?, from)?;
            Some(values.saturating_mul(size_of::<f32>()).saturating_add(FilterBank::size(from, self.options.to)))
        };
        ports::given_tensor(inputs).and_then(size).unwrap_or(0)
    }

    fn run(&self, inputs: Vec<Option<Value>>, context: &mut Context) -> Result<Vec<Value>, StepFailure> {
        let mut tensor = ports::first_tensor(inputs, "audio")?;
        let sound = Sound::of(&tensor, "resample")?;
        let (from, to) = (self.rate(&tensor)?, self.options.to);
        if from == to {
            tensor.metadata.sample_rate = Some(to);
            return Ok(vec![tensor.into()]);
        }
        let Some(values) = self.values(sound, from) else {
            let message = format!("resample gives at most {MAX_VALUES} values, but {from} to {to} Hz would give more");
            return Err(StepFailure::InvalidInput(message));
        };
        let bank = self.banks.get(from, || match self.options.method {
            Method::Sinc => FilterBank::sinc(from, to),
            Method::Polyphase => FilterBank::polyphase(from, to),
        });
        let mut output = Vec::with_capacity(values);
        for channel in sound.channels() {
            if context.time_left().is_some_and(|left| left.is_zero()) {
                return Err(StepFailure::Timeout);
            }
            bank.resample(channel, &mut output);
        }
        let (up, down) = ratio(from, to);
        let shape = sound.shape_with(&[resampled(sound.frames, up, down).unwrap_or(0)]);
        let mut metadata = tensor.metadata;
        metadata.sample_rate = Some(to);
        Ok(vec![Tensor::new(shape, output)?.with_metadata(metadata).into()])
    }

    fn details(&self) -> serde_json::Value {
        serde_json::to_value(&self.options).unwrap_or_default()
    }
}
