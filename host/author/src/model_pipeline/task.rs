//! What a model takes, guessed from its inputs.

use std::fmt;
use std::str::FromStr;

use gpux_core::Dim;
use gpux_inference::{InputSpec, ModelInfo};

/// What a model takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// the pixels of a picture
    Image,
    /// token numbers of a text
    Text,
    /// samples of a sound, or the strengths of its mel bands
    Audio,
    /// numbers or texts, a row for each thing
    Table,
}

impl Task {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Image, Self::Text, Self::Audio, Self::Table];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Text => "text",
            Self::Audio => "audio",
            Self::Table => "table",
        }
    }

    /// The task of a model, if its inputs tell.
    pub fn guess(info: &ModelInfo) -> Option<Self> {
        let required: Vec<_> = info.inputs.iter().filter(|input| input.required).collect();
        if required.iter().any(|input| input.name.contains("input_ids")) {
            return Some(Self::Text);
        }
        let is_cell = |input: &&InputSpec| rank(input) == Some(2) && size(input, 1) == Some(1);
        if required.len() > 1 {
            return required.iter().all(is_cell).then_some(Self::Table);
        }
        let input = required.first()?;
        let name = input.name.to_lowercase();
        let sounds =
            ["audio", "wave", "speech", "sound", "mel", "spectrogram", "fbank", "input_values", "input_features"];
        let is_float = input.kind.starts_with("float");
        match rank(input)? {
            1..=4 if is_float && sounds.iter().any(|sound| name.contains(sound)) => Some(Self::Audio),
            4 if is_float || input.kind == "uint8" => {
                let has_channels = [1, 3].iter().any(|axis| matches!(size(input, *axis), Some(1 | 3)));
                has_channels.then_some(Self::Image)
            }
            2 if is_float || input.kind == "string" => Some(Self::Table),
            _ => None,
        }
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Task {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|task| task.name() == name).ok_or("it is image, text, audio or table")
    }
}

pub(super) fn rank(input: &InputSpec) -> Option<usize> {
    input.shape.as_ref().map(Vec::len)
}

/// The size of an axis, if the model fixes it.
pub(super) fn size(input: &InputSpec, axis: usize) -> Option<usize> {
    match input.shape.as_ref()?.get(axis)? {
        Dim::Fixed(size) => Some(*size),
        _ => None,
    }
}
