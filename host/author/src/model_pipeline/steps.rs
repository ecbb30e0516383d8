//! The steps around a model.

use std::fmt::Write as _;

use super::task::{Task, rank, size};
use gpux_core::Tensor;
use gpux_inference::{InputSpec, ModelInfo};

/// The side of a picture where the model takes any.
const SIDE: usize = 224;
/// Samples a second where nothing says it: what most models of speech take.
const SAMPLE_RATE: u32 = 16_000;
/// Whisper's frames a second.
const FRAMES: usize = 100;
/// Entries of a result.
const TOP: usize = 5;
/// Scores that come from `softmax` add up to one this exactly.
const EXACT: f64 = 1e-3;

/// Lines of `pipeline:` before the model.
pub(super) fn preprocessing(task: Task, info: &ModelInfo) -> String {
    let Some(input) = info.inputs.first() else { return String::new() };
    match task {
        Task::Image => image(input),
        Task::Text => text(info),
        Task::Audio => audio(input),
        Task::Table => String::new(),
    }
}

fn image(input: &InputSpec) -> String {
    let is_last = matches!(size(input, 3), Some(1 | 3)) && !matches!(size(input, 1), Some(1 | 3));
    let (height, width, channels) = if is_last { (1, 2, 3) } else { (2, 3, 1) };
    let side = |axis| size(input, axis).unwrap_or(SIDE);
    let is_gray = size(input, channels) == Some(1);
    let mut lines = if is_gray { "  - decode-image: { channels: gray }\n" } else { "  - decode-image\n" }.to_owned();
    let _ = writeln!(lines, "  - resize: {{ size: [{}, {}] }}", side(height), side(width));
    if input.kind != "uint8" {
        let method = if is_gray { "unit" } else { "imagenet" };
        lines += "  # As the model was trained: `gpux steps normalize` lists the conventions.\n";
        let _ = writeln!(lines, "  - normalize: {{ method: {method} }}");
    }
    lines
}

fn text(info: &ModelInfo) -> String {
    // A model takes as many tokens as it has positions.
    let fixed = info.inputs.iter().find(|input| input.name.contains("input_ids")).and_then(|input| size(input, 1));
    let length = fixed.map_or_else(
        || ", max_length: 512".to_owned(),
        |length| format!(", max_length: {length}, padding: max_length"),
    );
    format!("  - tokenize: {{ tokenizer: ./tokenizer.json{length} }}\n")
}

fn audio(input: &InputSpec) -> String {
    let mut lines = format!("  - decode-audio\n  - resample: {{ to: {SAMPLE_RATE} }}\n");
    // [batch, bands, frames], or with a channel before the bands.
    let has_channel = rank(input) == Some(4);
    if has_channel || rank(input) == Some(3) && size(input, 1) != Some(1) {
        let axis = if has_channel { 2 } else { 1 };
        let bands = size(input, axis).unwrap_or(80);
        lines += "  # As Whisper's feature extractor does; `gpux steps mel-spectrogram` lists the options.\n";
        let seconds = size(input, axis + 1).filter(|frames| frames % FRAMES == 0).map(|frames| frames / FRAMES);
        let length = seconds.map_or_else(String::new, |seconds| format!(", chunk_length: {seconds}"));
        let _ = writeln!(lines, "  - mel-spectrogram: {{ method: whisper, n_mels: {bands}{length} }}");
        if has_channel {
            lines += "  - expand: { axes: 0 }\n";
        }
        return lines;
    }
    if let Some(length) = rank(input).and_then(|rank| size(input, rank.checked_sub(1)?)) {
        let _ = writeln!(lines, "  - pad-or-trim: {{ length: {length} }}");
    }
    for _ in 1..rank(input).unwrap_or(1) {
        lines += "  - expand: { axes: 0 }\n";
    }
    lines
}

/// What follows the model, by what it gave on the sample.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Postprocessing {
    /// scores of classes
    Classes {
        /// the output's name
        output: String,
        /// how many
        count: usize,
        /// whether they add up to one
        probabilities: bool,
    },
    /// boxes as Ultralytics' models give them, of this many classes
    Boxes {
        /// the output's name
        output: String,
    },
    /// vectors of tokens
    Tokens {
        /// the output's name
        output: String,
    },
    /// one vector
    Vector {
        /// the output's name
        output: String,
    },
    /// nothing
    Nothing,
}

impl Postprocessing {
    /// By the model's first output.
    pub(super) fn choose(task: Task, info: &ModelInfo, name: &str, tensor: &Tensor) -> Self {
        let (output, shape) = (quoted(name), tensor.shape());
        let has = |parts: &[&str]| parts.iter().any(|part| name.to_lowercase().contains(part));
        match (task, shape) {
            (Task::Table, _) => Self::Nothing,
            (Task::Image, [1, rows, anchors])
                if *rows > 4 && anchors > rows && (name == "output0" || Some(*anchors) == anchors_of(info)) =>
            {
                Self::Boxes { output }
            }
            (Task::Text, [1, _, _]) if has(&["hidden", "embed"]) => Self::Tokens { output },
            (_, [1, _]) if has(&["embed", "hidden", "pool", "vector", "feature"]) => Self::Vector { output },
            (_, [1, count]) if *count > 1 => {
                Self::Classes { output, count: *count, probabilities: is_probability(tensor) }
            }
            _ => Self::Nothing,
        }
    }

    /// Lines of `pipeline:` after the model; `alone` says whether its output is the only one.
    pub(super) fn lines(&self, alone: bool, has_labels: bool) -> String {
        let from = |output: &str, others: &str| {
            let mut options: Vec<_> = if alone { Vec::new() } else { vec![format!("in: {output}")] };
            options.extend((!others.is_empty()).then(|| others.to_owned()));
            if options.is_empty() { String::new() } else { format!(": {{ {} }}", options.join(", ")) }
        };
        match self {
            Self::Nothing => String::new(),
            Self::Classes { output, count, probabilities } => {
                let labels = if has_labels { ", labels: ./labels.txt" } else { "" };
                let top = format!("k: {}{labels}", count.min(&TOP));
                let hint = if has_labels {
                    ""
                } else {
                    "  # With the names of the classes, one a line: `labels: ./labels.txt`.\n"
                };
                if *probabilities {
                    format!("{hint}  - top-k{}\n", from(output, &top))
                } else {
                    format!("  - softmax{}\n{hint}  - top-k: {{ {top} }}\n", from(output, ""))
                }
            }
            Self::Boxes { output } => {
                let labels = if has_labels { ", labels: ./labels.txt" } else { "" };
                format!("  - nms: {{ in: [{output}, fitted]{labels} }}\n")
            }
            Self::Tokens { output } => {
                format!("  - mean-pool: {{ in: [{output}, attention_mask] }}\n  - l2-normalize\n")
            }
            Self::Vector { output } => format!("  - l2-normalize{}\n", from(output, "")),
        }
    }

    /// Lines before the model, if what follows needs others than [`preprocessing`] gives.
    pub(super) fn preprocessing(&self, info: &ModelInfo) -> Option<String> {
        let Self::Boxes { .. } = self else { return None };
        let input = info.inputs.first()?;
        let side = |axis| size(input, axis).unwrap_or(640);
        let (height, width) = (side(2), side(3));
        let fit = format!("  - letterbox: {{ size: [{height}, {width}], out: fitted }}\n");
        Some(format!("  - decode-image\n{fit}  - to-tensor: {{ scale: true }}\n"))
    }
}

/// The anchors of a detector of Ultralytics for its pictures: one for each cell of three grids.
fn anchors_of(info: &ModelInfo) -> Option<usize> {
    let input = info.inputs.first()?;
    let side = |axis| size(input, axis).unwrap_or(SIDE);
    Some([8, 16, 32].iter().map(|stride| (side(2) / stride) * (side(3) / stride)).sum())
}

/// A name as YAML takes it in a list.
fn quoted(name: &str) -> String {
    let is_plain = name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !matches!(name.to_ascii_lowercase().as_str(), "true" | "false" | "null" | "yes" | "no" | "on" | "off");
    if is_plain { name.to_owned() } else { serde_json::json!(name).to_string() }
}

/// Whether the scores of each row are those of `softmax`.
fn is_probability(tensor: &Tensor) -> bool {
    let Some(scores) = tensor.as_slice::<f32>() else { return false };
    let sum: f64 = scores.iter().map(|score| f64::from(*score)).sum();
    scores.iter().all(|score| (0.0..=1.0).contains(score)) && (sum - 1.0).abs() < EXACT
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpux_core::Dim;

    #[test]
    fn models_of_mel_bands_get_a_spectrogram() {
        let steps = |shape: &[Option<usize>]| {
            let dim = |size: &Option<usize>| size.map_or(Dim::Dynamic, Dim::Fixed);
            let shape = Some(shape.iter().map(dim).collect());
            audio(&InputSpec {
                name: "mel".to_owned(),
                kind: "float32".to_owned(),
                shape,
                required: true,
                description: String::new(),
                value: None,
                index_limit: None,
            })
        };
        let spectrogram = |bands: &str| format!("mel-spectrogram: {{ method: whisper, n_mels: {bands} }}");
        let plain = steps(&[None, Some(64), None]);
        assert!(plain.contains(&spectrogram("64")) && !plain.contains("expand"), "{plain}");
        let with_channel = steps(&[None, Some(1), Some(40), None]);
        assert!(with_channel.contains(&spectrogram("40")) && with_channel.ends_with("  - expand: { axes: 0 }\n"));
        assert!(!steps(&[None, Some(16_000)]).contains("mel-spectrogram"));
    }
}
