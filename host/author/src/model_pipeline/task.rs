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
    /// tensors as they are
    Tensor,
}

/// The least samples of a sound whose length the model fixes: half a second at 16 kHz.
const SAMPLES: usize = 8_000;
/// The most columns of a table of one input.
const COLUMNS: usize = 1_000;

impl Task {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Image, Self::Text, Self::Audio, Self::Table, Self::Tensor];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Text => "text",
            Self::Audio => "audio",
            Self::Table => "table",
            Self::Tensor => "tensor",
        }
    }

    /// The task of a model: what its inputs tell, else [`Task::Tensor`].
    pub fn guess(info: &ModelInfo) -> Self {
        let required: Vec<_> = required(info).collect();
        let is_cell = |input: &&InputSpec| rank(input) == Some(2) && size(input, 1) == Some(1);
        if required.iter().any(|input| input.name.contains("input_ids")) {
            Self::Text
        } else if Self::Image.input(info).is_some() {
            Self::Image
        } else if Self::Audio.input(info).is_some() {
            Self::Audio
        } else if required.len() > 1 && required.iter().all(is_cell) {
            Self::Table
        } else if let [input] = *required
            && rank(input) == Some(2)
            && (is_float(input) || input.kind == "string")
            && size(input, 1).is_none_or(|columns| columns <= COLUMNS)
        {
            Self::Table
        } else {
            Self::Tensor
        }
    }

    /// The one input that takes the picture or the sound, if the model's inputs tell. Further inputs are small.
    pub(super) fn input(self, info: &ModelInfo) -> Option<&InputSpec> {
        let is_media: fn(&InputSpec) -> bool = match self {
            Self::Image => is_image,
            Self::Audio if required(info).count() == 1 => is_audio,
            // Beside the rate, and what one part of a sound leaves to the next.
            Self::Audio if required(info).any(is_sample_rate) => is_signal,
            Self::Audio | Self::Text | Self::Table | Self::Tensor => return None,
        };
        let mut media = required(info).filter(|input| is_media(input));
        let first = media.next()?;
        let is_small = |input: &InputSpec| rank(input).is_some_and(|rank| rank <= 2) || self == Self::Audio;
        let others_are_small = required(info).all(|input| input.name == first.name || is_small(input));
        (media.next().is_none() && others_are_small).then_some(first)
    }
}

/// The inputs that a request must give.
pub(super) fn required(info: &ModelInfo) -> impl Iterator<Item = &InputSpec> {
    info.inputs.iter().filter(|input| input.required)
}

fn is_float(input: &InputSpec) -> bool {
    input.kind.starts_with("float") || input.kind == "bfloat16"
}

/// Whether its axes are those of a picture, one or a batch.
fn is_image(input: &InputSpec) -> bool {
    let is_channels = |axis: usize| matches!(size(input, axis), Some(1 | 3));
    let is_color = |axis: usize| size(input, axis) == Some(3);
    // The sides of a picture of one axis less than usual: not those of a small table.
    let is_side = |axis: usize| size(input, axis).is_none_or(|side| side >= 16);
    (is_float(input) || input.kind == "uint8")
        && !sounds(input)
        && match rank(input) {
            Some(4) => is_channels(1) || is_channels(3),
            Some(3) => is_color(0) && is_side(1) && is_side(2) || is_color(2) && is_side(0) && is_side(1),
            _ => false,
        }
}

/// Whether its name is that of a sound, or its axes are those of a long one.
fn is_audio(input: &InputSpec) -> bool {
    is_float(input) && (rank(input).is_some_and(|rank| (1..=4).contains(&rank)) && sounds(input) || is_samples(input))
}

/// Whether one axis counts samples, and the others are of one element or those of a batch.
fn is_samples(input: &InputSpec) -> bool {
    let is_count = |dim: &Dim| match dim {
        Dim::Named(name) => ["sample", "audio"].iter().any(|part| name.to_lowercase().contains(part)),
        Dim::Fixed(size) => *size >= SAMPLES,
        Dim::Dynamic => false,
    };
    let samples = samples_axis(input).and_then(|axis| input.shape.as_ref()?.get(axis));
    rank(input).is_some_and(|rank| rank <= 3) && samples.is_some_and(is_count)
}

/// Whether it is one row of numbers.
fn is_signal(input: &InputSpec) -> bool {
    is_float(input) && rank(input).is_some_and(|rank| (1..=2).contains(&rank)) && samples_axis(input).is_some()
}

/// The one axis that is neither the batch nor of one element.
pub(super) fn samples_axis(input: &InputSpec) -> Option<usize> {
    let shape = input.shape.as_deref()?;
    let is_long =
        |axis: &usize| (*axis > 0 || shape.len() == 1 || size(input, 0) > Some(1)) && size(input, *axis) != Some(1);
    let mut long = (0..shape.len()).filter(is_long);
    long.next().filter(|_| long.next().is_none())
}

pub(super) fn is_sample_rate(input: &InputSpec) -> bool {
    ["sr", "sample_rate", "sampling_rate"].contains(&input.name.as_str())
}

fn sounds(input: &InputSpec) -> bool {
    let name = input.name.to_lowercase();
    let names = ["audio", "wave", "speech", "sound", "mel", "spectrogram", "fbank", "input_values", "input_features"];
    names.iter().any(|sound| name.contains(sound))
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Task {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|task| task.name() == name).ok_or("it is image, text, audio, table or tensor")
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
