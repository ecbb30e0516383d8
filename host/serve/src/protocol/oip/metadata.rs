//! Metadata of the server and of pipelines.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::datatype;
use super::lookup::Model;
use crate::LoadedPipeline;
use gpux_core::{Dim, ElementType, Kind, TensorKind};

/// The protocol's platform name for ONNX models.
pub(super) const PLATFORM: &str = "onnx_onnxv1";

/// The server's name.
pub(super) const SERVER_NAME: &str = "gpux";

/// The server's version.
pub(super) const SERVER_VERSION: &str = env!("CARGO_PKG_VERSION");

/// The supported extensions of the protocol.
pub(super) const EXTENSIONS: [&str; 8] = [
    "binary_tensor_data",
    "classification",
    "generate",
    "model_configuration",
    "model_repository",
    "parameters",
    "schedule_policy",
    "statistics",
];

/// A tensor as the protocol describes it.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub(super) struct TensorMetadata {
    pub(super) name: String,
    #[serde(rename = "datatype", serialize_with = "datatype::write")]
    #[schemars(schema_with = "datatype::schema")]
    pub(super) element: ElementType,
    /// -1 is a dimension that each request decides
    pub(super) shape: Vec<i64>,
    #[serde(skip)]
    pub(super) optional: bool,
}

/// What a server says of itself.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ServerMetadata {
    name: &'static str,
    version: &'static str,
    /// the extensions of the protocol that are answered
    extensions: [&'static str; 8],
}

/// What is said of a pipeline.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ModelMetadata {
    name: String,
    /// the versions by which it can be asked for
    versions: Vec<String>,
    platform: &'static str,
    inputs: Vec<TensorMetadata>,
    outputs: Vec<TensorMetadata>,
    /// as in MLServer: `space` and `numerics` of a pipeline that gives vectors
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    parameters: BTreeMap<&'static str, String>,
}

/// The inputs of a pipeline. Images, audio, texts and JSON are one element of BYTES.
pub(super) fn inputs(model: &Model) -> Vec<TensorMetadata> {
    let inputs = model.loaded.signature().inputs().iter();
    inputs
        .map(|input| TensorMetadata { optional: !input.is_required(), ..described(&input.port.name, &input.port.kind) })
        .collect()
}

/// The outputs of a pipeline.
pub(super) fn outputs(model: &Model) -> Vec<TensorMetadata> {
    model.loaded.signature().outputs().iter().map(|output| described(&output.name, &output.kind)).collect()
}

fn described(name: &str, kind: &Kind) -> TensorMetadata {
    let (element, shape) = match kind {
        Kind::Tensor(kind) => (likely(kind), shape(kind)),
        Kind::Text | Kind::Bytes | Kind::Json => (ElementType::String, vec![1]),
        Kind::Any => (ElementType::String, vec![-1]),
    };
    TensorMetadata { name: name.to_owned(), element, shape, optional: false }
}

/// The datatype of a tensor. The protocol has only one per tensor; if several are accepted, the most usual is named.
fn likely(kind: &TensorKind) -> ElementType {
    let usual = [ElementType::Float32, ElementType::Int64, ElementType::Uint8];
    let only = kind.element().or_else(|| usual.into_iter().find(|element| kind.elements.contains(*element)));
    only.or_else(|| kind.elements.iter().next()).unwrap_or(ElementType::Float32)
}

fn shape(kind: &TensorKind) -> Vec<i64> {
    let size = |dim: &Dim| if let Dim::Fixed(size) = dim { i64::try_from(*size).unwrap_or(-1) } else { -1 };
    kind.shape.as_ref().map_or_else(|| vec![-1], |shape| shape.iter().map(size).collect())
}

/// In which space a pipeline's vectors lie, and what computes them, as parameters; none if it gives no vectors.
pub(super) fn space_parameters(loaded: &LoadedPipeline) -> impl Iterator<Item = (&'static str, &str)> {
    let space = loaded.info().space.as_ref();
    space.into_iter().flat_map(|space| [("space", &*space.digest), ("numerics", &*space.numerics)])
}

/// The versions of a pipeline that requests may name.
pub(super) fn versions(model: &Model) -> Vec<String> {
    vec![model.loaded.version_number()]
}

impl ModelMetadata {
    pub(super) fn new(model: &Model) -> Self {
        Self {
            name: model.loaded.name().to_owned(),
            versions: versions(model),
            platform: PLATFORM,
            inputs: inputs(model),
            outputs: outputs(model),
            parameters: space_parameters(&model.loaded).map(|(key, value)| (key, value.to_owned())).collect(),
        }
    }
}

impl ServerMetadata {
    pub(super) const fn new() -> Self {
        Self { name: SERVER_NAME, version: SERVER_VERSION, extensions: EXTENSIONS }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpux_core::ElementSet;

    #[test]
    fn every_kind_has_a_datatype_and_a_shape() {
        let tensor = |name, element, shape: &[i64]| TensorMetadata {
            name: String::from(name),
            element,
            shape: shape.to_vec(),
            optional: false,
        };
        let dims = [Dim::Named("N".into()), Dim::Fixed(3), Dim::Dynamic];
        let shaped = Kind::Tensor(TensorKind::shaped(ElementType::Int8, dims));
        assert_eq!(described("x", &shaped), tensor("x", ElementType::Int8, &[-1, 3, -1]));
        let open = Kind::Tensor(TensorKind::of_elements(ElementSet::ANY));
        assert_eq!(described("x", &open), tensor("x", ElementType::Float32, &[-1]));
        assert_eq!(described("x", &Kind::Bytes), tensor("x", ElementType::String, &[1]));
        assert_eq!(described("x", &Kind::Any), tensor("x", ElementType::String, &[-1]));
    }
}
