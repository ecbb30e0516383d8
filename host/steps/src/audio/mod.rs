//! Steps that work on sound: samples of -1 to 1, `[samples]` or `[channels, samples]`, whose metadata
//! holds the sample rate.

mod decode;
mod decode_audio;
mod fbank;
mod filter_bank;
mod frame;
mod mel;
mod mel_spectrogram;
mod mfcc;
mod mono;
mod pad_or_trim;
mod resample;
mod sound;

use gpux_core::Builtin;

/// The steps of this group, in the order in which a pipeline usually uses them.
pub(super) fn all() -> Vec<Builtin> {
    vec![
        decode_audio::builtin(),
        mono::builtin(),
        resample::builtin(),
        pad_or_trim::builtin(),
        frame::builtin(),
        mel_spectrogram::builtin(),
        fbank::builtin(),
        mfcc::builtin(),
    ]
}

#[cfg(test)]
mod reference_tests;
