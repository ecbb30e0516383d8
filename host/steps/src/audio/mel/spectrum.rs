//! Frames of a sound → their spectra.

use std::sync::Arc;

use realfft::{FftNum, RealFftPlanner, RealToComplex};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::batched_fft::{BatchedFft, FftFloat};
use crate::simd::{Wide, wide};
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

/// Computes power spectra, of `L` frames at a time. Planned once; a run takes one set of buffers for all frames.
pub(in crate::audio) struct Spectrum<T, const L: usize> {
    window: FrameLayout,
    transform: FftPlan<T>,
}

enum FftPlan<T> {
    /// where the processor has wide vectors, and frames have a length that suits them
    Batched(BatchedFft<T>),
    /// any other
    Single { weights: Vec<T>, transform: Arc<dyn RealToComplex<T>> },
}

impl<T: FftFloat<L> + FftNum, const L: usize> Spectrum<T, L> {
    /// With a periodic Hann window, in the middle of the frame if it is shorter than that.
    pub(in crate::audio) fn new(window: FrameLayout) -> Self {
        Self::with(window, wide())
    }

    fn with(window: FrameLayout, wide: Option<Wide>) -> Self {
        let before = (window.n_fft - window.length) / 2;
        let weight = |place: usize| {
            let Some(place) = place.checked_sub(before).filter(|place| *place < window.length) else { return 0.0 };
            let turn = std::f64::consts::TAU * place as f64 / window.length as f64;
            0.5 - 0.5 * turn.cos()
        };
        let weights: Vec<f64> = (0..window.n_fft).map(weight).collect();
        let transform = match wide.and_then(|wide| BatchedFft::new(wide, &weights)) {
            Some(transform) => FftPlan::Batched(transform),
            None => FftPlan::Single {
                weights: weights.into_iter().map(T::narrow).collect(),
                transform: RealFftPlanner::new().plan_fft_forward(window.n_fft),
            },
        };
        Self { window, transform }
    }

    /// Calls `take` with the number of a frame of `sound` and the power spectra of it and those that follow, bin
    /// after bin. The sound is followed by silence up to `length` samples; frames of nothing but that silence are
    /// left out, and what stands in the place of frames behind the last means nothing.
    pub(in crate::audio) fn each(
        &self,
        sound: &[f32],
        length: usize,
        frames: usize,
        mut take: impl FnMut(usize, &mut [[f32; L]]) -> Result<(), StepFailure>,
    ) -> Result<(), StepFailure> {
        let FrameLayout { n_fft, hop, .. } = self.window;
        let margin = self.window.margin();
        // Frames from there on reach neither the sound nor its reflection at the end.
        let silent = if sound.len() + margin < length { (sound.len() + margin).div_ceil(hop) } else { frames };
        let frames = frames.min(silent);
        let mut transform = self.transform.begin();
        let mut edges = vec![0.0; L * n_fft];
        let mut energies = vec![[0.0; L]; n_fft / 2 + 1];
        for first in (0..frames).step_by(L) {
            let mut rows: [&[f32]; L] = [&[]; L];
            for ((frame, row), edge) in (first..).zip(&mut rows).zip(edges.chunks_exact_mut(n_fft)) {
                let start = frame * hop;
                let inside = start.checked_sub(margin).and_then(|start| sound.get(start..start + n_fft));
                *row = inside.unwrap_or_else(|| {
                    for (place, sample) in edge.iter_mut().enumerate() {
                        *sample = if frame < frames { self.sample(sound, length, start + place) } else { 0.0 };
                    }
                    edge
                });
            }
            transform(&rows, &mut energies)?;
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

/// Writes the power spectra of frames.
type Running<'t, const L: usize> = Box<dyn FnMut(&[&[f32]; L], &mut [[f32; L]]) -> Result<(), StepFailure> + 't>;

impl<T: FftNum> FftPlan<T> {
    /// A closure that writes the power spectra of frames, with its own buffers.
    fn begin<const L: usize>(&self) -> Running<'_, L>
    where
        T: FftFloat<L>,
    {
        match self {
            Self::Batched(transform) => {
                let mut buffers = [transform.buffer(), transform.buffer()];
                Box::new(move |rows, energies| {
                    transform.energies(rows, &mut buffers, energies);
                    Ok(())
                })
            }
            Self::Single { weights, transform } => {
                let (mut input, mut output) = (transform.make_input_vec(), transform.make_output_vec());
                let mut scratch = transform.make_scratch_vec();
                Box::new(move |rows, energies| {
                    for (lane, row) in rows.iter().enumerate() {
                        for ((input, sample), weight) in input.iter_mut().zip(*row).zip(weights) {
                            *input = T::sample(*sample) * *weight;
                        }
                        transform
                            .process_with_scratch(&mut input, &mut output, &mut scratch)
                            .map_err(|error| StepFailure::Failed(error.to_string()))?;
                        for (energies, bin) in energies.iter_mut().zip(&output) {
                            energies[lane] = bin.norm_sqr().energy();
                        }
                    }
                    Ok(())
                })
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> Vec<f32> {
        (0..5000_u32).map(|place| (place as f32 * 0.05).sin() + (place * 7919 % 1000) as f32 * 1e-3).collect()
    }

    /// The largest difference between the two ways, against the largest energy.
    fn difference<T: FftFloat<L> + FftNum, const L: usize>(wide: Wide, window: FrameLayout) -> f32 {
        let frames = window.frames(5000).unwrap_or(0);
        let energies = |wide: Option<Wide>| {
            let spectrum = Spectrum::<T, L>::with(window, wide);
            assert_eq!(matches!(spectrum.transform, FftPlan::Batched(_)), wide.is_some(), "{window:?}");
            let mut all = Vec::new();
            let outcome = spectrum.each(&sound(), 5000, frames, |first, energies| {
                for lane in 0..L.min(frames - first) {
                    all.extend(energies.iter().map(|bin| bin[lane]));
                }
                Ok(())
            });
            assert_eq!(outcome, Ok(()));
            assert_eq!(all.len(), frames * (window.n_fft / 2 + 1));
            all
        };
        let (together, alone) = (energies(Some(wide)), energies(None));
        let most = alone.iter().fold(0.0, |most: f32, energy| most.max(*energy));
        together.iter().zip(&alone).fold(0.0, |most: f32, (one, other)| most.max((one - other).abs())) / most
    }

    #[test]
    fn batched_and_single_spectra_agree() {
        let Some(wide) = wide() else { return };
        for n_fft in [2, 4, 6, 8, 10, 12, 18, 20, 30, 50, 64, 90, 250, 400, 480, 512, 540, 1250, 2048, 3888] {
            let window = FrameLayout { n_fft, hop: n_fft / 2, length: n_fft, pad: Some(EdgePadding::Reflect) };
            assert!(difference::<f32, 8>(wide, window) <= 1e-6, "{n_fft}");
            assert!(difference::<f64, 4>(wide, window) <= 1e-7, "{n_fft}");
        }
    }

    #[test]
    fn other_lengths_use_the_single_transform() {
        for n_fft in [3, 14, 401, 441, 882] {
            let window = FrameLayout { n_fft, hop: 100, length: n_fft, pad: None };
            assert!(matches!(Spectrum::<f32, 8>::new(window).transform, FftPlan::Single { .. }));
        }
    }
}
