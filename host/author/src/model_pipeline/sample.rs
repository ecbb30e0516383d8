//! A sample for a model of unknown purpose.

use std::fmt::Write as _;
use std::path::Path;

use super::ModelPipelineError;
use super::steps::SAMPLE_RATE;
use super::task::{self, Task, is_sample_rate};
use gpux_core::{Dim, ElementType, SyntheticInputs, Tensor, TensorKind, element_count, to_npy};
use gpux_inference::{InputSpec, ModelInfo, OnnxType};

/// The picture of the other new pipelines.
pub(crate) const IMAGE: &[u8] = include_bytes!("../../templates/pipeline/tests/sample/sample.png");

/// The most elements that a sample has as text.
const MAX_TEXT: usize = 1_024;
/// The most elements of a sample's tensor.
const MAX_ELEMENTS: usize = 1 << 24;

/// Writes the sample's files into the folder of its case, and gives the lines of `inputs:`. Axes but the first are of
/// `open` elements where the model takes any.
pub(super) fn write(task: Task, info: &ModelInfo, open: usize, case: &Path) -> Result<String, ModelPipelineError> {
    let media = match task {
        Task::Image => {
            std::fs::write(case.join("sample.png"), IMAGE)?;
            "  image: { file: sample.png }\n"
        }
        Task::Text => return Ok("  text: The quick brown fox jumps over the lazy dog.\n".to_owned()),
        Task::Audio => {
            std::fs::write(case.join("sample.wav"), SyntheticInputs::audio())?;
            "  audio: { file: sample.wav }\n"
        }
        Task::Table | Task::Tensor => "",
    };
    let mut lines = media.to_owned();
    let read = task.input(info).or_else(|| task::required(info).next().filter(|_| !media.is_empty()));
    // What counts the items of one input may stand anywhere in another.
    let first = |input: &'_ InputSpec| match input.shape.as_deref() {
        Some([Dim::Named(name), _, ..]) => Some(name.clone()),
        _ => None,
    };
    let batches: Vec<_> = task::required(info).filter_map(first).collect();
    let batches: Vec<_> = batches.iter().map(String::as_str).collect();
    for (number, input) in task::required(info).enumerate() {
        if read.is_none_or(|read| read.name != input.name) {
            let value = value(input, number, open, &batches, case)?;
            let _ = writeln!(lines, "  {}: {value}", serde_json::json!(input.name));
        }
    }
    Ok(lines)
}

/// A value for an input, as JSON, or in a file beside the case.
fn value(
    input: &InputSpec,
    number: usize,
    open: usize,
    batches: &[&str],
    case: &Path,
) -> Result<String, ModelPipelineError> {
    let is_text = |kind: &TensorKind| kind.element() == Some(ElementType::String);
    match &input.value {
        Some(OnnxType::Sequence(item)) => {
            let text = matches!(&**item, OnnxType::Tensor { kind, .. } if is_text(kind));
            return Ok(format!("{{ json: [{}] }}", if text { "\"a\", \"b\"" } else { "1, 2" }));
        }
        Some(OnnxType::Map { .. }) => return Ok("{ json: { \"1\": 1 } }".to_owned()),
        _ => {}
    }
    let size = |(axis, dim): (usize, &Dim)| match dim {
        Dim::Fixed(size) => *size,
        Dim::Named(name) if batches.contains(&name.as_str()) => 1,
        _ if axis == 0 => 1,
        _ => open,
    };
    let shape: Vec<_> = input.shape.iter().flatten().enumerate().map(size).collect();
    let too_large = || ModelPipelineError::LargeInput(input.name.clone());
    let count = element_count(&shape).filter(|count| *count <= MAX_ELEMENTS).ok_or_else(too_large)?;
    let name = input.name.to_lowercase();
    let most = input.index_limit.unwrap_or(u64::MAX).min(10);
    let number_at = |index: usize| -> f64 {
        let small = index % 10;
        match input.kind.as_str() {
            kind if kind.starts_with("float") || kind == "bfloat16" => small as f64 / 2.0 + 0.5,
            _ if is_sample_rate(input) => f64::from(SAMPLE_RATE),
            _ if count == 1 && name.contains("len") => open as f64,
            "bool" => f64::from(u8::from(small.is_multiple_of(2))),
            _ => (small as u64 % most.max(1)) as f64,
        }
    };
    let tensor = match &input.value {
        Some(OnnxType::Tensor { kind, narrow: None }) if input.kind != "string" && count > MAX_TEXT => kind.element(),
        _ => None,
    };
    if let Some(element) = tensor {
        let wide = Tensor::new(shape, (0..count).map(number_at).collect::<Vec<f64>>());
        let tensor = wide.and_then(|wide| wide.cast(element)).map_err(|_| too_large())?;
        let file = format!("input-{number}.npy");
        std::fs::write(case.join(&file), to_npy(&tensor).map_err(|_| too_large())?)?;
        return Ok(format!("{{ file: {file} }}"));
    }
    if count > MAX_TEXT * 10 {
        return Err(too_large());
    }
    let value = |index: usize| match input.kind.as_str() {
        "string" => "\"a\"".to_owned(),
        "bool" => (number_at(index) > 0.0).to_string(),
        kind if kind.starts_with("float") || kind == "bfloat16" => format!("{:.1}", number_at(index)),
        _ => number_at(index).to_string(),
    };
    let values: Vec<_> = (0..count).map(value).collect();
    Ok(format!("{{ shape: {shape:?}, data: [{}] }}", values.join(", ")))
}
