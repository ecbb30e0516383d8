//! `mel-spectrogram`: a sound → how strong its mel bands are over time.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::decode::{MAX_RATE, MAX_VALUES};
use super::mel::{Filters, Pad, Scale, Spectrum, Window, log10};
use super::sound::{self, PerRate, Sound};
use crate::builtin::ports;
use crate::pipeline::{
    BuildError, Builtin, Context, Dim, ElementType, Group, Kind, Mismatch, Signature, Step, StepFailure, Tensor,
    TensorKind, Value,
};

/// Bounds of the options: samples of a frame, mel bands, seconds of Whisper's window.
const MAX_FFT: u32 = 1 << 16;
const MAX_MELS: u32 = 1024;
const MAX_CHUNK: u32 = 3600;

/// What Whisper adds to 0, so that there is a logarithm.
const WHISPER_FLOOR: f32 = 1e-10;

/// Options of `mel-spectrogram`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Options {
    /// `librosa` (default): `librosa.feature.melspectrogram`; `whisper`: the log-mel of Whisper's feature
    /// extractor, which pads or cuts the sound to `chunk_length` and takes only `n_mels`, `n_fft`, `hop_length`,
    /// `chunk_length` and `sample_rate` beside it.
    method: Method,
    /// The sample rate, in hertz, of a sound whose metadata does not say it; a sound that says another one is
    /// refused. Default: what the metadata says, 16000 for `whisper`.
    #[schemars(range(min = 1, max = 384_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    sample_rate: Option<u32>,
    /// Samples of a frame. Default: 2048, 400 for `whisper`; at most 65536.
    #[schemars(range(min = 2, max = 65_536))]
    #[serde(skip_serializing_if = "Option::is_none")]
    n_fft: Option<u32>,
    /// Samples from a frame to the next. Default: 512, 160 for `whisper`.
    #[schemars(range(min = 1, max = 1_048_576))]
    #[serde(skip_serializing_if = "Option::is_none")]
    hop_length: Option<u32>,
    /// Samples under the Hann window, in the middle of a frame. Default: `n_fft`.
    #[schemars(range(min = 1, max = 65_536))]
    #[serde(skip_serializing_if = "Option::is_none")]
    win_length: Option<u32>,
    /// Mel bands. Default: 128, 80 for `whisper`; at most 1024.
    #[schemars(range(min = 1, max = 1024))]
    #[serde(skip_serializing_if = "Option::is_none")]
    n_mels: Option<u32>,
    /// Lowest frequency, in hertz. Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    fmin: Option<f64>,
    /// Highest frequency, in hertz. Default: half the sample rate, 8000 for `whisper`.
    #[serde(skip_serializing_if = "Option::is_none")]
    fmax: Option<f64>,
    /// Whether the mel scale is HTK's instead of Slaney's. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    htk: Option<bool>,
    /// `slaney` (default): each band is divided by its width; `none`: it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    norm: Option<Norm>,
    /// The power of the magnitudes: 1 for magnitudes, 2 for energy. Default: 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    power: Option<f64>,
    /// Whether frames are centred on their place, the edges padded by half a frame. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    center: Option<bool>,
    /// What the edges are padded with: `constant` (default, silence), `reflect` or `edge`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pad_mode: Option<Pad>,
    /// Whether to turn the bands into decibels, as `librosa.power_to_db` does. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    db: Option<bool>,
    /// With `db`: what is 0 decibels, a number or `max` for the strongest band. Default: 1.
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    reference: Option<Reference>,
    /// With `db`: what weaker bands are raised to, more than 0. Default: 1e-10.
    #[serde(skip_serializing_if = "Option::is_none")]
    amin: Option<f32>,
    /// With `db`: decibels below the strongest band that weaker ones are raised to, or `none`. Default: 80.
    #[serde(skip_serializing_if = "Option::is_none")]
    top_db: Option<TopDb>,
    /// With `whisper`: seconds of the sound, which is filled up with silence or cut. Default: 30.
    #[schemars(range(min = 1, max = 3600))]
    #[serde(skip_serializing_if = "Option::is_none")]
    chunk_length: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Method {
    #[default]
    Librosa,
    Whisper,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Norm {
    Slaney,
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Max {
    Max,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Unbounded {
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum Reference {
    Number(f32),
    Strongest(Max),
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum TopDb {
    Decibels(f32),
    Unbounded(Unbounded),
}

/// Computes the mel spectrogram of a float32 sound: `[samples]` becomes `[n_mels, frames]`, `[channels, samples]`
/// becomes `[channels, n_mels, frames]`.
///
/// Follows `librosa.feature.melspectrogram` with a Hann window, and `librosa.power_to_db` with `db`; or, with
/// `method: whisper`, transformers' `WhisperFeatureExtractor`, whose result for one sound is `[n_mels, 3000]`.
struct MelSpectrogram {
    options: Options,
    signature: Signature,
    scale: Scale,
    window: Window,
    after: After,
    filters: PerRate<Filters>,
}

/// What the spectra are computed in, and what becomes of the bands.
enum After {
    Librosa { spectrum: Spectrum<f64>, power: f32, decibels: Option<Decibels> },
    Whisper { spectrum: Spectrum<f32>, samples: usize },
}

#[derive(Clone, Copy, Debug)]
struct Decibels {
    reference: Reference,
    amin: f32,
    top_db: Option<f32>,
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
    fn new(mut options: Options) -> Result<Self, BuildError> {
        check(&options)?;
        let whisper = options.method == Method::Whisper;
        if whisper {
            options.sample_rate.get_or_insert(WHISPER_RATE);
        }
        let or = |value: Option<u32>, librosa: u32, of_whisper: u32| {
            value.unwrap_or(if whisper { of_whisper } else { librosa }) as usize
        };
        let n_fft = or(options.n_fft, 2048, 400);
        let pad = if whisper { Pad::Reflect } else { options.pad_mode.unwrap_or_default() };
        let window = Window {
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
        let bands = crate::pipeline::Port { name: "mel".to_owned(), ..bands };
        let signature = Signature::unary(sound::port("a sound"), bands);
        Ok(Self { options, signature, scale, window, after, filters: PerRate::default() })
    }

    /// Frames of a sound of this many samples.
    fn frames(&self, samples: usize) -> Result<usize, String> {
        if let After::Whisper { samples, .. } = self.after {
            // The last one is dropped.
            return Ok(self.window.frames(samples).unwrap_or(0).saturating_sub(1));
        }
        let too_short = || format!("a frame has {} samples, but the sound has {samples}", self.window.n_fft);
        let frames = self.window.frames(samples).ok_or_else(too_short)?;
        if samples == 0 && !matches!(self.window.pad, Some(Pad::Constant)) {
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
        context: &Context,
    ) -> Result<(), StepFailure> {
        let frames = output.len() / self.scale.n_mels;
        let mut put = |frame: usize, spectrum: &[f32]| {
            for (row, band) in output.chunks_exact_mut(frames).zip(filters.apply(spectrum)) {
                row[frame] = band;
            }
        };
        let in_time = |frame: usize| {
            // A look at the clock costs as much as a short frame.
            let late = frame % 64 == 0 && context.time_left().is_some_and(|left| left.is_zero());
            if late { Err(StepFailure::Timeout) } else { Ok(()) }
        };
        match &self.after {
            After::Whisper { spectrum, samples } => {
                let channel = &channel[..channel.len().min(*samples)];
                spectrum.each(channel, *samples, frames, |frame, power| {
                    if let Some(power) = power {
                        put(frame, power);
                    }
                    in_time(frame)
                })
            }
            After::Librosa { spectrum, power, .. } => {
                let mut raised = Vec::new();
                spectrum.each(channel, channel.len(), frames, |frame, energy| {
                    match energy {
                        Some(energy) if *power == 2.0 => put(frame, energy),
                        Some(energy) => {
                            raised.clear();
                            let raise = |energy: &f32| if *power == 1.0 { energy.sqrt() } else { energy.sqrt().powf(*power) };
                            raised.extend(energy.iter().map(raise));
                            put(frame, &raised);
                        }
                        None => {}
                    }
                    in_time(frame)
                })
            }
        }
    }
}

/// Options that cannot work.
fn check(options: &Options) -> Result<(), BuildError> {
    let bounded = [
        ("sample_rate", options.sample_rate, 1..=MAX_RATE),
        ("n_fft", options.n_fft, 2..=MAX_FFT),
        ("hop_length", options.hop_length, 1..=1 << 20),
        ("win_length", options.win_length, 1..=MAX_FFT),
        ("n_mels", options.n_mels, 1..=MAX_MELS),
        ("chunk_length", options.chunk_length, 1..=MAX_CHUNK),
    ];
    for (name, value, range) in bounded {
        if let Some(value) = value.filter(|value| !range.contains(value)) {
            let message = format!("`{name}` is {value}, not {} to {}", range.start(), range.end());
            return Err(BuildError::option(name, message));
        }
    }
    let whisper = options.method == Method::Whisper;
    let of_librosa = [
        ("win_length", options.win_length.is_some()),
        ("fmin", options.fmin.is_some()),
        ("fmax", options.fmax.is_some()),
        ("htk", options.htk.is_some()),
        ("norm", options.norm.is_some()),
        ("power", options.power.is_some()),
        ("center", options.center.is_some()),
        ("pad_mode", options.pad_mode.is_some()),
        ("db", options.db.is_some()),
    ];
    if let Some((name, _)) = of_librosa.iter().find(|(_, given)| whisper && *given) {
        let message = format!("`{name}` is decided by `method: whisper`");
        return Err(BuildError::option(name, message).with_hint(format!("leave `{name}` out, or `method`")));
    }
    if !whisper && options.chunk_length.is_some() {
        return Err(BuildError::option("chunk_length", "`chunk_length` belongs to `method: whisper`")
            .with_hint("pad or cut the sound with the step `pad-or-trim`"));
    }
    let of_decibels = [
        ("ref", options.reference.is_some()),
        ("amin", options.amin.is_some()),
        ("top_db", options.top_db.is_some()),
    ];
    if let Some((name, _)) = of_decibels.iter().find(|(_, given)| *given && options.db != Some(true)) {
        return Err(BuildError::option(name, format!("`{name}` needs `db`")).with_hint("add `db: true`"));
    }
    let (low, high) = (options.fmin.unwrap_or(0.0), options.fmax.unwrap_or(f64::MAX));
    if !(0.0..high).contains(&low) || !high.is_finite() {
        let message = format!("the bands go from {low} to {high} Hz; `fmin` is at least 0 and less than `fmax`");
        return Err(BuildError::option(if options.fmax.is_some() { "fmax" } else { "fmin" }, message));
    }
    if options.power.is_some_and(|power| !(power > 0.0 && power <= 16.0)) {
        return Err(BuildError::option("power", "`power` is more than 0 and at most 16"));
    }
    Ok(())
}

fn after(options: &Options, window: Window) -> Result<After, BuildError> {
    if options.method == Method::Whisper {
        let rate = options.sample_rate.unwrap_or(WHISPER_RATE);
        let samples = rate as usize * options.chunk_length.unwrap_or(30) as usize;
        if samples <= window.n_fft / 2 || window.frames(samples).unwrap_or(0) < 2 {
            let message = format!("`chunk_length` is {samples} samples, too few for a frame");
            return Err(BuildError::option("chunk_length", message));
        }
        return Ok(After::Whisper { spectrum: Spectrum::new(window), samples });
    }
    let mut decibels = None;
    if options.db == Some(true) {
        let positive = |name: &str, number: f32| {
            let fits = number.is_normal() && number > 0.0;
            if fits { Ok(number) } else { Err(BuildError::option(name, format!("`{name}` is {number}, not more than 0"))) }
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
        decibels = Some(Decibels { reference, amin: positive("amin", options.amin.unwrap_or(1e-10))?, top_db });
    }
    let power = options.power.unwrap_or(2.0) as f32;
    Ok(After::Librosa { spectrum: Spectrum::new(window), power, decibels })
}

/// `librosa.power_to_db`, in place.
fn to_decibels(bands: &mut [f32], how: Decibels) {
    let reference = match how.reference {
        Reference::Number(number) => number,
        Reference::Strongest(Max::Max) => bands.iter().copied().fold(0.0, f32::max),
    };
    let zero = 10.0 * reference.max(how.amin).log10();
    for band in &mut *bands {
        *band = 10.0 * log10(band.max(how.amin)) - zero;
    }
    if let Some(top_db) = how.top_db {
        raise(bands, top_db);
    }
}

/// Raises numbers to the largest less `below`.
fn raise(numbers: &mut [f32], below: f32) {
    let floor = numbers.iter().copied().fold(f32::NEG_INFINITY, f32::max) - below;
    for number in numbers {
        *number = number.max(floor);
    }
}

/// What Whisper's feature extractor makes of the bands, in place.
fn to_whisper(bands: &mut [f32]) {
    for band in &mut *bands {
        *band = log10(band.max(WHISPER_FLOOR));
    }
    raise(bands, 8.0);
    for band in bands {
        *band = (*band + 4.0) / 4.0;
    }
}

impl Step for MelSpectrogram {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn infer(&self, inputs: &[Option<Kind>]) -> Result<Vec<Kind>, Mismatch> {
        let Some(shape) = sound::known(&self.signature, inputs)? else {
            return Ok(vec![self.signature.outputs[0].kind.clone()]);
        };
        let samples = shape.last().and_then(ports::fixed);
        let frames = match (samples, &self.after) {
            (None, After::Librosa { .. }) => Dim::Dynamic,
            (samples, _) => match self.frames(samples.unwrap_or(0)) {
                Ok(frames) => Dim::Fixed(frames),
                Err(why) => {
                    let given = ports::known_tensor(inputs);
                    return given.map_or(Ok(vec![]), |given| Err(ports::refuse(&self.signature, given, why)));
                }
            },
        };
        let mut dims = shape[..shape.len() - 1].to_vec();
        dims.extend([Dim::Fixed(self.scale.n_mels), frames]);
        Ok(vec![Kind::Tensor(TensorKind::shaped(ElementType::Float32, dims))])
    }

    fn buffers(&self, _: &[Option<Value>]) -> usize {
        // A frame in float64, its spectrum and what the transform keeps; the filters of a rate.
        self.window.n_fft * 64 + self.scale.n_mels * self.window.n_fft * 2
    }

    fn run(&self, inputs: Vec<Option<Value>>, context: &mut Context) -> Result<Vec<Value>, StepFailure> {
        let tensor = ports::first_tensor(inputs, "audio")?;
        let sound = Sound::of(&tensor, "mel-spectrogram")?;
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
        let filters = self.filters.get(rate, || Filters::new(self.scale, rate));
        let mut output = vec![0.0; values];
        for (channel, bands) in sound.channels().zip(output.chunks_exact_mut(size)) {
            self.bands(channel, &filters, bands, context)?;
            if matches!(self.after, After::Whisper { .. }) {
                to_whisper(bands);
            }
        }
        if let After::Librosa { decibels: Some(decibels), .. } = self.after {
            to_decibels(&mut output, decibels);
        }
        let shape = sound.shape_with(&[n_mels, frames]);
        Ok(vec![Tensor::new(shape, output)?.with_metadata(tensor.metadata).into()])
    }

    fn details(&self) -> serde_json::Value {
        serde_json::to_value(&self.options).unwrap_or_default()
    }
}
