//! Parses and checks ONNX files before an engine loads them.

mod all_outputs;
mod external_data_check;
mod fixed_shapes;
mod forward_reader;
mod info;
mod narrow_type;
mod proto;
mod rewrite;
mod scan;
mod standard_operators;
mod tensor_file;
mod types;
mod weight_locations;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

pub(super) use all_outputs::{GraphNode, with_all_outputs};
pub use external_data_check::WeightLinks;
pub use fixed_shapes::{FixedShapes, ShapeError};
pub(super) use forward_reader::ForwardRead;
pub use info::{InputSpec, ModelInfo, OutputSpec};
pub use narrow_type::NarrowType;
pub(super) use rewrite::{cast_model, empty_sequence_model, expand_optional_outputs};
pub use tensor_file::{TensorFileError, from_pb};
pub use types::OnnxType;
pub(super) use types::data_type;
#[cfg(feature = "embedded")]
pub(super) use types::is_placeholder;
pub(super) use weight_locations::relocate_weights;

use super::error::ModelLoadError;
use external_data_check::{ExternalFiles, PrepackedWeights};
use gpux_core::files::open_file;
use scan::{ScanError, ScannedModel};

/// Reads models without an engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct ModelInspector;

impl ModelInspector {
    /// Describes the model at `path`. Weights are skipped, not read, so a large model costs little;
    /// weights in other files must lie in the model's folder, or be links there, and be complete.
    pub fn inspect(path: &Path) -> Result<ModelInfo, ModelLoadError> {
        inspect(path, open(path)?, WeightLinks::Anywhere)
    }

    /// Where the model at `path` says that its weights lie, relative to its folder: safe paths of files that need not be
    /// there.
    pub fn weight_locations(path: &Path) -> Result<Vec<PathBuf>, ModelLoadError> {
        Ok(inspect(path, open(path)?, WeightLinks::Unopened)?.external_locations.into_keys().collect())
    }
}

/// How many operators a graph has that gpux itself has had ONNX Runtime write.
pub(super) fn count_trusted_operators(path: &Path) -> Result<usize, ModelLoadError> {
    let info = inspect_with(path, open(path)?, PrepackedWeights::Allowed, WeightLinks::Inside)?;
    Ok(info.operators.values().sum())
}

/// Opens a model's file.
pub(super) fn open(path: &Path) -> Result<File, ModelLoadError> {
    open_file(path, "a model").map_err(|source| ModelLoadError::Io { path: path.to_owned(), source })
}

/// The version of ONNX's file format from which an input with an initializer may be given another value.
const OVERRIDABLE: i64 = 4;
/// The longest name that is carried, in bytes.
const NAME_LIMIT: usize = 1 << 16;

/// Describes the model in `reader`, the file at `path`.
pub(super) fn inspect(path: &Path, reader: impl ForwardRead, links: WeightLinks) -> Result<ModelInfo, ModelLoadError> {
    inspect_with(path, reader, PrepackedWeights::Refused, links)
}

/// The folder of a model's file.
pub(super) fn parent_folder(path: &Path) -> &Path {
    // A bare file name has an empty parent: the working folder.
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn inspect_with(
    path: &Path,
    reader: impl ForwardRead,
    packed: PrepackedWeights,
    links: WeightLinks,
) -> Result<ModelInfo, ModelLoadError> {
    let io = |source| ModelLoadError::Io { path: path.to_owned(), source };
    let invalid = |reason: &str| ModelLoadError::Invalid { path: path.to_owned(), reason: reason.to_owned() };
    let mut source = forward_reader::ForwardReader::new(reader).map_err(io)?;
    let model_bytes = bytes::Buf::remaining(&source) as u64;
    if model_bytes == 0 {
        return Err(invalid("the file is empty"));
    }
    let scanned = scan::scan(&mut source, ExternalFiles::new(parent_folder(path), links), packed);
    match source.fault() {
        Some(forward_reader::ReadFault::Io(error)) => return Err(io(error)),
        Some(forward_reader::ReadFault::TooLarge(reason)) => return Err(invalid(reason)),
        None => {}
    }
    let model = scanned.map_err(|fault| match fault {
        ScanError::WireError(error) => {
            let what = gpux_core::what_instead_at(path);
            invalid(&what.unwrap_or_else(|| format!("it cannot be read ({error}); is the file complete?")))
        }
        ScanError::TooLarge(reason) => invalid(&reason),
        ScanError::External(tensor, reason) => ModelLoadError::ExternalData { path: path.to_owned(), tensor, reason },
    })?;
    let graph = model.graph.as_ref().ok_or_else(|| {
        let what = gpux_core::what_instead_at(path);
        invalid(&what.unwrap_or_else(|| "it holds no graph; is it an ONNX file?".to_owned()))
    })?;

    // ONNX Runtime brings the process down when a loop begins with an optional without a value.
    let input = |input: &proto::ValueInfo| {
        let has_default = graph.initializers.contains_key(&input.name);
        let spec = input_spec(input, has_default, graph.loop_inputs.contains(&input.name));
        InputSpec { index_limit: graph.index_limit(&input.name), ..spec }
    };
    // Before that version every weight had to stand among the inputs, and none could be replaced.
    let is_weight = |input: &&proto::ValueInfo| {
        (1..OVERRIDABLE).contains(&model.ir_version) && graph.initializers.contains_key(&input.name)
    };
    let inputs: Vec<_> = graph.inputs.iter().filter(|value| !is_weight(value)).map(input).collect();
    let outputs: Vec<_> = graph.outputs.iter().map(output_spec).collect();
    check_names("input", inputs.iter().map(|input| input.name.as_str())).map_err(|reason| invalid(&reason))?;
    check_names("output", outputs.iter().map(|output| output.name.as_str())).map_err(|reason| invalid(&reason))?;
    if outputs.is_empty() {
        return Err(invalid("it has no outputs"));
    }

    let metadata = metadata(&model);
    let stem = || path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(ModelInfo {
        name: if graph.name.is_empty() { stem() } else { graph.name.clone() },
        version: metadata.get("version").cloned().unwrap_or_else(|| model.model_version.to_string()),
        format: "onnx".to_owned(),
        // Sparse files may claim any size.
        size_bytes: model.files.iter().map(|file| file.size).fold(model_bytes, u64::saturating_add),
        path: path.to_owned(),
        inputs,
        outputs,
        metadata,
        omitted_metadata: model.omitted,
        ir_version: model.ir_version,
        opsets: model.opsets.iter().map(|opset| (opset.domain.clone(), opset.version)).collect(),
        operators: model.operators,
        functions: model.functions,
        parameters: model.parameters,
        external_files: model.files.iter().map(|file| file.path.clone()).collect(),
        external_locations: model.locations,
    })
}

fn input_spec(input: &proto::ValueInfo, has_default: bool, feeds_loop: bool) -> InputSpec {
    let kind = input.kind.as_ref();
    let optional = matches!(kind.and_then(|kind| kind.value.as_ref()), Some(proto::TypeValue::Optional(_)));
    InputSpec {
        name: input.name.clone(),
        kind: types::name(kind),
        shape: types::shape(kind),
        required: !has_default && (!optional || feeds_loop),
        description: input.doc_string.clone(),
        value: types::onnx_type(kind),
        index_limit: None,
    }
}

fn output_spec(output: &proto::ValueInfo) -> OutputSpec {
    let kind = output.kind.as_ref();
    OutputSpec {
        name: output.name.clone(),
        kind: types::name(kind),
        shape: types::shape(kind),
        labels: None,
        description: output.doc_string.clone(),
        value: types::onnx_type(kind),
    }
}

/// Names reach engines as C strings and people as lines.
fn check_names<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for name in names {
        if name.is_empty() || name.len() > NAME_LIMIT || name.chars().any(char::is_control) {
            return Err(format!("an {what} has an unusable name ({:?})", name.chars().take(40).collect::<String>()));
        }
        if !seen.insert(name) {
            return Err(format!("two {what}s are called `{name}`"));
        }
    }
    Ok(())
}

fn metadata(model: &ScannedModel) -> BTreeMap<String, String> {
    let own = [
        ("producer_name", &model.producer_name),
        ("producer_version", &model.producer_version),
        ("domain", &model.domain),
        ("description", &model.doc_string),
    ];
    let own = own.into_iter().map(|(key, value)| (key.to_owned(), value.clone()));
    let props = model.metadata.iter().map(|entry| (entry.key.clone(), entry.value.clone()));
    own.chain(props).filter(|(_, value)| !value.is_empty()).collect()
}

#[cfg(test)]
mod tests;
