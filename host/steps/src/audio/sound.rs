//! The input of the steps after decoding: float32 samples with their rate.

use std::sync::{Arc, Mutex, PoisonError};

use super::decode::MAX_RATE;
use gpux_core::{Dim, ElementType, Kind, Port, StepFailure, Tensor, TensorKind};

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
    pub(super) fn new(tensor: &'t Tensor, step: &str) -> Result<Self, StepFailure> {
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

/// The dimensions of a sound, as far as the plan knows them.
pub(super) fn known_shape(given: &TensorKind) -> Result<Option<&[Dim]>, String> {
    match given.shape.as_deref() {
        Some(shape) if !matches!(shape.len(), 1 | 2) => {
            Err(format!("a sound is [samples] or [channels, samples], not of {} axes", shape.len()))
        }
        shape => Ok(shape),
    }
}

/// Makes the output a sound of as many channels as `given`, but of this length.
pub(super) fn set_length(given: &TensorKind, length: Dim, outputs: &mut [Kind]) -> Result<(), String> {
    if let Some([channels @ .., _]) = known_shape(given)? {
        outputs[0] = Kind::Tensor(TensorKind::shaped(ElementType::Float32, [channels, &[length]].concat()));
    }
    Ok(())
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

/// Values that take long to compute, kept for the next request: one cache for every step of the process, whatever its
/// options. At most `most` bytes, and at most 64 values; the least recently used value is evicted first.
#[derive(Debug)]
pub(super) struct SharedCache<K, V> {
    most: usize,
    /// the most recently used value at the end, each with its bytes
    entries: Mutex<Vec<(K, Arc<V>, usize)>>,
}

impl<K: PartialEq, V> SharedCache<K, V> {
    const MOST_VALUES: usize = 64;

    pub(super) const fn new(most: usize) -> Self {
        Self { most, entries: Mutex::new(Vec::new()) }
    }

    /// The value of `key`, which `make` computes where it is not kept; `size` tells its bytes. If making it fails,
    /// nothing is kept.
    pub(super) fn get_or_try<E>(
        &self,
        key: K,
        make: impl FnOnce() -> Result<V, E>,
        size: impl FnOnce(&V) -> usize,
    ) -> Result<Arc<V>, E> {
        let entries = || self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let mut kept = entries();
        if let Some(place) = kept.iter().position(|(of, ..)| *of == key) {
            kept[place..].rotate_left(1);
            return Ok(kept[kept.len() - 1].1.clone());
        }
        drop(kept);
        // Two requests may make the same value; neither waits for the other.
        let made = Arc::new(make()?);
        let size = size(&made);
        if size <= self.most {
            let mut kept = entries();
            kept.retain(|(of, ..)| *of != key);
            let mut total: usize = kept.iter().map(|(.., size)| size).sum();
            while !kept.is_empty() && (total + size > self.most || kept.len() >= Self::MOST_VALUES) {
                total -= kept.remove(0).2;
            }
            kept.push((key, made.clone(), size));
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn evicts_least_recently_used_values_beyond_the_bytes() {
        let cache = SharedCache::new(100);
        let made = std::cell::Cell::new(0);
        let get = |key: u32, bytes: usize| {
            let make = || {
                made.set(made.get() + 1);
                Ok::<_, ()>(vec![0_u8; bytes])
            };
            cache.get_or_try(key, make, Vec::len).unwrap().len()
        };
        let held = || cache.entries.lock().unwrap().iter().map(|(key, _, size)| (*key, *size)).collect::<Vec<_>>();
        assert_eq!((get(1, 40), get(2, 40), get(1, 0)), (40, 40, 40));
        assert_eq!((made.get(), held()), (2, vec![(2, 40), (1, 40)]));
        // 2 was used before 1.
        get(3, 50);
        assert_eq!(held(), [(1, 40), (3, 50)]);
        get(4, 101);
        assert_eq!((made.get(), held()), (4, vec![(1, 40), (3, 50)]), "larger than all: not kept");
        assert_eq!(cache.get_or_try(5, || Err("late"), Vec::len), Err("late"));
        (10..200).for_each(|key| assert_eq!(get(key, 0), 0));
        assert_eq!(held().len(), 64);
    }
}
