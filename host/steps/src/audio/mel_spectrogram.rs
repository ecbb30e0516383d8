//! `mel-spectrogram`: a sound → how strong its mel bands are over time.

use serde_json::json;

use super::decode::MAX_VALUES;
use super::mel::{
    DecibelOptions, EdgePadding, Filters, FrameLayout, Method, Norm, Options, Reference, Scale, Spectrum, TopDb,
    Unbounded, to_decibels, to_whisper,
};
use super::sound::{self, SharedCache, Sound};
use crate::deadline::Deadline;
use crate::operation::{BuiltinStep, Inputs, Operation};
use crate::ports;
use gpux_core::{
    BuildError, Builtin, Dim, ElementType, Group, Kind, Signature, StepFailure, Tensor, TensorKind, Value,
};

/// Computes the mel spectrogram of a float32 sound: `[samples]` becomes `[n_mels, frames]`, `[channels, samples]`
/// becomes `[channels, n_mels, frames]`.
///
/// Follows `librosa.feature.melspectrogram` with a Hann window, and `librosa.power_to_db` with `db`; or, with
/// `method: whisper`, transformers' `WhisperFeatureExtractor`, whose result for one sound is `[n_mels, 3000]`.
struct MelSpectrogram {
    options: Options,
    scale: Scale,
    window: FrameLayout,
    after: PostProcessing,
}

/// The filters of the scales and rates that arrived last, for every step.
static FILTERS: SharedCache<(Scale, u32), Filters> = SharedCache::new(8 << 20);

/// The power of the magnitudes: their squares come out of the transform, others are computed.
enum Power {
    Energy,
    Magnitude,
    Of(f32),
}

impl Power {
    fn new(power: f64) -> Self {
        let is = |wanted: f64| (power - wanted).abs() < f64::EPSILON;
        match power {
            _ if is(2.0) => Self::Energy,
            _ if is(1.0) => Self::Magnitude,
            power => Self::Of(power as f32),
        }
    }

    /// Makes this power of energies, in place.
    fn raise(&self, energies: &mut [f32]) {
        match self {
            Self::Energy => {}
            Self::Magnitude => energies.iter_mut().for_each(|energy| *energy = energy.sqrt()),
            Self::Of(power) => energies.iter_mut().for_each(|energy| *energy = energy.sqrt().powf(*power)),
        }
    }
}

/// The precision of the spectra, and the scale of the bands.
enum PostProcessing {
    Librosa { spectrum: Spectrum<f64>, power: Power, decibels: Option<DecibelOptions> },
    Whisper { spectrum: Spectrum<f32>, samples: usize },
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "mel-spectrogram",
        summary: "Turns a sound into the strengths of its mel bands over time",
        group: Group::Audio,
        follows: "librosa: feature.melspectrogram, power_to_db; transformers: WhisperFeatureExtractor",
        example: "mel-spectrogram: { method: whisper, n_mels: 80 }",
        schema: || schemars::schema_for!(Options),
        build: |options, _| Ok(Box::new(MelSpectrogram::new(ports::options(options)?)?)),
    }
}

/// Sample rate of Whisper's feature extractor, in hertz.
const WHISPER_RATE: u32 = 16_000;

impl MelSpectrogram {
    fn new(mut options: Options) -> Result<BuiltinStep<Self>, BuildError> {
        options.check()?;
        let whisper = options.method == Method::Whisper;
        if whisper {
            options.sample_rate.get_or_insert(WHISPER_RATE);
        }
        let or = |value: Option<u32>, librosa: u32, of_whisper: u32| {
            value.unwrap_or(if whisper { of_whisper } else { librosa }) as usize
        };
        let n_fft = or(options.n_fft, 2048, 400);
        let pad = if whisper { EdgePadding::Reflect } else { options.pad_mode.unwrap_or_default() };
        let window = FrameLayout {
            n_fft,
            hop: or(options.hop_length, 512, 160),
            length: options.win_length.map_or(n_fft, |length| length as usize),
            pad: options.center.unwrap_or(true).then_some(pad),
        };
        if window.length > n_fft {
            let message = format!("`win_length` is {}, more than `n_fft`, {n_fft}", window.length);
            return Err(BuildError::option("win_length", message));
        }
        let scale = Scale {
            n_mels: or(options.n_mels, 128, 80),
            n_fft,
            fmin: options.fmin.unwrap_or(0.0),
            fmax: options.fmax.or(whisper.then_some(8000.0)),
            htk: options.htk.unwrap_or(false),
            slaney_norm: options.norm != Some(Norm::None),
        };
        let after = after(&options, window)?;
        let bands = sound::port("the bands, [n_mels, frames]");
        let bands = gpux_core::Port { name: "mel".to_owned(), ..bands };
        let signature = Signature::unary(sound::port("a sound"), bands);
        Ok(BuiltinStep::new(signature, json!(options), Self { options, scale, window, after }))
    }

    /// Frames of a sound of this many samples.
    fn frames(&self, samples: usize) -> Result<usize, String> {
        if let PostProcessing::Whisper { samples, .. } = self.after {
            // The last one is dropped.
            return Ok(self.window.frames(samples).unwrap_or(0).saturating_sub(1));
        }
        let too_short = || format!("a frame has {} samples, but the sound has {samples}", self.window.n_fft);
        let frames = self.window.frames(samples).ok_or_else(too_short)?;
        if samples == 0 && !matches!(self.window.pad, Some(EdgePadding::Constant)) {
            return Err("the sound has no samples that its edges could be padded with".to_owned());
        }
        Ok(frames)
    }

    fn rate(&self, tensor: &Tensor) -> Result<u32, StepFailure> {
        let rate = sound::rate(tensor, self.options.sample_rate, "sample_rate", "mel-spectrogram")?;
        match self.options.sample_rate {
            Some(wanted) if wanted != rate => {
                let message = format!("mel-spectrogram takes a sound of {wanted} Hz, but gets {rate} Hz; resample it");
                Err(StepFailure::InvalidInput(message))
            }
            _ => Ok(rate),
        }
    }

    /// Adds the bands of one channel to `output`.
    fn bands(
        &self,
        channel: &[f32],
        filters: &Filters,
        output: &mut [f32],
        deadline: &Deadline,
    ) -> Result<(), StepFailure> {
        let frames = output.len() / self.scale.n_mels;
        match &self.after {
            PostProcessing::Whisper { spectrum, samples } => {
                let channel = &channel[..channel.len().min(*samples)];
                spectrum.each(channel, *samples, frames, |first, energies| {
                    put(filters, energies, first, output, frames);
                    in_time(deadline, first)
                })
            }
            PostProcessing::Librosa { spectrum, power, .. } => {
                spectrum.each(channel, channel.len(), frames, |first, energies| {
                    power.raise(energies.as_flattened_mut());
                    put(filters, energies, first, output, frames);
                    in_time(deadline, first)
                })
            }
        }
    }
}

/// Writes the bands of the frames from `first` on.
fn put<const L: usize>(filters: &Filters, energies: &[[f32; L]], first: usize, output: &mut [f32], frames: usize) {
    let count = L.min(frames - first);
    filters.apply(
        energies,
        #[inline(always)]
        |band, strengths| {
            let row = &mut output[band * frames + first..][..count];
            match row.as_mut_array::<L>() {
                Some(row) => *row = strengths,
                None => row.copy_from_slice(&strengths[..count]),
            }
        },
    );
}

fn in_time(deadline: &Deadline, frame: usize) -> Result<(), StepFailure> {
    // A deadline check costs as much as a short frame.
    if frame.is_multiple_of(64) { Ok(deadline.check()?) } else { Ok(()) }
}

fn after(options: &Options, window: FrameLayout) -> Result<PostProcessing, BuildError> {
    if options.method == Method::Whisper {
        let rate = options.sample_rate.unwrap_or(WHISPER_RATE);
        let samples = rate as usize * options.chunk_length.unwrap_or(30) as usize;
        if samples <= window.n_fft / 2 || window.frames(samples).unwrap_or(0) < 2 {
            let message = format!("`chunk_length` is {samples} samples, too few for a frame");
            return Err(BuildError::option("chunk_length", message));
        }
        return Ok(PostProcessing::Whisper { spectrum: Spectrum::new(window), samples });
    }
    let mut decibels = None;
    if options.db == Some(true) {
        let positive = |name: &str, number: f32| {
            let fits = number.is_normal() && number > 0.0;
            if fits {
                Ok(number)
            } else {
                Err(BuildError::option(name, format!("`{name}` is {number}, not more than 0")))
            }
        };
        let reference = options.reference.unwrap_or(Reference::Number(1.0));
        if let Reference::Number(number) = reference {
            positive("ref", number)?;
        }
        let top_db = match options.top_db.unwrap_or(TopDb::Decibels(80.0)) {
            TopDb::Decibels(number) if number >= 0.0 && number.is_finite() => Some(number),
            TopDb::Decibels(number) => {
                return Err(BuildError::option("top_db", format!("`top_db` is {number}, not 0 or more")));
            }
            TopDb::Unbounded(Unbounded::None) => None,
        };
        decibels = Some(DecibelOptions { reference, amin: positive("amin", options.amin.unwrap_or(1e-10))?, top_db });
    }
    let power = Power::new(options.power.unwrap_or(2.0));
    Ok(PostProcessing::Librosa { spectrum: Spectrum::new(window), power, decibels })
}

impl Operation for MelSpectrogram {
    fn infer_tensor(&self, given: &TensorKind, outputs: &mut Vec<Kind>) -> Result<(), String> {
        let Some(shape) = sound::known_shape(given)? else { return Ok(()) };
        let frames = match (shape.last().and_then(ports::fixed), &self.after) {
            (None, PostProcessing::Librosa { .. }) => Dim::Dynamic,
            (samples, _) => Dim::Fixed(self.frames(samples.unwrap_or(0))?),
        };
        let mut dims = shape[..shape.len() - 1].to_vec();
        dims.extend([Dim::Fixed(self.scale.n_mels), frames]);
        outputs[0] = Kind::Tensor(TensorKind::shaped(ElementType::Float32, dims));
        Ok(())
    }

    fn buffers(&self, _: &[Option<Value>]) -> usize {
        // Eight frames and their transforms, or four in float64; the filters of a rate.
        self.window.n_fft * 128 + self.scale.n_mels * self.window.n_fft * 2
    }

    fn run(&self, mut inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        let tensor = inputs.tensor()?;
        let sound = Sound::new(&tensor, "mel-spectrogram")?;
        let rate = self.rate(&tensor)?;
        sound.check_finite("mel-spectrogram")?;
        let frames = self.frames(sound.frames).map_err(StepFailure::InvalidInput)?;
        let n_mels = self.scale.n_mels;
        let size = frames.checked_mul(n_mels);
        let values = size.and_then(|size| size.checked_mul(sound.channels.unwrap_or(1)));
        let (Some(size), Some(values)) = (size, values.filter(|values| *values <= MAX_VALUES)) else {
            let message = format!("mel-spectrogram gives at most {MAX_VALUES} values; {frames} frames are more");
            return Err(StepFailure::InvalidInput(message));
        };
        if self.scale.fmin >= self.scale.fmax.unwrap_or(f64::from(rate) / 2.0) {
            let message = format!("mel-spectrogram begins at {} Hz; a sound of {rate} Hz ends there", self.scale.fmin);
            return Err(StepFailure::InvalidInput(message));
        }
        let make = || Ok::<_, StepFailure>(Filters::new(self.scale, rate));
        let filters = FILTERS.get_or_try((self.scale, rate), make, Filters::bytes)?;
        let mut output = vec![0.0; values];
        for (channel, bands) in sound.channels().zip(output.chunks_exact_mut(size)) {
            self.bands(channel, &filters, bands, deadline)?;
            if matches!(self.after, PostProcessing::Whisper { .. }) {
                to_whisper(bands);
            }
        }
        if let PostProcessing::Librosa { decibels: Some(decibels), .. } = self.after {
            to_decibels(&mut output, decibels);
        }
        let shape = sound.shape_with(&[n_mels, frames]);
        Ok(vec![Tensor::new(shape, output)?.with_metadata(tensor.metadata).into()])
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use std::time::Instant;

    use super::*;
    use gpux_core::{Context, Step};

    fn build(options: serde_json::Value) -> Result<Box<dyn Step>, BuildError> {
        crate::reference::build(builtin(), options)
    }

    fn run(options: serde_json::Value, tensor: Tensor) -> Result<Tensor, StepFailure> {
        let mut values = build(options).unwrap().run(vec![Some(tensor.into())], &mut Context::default())?;
        Ok(values.remove(0).as_tensor().unwrap().clone())
    }

    fn sound(rate: u32, samples: Vec<f32>) -> Tensor {
        let mut tensor = Tensor::new([samples.len()], samples).unwrap();
        tensor.metadata.sample_rate = Some(rate);
        tensor
    }

    #[test]
    fn handles_empty_and_invalid_inputs() {
        let message = |options: serde_json::Value, tensor: Tensor| run(options, tensor).unwrap_err().to_string();
        assert!(message(json!({}), Tensor::new([1], vec![0_f32]).unwrap()).contains("option `sample_rate`"));
        assert!(message(json!({"method": "whisper"}), sound(44_100, vec![0.0])).contains("resample it"));
        assert!(message(json!({}), sound(16_000, vec![f32::NAN; 9])).contains("not numbers"));
        assert!(message(json!({"center": false}), sound(16_000, vec![0.0; 9])).contains("the sound has 9"));
        assert!(message(json!({"pad_mode": "reflect"}), sound(16_000, Vec::new())).contains("no samples"));
        assert!(message(json!({"fmin": 5000}), sound(8000, vec![0.0])).contains("ends there"));
        assert!(message(json!({}), sound(0, vec![0.0])).contains("0 Hz"));
        let many = json!({"hop_length": 1, "n_mels": 1024, "n_fft": 2});
        assert!(message(many, sound(16_000, vec![0.0; 140_000])).contains("at most 134217728 values"));
        assert_eq!(run(json!({}), sound(1, vec![f32::MAX; 3])).unwrap().shape(), [128, 1]);
        let empty = Tensor::new([0, 5], Vec::<f32>::new()).unwrap().with_metadata(sound(8000, vec![]).metadata);
        assert_eq!(run(json!({}), empty).unwrap().shape(), [0, 128, 1]);
        let huge = run(json!({"db": true}), sound(8000, vec![f32::MAX; 4000])).unwrap();
        assert!(huge.as_slice::<f32>().unwrap().iter().all(|band| !band.is_nan()));
        let text = vec![Some("la".into())];
        assert!(build(json!({})).unwrap().run(text, &mut Context::default()).is_err());
    }

    #[test]
    fn transforms_channels_independently() {
        let left: Vec<f32> = (0..3000).map(|place| (place as f32 * 0.1).sin()).collect();
        let right: Vec<f32> = (0..3000).map(|place| (place as f32 * 0.3).sin()).collect();
        let both = Tensor::new([2, 3000], [left.clone(), right.clone()].concat()).unwrap();
        let both = both.with_metadata(sound(16_000, vec![]).metadata);
        let apart = [left, right].map(|samples| run(json!({}), sound(16_000, samples)).unwrap());
        let both = run(json!({}), both).unwrap();
        assert_eq!(both.shape(), [2, 128, 6]);
        let apart = apart.map(|bands| bands.as_slice::<f32>().unwrap().to_vec()).concat();
        assert_eq!(both.as_slice::<f32>().unwrap(), apart);
    }

    #[test]
    fn rejects_invalid_options() {
        for (options, says) in [
            (json!({"n_fft": 0}), "n_fft"),
            (json!({"n_fft": 1 << 20}), "n_fft"),
            (json!({"hop_length": 0}), "hop_length"),
            (json!({"n_fft": 400, "win_length": 401}), "more than `n_fft`"),
            (json!({"n_mels": 0}), "n_mels"),
            (json!({"fmin": 5, "fmax": 5}), "less than `fmax`"),
            (json!({"fmin": -1}), "at least 0"),
            (json!({"power": 0}), "power"),
            (json!({"ref": "max"}), "needs `db`"),
            (json!({"db": true, "amin": 0}), "amin"),
            (json!({"db": true, "top_db": -1}), "top_db"),
            (json!({"db": true, "ref": "min"}), "ref"),
            (json!({"method": "whisper", "htk": true}), "method: whisper"),
            (json!({"method": "whisper", "chunk_length": 1, "sample_rate": 100}), "too few"),
            (json!({"chunk_length": 30}), "belongs to"),
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
        assert_eq!(infer(json!({}), &[Dim::Fixed(5120)]).unwrap(), "tensor float32[128, 11]");
        assert_eq!(infer(json!({}), &[Dim::Fixed(2), Dim::Dynamic]).unwrap(), "tensor float32[2, 128, ?]");
        assert_eq!(infer(json!({"method": "whisper"}), &[Dim::Dynamic]).unwrap(), "tensor float32[80, 3000]");
        assert!(infer(json!({"center": false}), &[Dim::Fixed(9)]).is_err());
        assert!(infer(json!({}), &[]).is_err());
    }

    #[test]
    fn stops_at_the_deadline() {
        let step = build(json!({"method": "whisper"})).unwrap();
        let mut context = Context { deadline: Some(Instant::now()), ..Context::default() };
        let outcome = step.run(vec![Some(sound(16_000, vec![0.0; 400_000]).into())], &mut context);
        assert_eq!(outcome, Err(StepFailure::Timeout));
    }
}
