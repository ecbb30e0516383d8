//! Energies → decibels, or the logarithmic scale of Whisper.

use super::logarithm::log10;
use super::options::{Max, Reference};
use crate::simd::{map_in_place, vectorize};

/// Whisper's lower bound of energies, so that a logarithm exists.
const WHISPER_FLOOR: f32 = 1e-10;

/// The options of decibels.
#[derive(Clone, Copy, Debug)]
pub(in crate::audio) struct DecibelOptions {
    pub(in crate::audio) reference: Reference,
    pub(in crate::audio) amin: f32,
    pub(in crate::audio) top_db: Option<f32>,
}

/// `librosa.power_to_db`, in place.
pub(in crate::audio) fn to_decibels(bands: &mut [f32], how: DecibelOptions) {
    let DecibelOptions { reference, amin, top_db } = how;
    let reference = match reference {
        Reference::Number(number) => number,
        Reference::Strongest(Max::Max) => largest(bands),
    };
    let zero = 10.0 * reference.max(amin).log10();
    map_in_place(
        bands,
        #[inline(always)]
        move |band| 10.0 * log10(band.max(amin)) - zero,
    );
    if let Some(top_db) = top_db {
        clamp_min(bands, top_db);
    }
}

/// The largest number, in lanes that a processor compares at once.
fn largest(numbers: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; 32];
    let (parts, rest) = numbers.as_chunks::<32>();
    vectorize(
        #[inline(always)]
        || {
            for part in parts {
                for (lane, number) in lanes.iter_mut().zip(part) {
                    *lane = if number > lane { *number } else { *lane };
                }
            }
        },
    );
    lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |most, number| most.max(*number))
}

/// Raises numbers to the largest less `below`.
fn clamp_min(numbers: &mut [f32], below: f32) {
    let floor = largest(numbers) - below;
    map_in_place(
        numbers,
        #[inline(always)]
        move |number| number.max(floor),
    );
}

/// Whisper's logarithmic scale, in place.
pub(in crate::audio) fn to_whisper(bands: &mut [f32]) {
    map_in_place(
        bands,
        #[inline(always)]
        |band| log10(band.max(WHISPER_FLOOR)),
    );
    let floor = largest(bands) - 8.0;
    map_in_place(
        bands,
        #[inline(always)]
        move |band| (band.max(floor) + 4.0) / 4.0,
    );
}
