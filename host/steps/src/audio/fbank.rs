//! `fbank`: a sound → the logarithms of its mel bands over time, as Kaldi computes them.

use std::f32::consts::TAU;
use std::sync::Arc;

use realfft::num_complex::Complex32;
use realfft::{RealFftPlanner, RealToComplex};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::decode::MAX_VALUES;
use super::sound::{self, SharedCache, Sound};
use crate::deadline::Deadline;
use crate::operation::{BuiltinStep, Inputs, Operation};
use crate::ports;
use crate::simd::map_in_place;
use gpux_core::{
    BuildError, Builtin, Dim, ElementType, Group, Kind, Port, Signature, StepFailure, Tensor, TensorKind, Value,
};

/// Options of `fbank`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
struct Options {
    /// The sample rate, in hertz, of a sound whose metadata does not say it; a sound that says another one is
    /// refused. Default: what the metadata says.
    #[schemars(range(min = 1, max = 384_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    sample_rate: Option<u32>,
    /// Mel bands. Default: 80; at most 1024.
    #[schemars(range(min = 3, max = 1024))]
    num_mel_bins: usize,
    /// Milliseconds of a frame, more than 0 and at most 1000. Default: 25.
    #[schemars(range(max = 1000), extend("exclusiveMinimum" = 0))]
    frame_length: f32,
    /// Milliseconds from a frame to the next, more than 0 and at most 1000. Default: 10.
    #[schemars(range(max = 1000), extend("exclusiveMinimum" = 0))]
    frame_shift: f32,
    /// Lowest frequency, in hertz. Default: 20.
    #[schemars(range(min = 0))]
    low_freq: f32,
    /// Highest frequency, in hertz; 0 or less is that much below half the sample rate. Default: 0.
    high_freq: f32,
    /// The window: `povey` (default), `hamming`, `hanning`, `blackman` or `rectangular`.
    window_type: Window,
    /// How much of each sample is subtracted from the next one, 0 to 1. Default: 0.97.
    #[schemars(range(min = 0, max = 1))]
    preemph_coeff: f32,
    /// Whether the mean of each frame is subtracted. Default: true.
    remove_dc_offset: bool,
    /// Whether only whole frames are taken; else the sound is mirrored at its ends. Default: true.
    snip_edges: bool,
    /// Whether bands are energies instead of magnitudes. Default: true.
    use_power: bool,
    /// Whether the logarithms of the bands are given. Default: true.
    use_log_fbank: bool,
    /// Whether the logarithm of the frame's energy is given before its bands. Default: false.
    use_energy: bool,
    /// With `use_energy`: what lower energies are raised to, at least 0. Default: 0, none.
    #[schemars(range(min = 0))]
    energy_floor: f32,
    /// What each sample is multiplied by, 32768 for a model that was trained on samples of 16 bits. Default: 1.
    #[schemars(extend("exclusiveMinimum" = 0))]
    scale: f32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            sample_rate: None,
            num_mel_bins: 80,
            frame_length: 25.0,
            frame_shift: 10.0,
            low_freq: 20.0,
            high_freq: 0.0,
            window_type: Window::Povey,
            preemph_coeff: 0.97,
            remove_dc_offset: true,
            snip_edges: true,
            use_power: true,
            use_log_fbank: true,
            use_energy: false,
            energy_floor: 0.0,
            scale: 1.0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Window {
    Povey,
    Hamming,
    Hanning,
    Blackman,
    Rectangular,
}

impl Window {
    fn weights(self, length: usize) -> Vec<f32> {
        let step = f64::from(TAU) / (length - 1).max(1) as f64;
        let weight = |place: usize| {
            let angle = step * place as f64;
            match self {
                Self::Povey => (0.5 - 0.5 * angle.cos()).powf(0.85),
                Self::Hamming => 0.54 - 0.46 * angle.cos(),
                Self::Hanning => 0.5 - 0.5 * angle.cos(),
                Self::Blackman => 0.42 - 0.5 * angle.cos() + (0.5 - 0.42) * (2.0 * angle).cos(),
                Self::Rectangular => 1.0,
            }
        };
        (0..length).map(|place| weight(place) as f32).collect()
    }
}

/// Computes the mel bands of a float32 sound, `[samples]` or `[channels, samples]`: `[frames, num_mel_bins]`, or
/// `[channels, frames, num_mel_bins]`.
///
/// Follows Kaldi's `compute-fbank-feats` without dither, as `kaldi_native_fbank` and `torchaudio.compliance.kaldi.fbank`
/// do.
struct Fbank {
    options: Options,
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "fbank",
        summary: "Turns a sound into the mel bands of Kaldi",
        group: Group::Audio,
        follows: "kaldi_native_fbank: OnlineFbank",
        example: "fbank: { num_mel_bins: 80, scale: 32768 }",
        schema: || schemars::schema_for!(Options),
        build: |options, _| Ok(Box::new(Fbank::new(ports::options(options)?)?)),
    }
}

/// What the options and a rate become.
struct FbankTables {
    /// samples from a frame to the next
    shift: usize,
    window: Vec<f32>,
    transform: Arc<dyn RealToComplex<f32>>,
    /// the first bin of each band, and its weights
    bands: Vec<(usize, Vec<f32>)>,
}

/// The tables of the options and rates that arrived last, for every step.
static TABLES: SharedCache<(Options, u32), FbankTables> = SharedCache::new(8 << 20);

fn mel(hertz: f32) -> f32 {
    1127.0 * (1.0 + hertz / 700.0).ln()
}

impl FbankTables {
    fn new(options: &Options, rate: u32) -> Result<Self, String> {
        let rate = rate as f32;
        let samples = |milliseconds: f32| (rate * 0.001 * milliseconds) as usize;
        let (length, shift) = (samples(options.frame_length), samples(options.frame_shift));
        if length < 2 || shift == 0 {
            return Err(format!("at {rate} Hz a frame has {length} samples and comes {shift} after the one before it"));
        }
        let padded = length.next_power_of_two();
        let nyquist = 0.5 * rate;
        let low = options.low_freq;
        let high = if options.high_freq > 0.0 { options.high_freq } else { options.high_freq + nyquist };
        if low >= high || high > nyquist {
            return Err(format!(
                "at {rate} Hz the bands cannot go from {low} to {high} Hz: half the rate is {nyquist}"
            ));
        }

        let mels: Vec<_> = (0..padded / 2).map(|bin| mel(rate / padded as f32 * bin as f32)).collect();
        let (low, high) = (mel(low), mel(high));
        let step = (high - low) / (options.num_mel_bins + 1) as f32;
        let band = |band: usize| {
            let edge = |number: usize| low + number as f32 * step;
            let [left, center, right] = [edge(band), edge(band + 1), edge(band + 2)];
            let first = mels.partition_point(|mel| *mel <= left);
            let within = mels[first..].iter().take_while(|mel| **mel < right);
            let weights: Vec<_> = within
                .map(
                    |&mel| {
                        if mel <= center { (mel - left) / (center - left) } else { (right - mel) / (right - center) }
                    },
                )
                .collect();
            (first, weights)
        };
        let bands: Vec<_> = (0..options.num_mel_bins).map(band).collect();
        if bands.iter().any(|(_, weights)| weights.is_empty()) {
            let bands = options.num_mel_bins;
            return Err(format!(
                "{bands} bands are too many for {} frequencies; take fewer, or longer frames",
                padded / 2
            ));
        }
        let window = options.window_type.weights(length);
        Ok(Self { shift, window, transform: RealFftPlanner::new().plan_fft_forward(padded), bands })
    }

    fn bytes(&self) -> usize {
        // A transform has tables of about its own length.
        let weights: usize = self.bands.iter().map(|(_, weights)| size_of_val(weights.as_slice()) + 32).sum();
        size_of_val(self.window.as_slice()) + 32 * self.transform.len() + weights
    }

    /// Frames of a sound of this many samples.
    fn frames(&self, samples: usize, snip_edges: bool) -> usize {
        match samples.checked_sub(self.window.len()) {
            _ if !snip_edges => (samples + self.shift / 2) / self.shift,
            Some(rest) => rest / self.shift + 1,
            None => 0,
        }
    }

    /// Copies the samples of a frame to `to`.
    fn copy_frame(&self, channel: &[f32], frame: usize, snip_edges: bool, to: &mut [f32]) {
        let start = frame * self.shift;
        if snip_edges {
            to.copy_from_slice(&channel[start..][..to.len()]);
            return;
        }
        let (count, length) = (channel.len() as isize, to.len() as isize);
        let start = (start + self.shift / 2) as isize - length / 2;
        for (place, sample) in (start..).zip(to) {
            // Mirrored as often as it takes: there and back are two lengths.
            let place = place.rem_euclid(2 * count);
            let place = if place < count { place } else { 2 * count - 1 - place };
            *sample = channel[place as usize];
        }
    }
}

impl Fbank {
    fn new(options: Options) -> Result<BuiltinStep<Self>, BuildError> {
        let numbers = [
            ("frame_length", options.frame_length),
            ("frame_shift", options.frame_shift),
            ("low_freq", options.low_freq),
            ("high_freq", options.high_freq),
            ("energy_floor", options.energy_floor),
            ("scale", options.scale),
        ];
        if let Some((name, _)) = numbers.iter().find(|(_, number)| !number.is_finite()) {
            return Err(BuildError::option(name, "must be a finite number"));
        }
        if let Some(rate) = options.sample_rate {
            FbankTables::new(&options, rate).map_err(|why| BuildError::option("sample_rate", why))?;
        }
        let bands = Port { name: "features".to_owned(), ..sound::port("the bands, [frames, num_mel_bins]") };
        let signature = Signature::unary(sound::port("a sound"), bands);
        Ok(BuiltinStep::new(signature, json!(options), Self { options }))
    }

    /// Numbers of each frame.
    fn width(&self) -> usize {
        self.options.num_mel_bins + usize::from(self.options.use_energy)
    }

    fn rate(&self, tensor: &Tensor) -> Result<u32, StepFailure> {
        let rate = sound::rate(tensor, self.options.sample_rate, "sample_rate", "fbank")?;
        match self.options.sample_rate {
            Some(wanted) if wanted != rate => {
                let message = format!("fbank takes a sound of {wanted} Hz, but gets {rate} Hz; resample it");
                Err(StepFailure::InvalidInput(message))
            }
            _ => Ok(rate),
        }
    }

    /// Writes the numbers of each frame of a channel to `output`.
    fn compute(
        &self,
        tables: &FbankTables,
        channel: &[f32],
        output: &mut [f32],
        deadline: &Deadline,
    ) -> Result<(), StepFailure> {
        let options = &self.options;
        let length = tables.window.len();
        let mut buffer = tables.transform.make_input_vec();
        let mut spectrum = tables.transform.make_output_vec();
        let mut scratch = tables.transform.make_scratch_vec();
        let mut energies = vec![0.0; spectrum.len()];
        for (number, bands) in output.chunks_exact_mut(self.width()).enumerate() {
            deadline.check_after(buffer.len())?;
            let (frame, padding) = buffer.split_at_mut(length);
            padding.fill(0.0);
            tables.copy_frame(channel, number, options.snip_edges, frame);

            map_in_place(frame, |sample| sample * options.scale);
            if options.remove_dc_offset {
                let mean = frame.iter().sum::<f32>() / length as f32;
                map_in_place(frame, |sample| sample - mean);
            }
            let bands = match bands.split_first_mut() {
                Some((energy, bands)) if options.use_energy => {
                    let sum: f32 = frame.iter().map(|sample| sample * sample).sum();
                    *energy = sum.max(f32::EPSILON).max(options.energy_floor).ln();
                    bands
                }
                _ => bands,
            };
            if options.preemph_coeff > 0.0 {
                for place in (1..length).rev() {
                    frame[place] -= options.preemph_coeff * frame[place - 1];
                }
                frame[0] -= options.preemph_coeff * frame[0];
            }
            for (sample, weight) in frame.iter_mut().zip(&tables.window) {
                *sample *= weight;
            }

            // The lengths are those of the transform.
            let _ = tables.transform.process_with_scratch(&mut buffer, &mut spectrum, &mut scratch);
            for (energy, bin) in energies.iter_mut().zip(&spectrum) {
                let power: f32 = Complex32::norm_sqr(bin);
                *energy = if options.use_power { power } else { power.sqrt() };
            }
            for (band, (first, weights)) in bands.iter_mut().zip(&tables.bands) {
                let strength = sound::dot(&energies[*first..][..weights.len()], weights);
                *band = if options.use_log_fbank { strength.max(f32::EPSILON).ln() } else { strength };
            }
        }
        Ok(())
    }
}

impl Operation for Fbank {
    fn infer_tensor(&self, given: &TensorKind, outputs: &mut Vec<Kind>) -> Result<(), String> {
        let Some(shape) = sound::known_shape(given)? else { return Ok(()) };
        let tables = self.options.sample_rate.and_then(|rate| FbankTables::new(&self.options, rate).ok());
        let frames = match (tables, shape.last().and_then(ports::fixed)) {
            (Some(tables), Some(samples)) => Dim::Fixed(tables.frames(samples, self.options.snip_edges)),
            _ => Dim::Dynamic,
        };
        let mut dims = shape[..shape.len() - 1].to_vec();
        dims.extend([frames, Dim::Fixed(self.width())]);
        outputs[0] = Kind::Tensor(TensorKind::shaped(ElementType::Float32, dims));
        Ok(())
    }

    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        let Some(tensor) = ports::given_tensor(inputs) else { return 0 };
        let Ok(rate) = self.rate(tensor) else { return 0 };
        let samples = |milliseconds: f32| (f64::from(rate) * 0.001 * f64::from(milliseconds)) as usize;
        let (length, shift) = (samples(self.options.frame_length), samples(self.options.frame_shift).max(1));
        let frames =
            (tensor.len() / shift).saturating_add(tensor.shape().first().copied().unwrap_or(1)).saturating_add(1);
        // A frame, its spectrum and their tables; the bands, whose number the plan may not know.
        let frame = length.next_power_of_two().saturating_mul(128);
        frame.saturating_add(frames.saturating_mul(self.width()).saturating_mul(size_of::<f32>()))
    }

    fn run(&self, mut inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        let tensor = inputs.tensor()?;
        let sound = Sound::new(&tensor, "fbank")?;
        let rate = self.rate(&tensor)?;
        sound.check_finite("fbank")?;
        let make =
            || FbankTables::new(&self.options, rate).map_err(|why| StepFailure::InvalidInput(format!("fbank: {why}")));
        let tables = TABLES.get_or_try((self.options.clone(), rate), make, FbankTables::bytes)?;
        let frames = tables.frames(sound.frames, self.options.snip_edges);
        if frames == 0 {
            let message =
                format!("fbank: a frame has {} samples, but the sound has {}", tables.window.len(), sound.frames);
            return Err(StepFailure::InvalidInput(message));
        }
        let size = frames.checked_mul(self.width());
        let values = size.and_then(|size| size.checked_mul(sound.channels.unwrap_or(1)));
        let (Some(size), Some(values)) = (size, values.filter(|values| *values <= MAX_VALUES)) else {
            let message = format!("fbank gives at most {MAX_VALUES} values; {frames} frames are more");
            return Err(StepFailure::InvalidInput(message));
        };
        let mut output = vec![0.0; values];
        for (channel, bands) in sound.channels().zip(output.chunks_exact_mut(size)) {
            self.compute(&tables, channel, bands, deadline)?;
        }
        let shape = sound.shape_with(&[frames, self.width()]);
        Ok(vec![Tensor::new(shape, output)?.into()])
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;
    use gpux_core::{Context, Step};

    fn build(options: serde_json::Value) -> Result<Box<dyn Step>, BuildError> {
        crate::reference::build(builtin(), options)
    }

    fn run(options: serde_json::Value, shape: &[usize]) -> Result<Tensor, StepFailure> {
        let samples = (0..shape.iter().product()).map(|place| (place as f32 * 0.3).sin()).collect();
        let tensor: Tensor = Tensor::new(shape, samples).unwrap();
        let mut values = build(options).unwrap().run(vec![Some(tensor.into())], &mut Context::default())?;
        Ok(values.remove(0).as_tensor().unwrap().clone())
    }

    #[test]
    fn handles_short_and_invalid_inputs() {
        let rate = json!({"sample_rate": 16_000});
        let message = |options: serde_json::Value, shape: &[usize]| run(options, shape).unwrap_err().to_string();
        assert!(message(json!({}), &[800]).contains("option `sample_rate`"));
        assert!(message(rate.clone(), &[399]).contains("a frame has 400 samples, but the sound has 399"));
        assert!(message(rate.clone(), &[1, 1, 400]).contains("[channels, samples]"));
        assert_eq!(run(rate.clone(), &[2, 560]).unwrap().shape(), [2, 2, 80]);
        assert_eq!(run(rate, &[0, 560]).unwrap().shape(), [0, 2, 80]);
        let mirrored = json!({"sample_rate": 16_000, "snip_edges": false, "num_mel_bins": 23, "use_energy": true});
        assert_eq!(run(mirrored.clone(), &[90]).unwrap().shape(), [1, 24], "mirrored several times");
        assert!(message(mirrored, &[0]).contains("the sound has 0"));
    }

    #[test]
    fn rejects_invalid_options() {
        for (options, says) in [
            (json!({"frame_length": 0}), "frame_length"),
            (json!({"frame_shift": 1001}), "frame_shift"),
            (json!({"sample_rate": 16_000, "num_mel_bins": 1000}), "too many"),
            (json!({"sample_rate": 8000, "high_freq": 5000}), "half the rate is 4000"),
            (json!({"sample_rate": 8000, "high_freq": -3990}), "cannot go from"),
            (json!({"sample_rate": 20, "low_freq": 0}), "a frame has 0 samples"),
            (json!({"preemph_coeff": 2}), "preemph_coeff"),
            (json!({"scale": 0}), "scale"),
        ] {
            let message = build(options.clone()).err().map(|error| format!("{}: {error}", error.option.join(".")));
            assert!(message.as_ref().is_some_and(|message| message.contains(says)), "{options}: {message:?}");
        }
    }

    #[test]
    fn infers_frames() {
        let infer = |options: serde_json::Value, shape: &[Dim]| {
            let kind = Kind::Tensor(TensorKind::shaped(ElementType::Float32, shape));
            build(options).unwrap().infer(&[Some(kind)]).map(|kinds| kinds[0].to_string())
        };
        assert_eq!(infer(json!({}), &[Dim::Fixed(560)]).unwrap(), "tensor float32[?, 80]");
        assert_eq!(infer(json!({"sample_rate": 16_000}), &[Dim::Fixed(560)]).unwrap(), "tensor float32[2, 80]");
        assert!(infer(json!({}), &[]).is_err());
    }
}
