//! The embedded engine: tract, so that gpux runs models with nothing installed.

mod load_error;
mod operator_fixes;
mod operators;
mod plan;
mod session;
mod values;
mod windows;

use std::collections::{BTreeMap, BTreeSet};

use tract_onnx::pb::tensor_shape_proto::dimension::Value;
use tract_onnx::pb::{GraphProto, ModelProto, NodeProto, type_proto};
use tract_onnx::prelude::{Framework as _, InferenceFact, InferenceModel, TVec};
use tract_onnx::tract_hir::infer::{DimFact, Factoid as _, InferenceModelExt as _, ShapeFactoid};
use tract_onnx::tract_hir::internal::anyhow;

use super::engine::{Engine, Session, SessionOptions};
use super::error::ModelLoadError;
use super::graph::{OnnxType, is_placeholder, parent_folder};
use super::model_file::ModelFile;
use super::providers::ExecutionProvider;
use gpux_core::catch_panic::catch_panic;
use gpux_core::{ElementType, TensorKind};

use load_error::LoadError;

/// tract. It carries bool, integer and float tensors; whatever else a model needs is
/// [`ModelLoadError::NeedsOnnxRuntime`] or [`ModelLoadError::BeyondEmbedded`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Embedded;

impl Embedded {
    /// The engine's name and version.
    pub const NAME: &str = "embedded engine (tract 0.23)";

    /// Whether this gpux was built with it.
    pub const IS_BUILT: bool = true;
}

/// Those of `operators` that the engine has no implementation for.
pub(super) fn unsupported_operators<'a>(operators: impl Iterator<Item = &'a str>) -> BTreeSet<&'a str> {
    operators.filter(|operator| !operators::is_known(operator)).collect()
}

/// The sizes of each input's axes that follow from the rest of the graph, such as the channels that a convolution
/// takes; empty where tract cannot tell.
pub(super) fn infer_input_sizes(file: &ModelFile) -> Vec<Vec<Option<usize>>> {
    let inferred = catch_panic(|| {
        let mut model = read(file).ok()?.model;
        // Names of dimensions are no sizes that a graph could tell.
        for index in 0..model.input_outlets().ok()?.len() {
            let fact = model.input_fact(index).ok()?.clone();
            let known = fact.shape.dims().map(|dim| dim.concretize().filter(|size| size.to_i64().is_ok()));
            let dims: TVec<DimFact> = known.map(|size| size.map_or_else(DimFact::default, DimFact::from)).collect();
            if !fact.shape.is_open() {
                model.set_input_fact(index, fact.with_shape(ShapeFactoid::closed(dims))).ok()?;
            }
        }
        for index in 0..model.output_outlets().ok()?.len() {
            model.set_output_fact(index, InferenceFact::default()).ok()?;
        }
        model.analyse(true).ok()?;
        let inputs = (0..model.input_outlets().ok()?.len()).map(|index| {
            let dims = model.input_fact(index).ok()?.shape.dims();
            Some(dims.map(|dim| usize::try_from(dim.concretize()?.to_i64().ok()?).ok()).collect())
        });
        inputs.collect()
    });
    inferred.ok().flatten().unwrap_or_default()
}

impl Engine for Embedded {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn identity(&self) -> &str {
        Self::NAME
    }

    fn providers(&self) -> &[ExecutionProvider] {
        &[ExecutionProvider::Cpu]
    }

    fn plans_each_shape(&self) -> bool {
        true
    }

    fn load(&self, file: &ModelFile, _options: &SessionOptions) -> Result<Box<dyn Session>, ModelLoadError> {
        let path = || file.path().to_owned();
        if let Some(operator) = file.info().custom_operator() {
            return Err(ModelLoadError::CustomOperator { path: path(), operator: operator.to_owned() });
        }
        if let Some(feature) = missing_feature(file) {
            return Err(ModelLoadError::NeedsOnnxRuntime { path: path(), feature });
        }
        let beyond = |reason: String| ModelLoadError::BeyondEmbedded { path: path(), reason };
        let mut nodes = Nodes::new();
        let made = catch_panic(|| {
            let parsed = read(file)?;
            nodes.clone_from(&parsed.nodes);
            Ok(session::TractSession::new(parsed, file.info())?)
        });
        match made.map_err(|panic| beyond(format!("it failed within: {panic}")))? {
            Ok(session) => Ok(Box::new(session)),
            Err(LoadError::Missing(feature)) => Err(ModelLoadError::NeedsOnnxRuntime { path: path(), feature }),
            Err(LoadError::Invalid(reason)) => Err(ModelLoadError::Invalid { path: path(), reason }),
            Err(LoadError::Beyond(error)) => Err(beyond(load_error::reason(&error, &file.info().operators, &nodes))),
        }
    }
}

/// The first thing in the model that tract has not, in words.
fn missing_feature(file: &ModelFile) -> Option<String> {
    let info = file.info();
    if let Some(operator) = info.operators.keys().find(|name| !operators::is_known(name)) {
        return Some(format!("operator `{operator}`"));
    }
    let inputs = info.inputs.iter().map(|input| (&input.kind, &input.value));
    let ports = inputs.chain(info.outputs.iter().map(|output| (&output.kind, &output.value)));
    let carried = |value: &OnnxType| {
        let element = value.plain().and_then(TensorKind::element);
        element.is_some_and(|element| !matches!(element, ElementType::String | ElementType::Bfloat16))
    };
    ports
        .into_iter()
        .find(|(_, value)| !value.as_ref().is_some_and(carried))
        .map(|(kind, _)| if kind == "string" { "string tensors".to_owned() } else { format!("values of type {kind}") })
}

/// The operator of each node that has a name.
type Nodes = BTreeMap<String, String>;

/// Copies the inputs that are outputs as well: tract forgets the type of such an input.
fn copy_inputs_to_outputs(graph: &mut GraphProto) {
    for output in &mut graph.output {
        if graph.input.iter().any(|input| input.name == output.name) {
            // No port has a name with such a character.
            let copy = format!("{}\u{1f}", output.name);
            let input = std::mem::replace(&mut output.name, copy.clone());
            let (input, output, op_type) = (vec![input], vec![copy], "Identity".to_owned());
            graph.node.push(NodeProto { input, output, op_type, ..NodeProto::default() });
        }
    }
}

/// Makes dimensions unknown whose name says just that: tract takes those of one name for equal. Of values in between,
/// every name goes: tract holds it against the number that a plan for certain shapes has there.
fn drop_placeholders(graph: &mut GraphProto) {
    let ports = graph.input.iter_mut().chain(&mut graph.output).map(|value| (value, false));
    for (value, is_inner) in ports.chain(graph.value_info.iter_mut().map(|value| (value, true))) {
        let kind = value.r#type.as_mut().and_then(|kind| kind.value.as_mut());
        let Some(type_proto::Value::TensorType(tensor)) = kind else { continue };
        for dim in tensor.shape.iter_mut().flat_map(|shape| &mut shape.dim) {
            if let Some(Value::DimParam(name)) = &dim.value
                && (is_inner || is_placeholder(name))
            {
                dim.value = None;
            }
        }
    }
    let attributes = graph.node.iter_mut().flat_map(|node| &mut node.attribute);
    attributes.filter_map(|attribute| attribute.g.as_mut()).for_each(drop_placeholders);
}

struct ParsedModel {
    model: InferenceModel,
    /// whether it may be planned without knowing its shapes
    any_shape: bool,
    nodes: Nodes,
}

fn read(file: &ModelFile) -> Result<ParsedModel, LoadError> {
    let onnx = operator_fixes::onnx();
    let relocated = file.relocated().map_err(|reason| anyhow!(reason))?;
    if relocated.as_ref().is_some_and(|model| !model.unmappable.is_empty()) {
        return Err(LoadError::Missing("weights in another mount namespace".to_owned()));
    }
    let contents = file.contents().map_err(|reason| anyhow!(reason))?;
    let mut proto: ModelProto = match relocated.as_ref().map(|model| &model.bytes).or(contents.as_ref()) {
        Some(bytes) => onnx.proto_model_for_read(&mut &**bytes)?,
        None => onnx.proto_model_for_path(file.path())?,
    };
    proto.graph.iter_mut().for_each(drop_placeholders);
    let any_shape = operators::check(&proto).map_err(LoadError::Missing)?;
    proto.graph.iter_mut().for_each(copy_inputs_to_outputs);
    let folder = relocated.as_ref().map_or_else(|| parent_folder(file.path()), |model| &*model.folder);
    let folder = folder.to_str().ok_or_else(|| anyhow!("the model's folder is not UTF-8"))?;
    let parsed = onnx.parse(&proto, Some(folder))?;
    if let Some(name) = parsed.unresolved_inputs.first() {
        return Err(LoadError::Invalid(format!("nothing produces the value `{name}`")));
    }
    let nodes = proto.graph.iter().flat_map(|graph| &graph.node);
    let nodes = nodes.map(|node| (node.name.clone(), node.op_type.clone())).collect();
    Ok(ParsedModel { model: parsed.model, any_shape, nodes })
}
