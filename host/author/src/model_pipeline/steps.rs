//! The steps around a model.

use std::fmt::Write as _;

use super::task::{self, Task, is_sample_rate, rank, samples_axis, size};
use gpux_core::{Dim, ElementType, Tensor};
use gpux_inference::{InputSpec, ModelInfo};

/// Sizes for the axes that a model leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenSizes {
    /// height and width of a picture
    pub(super) picture: [usize; 2],
    /// samples of a sound; `None` for all that there are
    pub(super) samples: Option<usize>,
    /// axes of other inputs
    pub(super) axis: usize,
}

impl Task {
    /// The sizes to try, one after the other, until the model runs.
    pub(super) fn open_sizes(self, info: &ModelInfo) -> Vec<OpenSizes> {
        let axis = match self {
            Self::Table => 4,
            Self::Tensor => 8,
            // Beside one picture or sound, it is that of the batch.
            Self::Image | Self::Audio | Self::Text => 1,
        };
        let usual = OpenSizes { picture: SIDES[0], samples: None, axis };
        let is_open = |input: &InputSpec| input.shape.iter().flatten().skip(1).any(|dim| !matches!(dim, Dim::Fixed(_)));
        match self {
            _ if !task::required(info).any(is_open) => vec![usual],
            Self::Image => SIDES.map(|picture| OpenSizes { picture, ..usual }).to_vec(),
            Self::Audio => [None, Some(CHUNK)].map(|samples| OpenSizes { samples, ..usual }).to_vec(),
            Self::Table | Self::Tensor => [axis, 1, 16, 64, 256].map(|axis| OpenSizes { axis, ..usual }).to_vec(),
            Self::Text => vec![usual],
        }
    }
}

/// The sides of a picture that are tried where the model takes any: most take 224; readers of text lines are low.
const SIDES: [[usize; 2]; 4] = [[224, 224], [48, 320], [32, 100], [640, 640]];
/// Samples a second where nothing says it: what most models of speech take.
pub(super) const SAMPLE_RATE: u32 = 16_000;
/// Samples of one part of a sound, for models that are called part by part.
const CHUNK: usize = 512;
/// Whisper's frames a second.
const FRAMES: usize = 100;
/// Entries of a result.
const TOP: usize = 5;
/// Scores that come from `softmax` add up to one this exactly.
const EXACT: f64 = 1e-3;

/// Lines of `pipeline:` before the model. Where it takes any size, pictures and sounds become of `sizes`.
pub(super) fn preprocessing(task: Task, info: &ModelInfo, sizes: OpenSizes) -> String {
    let of_named_task = || task::required(info).next();
    let Some(input) = task.input(info).or_else(of_named_task) else { return String::new() };
    let mut lines = match task {
        Task::Image => image(input, info, sizes.picture),
        Task::Text => return text(info),
        Task::Audio => audio(input, sizes.samples),
        Task::Table | Task::Tensor => return String::new(),
    };
    // A model of one input takes what comes; of several, what has the input's name.
    if task::required(info).count() > 1
        && let Some(last) =
            lines.trim_end().rfind("\n  - ").map(|at| at + 1).or_else(|| lines.starts_with("  - ").then_some(0))
    {
        let step = lines.split_off(last);
        let out = quoted(&input.name);
        lines += &match step.trim_end().strip_suffix(" }") {
            Some(options) => format!("{options}, out: {out} }}\n"),
            None => format!("{}: {{ out: {out} }}\n", step.trim_end()),
        };
    }
    lines
}

/// The lines of `inputs:`, where the model takes more than the picture or the sound. The rate of a sound is known.
pub(super) fn inputs(task: Task, info: &ModelInfo) -> String {
    let Some(media) = task.input(info).filter(|_| task::required(info).count() > 1) else { return String::new() };
    let mut lines = format!("\ninputs:\n  {task}: {{ type: {task} }}\n");
    for input in task::required(info).filter(|input| input.name != media.name) {
        let dim = |dim: &Dim| match dim {
            Dim::Fixed(size) => size.to_string(),
            Dim::Named(name) if quoted(name) == *name => name.clone(),
            Dim::Named(_) | Dim::Dynamic => "-1".to_owned(),
        };
        let shape: Vec<_> = input.shape.iter().flatten().map(dim).collect();
        let default = if is_sample_rate(input) { format!(", default: {SAMPLE_RATE}") } else { String::new() };
        let (name, kind, shape) = (quoted(&input.name), &input.kind, shape.join(", "));
        let _ = writeln!(lines, "  {name}: {{ type: {kind}, shape: [{shape}]{default} }}");
    }
    lines
}

/// The height and width of the pictures that the model takes: those that it fixes, else those that it was exported with
/// by Ultralytics, else `default`.
fn sides(input: &InputSpec, info: &ModelInfo, default: [usize; 2]) -> [usize; 2] {
    let exported = info.metadata.get("imgsz").and_then(|text| serde_json::from_str(text).ok());
    let [height, width] = exported.filter(|sides: &[usize; 2]| sides.iter().all(|side| *side > 0)).unwrap_or(default);
    let (vertical, horizontal) = if is_channels_last(input) { (1, 2) } else { (2, 3) };
    let batch = rank(input).unwrap_or(4).min(4);
    let side = |axis: usize, default| size(input, (axis + batch).saturating_sub(4)).unwrap_or(default);
    [side(vertical, height), side(horizontal, width)]
}

fn is_channels_last(input: &InputSpec) -> bool {
    let channels = |axis| matches!(size(input, axis), Some(1 | 3));
    match rank(input) {
        Some(3) => channels(2) && !channels(0),
        _ => channels(3) && !channels(1),
    }
}

fn image(input: &InputSpec, info: &ModelInfo, default: [usize; 2]) -> String {
    let [height, width] = sides(input, info, default);
    let channels = match (is_channels_last(input), rank(input)) {
        (true, Some(3)) => 2,
        (true, _) => 3,
        (false, Some(3)) => 0,
        (false, _) => 1,
    };
    let is_gray = size(input, channels) == Some(1);
    if let Some(task) = ultralytics_task(info).filter(|_| !is_gray && channels == 1) {
        return ultralytics_image(task, height, width);
    }
    let mut lines = if is_gray { "  - decode-image: { channels: gray }\n" } else { "  - decode-image\n" }.to_owned();
    let _ = writeln!(lines, "  - resize: {{ size: [{height}, {width}] }}");
    if input.kind != "uint8" {
        let method = if is_gray { "unit" } else { "imagenet" };
        lines += "  # As the model was trained: `gpux steps normalize` lists the conventions.\n";
        let _ = writeln!(lines, "  - normalize: {{ method: {method} }}");
    }
    lines
}

/// The task of a model that Ultralytics exported: its metadata say it.
fn ultralytics_task(info: &ModelInfo) -> Option<&str> {
    let has = |key| info.metadata.contains_key(key);
    info.metadata.get("task").map(String::as_str).filter(|_| has("stride") && has("imgsz"))
}

/// The steps of Ultralytics' predictors: classifiers cut a square out, the others fit the picture in.
fn ultralytics_image(task: &str, height: usize, width: usize) -> String {
    let fit = match task {
        "classify" if height == width => {
            format!("  - resize: {{ size: {height}, mode: shortest }}\n  - center-crop: {{ size: {height} }}\n")
        }
        "classify" => format!("  - resize: {{ size: [{height}, {width}] }}\n"),
        _ => format!("  - letterbox: {{ size: [{height}, {width}] }}\n"),
    };
    format!("  - decode-image\n{fit}  - to-tensor: {{ scale: true }}\n")
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

fn audio(input: &InputSpec, length: Option<usize>) -> String {
    let mut lines = format!("  - decode-audio\n  - resample: {{ to: {SAMPLE_RATE} }}\n");
    let samples = samples_axis(input);
    // [batch, bands, frames], or with a channel before the bands.
    let has_channel = rank(input) == Some(4);
    if samples.is_none() && (has_channel || rank(input) == Some(3)) {
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
    let rank = rank(input).unwrap_or(1);
    let samples = samples.unwrap_or_else(|| rank.saturating_sub(1));
    if let Some(length) = size(input, samples).or(length) {
        let _ = writeln!(lines, "  - pad-or-trim: {{ length: {length} }}");
    }
    let axes: Vec<_> = (0..rank).filter(|axis| *axis != samples).collect();
    match axes.as_slice() {
        [] => {}
        [only] => lines += &format!("  - expand: {{ axes: {only} }}\n"),
        several => lines += &format!("  - expand: {{ axes: {several:?} }}\n"),
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
        /// whether they are probabilities
        probabilities: bool,
    },
    /// numbers of classes
    ClassNumbers {
        /// the output's name
        output: String,
    },
    /// boxes as Ultralytics' models give them
    Boxes {
        /// the output's name
        output: String,
        /// how many classes they may be of; none where it is not seen from the shape
        count: Option<usize>,
        /// other options of `nms`
        options: String,
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
    /// By the model's outputs, in its own order; `labels` says how many names of classes there are.
    pub(super) fn choose(task: Task, info: &ModelInfo, outputs: &[(&str, &Tensor)], labels: Option<usize>) -> Self {
        let Some((name, tensor)) = outputs.first() else { return Self::Nothing };
        let (output, shape) = (quoted(name), tensor.shape());
        match (task, shape) {
            (Task::Tensor, _) => Self::Nothing,
            (Task::Table, _) => labels.map_or(Self::Nothing, |labels| Self::named_classes(outputs, labels)),
            (Task::Image, [1, _, columns]) if is_end_to_end(info, *columns) => {
                Self::end_to_end(output, *columns, info, outputs).unwrap_or(Self::Nothing)
            }
            (Task::Image, [1, rows, anchors])
                if anchors > rows && (*name == "output0" || Some(*anchors) == anchors_of(info)) =>
            {
                Self::boxes(output, *rows, info, outputs).unwrap_or(Self::Nothing)
            }
            (Task::Text, [1, _, _]) if has(name, &["hidden", "embed"]) => Self::Tokens { output },
            (_, [1, _]) if has(name, &["embed", "hidden", "pool", "vector", "feature"]) => Self::Vector { output },
            _ => Self::scores(outputs, labels),
        }
    }

    /// Boxes of so many rows: four numbers, the scores of the classes, and what Ultralytics' `task` adds behind them.
    /// `None` if the metadata contradict the rows.
    /// <https://docs.ultralytics.com/tasks/>
    fn boxes(output: String, rows: usize, info: &ModelInfo, outputs: &[(&str, &Tensor)]) -> Option<Self> {
        let (behind, options) = Self::behind_classes(info, outputs)?;
        let count = rows.checked_sub(4)?.checked_sub(behind).filter(|count| *count > 0)?;
        Some(Self::Boxes { output, count: Some(count), options })
    }

    /// Boxes that the model has chosen itself: two corners, score, class, and what the task adds.
    fn end_to_end(output: String, columns: usize, info: &ModelInfo, outputs: &[(&str, &Tensor)]) -> Option<Self> {
        let (behind, options) = Self::behind_classes(info, outputs)?;
        let options = format!(", layout: end-to-end{options}");
        (columns == 6 + behind).then_some(Self::Boxes { output, count: None, options })
    }

    /// How many numbers the task adds to a box, and the options of `nms` for them.
    fn behind_classes(info: &ModelInfo, outputs: &[(&str, &Tensor)]) -> Option<(usize, String)> {
        Some(match info.metadata.get("task").map(String::as_str) {
            None | Some("detect") => (0, String::new()),
            Some("pose") => {
                let [points, numbers]: [usize; 2] = serde_json::from_str(info.metadata.get("kpt_shape")?).ok()?;
                (
                    points.checked_mul(numbers).filter(|_| matches!(numbers, 2 | 3))?,
                    format!(", keypoints: [{points}, {numbers}]"),
                )
            }
            Some("segment") => {
                // The second output has the masks that the coefficients mix: [1, coefficients, height, width].
                let (_, masks) = outputs.get(1)?;
                let &[1, coefficients, _, _] = masks.shape() else { return None };
                (coefficients, format!(", mask_coefficients: {coefficients}"))
            }
            Some("obb") => (1, ", angle: true".to_owned()),
            Some(_) => return None,
        })
    }

    /// The classes of a table: one row of scores, else numbers.
    fn named_classes(outputs: &[(&str, &Tensor)], labels: usize) -> Self {
        let is_row = |tensor: &Tensor| matches!(tensor.shape(), [1, count] if *count == labels);
        let scores = outputs.iter().find(|(_, tensor)| is_row(tensor) && tensor.element().is_float());
        let is_number = |tensor: &Tensor| matches!(tensor.shape(), [1] | [1, 1]);
        let is_whole = |tensor: &Tensor| matches!(tensor.element(), ElementType::Int64 | ElementType::Int32);
        let numbers = || outputs.iter().find(|(_, tensor)| is_number(tensor) && is_whole(tensor));
        match (scores, numbers) {
            (Some((name, _)), _) => Self::Classes { output: quoted(name), count: labels, probabilities: true },
            (None, numbers) => numbers().map_or(Self::Nothing, |(name, _)| Self::ClassNumbers { output: quoted(name) }),
        }
    }

    /// The output with the scores of classes, if one is seen to be that: by its number of classes, its values or its
    /// name, or because there is no other. Boxes and places are none.
    fn scores(outputs: &[(&str, &Tensor)], labels: Option<usize>) -> Self {
        let row = |(name, tensor): &(&str, &Tensor)| {
            let [1, count] = tensor.shape() else { return None };
            let is_place = has(name, &["box", "loc", "landmark", "offset", "coord", "reg", "point"]);
            let is_named = has(name, &["logit", "score", "prob", "class", "cls", "label", "softmax", "sigmoid"]);
            let probabilities = is_probability(tensor);
            // Vectors have such sizes, and boxes four numbers.
            let is_only = outputs.len() == 1 && *count > 4 && !count.is_multiple_of(64);
            let rank = [labels == Some(*count), probabilities, is_named, is_only].iter().position(|is| *is)?;
            let classes = Self::Classes { output: quoted(name), count: *count, probabilities };
            (*count > 1 && !is_place && tensor.element().is_float()).then_some((rank, classes))
        };
        outputs.iter().filter_map(row).min_by_key(|(rank, _)| *rank).map_or(Self::Nothing, |(_, classes)| classes)
    }

    /// How many classes its entries are of.
    pub(super) const fn classes(&self) -> Option<usize> {
        match self {
            Self::Classes { count, .. } => Some(*count),
            Self::Boxes { count, .. } => *count,
            Self::ClassNumbers { .. } | Self::Tokens { .. } | Self::Vector { .. } | Self::Nothing => None,
        }
    }

    /// Whether its entries can be given names.
    pub(super) const fn takes_labels(&self) -> bool {
        matches!(self, Self::Classes { .. } | Self::ClassNumbers { .. } | Self::Boxes { .. })
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
            Self::ClassNumbers { output } => format!("  - labels{}\n", from(output, "labels: ./labels.txt")),
            Self::Boxes { output, options, .. } => {
                let labels = if has_labels { ", labels: ./labels.txt" } else { "" };
                format!("  - nms: {{ in: [{output}, fitted]{options}{labels} }}\n")
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
        let [height, width] = sides(Task::Image.input(info)?, info, [640, 640]);
        let fit = format!("  - letterbox: {{ size: [{height}, {width}], out: fitted }}\n");
        Some(format!("  - decode-image\n{fit}  - to-tensor: {{ scale: true }}\n"))
    }
}

/// Whether the model of Ultralytics was exported with the choice of boxes in it, which an output of so many columns may
/// show alone.
fn is_end_to_end(info: &ModelInfo, columns: usize) -> bool {
    let says = |key, wanted| info.metadata.get(key).is_some_and(|value| value.contains(wanted));
    says("end2end", "True") || says("args", "'nms': True") || columns == 6 && says("task", "detect")
}

/// The anchors of a detector of Ultralytics for its pictures: one for each cell of three grids.
fn anchors_of(info: &ModelInfo) -> Option<usize> {
    let [height, width] = sides(Task::Image.input(info)?, info, SIDES[0]);
    Some([8, 16, 32].iter().map(|stride| (height / stride) * (width / stride)).sum())
}

/// A name as YAML takes it in a list.
fn quoted(name: &str) -> String {
    let is_plain = name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !matches!(name.to_ascii_lowercase().as_str(), "true" | "false" | "null" | "yes" | "no" | "on" | "off");
    if is_plain { name.to_owned() } else { serde_json::json!(name).to_string() }
}

/// Whether the name has one of these parts.
fn has(name: &str, parts: &[&str]) -> bool {
    let name = name.to_lowercase();
    parts.iter().any(|part| name.contains(part))
}

/// Whether the scores are those of `softmax`, or, of many, those of `sigmoid`.
fn is_probability(tensor: &Tensor) -> bool {
    /// So many numbers do not lie between 0 and 1 by chance.
    const MANY: usize = 16;
    let Some(scores) = tensor.as_slice::<f32>() else { return false };
    let sum: f64 = scores.iter().map(|score| f64::from(*score)).sum();
    scores.iter().all(|score| (0.0..=1.0).contains(score)) && ((sum - 1.0).abs() < EXACT || scores.len() >= MANY)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use std::path::Path;

    use gpux_inference::ModelFile;

    #[test]
    fn nms_gets_the_options_of_an_ultralytics_task() {
        let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/models/ultralytics.onnx");
        let mut info = ModelFile::open(Path::new(model)).unwrap().info().clone();
        let zeros = |shape: &[usize]| Tensor::zeros(ElementType::Float32, shape.to_vec()).unwrap();
        let masks = zeros(&[1, 32, 16, 24]);
        let mut lines = |task: &str, shape: &[usize]| {
            info.metadata.insert("task".to_owned(), task.to_owned());
            info.metadata.insert("kpt_shape".to_owned(), "[17, 3]".to_owned());
            let boxes = zeros(shape);
            let after = Postprocessing::choose(Task::Image, &info, &[("output0", &boxes), ("output1", &masks)], None);
            (after.lines(false, false), after.classes())
        };
        for (task, rows, options) in [
            ("detect", 6, ""),
            ("pose", 6 + 51, ", keypoints: [17, 3]"),
            ("segment", 6 + 32, ", mask_coefficients: 32"),
            ("obb", 6 + 1, ", angle: true"),
        ] {
            let wanted = format!("  - nms: {{ in: [output0, fitted]{options} }}\n");
            assert_eq!(lines(task, &[1, rows, 126]), (wanted, Some(2)), "{task}");
        }
        let end_to_end = lines("detect", &[1, 300, 6]);
        assert_eq!(end_to_end, ("  - nms: { in: [output0, fitted], layout: end-to-end }\n".to_owned(), None));
        for (task, rows) in [("pose", 50), ("segment", 36), ("semantic", 6)] {
            assert_eq!(lines(task, &[1, rows, 126]), (String::new(), None), "{task}");
        }
    }

    #[test]
    fn end_to_end_exports_of_ultralytics_get_the_options_of_their_task() {
        let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/models/ultralytics.onnx");
        let mut info = ModelFile::open(Path::new(model)).unwrap().info().clone();
        let zeros = |shape: &[usize]| Tensor::zeros(ElementType::Float32, shape.to_vec()).unwrap();
        let masks = zeros(&[1, 32, 16, 24]);
        for (key, value) in [("end2end", "True"), ("args", "{'batch': 1, 'nms': True}")] {
            info.metadata.retain(|key, _| !matches!(key.as_str(), "end2end" | "args"));
            info.metadata.insert(key.to_owned(), value.to_owned());
            for (task, columns, options) in [
                ("detect", 6, ""),
                ("pose", 6 + 51, ", keypoints: [17, 3]"),
                ("segment", 6 + 32, ", mask_coefficients: 32"),
                ("obb", 6 + 1, ", angle: true"),
            ] {
                info.metadata.insert("task".to_owned(), task.to_owned());
                info.metadata.insert("kpt_shape".to_owned(), "[17, 3]".to_owned());
                let (boxes, wrong) = (zeros(&[1, 300, columns]), zeros(&[1, 300, columns + 2]));
                let after = |boxes| {
                    let outputs = [("output0", boxes), ("output1", &masks)];
                    Postprocessing::choose(Task::Image, &info, &outputs, None).lines(false, false)
                };
                let wanted = format!("  - nms: {{ in: [output0, fitted], layout: end-to-end{options} }}\n");
                assert_eq!((after(&boxes), after(&wrong)), (wanted, String::new()), "{key} {task}");
            }
        }
    }

    #[test]
    fn other_tasks_of_ultralytics_get_the_pictures_of_its_predictors() {
        let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/models/ultralytics.onnx");
        let mut info = ModelFile::open(Path::new(model)).unwrap().info().clone();
        info.metadata.insert("stride".to_owned(), "32".to_owned());
        let mut before = |task: &str, sides: [usize; 2]| {
            info.metadata.insert("task".to_owned(), task.to_owned());
            info.inputs[0].shape = Some([1, 3, sides[0], sides[1]].map(Dim::Fixed).to_vec());
            image(&info.inputs[0], &info, sides)
        };
        let steps = |fit: &str| format!("  - decode-image\n{fit}  - to-tensor: {{ scale: true }}\n");
        let square = "  - resize: { size: 96, mode: shortest }\n  - center-crop: { size: 96 }\n";
        assert_eq!(before("classify", [96, 96]), steps(square));
        assert_eq!(before("classify", [96, 160]), steps("  - resize: { size: [96, 160] }\n"));
        assert_eq!(before("semantic", [96, 160]), steps("  - letterbox: { size: [96, 160] }\n"));
    }

    #[test]
    fn models_of_mel_bands_get_a_spectrogram() {
        let steps = |shape: &[Option<usize>]| {
            let dim = |size: &Option<usize>| size.map_or(Dim::Dynamic, Dim::Fixed);
            let shape = Some(shape.iter().map(dim).collect());
            let input = InputSpec {
                name: "mel".to_owned(),
                kind: "float32".to_owned(),
                shape,
                required: true,
                description: String::new(),
                value: None,
                index_limit: None,
            };
            audio(&input, None)
        };
        let spectrogram = |bands: &str| format!("mel-spectrogram: {{ method: whisper, n_mels: {bands} }}");
        let plain = steps(&[None, Some(64), None]);
        assert!(plain.contains(&spectrogram("64")) && !plain.contains("expand"), "{plain}");
        let with_channel = steps(&[None, Some(1), Some(40), None]);
        assert!(with_channel.contains(&spectrogram("40")) && with_channel.ends_with("  - expand: { axes: 0 }\n"));
        assert!(!steps(&[None, Some(16_000)]).contains("mel-spectrogram"));
    }
}
