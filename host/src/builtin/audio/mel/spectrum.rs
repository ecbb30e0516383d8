//! Frames of a sound → their spectra.

use std::sync::Arc;

use realfft::num_complex::Complex;
use realfft::{FftNum, RealFftPlanner, RealToComplex};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::pipeline::StepFailure;

/// What stands before and behind a sound, where a frame reaches over its edges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(in crate::builtin::audio) enum Pad {
    #[default]
    Constant,
    Reflect,
    Edge,
}

/// How a sound is cut into frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::builtin::audio) struct Window {
    pub(in crate::builtin::audio) n_fft: usize,
    pub(in crate::builtin::audio) hop: usize,
    /// samples under the window, in the middle of a frame
    pub(in crate::builtin::audio) length: usize,
    /// how the edges are padded by half a frame; `None` for no padding
    pub(in crate::builtin::audio) pad: Option<Pad>,
}

impl Window {
    fn margin(self) -> usize {
        if self.pad.is_some() { self.n_fft / 2 } else { 0 }
    }

    /// Frames of a sound of this many samples; `None` if it is shorter than one.
    pub(in crate::builtin::audio) fn frames(self, samples: usize) -> Option<usize> {
        let padded = samples.checked_add(2 * self.margin())?;
        Some(padded.checked_sub(self.n_fft)? / self.hop + 1)
    }
}

/// A float that spectra are computed in.
pub(in crate::builtin::audio) trait Real: FftNum {
    fn weight(number: f64) -> Self;
    fn sample(number: f32) -> Self;
    /// The square of the distance from 0.
    fn power(number: Complex<Self>) -> f32;
}

impl Real for f32 {
    fn weight(number: f64) -> Self {
        number as Self
    }
    fn sample(number: f32) -> Self {
        number
    }
    fn power(number: Complex<Self>) -> f32 {
        number.re * number.re + number.im * number.im
    }
}

impl Real for f64 {
    fn weight(number: f64) -> Self {
        number
    }
    fn sample(number: f32) -> Self {
        Self::from(number)
    }
    fn power(number: Complex<Self>) -> f32 {
        (number.re * number.re + number.im * number.im) as f32
    }
}

/// Computes power spectra. Planned once; a run takes one set of buffers for all frames.
pub(in crate::builtin::audio) struct Spectrum<T> {
    window: Window,
    weights: Vec<T>,
    transform: Arc<dyn RealToComplex<T>>,
}

impl<T: Real> Spectrum<T> {
    /// A periodic Hann window, in the middle of the frame if it is shorter than that.
    pub(in crate::builtin::audio) fn new(window: Window) -> Self {
        let before = (window.n_fft - window.length) / 2;
        let weight = |place: usize| {
            let Some(place) = place.checked_sub(before).filter(|place| *place < window.length) else { return 0.0 };
            let turn = std::f64::consts::TAU * place as f64 / window.length as f64;
            0.5 - 0.5 * turn.cos()
        };
        let weights = (0..window.n_fft).map(|place| T::weight(weight(place))).collect();
        Self { window, weights, transform: RealFftPlanner::new().plan_fft_forward(window.n_fft) }
    }

    /// Calls `take` with the number and the power spectrum of each frame of `sound`, which is followed by silence
    /// up to `length` samples; with `None` for a frame of nothing but that silence.
    pub(in crate::builtin::audio) fn each(
        &self,
        sound: &[f32],
        length: usize,
        frames: usize,
        mut take: impl FnMut(usize, Option<&[f32]>) -> Result<(), StepFailure>,
    ) -> Result<(), StepFailure> {
        let Window { n_fft, hop, .. } = self.window;
        let margin = self.window.margin();
        let mut input = self.transform.make_input_vec();
        let mut output = self.transform.make_output_vec();
        let mut scratch = self.transform.make_scratch_vec();
        let mut power = vec![0.0; output.len()];
        // Frames from here on reach neither the sound nor its reflection at the end.
        let silent = if sound.len() + margin < length { sound.len() } else { usize::MAX };
        for frame in 0..frames {
            let start = frame * hop;
            if start.checked_sub(margin).is_some_and(|start| start >= silent) {
                take(frame, None)?;
                continue;
            }
            let inside = start.checked_sub(margin).and_then(|start| sound.get(start..start + n_fft));
            if let Some(samples) = inside {
                for ((input, sample), weight) in input.iter_mut().zip(samples).zip(&self.weights) {
                    *input = T::sample(*sample) * *weight;
                }
            } else {
                for (place, (input, weight)) in input.iter_mut().zip(&self.weights).enumerate() {
                    *input = T::sample(self.sample(sound, length, start + place)) * *weight;
                }
            }
            self.transform
                .process_with_scratch(&mut input, &mut output, &mut scratch)
                .map_err(|error| StepFailure::Failed(error.to_string()))?;
            for (power, bin) in power.iter_mut().zip(&output) {
                *power = T::power(*bin);
            }
            take(frame, Some(&power))?;
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
            (None, Some(Pad::Edge)) => Some(if place < margin { 0 } else { length - 1 }),
            (None, Some(Pad::Reflect)) => Some(reflected(place as isize - margin as isize, length)),
            (None, Some(Pad::Constant) | None) => None,
        };
        place.and_then(|place| sound.get(place)).copied().unwrap_or(0.0)
    }
}

/// The place that a place outside reflects, without repeating the edge; again and again, as NumPy does,
/// where the sound is shorter than the padding.
fn reflected(place: isize, length: usize) -> usize {
    let last = length as isize - 1;
    if last == 0 {
        return 0;
    }
    let place = place.rem_euclid(2 * last);
    (if place > last { 2 * last - place } else { place }) as usize
}
