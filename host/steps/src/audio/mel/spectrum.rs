//! Frames of a sound → their spectra.

use std::sync::Arc;

use realfft::{FftNum, RealFftPlanner, RealToComplex};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use gpux_core::StepFailure;

/// The samples before and behind a sound, where a frame reaches beyond its edges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(in crate::audio) enum EdgePadding {
    #[default]
    Constant,
    Reflect,
    Edge,
}

/// How a sound is cut into frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::audio) struct FrameLayout {
    pub(in crate::audio) n_fft: usize,
    pub(in crate::audio) hop: usize,
    /// samples under the window, in the middle of a frame
    pub(in crate::audio) length: usize,
    /// how the edges are padded by half a frame; `None` for no padding
    pub(in crate::audio) pad: Option<EdgePadding>,
}

impl FrameLayout {
    fn margin(self) -> usize {
        if self.pad.is_some() { self.n_fft / 2 } else { 0 }
    }

    /// Frames of a sound of this many samples; `None` if it is shorter than one.
    pub(in crate::audio) fn frames(self, samples: usize) -> Option<usize> {
        let padded = samples.checked_add(2 * self.margin())?;
        Some(padded.checked_sub(self.n_fft)? / self.hop + 1)
    }
}

/// A float that spectra are computed in.
pub(in crate::audio) trait FftFloat: FftNum {
    fn from_weight(weight: f64) -> Self;
    fn from_sample(sample: f32) -> Self;
    fn to_energy(self) -> f32;
}

impl FftFloat for f32 {
    fn from_weight(weight: f64) -> Self {
        weight as Self
    }

    fn from_sample(sample: f32) -> Self {
        sample
    }

    fn to_energy(self) -> f32 {
        self
    }
}

impl FftFloat for f64 {
    fn from_weight(weight: f64) -> Self {
        weight
    }

    fn from_sample(sample: f32) -> Self {
        sample.into()
    }

    fn to_energy(self) -> f32 {
        self as f32
    }
}

/// Frames whose spectra lie side by side, so that a filter sums them with one vector.
const LANES: usize = 8;

/// Computes power spectra. One run allocates one set of buffers for all frames.
pub(in crate::audio) struct Spectrum<T> {
    window: FrameLayout,
    weights: Vec<T>,
    transform: Arc<dyn RealToComplex<T>>,
}

impl<T: FftFloat> Spectrum<T> {
    /// With a periodic Hann window, in the middle of the frame if it is shorter than that.
    pub(in crate::audio) fn new(window: FrameLayout) -> Self {
        let before = (window.n_fft - window.length) / 2;
        let weight = |place: usize| {
            let Some(place) = place.checked_sub(before).filter(|place| *place < window.length) else { return 0.0 };
            let turn = std::f64::consts::TAU * place as f64 / window.length as f64;
            0.5 - 0.5 * turn.cos()
        };
        let weights = (0..window.n_fft).map(|place| T::from_weight(weight(place))).collect();
        Self { window, weights, transform: RealFftPlanner::new().plan_fft_forward(window.n_fft) }
    }

    /// Calls `take` with the index of a frame of `sound` and the power spectra of it and the next frames, bin after
    /// bin. The sound is followed by silence up to `length` samples. Frames of that silence alone are left out, or
    /// have energies of 0 beside the last frame of the sound.
    pub(in crate::audio) fn each(
        &self,
        sound: &[f32],
        length: usize,
        frames: usize,
        mut take: impl FnMut(usize, &mut [[f32; LANES]]) -> Result<(), StepFailure>,
    ) -> Result<(), StepFailure> {
        let FrameLayout { n_fft, hop, .. } = self.window;
        let margin = self.window.margin();
        // Frames from there on reach neither the sound nor its reflection at the end.
        let silent = if sound.len() + margin < length { (sound.len() + margin).div_ceil(hop) } else { frames };
        let frames = frames.min(silent);
        let (mut input, mut output) = (self.transform.make_input_vec(), self.transform.make_output_vec());
        let mut scratch = self.transform.make_scratch_vec();
        let mut edge = vec![0.0; n_fft];
        let mut energies = vec![[0.0; LANES]; n_fft / 2 + 1];
        for first in (0..frames).step_by(LANES) {
            if frames - first < LANES {
                energies.fill([0.0; LANES]);
            }
            for (lane, frame) in (first..frames.min(first + LANES)).enumerate() {
                let start = frame * hop;
                let inside = start.checked_sub(margin).and_then(|start| sound.get(start..start + n_fft));
                let samples = inside.unwrap_or_else(|| {
                    for (place, sample) in edge.iter_mut().enumerate() {
                        *sample = self.sample(sound, length, start + place);
                    }
                    &edge
                });
                for ((input, sample), weight) in input.iter_mut().zip(samples).zip(&self.weights) {
                    *input = T::from_sample(*sample) * *weight;
                }
                self.transform
                    .process_with_scratch(&mut input, &mut output, &mut scratch)
                    .map_err(|error| StepFailure::Failed(error.to_string()))?;
                for (energies, bin) in energies.iter_mut().zip(&output) {
                    energies[lane] = bin.norm_sqr().to_energy();
                }
            }
            take(first, &mut energies)?;
        }
        Ok(())
    }

    /// The sample at this place of the padded sound.
    fn sample(&self, sound: &[f32], length: usize, place: usize) -> f32 {
        let margin = self.window.margin();
        let inside = place.checked_sub(margin).filter(|place| *place < length);
        let place = match (inside, self.window.pad) {
            (Some(place), _) => Some(place),
            (None, _) if length == 0 => None,
            (None, Some(EdgePadding::Edge)) => Some(if place < margin { 0 } else { length - 1 }),
            (None, Some(EdgePadding::Reflect)) => Some(reflect(place as isize - margin as isize, length)),
            (None, Some(EdgePadding::Constant) | None) => None,
        };
        place.and_then(|place| sound.get(place)).copied().unwrap_or(0.0)
    }
}

/// The place that a place outside reflects, without repeating the edge; again and again, as NumPy does,
/// where the sound is shorter than the padding.
fn reflect(place: isize, length: usize) -> usize {
    let last = length as isize - 1;
    if last == 0 {
        return 0;
    }
    let place = place.rem_euclid(2 * last);
    (if place > last { 2 * last - place } else { place }) as usize
}
