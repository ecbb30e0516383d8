//! A sample for a model of unknown purpose.

use std::fmt::Write as _;
use std::path::Path;

use super::ModelPipelineError;
use super::task::Task;
use crate::synthetic_media::synthetic_audio;
use gpux_core::Dim;
use gpux_inference::{InputSpec, ModelInfo};

/// The picture of the other new pipelines.
const IMAGE: &[u8] = include_bytes!("../../templates/pipeline/tests/sample/sample.png");
/// The largest axis that a table's sample has where the model takes any.
const COLUMNS: usize = 4;

/// The most elements of a sample's tensor.
const MAX_ELEMENTS: usize = 10_000;

/// Writes the sample's files into the folder of its case, and gives the lines of `inputs:`.
pub(super) fn write(task: Task, info: &ModelInfo, case: &Path) -> Result<String, ModelPipelineError> {
    Ok(match task {
        Task::Image => {
            std::fs::write(case.join("sample.png"), IMAGE)?;
            "  image: { file: sample.png }\n".to_owned()
        }
        Task::Text => "  text: The quick brown fox jumps over the lazy dog.\n".to_owned(),
        Task::Audio => {
            std::fs::write(case.join("sample.wav"), synthetic_audio())?;
            "  audio: { file: sample.wav }\n".to_owned()
        }
        Task::Table => {
            let mut lines = String::new();
            for input in info.inputs.iter().filter(|input| input.required) {
                let _ = writeln!(lines, "  {}: {}", serde_json::json!(input.name), row(input)?);
            }
            lines
        }
    })
}

/// One row for an input, as JSON.
fn row(input: &InputSpec) -> Result<String, ModelPipelineError> {
    let size = |(axis, dim): (usize, &Dim)| match dim {
        Dim::Fixed(size) => *size,
        _ if axis == 0 => 1,
        _ => COLUMNS,
    };
    let shape: Vec<_> = input.shape.iter().flatten().enumerate().map(size).collect();
    let count =
        shape.iter().try_fold(1_usize, |count, size| count.checked_mul(*size)).filter(|count| *count <= MAX_ELEMENTS);
    let count = count.ok_or_else(|| ModelPipelineError::LargeInput(input.name.clone()))?;
    let value = |index: usize| match input.kind.as_str() {
        "string" => "\"a\"".to_owned(),
        "bool" => index.is_multiple_of(2).to_string(),
        kind if kind.starts_with("float") || kind == "double" => format!("{:.1}", (index % 10) as f64 / 2.0 + 0.5),
        _ => (index % 10).to_string(),
    };
    let values: Vec<_> = (0..count).map(value).collect();
    Ok(format!("{{ shape: {shape:?}, data: [{}] }}", values.join(", ")))
}
