//! The parts of `mel-spectrogram`.

mod filters;
mod log_scale;
mod logarithm;
mod options;
mod spectrum;

pub(super) use filters::{Filters, Scale};
pub(super) use log_scale::{DecibelOptions, to_decibels, to_whisper};
pub(super) use options::{Method, Norm, Options, Reference, TopDb, Unbounded};
pub(super) use spectrum::{EdgePadding, FrameLayout, Spectrum};
