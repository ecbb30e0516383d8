//! What `mel-spectrogram` is made of.

mod filters;
mod logarithm;
mod spectrum;

pub(super) use filters::{Filters, Scale};
pub(super) use logarithm::log10;
pub(super) use spectrum::{Pad, Spectrum, Window};
