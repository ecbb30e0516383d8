//! Interpolation between a fixed number of neighbours: what OpenCV does, and PyTorch without
//! antialiasing.

use super::super::dims::ImageDims;
use crate::deadline::{Deadline, DeadlineExceeded};
use crate::simd::vectorize;

/// For each new sample along an axis, the N old ones that it is made of, and their weights.
pub(super) struct Taps<const N: usize> {
    places: Vec<[usize; N]>,
    weights: Vec<[f32; N]>,
}

/// The precision of a new sample's position among the old ones.
#[derive(Clone, Copy)]
pub(super) enum PositionPrecision {
    /// computed in float32: PyTorch, for floats
    Single,
    /// rounded to float32: OpenCV, PyTorch for bytes
    Rounded,
    /// OpenCV, for floats between two neighbours
    Double,
}

impl PositionPrecision {
    /// The old sample before a new one, and how far behind it that lies.
    fn place(self, index: usize, old: usize, new: usize) -> (i64, f32) {
        let double = (index as f64 + 0.5) * (old as f64 / new as f64) - 0.5;
        let at = match self {
            Self::Single => old as f32 / new as f32 * (index as f32 + 0.5) - 0.5,
            Self::Rounded => double as f32,
            Self::Double => return (double.floor() as i64, (double - double.floor()) as f32),
        };
        (at.floor() as i64, at - at.floor())
    }
}

impl Taps<2> {
    /// Between the two nearest.
    pub(super) fn linear(old: usize, new: usize, precision: PositionPrecision) -> Self {
        Self::between(old, new, |index| precision.place(index, old, new))
    }

    /// OpenCV's INTER_AREA where an image grows: mostly one old sample, two where its edge lies.
    pub(super) fn enlarging(old: usize, new: usize) -> Self {
        // Not `old / new`: where a new sample begins just at an old one, the rounding decides which it is.
        let inverse = new as f64 / old as f64;
        let scale = 1.0 / inverse;
        Self::between(old, new, |index| {
            let place = (index as f64 * scale).floor();
            let at = ((index as f64 + 1.0) - (place + 1.0) * inverse) as f32;
            (place as i64, if at <= 0.0 { 0.0 } else { at - at.floor() })
        })
    }

    fn between(old: usize, new: usize, at: impl Fn(usize) -> (i64, f32)) -> Self {
        let last = old as i64 - 1;
        let (places, weights) = (0..new)
            .map(|index| match at(index) {
                (place, _) if place < 0 => ([0, 0], [1.0, 0.0]),
                (place, _) if place >= last => ([old - 1, old - 1], [1.0, 0.0]),
                (place, far) => ([place as usize, place as usize + 1], [1.0 - far, far]),
            })
            .unzip();
        Self { places, weights }
    }
}

impl Taps<4> {
    /// Between the four nearest, by the cubic of a = -0.75.
    pub(super) fn cubic(old: usize, new: usize, precision: PositionPrecision) -> Self {
        const A: f32 = -0.75;
        let last = old as i64 - 1;
        let (places, weights) = (0..new)
            .map(|index| {
                let (place, x) = precision.place(index, old, new);
                let first = ((A * (x + 1.0) - 5.0 * A) * (x + 1.0) + 8.0 * A) * (x + 1.0) - 4.0 * A;
                let second = ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0;
                let third = ((A + 2.0) * (1.0 - x) - (A + 3.0)) * (1.0 - x) * (1.0 - x) + 1.0;
                let places = [-1, 0, 1, 2].map(|off| (place + off).clamp(0, last) as usize);
                (places, [first, second, third, 1.0 - first - second - third])
            })
            .unzip();
        Self { places, weights }
    }
}

impl<const N: usize> Taps<N> {
    /// Resizes the axis of length `old` whose entries are runs of `inner` bytes, rounded to bytes.
    pub(super) fn along(
        &self,
        from: &[u8],
        old: usize,
        inner: usize,
        deadline: &Deadline,
    ) -> Result<Vec<u8>, DeadlineExceeded> {
        let bits = self.precision();
        let fixed = |weight: f32| (weight * f32::from(1_u16 << bits)).round() as i32;
        let taps: Vec<_> = self.places.iter().zip(&self.weights).map(|(at, by)| (at, by.map(fixed))).collect();
        let mut result = Vec::with_capacity(from.len() / old * taps.len());
        for block in from.chunks_exact(old * inner) {
            for (places, weights) in &taps {
                deadline.check_after(inner * N)?;
                let runs = places.map(|place| &block[place * inner..][..inner]);
                result.extend((0..inner).map(|index| {
                    let sum: i32 = runs.iter().zip(weights).map(|(run, weight)| i32::from(run[index]) * weight).sum();
                    ((sum + (1 << (bits - 1))) >> bits).clamp(0, 255) as u8
                }));
            }
        }
        Ok(result)
    }

    /// The bits after the point that fit a weight into 16 bits.
    fn precision(&self) -> u32 {
        let most = self.weights.iter().flatten().fold(0.0, |most: f32, weight| most.max(*weight));
        (1..15).take_while(|bits| (most * f32::from(1_u16 << bits)).round() < 32768.0).last().unwrap_or(1)
    }
}

/// A sample that N neighbours are mixed to, across and then down.
pub(super) trait Interpolate<const N: usize>: Copy {
    /// The value between the two passes.
    type Part: Copy + Default;
    /// A weight in fixed point.
    type Weight: Copy + Default;
    fn weight(weight: f32) -> Self::Weight;
    fn across(samples: [Self; N], weights: &[Self::Weight; N]) -> Self::Part;
    fn down(parts: [Self::Part; N], weights: &[Self::Weight; N]) -> Self;
}

/// OpenCV's fixed point: 11 bits after the point.
const ONE: f32 = 2048.0;

fn fixed(weight: f32) -> i32 {
    (weight * ONE).round_ties_even() as i32
}

fn sum<const N: usize>(samples: [u8; N], weights: &[i32; N]) -> i32 {
    samples.iter().zip(weights).map(|(sample, weight)| i32::from(*sample) * weight).sum()
}

impl Interpolate<2> for u8 {
    type Part = i32;
    type Weight = i32;
    fn weight(weight: f32) -> i32 {
        fixed(weight)
    }
    fn across(samples: [Self; 2], weights: &[i32; 2]) -> i32 {
        sum(samples, weights)
    }
    #[inline(always)]
    fn down(parts: [i32; 2], weights: &[i32; 2]) -> Self {
        ((((weights[0] * (parts[0] >> 4)) >> 16) + ((weights[1] * (parts[1] >> 4)) >> 16) + 2) >> 2) as u8
    }
}

impl Interpolate<4> for u8 {
    type Part = i32;
    type Weight = i32;
    fn weight(weight: f32) -> i32 {
        fixed(weight)
    }
    fn across(samples: [Self; 4], weights: &[i32; 4]) -> i32 {
        sum(samples, weights)
    }
    fn down(parts: [i32; 4], weights: &[i32; 4]) -> Self {
        let sum: f32 = parts.iter().zip(weights).map(|(part, weight)| *part as f32 * *weight as f32).sum();
        // The cast saturates.
        (sum / (ONE * ONE)).round_ties_even() as Self
    }
}

impl<const N: usize> Interpolate<N> for f32
where
    [f32; N]: Default,
{
    type Part = f32;
    type Weight = f32;
    fn weight(weight: f32) -> f32 {
        weight
    }
    fn across(samples: [Self; N], weights: &[f32; N]) -> f32 {
        samples.iter().zip(weights).map(|(sample, weight)| sample * weight).sum()
    }
    fn down(parts: [f32; N], weights: &[f32; N]) -> Self {
        parts.iter().zip(weights).map(|(part, weight)| part * weight).sum()
    }
}

/// The image with these taps across and down.
pub(super) fn mix<T: Interpolate<N>, const N: usize>(
    from: &[T],
    dims: ImageDims,
    across: &Taps<N>,
    down: &Taps<N>,
    deadline: &Deadline,
) -> Result<Vec<T>, DeadlineExceeded> {
    match dims.channels {
        1 => mix_channels::<T, N, 1>(from, dims.width, across, down, deadline),
        3 => mix_channels::<T, N, 3>(from, dims.width, across, down, deadline),
        _ => mix_channels::<T, N, 4>(from, dims.width, across, down, deadline),
    }
}

fn mix_channels<T: Interpolate<N>, const N: usize, const C: usize>(
    from: &[T],
    old_width: usize,
    across: &Taps<N>,
    down: &Taps<N>,
    deadline: &Deadline,
) -> Result<Vec<T>, DeadlineExceeded> {
    let (pixels, _) = from.as_chunks::<C>();
    let weights: Vec<[T::Weight; N]> = across.weights.iter().map(|weights| weights.map(T::weight)).collect();
    let width = across.places.len() * C;
    let mut rows: [Vec<T::Part>; N] = std::array::from_fn(|_| vec![T::Part::default(); width]);
    let mut held = [usize::MAX; N];
    let mut result = Vec::with_capacity(width * down.places.len());

    for (places, weight) in down.places.iter().zip(&down.weights) {
        deadline.check_after(width * 2 * N)?;
        for (slot, place) in places.iter().enumerate() {
            // Rows come in order, so a row that is needed again lies in a later slot.
            if let Some(other) = (slot..N).find(|other| held[*other] == *place) {
                rows.swap(slot, other);
                held.swap(slot, other);
            } else {
                let row = &pixels[place * old_width..][..old_width];
                across_row(row, &mut rows[slot], &across.places, &weights);
                held[slot] = *place;
            }
        }

        let weight = weight.map(T::weight);
        let rows: [&[T::Part]; N] = std::array::from_fn(|slot| &rows[slot][..width]);
        let to = result.len();
        result.resize(to + width, from[0]);
        let to = &mut result[to..];

        vectorize(
            #[inline(always)]
            move || {
                for (index, to) in to.iter_mut().enumerate() {
                    let mut parts = [T::Part::default(); N];
                    for (part, row) in parts.iter_mut().zip(&rows) {
                        *part = row[index];
                    }
                    *to = T::down(parts, &weight);
                }
            },
        );
    }

    Ok(result)
}

fn across_row<T: Interpolate<N>, const N: usize, const C: usize>(
    row: &[[T; C]],
    to: &mut [T::Part],
    places: &[[usize; N]],
    weights: &[[T::Weight; N]],
) {
    for ((to, places), weights) in to.as_chunks_mut::<C>().0.iter_mut().zip(places).zip(weights) {
        let pixels = places.map(|place| row[place]);
        for (channel, to) in to.iter_mut().enumerate() {
            *to = T::across(pixels.map(|pixel| pixel[channel]), weights);
        }
    }
}
