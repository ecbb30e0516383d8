//! Collects decoded samples within limits.

use std::time::Instant;

use gpux_core::{StepFailure, Tensor};

/// Most values of one sound: 512 MiB of float32.
pub(in crate::audio) const MAX_VALUES: usize = 128 << 20;

/// Highest sample rate that is taken for one, in hertz.
pub(in crate::audio) const MAX_RATE: u32 = 384_000;

/// Most channels of one sound.
pub(super) const MAX_CHANNELS: usize = 64;

/// Most samples that a byte of a file is expected to hold: speech is seldom packed more tightly.
pub(in crate::audio) const SAMPLES_PER_BYTE: usize = 64;

/// The limits of decoding.
#[derive(Clone, Copy, Debug)]
pub(in crate::audio) struct DecodeLimits {
    /// seconds, as the option says
    pub(in crate::audio) max_duration: u32,
    /// values of all channels that are kept
    pub(in crate::audio) max_values: usize,
    /// when the request must be done
    pub(in crate::audio) deadline: Option<Instant>,
}

/// The header's facts, before anything is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamInfo {
    /// samples a second
    pub(super) rate: u32,
    pub(super) channels: usize,
    /// samples of each channel, where the file says
    pub(super) frames: Option<u64>,
}

/// Collects samples channel by channel, or their mean.
#[derive(Debug)]
pub(super) struct SampleSink {
    shape: StreamInfo,
    mono: bool,
    limits: DecodeLimits,
    planes: Vec<Vec<f32>>,
}

impl SampleSink {
    /// A sink for a sound of this shape, which is refused if it is not one or too much.
    pub(super) fn new(shape: StreamInfo, mono: bool, limits: DecodeLimits) -> Result<Self, StepFailure> {
        if !(1..=MAX_RATE).contains(&shape.rate) {
            return Err(unsupported(&format!("its sample rate is {} Hz, not 1 to {MAX_RATE}", shape.rate)));
        }
        if !(1..=MAX_CHANNELS).contains(&shape.channels) {
            return Err(unsupported(&format!("it has {} channels, not 1 to {MAX_CHANNELS}", shape.channels)));
        }
        let planes = vec![Vec::new(); if mono { 1 } else { shape.channels }];
        let sink = Self { shape, mono, limits, planes };
        sink.check(shape.frames.unwrap_or(0))?;
        Ok(sink)
    }

    /// Samples of each channel that are kept, at most.
    fn max_frames(&self) -> u64 {
        let by_time = u64::from(self.limits.max_duration) * u64::from(self.shape.rate);
        by_time.min((self.limits.max_values / self.planes.len()) as u64)
    }

    fn check(&self, frames: u64) -> Result<(), StepFailure> {
        if frames <= self.max_frames() {
            return Ok(());
        }
        let seconds = |frames: u64| frames as f64 / f64::from(self.shape.rate);
        let message = format!(
            "the sound is at least {:.1} seconds long; at most {:.1} are decoded (option `max_duration`)",
            seconds(frames),
            seconds(self.max_frames())
        );
        Err(StepFailure::InvalidInput(message))
    }

    /// Reserves memory for `frames` more samples of each channel, if the limit allows them.
    pub(super) fn reserve(&mut self, frames: usize) -> Result<(), StepFailure> {
        let total = self.frames() as u64 + frames as u64;
        self.check(total)?;
        for plane in &mut self.planes {
            plane.reserve_exact(frames);
        }
        Ok(())
    }

    /// Takes memory for as many samples as a file of `size` bytes says it holds, if that is credible.
    pub(super) fn reserve_expected(&mut self, frames: u64, size: usize) -> Result<(), StepFailure> {
        let frames = frames.min(self.max_frames()).min(size as u64 * SAMPLES_PER_BYTE as u64);
        self.reserve(usize::try_from(frames).unwrap_or(0))
    }

    /// Samples of each channel so far.
    pub(super) fn frames(&self) -> usize {
        self.planes.first().map_or(0, Vec::len)
    }

    pub(super) fn channels(&self) -> usize {
        self.shape.channels
    }

    fn admit(&self, frames: usize) -> Result<(), StepFailure> {
        if self.limits.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(StepFailure::Timeout);
        }
        self.check(self.frames() as u64 + frames as u64)
    }

    /// Adds samples that lie channel by channel, each slice as long as the first.
    pub(super) fn planar(&mut self, channels: &[&[f32]]) -> Result<(), StepFailure> {
        let Some(first) = channels.first() else { return Ok(()) };
        self.admit(first.len())?;
        if !self.mono || channels.len() == 1 {
            for (plane, samples) in self.planes.iter_mut().zip(channels) {
                plane.extend_from_slice(samples);
            }
            return Ok(());
        }
        let plane = &mut self.planes[0];
        let start = plane.len();
        if channels.len() >= EIGHT {
            let mut frame = [0.0; MAX_CHANNELS];
            plane.extend((0..first.len()).map(|at| {
                for (sample, channel) in frame.iter_mut().zip(channels) {
                    *sample = channel[at];
                }
                sum_by_eights(&frame[..channels.len()])
            }));
            divide(&mut plane[start..], channels.len());
            return Ok(());
        }
        plane.extend_from_slice(first);
        let mean = &mut plane[start..];
        for samples in &channels[1..] {
            for (mean, sample) in mean.iter_mut().zip(*samples) {
                *mean += sample;
            }
        }
        divide(mean, channels.len());
        Ok(())
    }

    /// Adds samples that lie frame by frame, each of `size` bytes.
    pub(super) fn interleaved(
        &mut self,
        bytes: &[u8],
        size: usize,
        sample: impl Fn(&[u8]) -> f32,
    ) -> Result<(), StepFailure> {
        let channels = self.shape.channels;
        let frame = size * channels;
        self.admit(bytes.len() / frame)?;
        if channels == 1 {
            self.planes[0].extend(bytes.chunks_exact(size).map(sample));
        } else if self.mono {
            let sum = |frame: &[u8]| {
                let mut samples = frame.chunks_exact(size);
                if channels >= EIGHT {
                    let mut frame = [0.0; MAX_CHANNELS];
                    for (to, bytes) in frame.iter_mut().zip(samples) {
                        *to = sample(bytes);
                    }
                    return sum_by_eights(&frame[..channels]);
                }
                let first = samples.next().map_or(0.0, &sample);
                samples.map(&sample).fold(first, |sum, sample| sum + sample)
            };
            let plane = &mut self.planes[0];
            let start = plane.len();
            plane.extend(bytes.chunks_exact(frame).map(sum));
            divide(&mut plane[start..], channels);
        } else {
            for (channel, plane) in self.planes.iter_mut().enumerate() {
                plane.extend(bytes.chunks_exact(frame).map(|frame| sample(&frame[channel * size..][..size])));
            }
        }
        Ok(())
    }

    /// Keeps `length` samples of each channel from `start` on.
    pub(super) fn trim(&mut self, start: usize, length: usize) {
        for plane in &mut self.planes {
            plane.drain(..start.min(plane.len()));
            plane.truncate(length);
        }
    }

    /// The sound: `[samples]` if it is mono, else `[channels, samples]`.
    pub(super) fn tensor(mut self) -> Result<Tensor, StepFailure> {
        let frames = self.frames();
        let shape = if self.mono { vec![frames] } else { vec![self.planes.len(), frames] };
        let samples = if self.planes.len() == 1 { self.planes.remove(0) } else { self.planes.concat() };
        let mut tensor = Tensor::new(shape, samples)?;
        tensor.metadata.sample_rate = Some(self.shape.rate);
        Ok(tensor)
    }
}

/// From this many channels, NumPy adds in eight lanes.
const EIGHT: usize = 8;

/// The sum of the samples of a frame, of eight channels or more, in NumPy's order: libsndfile gives it frame by
/// frame, so that `mean` adds up neighbours.
fn sum_by_eights(frame: &[f32]) -> f32 {
    let (eights, rest) = frame.as_chunks::<EIGHT>();
    let mut lanes = [0.0; EIGHT];
    for (number, eight) in eights.iter().enumerate() {
        for (lane, sample) in lanes.iter_mut().zip(eight) {
            *lane = if number == 0 { *sample } else { *lane + sample };
        }
    }
    // The lanes are added in pairs, and the pairs in pairs.
    for width in [4, 2, 1] {
        for lane in 0..width {
            lanes[lane] = lanes[2 * lane] + lanes[2 * lane + 1];
        }
    }
    rest.iter().fold(lanes[0], |sum, sample| sum + sample)
}

/// Turns sums of `count` samples into means; as NumPy, by division.
fn divide(sums: &mut [f32], count: usize) {
    let count = count as f32;
    for sum in sums {
        *sum /= count;
    }
}

pub(super) fn unsupported(why: &str) -> StepFailure {
    StepFailure::InvalidInput(format!("not a sound: {why}"))
}

pub(super) fn damaged(format: &str, why: &impl ToString) -> StepFailure {
    unsupported(&format!("a damaged {format} file: {}", why.to_string()))
}
