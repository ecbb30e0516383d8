//! What the steps after decoding take: float32 samples with their rate.

use std::convert::Infallible;
use std::sync::{Arc, PoisonError, RwLock};

use super::decode::MAX_RATE;
use crate::builtin::ports;
use crate::pipeline::{Dim, ElementType, Kind, Mismatch, Port, Signature, StepFailure, Tensor, TensorKind};

/// A sound, taken apart: `[samples]` or `[channels, samples]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sound<'t> {
    /// channel after channel
    pub(super) samples: &'t [f32],
    /// `None` for a sound without an axis of channels
    pub(super) channels: Option<usize>,
    /// samples of each channel
    pub(super) frames: usize,
}

impl<'t> Sound<'t> {
    /// The sound in `tensor`, for the step of this name.
    pub(super) fn of(tensor: &'t Tensor, step: &str) -> Result<Self, StepFailure> {
        let refuse = |why: String| Err(StepFailure::InvalidInput(format!("{step} takes a sound, but gets {why}")));
        let Some(samples) = tensor.as_slice::<f32>() else {
            return refuse(format!("{}, not float32; cast it first", tensor.element()));
        };
        match *tensor.shape() {
            [frames] => Ok(Self { samples, channels: None, frames }),
            [channels, frames] => Ok(Self { samples, channels: Some(channels), frames }),
            ref shape => refuse(format!("{shape:?}, not [samples] or [channels, samples]")),
        }
    }

    /// Each channel; of a sound without samples, empty ones.
    pub(super) fn channels(self) -> impl Iterator<Item = &'t [f32]> {
        (0..self.channels.unwrap_or(1)).map(move |channel| &self.samples[channel * self.frames..][..self.frames])
    }

    /// The axes before the last.
    pub(super) fn shape_with(self, last: &[usize]) -> Vec<usize> {
        self.channels.iter().chain(last).copied().collect()
    }

    pub(super) fn check_finite(self, step: &str) -> Result<(), StepFailure> {
        // Without a way out of the loop it is vectorized.
        if self.samples.iter().fold(true, |finite, sample| finite & sample.is_finite()) {
            return Ok(());
        }
        Err(StepFailure::InvalidInput(format!("{step} takes a sound, but some samples are infinite or not numbers")))
    }
}

/// A port for a sound.
pub(super) fn port(description: &str) -> Port {
    let kind = Kind::Tensor(TensorKind::of_elements(ElementType::Float32));
    Port { description: description.into(), ..Port::new("audio", kind) }
}

/// The dimensions of the sound that will arrive, as far as the plan knows them.
pub(super) fn known<'k>(signature: &Signature, inputs: &'k [Option<Kind>]) -> Result<Option<&'k [Dim]>, Mismatch> {
    ports::check(signature, inputs)?;
    let Some(given) = ports::known_tensor(inputs) else { return Ok(None) };
    match given.shape.as_deref() {
        Some(shape) if !matches!(shape.len(), 1 | 2) => {
            let why = format!("a sound is [samples] or [channels, samples], not of {} axes", shape.len());
            Err(ports::refuse(signature, given, why))
        }
        shape => Ok(shape),
    }
}

/// A sound of as many channels as what will arrive, but of this length.
pub(super) fn of_length(signature: &Signature, inputs: &[Option<Kind>], length: Dim) -> Result<Vec<Kind>, Mismatch> {
    let Some(shape) = known(signature, inputs)? else {
        return Ok(signature.outputs.iter().map(|output| output.kind.clone()).collect());
    };
    let mut shape = shape.to_vec();
    if let Some(last) = shape.last_mut() {
        *last = length;
    }
    Ok(vec![Kind::Tensor(TensorKind::shaped(ElementType::Float32, shape))])
}

/// The rate of a sound, in hertz: its metadata's, or else what an option says.
pub(super) fn rate(tensor: &Tensor, option: Option<u32>, name: &str, step: &str) -> Result<u32, StepFailure> {
    let Some(rate) = tensor.metadata.sample_rate.or(option) else {
        let message = format!("{step} does not know the sample rate of the sound; say it with the option `{name}`");
        return Err(StepFailure::InvalidInput(message));
    };
    if (1..=MAX_RATE).contains(&rate) {
        return Ok(rate);
    }
    Err(StepFailure::InvalidInput(format!("{step} takes a sound of 1 to {MAX_RATE} Hz, but gets {rate} Hz")))
}

/// What was computed for a sample rate, kept for the next request: a service sees few rates.
#[derive(Debug)]
pub(super) struct PerRate<T>(RwLock<Vec<(u32, Arc<T>)>>);

impl<T> Default for PerRate<T> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<T> PerRate<T> {
    /// Rates that are kept, the newest: what a stranger's odd ones took is soon given back.
    const KEPT: usize = 4;

    pub(super) fn get(&self, rate: u32, make: impl FnOnce() -> T) -> Arc<T> {
        match self.get_or_try(rate, || Ok::<_, Infallible>(make())) {
            Ok(made) => made,
            Err(never) => match never {},
        }
    }

    /// As [`get`](Self::get), where making it may fail: then nothing is kept.
    pub(super) fn get_or_try<E>(&self, rate: u32, make: impl FnOnce() -> Result<T, E>) -> Result<Arc<T>, E> {
        let kept = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, made)) = kept.iter().find(|(of, _)| *of == rate) {
            return Ok(made.clone());
        }
        drop(kept);
        let made = Arc::new(make()?);
        let mut kept = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if kept.iter().all(|(of, _)| *of != rate) {
            if kept.len() == Self::KEPT {
                kept.remove(0);
            }
            kept.push((rate, made.clone()));
        }
        Ok(made)
    }
}

/// Numbers that [`dot`] adds side by side.
pub(super) const LANES: usize = 8;

/// The sum of products, in lanes that a processor adds at once.
pub(super) fn dot(left: &[f32], right: &[f32]) -> f32 {
    let mut lanes = [0_f32; LANES];
    let (left_parts, right_parts) = (left.chunks_exact(LANES), right.chunks_exact(LANES));
    let rest = left_parts.remainder().iter().zip(right_parts.remainder());
    let rest: f32 = rest.map(|(left, right)| left * right).sum();
    for (left, right) in left_parts.zip(right_parts) {
        for ((lane, left), right) in lanes.iter_mut().zip(left).zip(right) {
            *lane += left * right;
        }
    }
    let (low, high) = lanes.split_at(LANES / 2);
    let halves: f32 = low.iter().zip(high).map(|(low, high)| low + high).sum();
    halves + rest
}
