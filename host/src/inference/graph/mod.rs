//! Reads ONNX files itself, before any engine does: what a model is, and whether it is safe to
//! hand on.

mod external;
mod fixed;
mod info;
mod narrow;
mod proto;
mod rewrite;
mod source;
mod tensor_file;
mod types;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;

use prost::Message as _;

pub use fixed::{FixedShapes, ShapeError};
pub use info::{InputSpec, ModelInfo, OutputSpec};
pub use narrow::Narrow;
pub(super) use rewrite::{cast_model, empty_sequence_model, told_optionals};
pub use tensor_file::{TensorFileError, from_pb};
pub use types::OnnxType;
pub(super) use types::data_type;

use super::error::ModelLoadError;

/// Reads models without an engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct ModelInspector;

impl ModelInspector {
    /// What the model at `path` is. Weights are skipped, not read, so a large model costs little;
    /// weights in other files must lie in the model's folder and be complete.
    pub fn inspect(path: &Path) -> Result<ModelInfo, ModelLoadError> {
        let file = File::open(path).map_err(|source| ModelLoadError::Io { path: path.to_owned(), source })?;
        inspect(path, file)
    }
}

/// The longest name that is carried, in bytes.
const NAME_LIMIT: usize = 1 << 16;

/// What the model in `reader` is; `path` is where it lies.
pub(super) fn inspect(path: &Path, reader: impl Read + Seek) -> Result<ModelInfo, ModelLoadError> {
    let io = |source| ModelLoadError::Io { path: path.to_owned(), source };
    let invalid = |reason: &str| ModelLoadError::Invalid { path: path.to_owned(), reason: reason.to_owned() };
    let mut source = source::Source::new(reader).map_err(io)?;
    let model_bytes = bytes::Buf::remaining(&source) as u64;
    if model_bytes == 0 {
        return Err(invalid("the file is empty"));
    }
    let decoded = proto::Model::decode(&mut source);
    match source.stopped() {
        Some(source::Stopped::Io(error)) => return Err(io(error)),
        Some(source::Stopped::TooMuch(reason)) => return Err(invalid(reason)),
        None => {}
    }
    let model = decoded.map_err(|error| invalid(&format!("it cannot be read ({error}); is the file complete?")))?;
    let graph = model.graph.as_ref().ok_or_else(|| invalid("it holds no graph; is it an ONNX file?"))?;

    // A bare file name has an empty parent: the working folder.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut survey = Survey { folder, operators: BTreeMap::new(), parameters: 0, files: BTreeSet::new() };
    survey
        .graph(graph)
        .and_then(|()| survey.nodes(model.functions.iter().flat_map(|function| &function.nodes)))
        .map_err(|(tensor, reason)| ModelLoadError::ExternalData { path: path.to_owned(), tensor, reason })?;

    let defaults: BTreeSet<&str> = graph.initializers.iter().map(|tensor| tensor.name.as_str()).collect();
    // ONNX Runtime brings the process down when a loop begins with an optional without a value.
    let looped: BTreeSet<&str> = (graph.nodes.iter())
        .filter(|node| matches!(node.op_type.as_str(), "Loop" | "Scan"))
        .flat_map(|node| node.inputs.iter().map(String::as_str))
        .collect();
    let inputs: Vec<_> = (graph.inputs.iter())
        .map(|input| input_spec(input, defaults.contains(input.name.as_str()), looped.contains(input.name.as_str())))
        .collect();
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
        size_bytes: model_bytes + survey.files.iter().map(|file| file.size).sum::<u64>(),
        path: path.to_owned(),
        inputs,
        outputs,
        metadata,
        ir_version: model.ir_version,
        opsets: model.opset_import.iter().map(|opset| (opset.domain.clone(), opset.version)).collect(),
        operators: survey.operators,
        parameters: survey.parameters,
        external_files: survey.files.into_iter().map(|file| file.path).collect(),
    })
}

fn input_spec(input: &proto::ValueInfo, has_default: bool, looped: bool) -> InputSpec {
    let kind = input.kind.as_ref();
    let optional = matches!(kind.and_then(|kind| kind.value.as_ref()), Some(proto::TypeValue::Optional(_)));
    InputSpec {
        name: input.name.clone(),
        kind: types::name(kind),
        shape: types::shape(kind),
        required: !has_default && (!optional || looped),
        description: input.doc_string.clone(),
        value: types::onnx_type(kind),
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

fn metadata(model: &proto::Model) -> BTreeMap<String, String> {
    let own = [
        ("producer_name", &model.producer_name),
        ("producer_version", &model.producer_version),
        ("domain", &model.domain),
        ("description", &model.doc_string),
    ];
    let own = own.into_iter().map(|(key, value)| (key.to_owned(), value.clone()));
    let props = model.metadata_props.iter().map(|entry| (entry.key.clone(), entry.value.clone()));
    own.chain(props).filter(|(_, value)| !value.is_empty()).collect()
}

/// What a walk over every graph, function and constant of a model finds.
struct Survey<'a> {
    folder: &'a Path,
    operators: BTreeMap<String, usize>,
    parameters: u64,
    files: BTreeSet<external::ExternalFile>,
}

/// Which tensor, and what is wrong with it.
type Fault = (String, String);

// The recursion is bounded: the protobuf decoder refuses nesting deeper than 100 messages.
impl Survey<'_> {
    fn graph(&mut self, graph: &proto::Graph) -> Result<(), Fault> {
        graph.initializers.iter().try_for_each(|tensor| self.weights(tensor))?;
        graph.sparse_initializers.iter().try_for_each(|tensor| self.sparse(tensor, true))?;
        self.nodes(&graph.nodes)
    }

    fn nodes<'n>(&mut self, nodes: impl IntoIterator<Item = &'n proto::Node>) -> Result<(), Fault> {
        nodes.into_iter().try_for_each(|node| {
            let name = match node.domain.as_str() {
                "" | "ai.onnx" => node.op_type.clone(),
                domain => format!("{domain}.{}", node.op_type),
            };
            *self.operators.entry(name).or_default() += 1;
            node.attributes.iter().try_for_each(|attribute| self.attribute(attribute))
        })
    }

    fn attribute(&mut self, attribute: &proto::Attribute) -> Result<(), Fault> {
        attribute.graph.iter().try_for_each(|graph| self.graph(graph))?;
        attribute.graphs.iter().try_for_each(|graph| self.graph(graph))?;
        attribute.tensor.iter().try_for_each(|tensor| self.file(tensor))?;
        attribute.tensors.iter().try_for_each(|tensor| self.file(tensor))?;
        attribute.sparse_tensor.iter().try_for_each(|tensor| self.sparse(tensor, false))?;
        attribute.sparse_tensors.iter().try_for_each(|tensor| self.sparse(tensor, false))
    }

    fn sparse(&mut self, tensor: &proto::SparseTensor, weights: bool) -> Result<(), Fault> {
        if let Some(values) = &tensor.values {
            if weights { self.weights(values)? } else { self.file(values)? }
        }
        tensor.indices.iter().try_for_each(|indices| self.file(indices))
    }

    fn weights(&mut self, tensor: &proto::Tensor) -> Result<(), Fault> {
        let count = tensor.dims.iter().try_fold(1_u64, |product, dim| product.checked_mul(u64::try_from(*dim).ok()?));
        self.parameters = self.parameters.saturating_add(count.unwrap_or(0));
        self.file(tensor)
    }

    fn file(&mut self, tensor: &proto::Tensor) -> Result<(), Fault> {
        // Engines look at either mark, so either counts.
        if tensor.data_location != 1 && tensor.external_data.is_empty() {
            return Ok(());
        }
        let file = external::check(self.folder, tensor).map_err(|reason| (tensor.name.clone(), reason))?;
        self.files.insert(file);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
