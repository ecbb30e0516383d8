//! `resample`: a sound → the same sound at another sample rate.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::decode::MAX_VALUES;
use super::filter_bank::{FilterBank, ratio, resampled_len};
use super::sound::{self, SharedCache, Sound};
use crate::deadline::Deadline;
use crate::operation::{BuiltinStep, Inputs, Operation};
use crate::ports;
use gpux_core::{Builtin, Dim, Group, Kind, Signature, StepFailure, Tensor, TensorKind, Value};

/// The largest number that the ratio of two rates may have in lowest terms. It decides how many filters there are,
/// and their length; two rates that people use have a hundredth of it.
const MAX_TERM: usize = 100_000;

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
}

/// The filters of the ratios (up, down) that arrived last, for every step: a service sees few. The largest take 9.6 MB.
static BANKS: SharedCache<(Method, usize, usize), FilterBank> = SharedCache::new(32 << 20);

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "resample",
        summary: "Brings a sound to another sample rate",
        group: Group::Audio,
        follows: "torchaudio: functional.resample; SciPy: signal.resample_poly",
        example: "resample: { to: 16000 }",
        schema: || schemars::schema_for!(Options),
        build: |options, _| Ok(Box::new(Resample::new(ports::options(options)?))),
    }
}

impl Resample {
    fn new(options: Options) -> BuiltinStep<Self> {
        let signature =
            Signature::unary(sound::port("a sound"), sound::port(&format!("the same at {} Hz", options.to)));
        BuiltinStep::new(signature, json!(options), Self { options })
    }

    fn rate(&self, tensor: &Tensor) -> Result<u32, StepFailure> {
        sound::rate(tensor, self.options.from, "from", "resample")
    }

    /// Values of the result, if there are not too many.
    fn values(&self, sound: Sound<'_>, from: u32) -> Option<usize> {
        let (up, down) = ratio(from, self.options.to);
        let values = resampled_len(sound.frames, up, down)?.checked_mul(sound.channels.unwrap_or(1))?;
        (values <= MAX_VALUES).then_some(values)
    }
}

impl Operation for Resample {
    fn infer_tensor(&self, given: &TensorKind, outputs: &mut Vec<Kind>) -> Result<(), String> {
        // How long it becomes depends on the rate, which only the tensor itself knows.
        sound::set_length(given, Dim::Dynamic, outputs)
    }

    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        let size = |tensor: &Tensor| {
            let from = self.rate(tensor).ok()?;
            let values = self.values(Sound::new(tensor, "resample").ok()?, from)?;
            Some(values.saturating_mul(size_of::<f32>()).saturating_add(FilterBank::size(from, self.options.to)))
        };
        ports::given_tensor(inputs).and_then(size).unwrap_or(0)
    }

    fn run(&self, mut inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        let mut tensor = inputs.tensor()?;
        let sound = Sound::new(&tensor, "resample")?;
        let (from, to) = (self.rate(&tensor)?, self.options.to);
        if from == to {
            tensor.metadata.sample_rate = Some(to);
            return Ok(vec![tensor.into()]);
        }
        let Some(values) = self.values(sound, from) else {
            let message = format!("resample gives at most {MAX_VALUES} values, but {from} to {to} Hz would give more");
            return Err(StepFailure::InvalidInput(message));
        };
        let (up, down) = ratio(from, to);
        if up.max(down) > MAX_TERM {
            return Err(StepFailure::InvalidInput(format!(
                "resample goes by a ratio of numbers up to {MAX_TERM}, but {from} to {to} Hz is {down} to {up} in lowest \
                 terms"
            )));
        }
        let method = self.options.method;
        let make = || match method {
            Method::Sinc => FilterBank::sinc(from, to, deadline),
            Method::Polyphase => FilterBank::polyphase(from, to, deadline),
        };
        let bank = BANKS.get_or_try((method, up, down), make, FilterBank::bytes)?;
        let mut output = Vec::with_capacity(values);
        for channel in sound.channels() {
            bank.resample(channel, &mut output, deadline)?;
        }
        let shape = sound.shape_with(&[resampled_len(sound.frames, up, down).unwrap_or(0)]);
        let mut metadata = tensor.metadata;
        metadata.sample_rate = Some(to);
        Ok(vec![Tensor::new(shape, output)?.with_metadata(metadata).into()])
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;
    use gpux_core::{BuildError, Context, ElementType, Step};

    fn build(options: serde_json::Value) -> Result<Box<dyn Step>, BuildError> {
        crate::reference::build(builtin(), options)
    }

    fn sound(rate: Option<u32>, shape: &[usize]) -> Tensor {
        let mut tensor = Tensor::zeros(ElementType::Float32, shape).unwrap();
        tensor.metadata.sample_rate = rate;
        tensor
    }

    #[test]
    fn handles_empty_and_invalid_inputs() {
        let step = build(serde_json::json!({"to": 16_000})).unwrap();
        let run = |tensor: Tensor| {
            let mut values = step.run(vec![Some(tensor.into())], &mut Context::default())?;
            Ok::<_, StepFailure>(values.remove(0).as_tensor().unwrap().clone())
        };
        for (shape, becomes) in
            [(vec![0], vec![0]), (vec![2, 0], vec![2, 0]), (vec![0, 3], vec![0, 2]), (vec![1], vec![1])]
        {
            let resampled = run(sound(Some(44_100), &shape)).unwrap();
            assert_eq!(resampled.shape(), becomes);
            assert_eq!(resampled.metadata.sample_rate, Some(16_000));
        }
        assert!(run(sound(None, &[5])).unwrap_err().to_string().contains("option `from`"));
        assert!(run(sound(Some(0), &[5])).unwrap_err().to_string().contains("gets 0 Hz"));
        assert!(run(sound(Some(u32::MAX), &[5])).is_err());
        assert!(run(sound(Some(8000), &[1, 2, 3])).unwrap_err().to_string().contains("[1, 2, 3]"));
        assert!(run(Tensor::new([1], vec![1_i16]).unwrap()).unwrap_err().to_string().contains("cast it first"));
        // A second of 1 Hz becomes 16000 samples.
        assert!(run(sound(Some(1), &[10_000])).unwrap_err().to_string().contains("at most 134217728 values"));
        let nan = Tensor::new([3], vec![0.0, f32::NAN, 0.0]).unwrap();
        assert_eq!(run(nan.with_metadata(sound(Some(8000), &[0]).metadata)).unwrap().shape(), [6]);
    }

    #[test]
    fn designs_filters_for_every_ratio() {
        for method in ["sinc", "polyphase"] {
            for (from, to) in [(50_000_u32, 1_u32), (1, 50_000), (47_999, 8000), (8000, 7999)] {
                let step = build(serde_json::json!({"to": to, "method": method})).unwrap();
                let mut values = step.run(vec![Some(sound(Some(from), &[4]).into())], &mut Context::default()).unwrap();
                let frames = (4 * u64::from(to)).div_ceil(u64::from(from)) as usize;
                assert_eq!(values.remove(0).as_tensor().unwrap().shape(), [frames]);
            }
        }
    }

    #[test]
    fn rejects_extreme_ratios() {
        for method in ["sinc", "polyphase"] {
            let step = build(serde_json::json!({"to": 16_000, "method": method})).unwrap();
            let run = |rate| step.run(vec![Some(sound(Some(rate), &[4]).into())], &mut Context::default());
            let told = run(383_987).unwrap_err().to_string();
            assert!(told.contains("383987 to 16000 Hz is 383987 to 16000"), "{told}");
            assert!(run(384_000).is_ok());
        }
    }

    #[test]
    fn filter_design_stops_at_the_deadline() {
        for method in ["sinc", "polyphase"] {
            let step = Resample::new(ports::options(json!({"to": 16_000, "method": method})).unwrap());
            let run = |deadline| {
                // Without samples, all that takes time are the filters.
                let inputs = vec![Some(sound(Some(47_999), &[0]).into())];
                step.operation.run(Inputs::new(&step.signature().inputs, inputs), &deadline)
            };
            assert_eq!(run(Deadline::exceeded_after(0)), Err(StepFailure::Timeout));
            assert!(run(Deadline::default()).is_ok());
            assert!(run(Deadline::exceeded_after(0)).is_ok(), "they are there");
        }
    }

    #[test]
    fn rejects_invalid_options() {
        assert!(build(serde_json::json!({})).is_err());
        assert!(build(serde_json::json!({"to": 0})).is_err());
        assert!(build(serde_json::json!({"to": 500_000})).err().unwrap().to_string().contains("384000"));
        assert!(build(serde_json::json!({"to": 8000, "from": 0})).is_err());
    }

    #[test]
    fn infers_axes() {
        let step = build(serde_json::json!({"to": 16_000})).unwrap();
        let infer = |element: ElementType, shape: &[Dim]| {
            let kind = Kind::Tensor(TensorKind::shaped(element, shape));
            step.infer(&[Some(kind)]).map(|kinds| kinds[0].to_string())
        };
        assert_eq!(infer(ElementType::Float32, &[Dim::Fixed(2), Dim::Fixed(9)]).unwrap(), "tensor float32[2, ?]");
        assert!(infer(ElementType::Float32, &[]).is_err());
        assert!(infer(ElementType::Int16, &[Dim::Dynamic]).is_err());
    }
}
