//! What `mel-spectrogram` is made of.

mod butterflies;
mod filters;
mod levels;
mod logarithm;
mod options;
mod spectrum;
mod transform;

pub(super) use filters::{Filters, Scale};
pub(super) use levels::{Decibels, to_decibels, to_whisper};
pub(super) use options::{Method, Norm, Options, Reference, TopDb, Unbounded};
pub(super) use spectrum::{Pad, Spectrum, Window};
