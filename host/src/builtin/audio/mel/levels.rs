//! What becomes of energies: decibels, or what Whisper takes.

use super::logarithm::log10;
use super::options::{Max, Reference};

/// What Whisper adds to 0, so that there is a logarithm.
const WHISPER_FLOOR: f32 = 1e-10;

/// How energies become decibels.
#[derive(Clone, Copy, Debug)]
pub(in crate::builtin::audio) struct Decibels {
    pub(in crate::builtin::audio) reference: Reference,
    pub(in crate::builtin::audio) amin: f32,
    pub(in crate::builtin::audio) top_db: Option<f32>,
}

/// `librosa.power_to_db`, in place.
pub(in crate::builtin::audio) fn to_decibels(bands: &mut [f32], how: Decibels) {
    let reference = match how.reference {
        Reference::Number(number) => number,
        Reference::Strongest(Max::Max) => largest(bands),
    };
    let zero = 10.0 * reference.max(how.amin).log10();
    for band in &mut *bands {
        *band = 10.0 * log10(band.max(how.amin)) - zero;
    }
    if let Some(top_db) = how.top_db {
        raise(bands, top_db);
    }
}

/// The largest number, in eight lanes that a processor compares at once.
fn largest(numbers: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; 8];
    for part in numbers.chunks(8) {
        for (lane, number) in lanes.iter_mut().zip(part) {
            *lane = if number > lane { *number } else { *lane };
        }
    }
    lanes.into_iter().fold(f32::NEG_INFINITY, f32::max)
}

/// Raises numbers to the largest less `below`.
fn raise(numbers: &mut [f32], below: f32) {
    let floor = largest(numbers) - below;
    for number in numbers {
        *number = number.max(floor);
    }
}

/// What Whisper's feature extractor makes of the bands, in place.
pub(in crate::builtin::audio) fn to_whisper(bands: &mut [f32]) {
    for band in &mut *bands {
        *band = log10(band.max(WHISPER_FLOOR));
    }
    raise(bands, 8.0);
    for band in bands {
        *band = (*band + 4.0) / 4.0;
    }
}
