//! The names of a table's columns, for a model that takes them as one tensor.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use gpux_core::{Dim, table_header};
use gpux_inference::{InputSpec, ModelInfo};

/// Keys of a model's metadata that may hold the names, as JSON: scikit-learn's attribute, and LightGBM's.
const METADATA: [&str; 2] = ["feature_names_in_", "feature_names"];

/// Columns that do not fit the model.
#[derive(Debug, thiserror::Error)]
pub enum ColumnsError {
    /// the table cannot be read
    #[error("cannot read the columns of `{}`: {reason}", path.display())]
    Table {
        /// the file
        path: PathBuf,
        /// why
        reason: String,
    },
    /// the model takes no row of as many numbers
    #[error(
        "the table has {columns} columns, but the model takes {inputs}: leave the others out of the table's header"
    )]
    Count {
        /// how many the table names
        columns: usize,
        /// what the model takes
        inputs: String,
    },
    /// the gpux.yml cannot be written
    #[error("cannot write gpux.yml: {0}")]
    Io(#[from] std::io::Error),
}

/// Adds `inputs:` with `columns:` to the gpux.yml, by the header of a table, else by the model's metadata.
pub(super) fn add(pipeline: &Path, model: &str, info: &ModelInfo, table: Option<&Path>) -> Result<(), ColumnsError> {
    let names = if let Some(path) = table {
        let failed = |reason: String| ColumnsError::Table { path: path.to_owned(), reason };
        let file = File::open(path).map_err(|error| failed(error.to_string()))?;
        table_header(file).map_err(|error| failed(error.to_string()))?
    } else {
        let mut written = METADATA.iter().filter_map(|key| info.metadata.get(*key));
        let Some(names) = written.find_map(|text| serde_json::from_str::<Vec<String>>(text).ok()) else {
            return Ok(());
        };
        names
    };
    let takes =
        |input: &&InputSpec| matches!(input.shape.as_deref(), Some([.., Dim::Fixed(size)]) if *size == names.len());
    let mut inputs = info.inputs.iter().filter(|input| input.required);
    let (Some(input), None) = (inputs.next().filter(takes), inputs.next()) else {
        if table.is_none() {
            return Ok(());
        }
        return Err(ColumnsError::Count { columns: names.len(), inputs: describe_inputs(info) });
    };
    let dim = |dim: &Dim| if let Dim::Fixed(size) = dim { size.to_string() } else { "-1".to_owned() };
    let shape: Vec<_> = input.shape.iter().flatten().map(dim).collect();
    let name = serde_json::json!(input.name);
    let (kind, shape, columns) = (&input.kind, shape.join(", "), serde_json::json!(names));
    let lines = format!("\ninputs:\n  {name}:\n    type: {kind}\n    shape: [{shape}]\n    columns: {columns}\n");
    let text = fs::read_to_string(pipeline)?;
    let model = format!("\nmodel: ./{model}\n");
    Ok(fs::write(pipeline, text.replacen(&model, &format!("{model}{lines}"), 1))?)
}

fn describe_inputs(info: &ModelInfo) -> String {
    let input = |input: &InputSpec| {
        let shape = input.shape.as_ref().map_or_else(
            || "any shape".to_owned(),
            |shape| format!("[{}]", shape.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
        );
        format!("`{}` {} {shape}", input.name, input.kind)
    };
    info.inputs.iter().map(input).collect::<Vec<_>>().join(", ")
}
