//! The options of `mel-spectrogram`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::spectrum::EdgePadding;
use gpux_core::BuildError;

/// Options of `mel-spectrogram`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::audio) struct Options {
    /// `librosa` (default): `librosa.feature.melspectrogram`; `whisper`: the log-mel of Whisper's feature
    /// extractor, which pads or cuts the sound to `chunk_length` and takes only `n_mels`, `n_fft`, `hop_length`,
    /// `chunk_length` and `sample_rate` beside it.
    pub(in crate::audio) method: Method,
    /// The sample rate, in hertz, of a sound whose metadata does not say it; a sound that says another one is
    /// refused. Default: what the metadata says, 16000 for `whisper`.
    #[schemars(range(min = 1, max = 384_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::audio) sample_rate: Option<u32>,
    /// Samples of a frame. Default: 2048, 400 for `whisper`; at most 65536.
    #[schemars(range(min = 2, max = 65_536))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::audio) n_fft: Option<u32>,
    /// Samples from a frame to the next. Default: 512, 160 for `whisper`.
    #[schemars(range(min = 1, max = 1_048_576))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::audio) hop_length: Option<u32>,
    /// Samples under the Hann window, in the middle of a frame. Default: `n_fft`.
    #[schemars(range(min = 1, max = 65_536))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::audio) win_length: Option<u32>,
    /// Mel bands. Default: 128, 80 for `whisper`; at most 1024.
    #[schemars(range(min = 1, max = 1024))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::audio) n_mels: Option<u32>,
    /// Lowest frequency, in hertz. Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::audio) fmin: Option<f64>,
    /// Highest frequency, in hertz. Default: half the sample rate, 8000 for `whisper`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::audio) fmax: Option<f64>,
    /// Whether the mel scale is HTK's instead of Slaney's. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::audio) htk: Option<bool>,
    /// `slaney` (default): each band is divided by its width; `none`: it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::audio) norm: Option<Norm>,
    /// The power of the magnitudes: 1 for magnitudes, 2 for energy. Default: 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::audio) power: Option<f64>,
    /// Whether frames are centred on their place, the edges padded by half a frame. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::audio) center: Option<bool>,
    /// What the edges are padded with: `constant` (default, silence), `reflect` or `edge`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::audio) pad_mode: Option<EdgePadding>,
    /// Whether to turn the bands into decibels, as `librosa.power_to_db` does. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::audio) db: Option<bool>,
    /// With `db`: what is 0 decibels, a number or `max` for the strongest band. Default: 1.
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    pub(in crate::audio) reference: Option<Reference>,
    /// With `db`: what weaker bands are raised to, more than 0. Default: 1e-10.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::audio) amin: Option<f32>,
    /// With `db`: decibels below the strongest band that weaker ones are raised to, or `none`. Default: 80.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::audio) top_db: Option<TopDb>,
    /// With `whisper`: seconds of the sound, which is filled up with silence or cut. Default: 30.
    #[schemars(range(min = 1, max = 3600))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::audio) chunk_length: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(in crate::audio) enum Method {
    #[default]
    Librosa,
    Whisper,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(in crate::audio) enum Norm {
    Slaney,
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(in crate::audio) enum Max {
    Max,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(in crate::audio) enum Unbounded {
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(in crate::audio) enum Reference {
    Number(f32),
    Strongest(Max),
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(in crate::audio) enum TopDb {
    Decibels(f32),
    Unbounded(Unbounded),
}

impl Options {
    /// Refuses options that cannot work.
    pub(in crate::audio) fn check(&self) -> Result<(), BuildError> {
        self.check_company()?;
        self.check_bands()
    }

    /// Options that do not stand beside each other.
    fn check_company(&self) -> Result<(), BuildError> {
        let whisper = self.method == Method::Whisper;
        let of_librosa = [
            ("win_length", self.win_length.is_some()),
            ("fmin", self.fmin.is_some()),
            ("fmax", self.fmax.is_some()),
            ("htk", self.htk.is_some()),
            ("norm", self.norm.is_some()),
            ("power", self.power.is_some()),
            ("center", self.center.is_some()),
            ("pad_mode", self.pad_mode.is_some()),
            ("db", self.db.is_some()),
        ];
        if let Some((name, _)) = of_librosa.iter().find(|(_, given)| whisper && *given) {
            let message = format!("`{name}` is decided by `method: whisper`");
            return Err(BuildError::option(name, message).with_hint(format!("leave `{name}` out, or `method`")));
        }
        if !whisper && self.chunk_length.is_some() {
            return Err(BuildError::option("chunk_length", "`chunk_length` belongs to `method: whisper`")
                .with_hint("pad or cut the sound with the step `pad-or-trim`"));
        }
        let of_decibels =
            [("ref", self.reference.is_some()), ("amin", self.amin.is_some()), ("top_db", self.top_db.is_some())];
        if let Some((name, _)) = of_decibels.iter().find(|(_, given)| *given && self.db != Some(true)) {
            return Err(BuildError::option(name, format!("`{name}` needs `db`")).with_hint("add `db: true`"));
        }
        Ok(())
    }

    fn check_bands(&self) -> Result<(), BuildError> {
        let (low, high) = (self.fmin.unwrap_or(0.0), self.fmax.unwrap_or(f64::MAX));
        if !(0.0..high).contains(&low) || !high.is_finite() {
            let message = format!("the bands go from {low} to {high} Hz; `fmin` is at least 0 and less than `fmax`");
            return Err(BuildError::option(if self.fmax.is_some() { "fmax" } else { "fmin" }, message));
        }
        if self.power.is_some_and(|power| !(power > 0.0 && power <= 16.0)) {
            return Err(BuildError::option("power", "`power` is more than 0 and at most 16"));
        }
        Ok(())
    }
}
