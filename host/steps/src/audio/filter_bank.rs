//! A resampler for two rates: one small filter for each place that an output can have between inputs.

use std::f32::consts::PI;

use super::sound::{LANES, dot};
use crate::deadline::{Deadline, DeadlineExceeded};

/// `method: sinc`: zero crossings of the sinc on each side, and where it begins to cut, of half the
/// lower rate (torchaudio's defaults).
const CROSSINGS: f32 = 6.0;
const ROLLOFF: f64 = 0.99;

/// `method: polyphase`: SciPy's default window, Kaiser of this shape.
const KAISER: f64 = 5.0;

/// Products between two deadline checks, about: less than a millisecond.
const BETWEEN_LOOKS: usize = 2 << 20;

/// Taps that are computed between two deadline checks: a millisecond or two.
const TAPS_BETWEEN_LOOKS: usize = 1 << 14;

/// The filters that turn a sound of one rate into another. The output `n` is
/// `sum(taps[n % up][i] * input[n / up * down + first[n % up] + i])`.
#[derive(Debug)]
pub(super) struct FilterBank {
    up: usize,
    down: usize,
    /// where each filter starts, against the first input of its turn
    first: Vec<isize>,
    length: usize,
    /// filter after filter
    taps: Vec<f32>,
}

fn divisor(one: usize, other: usize) -> usize {
    if other == 0 { one } else { divisor(other, one % other) }
}

/// The ratio of two rates, in lowest terms: (up, down).
pub(super) fn ratio(from: u32, to: u32) -> (usize, usize) {
    let (from, to) = (from as usize, to as usize);
    let divisor = divisor(from, to).max(1);
    (to / divisor, from / divisor)
}

/// Samples that become of `frames`.
pub(super) fn resampled_len(frames: usize, up: usize, down: usize) -> Option<usize> {
    Some(frames.checked_mul(up)?.div_ceil(down))
}

impl FilterBank {
    /// Approximate bytes of the filters for these rates, including temporary ones.
    pub(super) fn size(from: u32, to: u32) -> usize {
        let (up, down) = ratio(from, to);
        // 20 zero crossings and some more for each filter; SciPy's is made in float64 first.
        up.max(down).saturating_mul(24 * (size_of::<f32>() + size_of::<f64>())).saturating_add(up * 64)
    }

    /// Bytes that these filters hold.
    pub(super) fn bytes(&self) -> usize {
        self.taps.capacity() * size_of::<f32>() + self.first.capacity() * size_of::<isize>()
    }

    /// `torchaudio.functional.resample`: a sinc under a Hann window. Its inputs that are farther away than
    /// the window is wide weigh 1e-33 there, nothing here.
    pub(super) fn sinc(from: u32, to: u32, deadline: &Deadline) -> Result<Self, DeadlineExceeded> {
        let (up, down) = ratio(from, to);
        let cut = up.min(down) as f64 * ROLLOFF;
        let width = (f64::from(CROSSINGS) * down as f64 / cut).ceil() as isize;
        let (scale, cut) = ((cut / down as f64) as f32, cut as f32);
        // In float32 and in this order, as there: the rounding moves a tap by a hundred-thousandth.
        let weight = |phase: usize, input: isize| {
            let time = (-(phase as f32) / up as f32 + input as f32 / down as f32) * cut;
            if time.abs() >= CROSSINGS || input >= width + down as isize {
                return 0.0;
            }
            let window = (time * PI / CROSSINGS / 2.0).cos().powi(2);
            let time = time * PI;
            let sinc = if time == 0.0 { 1.0 } else { time.sin() / time };
            sinc * (window * scale)
        };
        let first = (0..up).map(|phase| (phase * down / up) as isize - width).collect();
        Self::new((up, down), first, 2 * width as usize + 2, weight, deadline)
    }

    /// `scipy.signal.resample_poly`: a sinc of 10 crossings of the lower rate under a Kaiser window.
    pub(super) fn polyphase(from: u32, to: u32, deadline: &Deadline) -> Result<Self, DeadlineExceeded> {
        let (up, down) = ratio(from, to);
        let rate = up.max(down);
        let half = 10 * rate;
        let prototype = prototype(half, 1.0 / rate as f64, up as f32, deadline)?;
        let (step, reach) = (up as isize, half as isize);
        let weight = |phase: usize, input: isize| {
            let place = (phase * down) as isize - input * step + reach;
            usize::try_from(place).ok().and_then(|place| prototype.get(place)).copied().unwrap_or(0.0)
        };
        let first = (0..up).map(|phase| -((reach - (phase * down) as isize).div_euclid(step))).collect();
        Self::new((up, down), first, 2 * half / up + 1, weight, deadline)
    }

    fn new(
        (up, down): (usize, usize),
        first: Vec<isize>,
        length: usize,
        weight: impl Fn(usize, isize) -> f32,
        deadline: &Deadline,
    ) -> Result<Self, DeadlineExceeded> {
        // Filters of whole lanes; what is added weighs nothing.
        let length = length.next_multiple_of(LANES);
        let mut taps = Vec::with_capacity(first.len() * length);
        let mut asked_at = 0;
        for (phase, first) in first.iter().enumerate() {
            if asked_at <= taps.len() {
                deadline.check()?;
                asked_at = taps.len() + TAPS_BETWEEN_LOOKS;
            }
            taps.extend((0..length as isize).map(|tap| weight(phase, first + tap)));
        }
        Ok(Self { up, down, first, length, taps })
    }

    /// Adds what becomes of `input` to `output`: all of it, `ceil(input × up / down)` samples.
    pub(super) fn resample(
        &self,
        input: &[f32],
        output: &mut Vec<f32>,
        deadline: &Deadline,
    ) -> Result<(), DeadlineExceeded> {
        let count = resampled_len(input.len(), self.up, self.down).unwrap_or(0);
        let filters = || self.first.iter().zip(self.taps.chunks_exact(self.length));
        let end = output.len() + count;
        let mut asked_at = 0;
        for turn in (0_isize..).step_by(self.down) {
            let left = end - output.len();
            if left == 0 {
                break;
            }
            if asked_at <= output.len() {
                deadline.check()?;
                asked_at = output.len() + (BETWEEN_LOOKS / self.length).max(1);
            }
            output.extend(filters().take(left).map(|(first, taps)| weigh(input, turn + first, taps)));
        }
        Ok(())
    }
}

/// The weighted sum of the inputs from `start` on; those that are not there are 0.
fn weigh(input: &[f32], start: isize, taps: &[f32]) -> f32 {
    let end = start + taps.len() as isize;
    if start >= 0 && end <= input.len() as isize {
        return dot(&input[start as usize..end as usize], taps);
    }
    let within = |place: isize| place.clamp(0, input.len() as isize);
    let (from, to) = (within(start), within(end));
    let taps = &taps[(from - start).clamp(0, taps.len() as isize) as usize..];
    let input = &input[from as usize..to as usize];
    dot(input, &taps[..input.len().min(taps.len())])
}

/// `scipy.signal.firwin(2 × half + 1, cut, window=("kaiser", 5.0))` in float32, times `gain`.
fn prototype(half: usize, cut: f64, gain: f32, deadline: &Deadline) -> Result<Vec<f32>, DeadlineExceeded> {
    let whole = bessel(KAISER);
    let tap = |place: isize| {
        let time = cut * place as f64 * std::f64::consts::PI;
        let sinc = if place == 0 { 1.0 } else { time.sin() / time };
        let part = place as f64 / half as f64;
        cut * sinc * bessel(KAISER * (1.0 - part * part).max(0.0).sqrt()) / whole
    };
    // It is the same on both sides.
    let mut side = Vec::with_capacity(half + 1);
    for start in (0..=half).step_by(TAPS_BETWEEN_LOOKS) {
        deadline.check()?;
        let end = half.min(start + TAPS_BETWEEN_LOOKS - 1);
        side.extend((start..=end).map(|place| tap(place as isize)));
    }
    let sum = 2.0 * side[1..].iter().sum::<f64>() + side[0];
    let scaled = |tap: &f64| (tap / sum) as f32 * gain;
    Ok(side[1..].iter().rev().chain(&side).map(scaled).collect())
}

/// The modified Bessel function of the first kind of order 0, for arguments of a few units.
fn bessel(x: f64) -> f64 {
    let quarter = x * x / 4.0;
    let (mut sum, mut term) = (1.0, 1.0);
    for k in 1..40 {
        term *= quarter / f64::from(k * k);
        sum += term;
        if term < 1e-18 * sum {
            break;
        }
    }
    sum
}
