//! The embedded engine: tract, so that gpux runs models with nothing installed.

mod plan;
mod refusal;
mod session;
mod values;

use std::collections::BTreeSet;
use std::path::Path;

use tract_onnx::pb::ModelProto;
use tract_onnx::prelude::{Framework as _, InferenceModel};
use tract_onnx::tract_hir::internal::anyhow;

use super::engine::{Engine, Session, SessionOptions};
use super::error::ModelLoadError;
use super::graph::OnnxType;
use super::model_file::ModelFile;
use super::providers::ExecutionProvider;
use crate::guard::guard;
use crate::pipeline::{ElementType, TensorKind};

use refusal::Refusal;

/// tract. It carries bool, integer and float tensors; whatever else a model needs is
/// [`ModelLoadError::NeedsOnnxRuntime`] or [`ModelLoadError::BeyondEmbedded`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Embedded;

impl Embedded {
    /// The engine's name and version.
    pub const NAME: &str = "embedded engine (tract 0.23)";
}

/// Those of `operators` that the engine has no implementation for. A domain is passed over, as tract
/// does.
pub(super) fn lacks<'a>(operators: impl Iterator<Item = &'a str>) -> BTreeSet<&'a str> {
    let known = guard(|| tract_onnx::onnx().op_register.0).unwrap_or_default();
    let name = |operator: &'a str| operator.rsplit('.').next().unwrap_or(operator);
    operators.filter(|operator| !known.contains_key(name(operator))).collect()
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

    fn load(&self, file: &ModelFile, _options: &SessionOptions) -> Result<Box<dyn Session>, ModelLoadError> {
        let path = || file.path().to_owned();
        if let Some(feature) = missing_feature(file) {
            return Err(ModelLoadError::NeedsOnnxRuntime { path: path(), feature });
        }
        let beyond = |reason: String| ModelLoadError::BeyondEmbedded { path: path(), reason };
        let made = guard(|| Ok(session::TractSession::new(read(file)?, file.info())?));
        match made.map_err(|panic| beyond(format!("it failed within: {panic}")))? {
            Ok(session) => Ok(Box::new(session)),
            Err(Refusal::Invalid(reason)) => Err(ModelLoadError::Invalid { path: path(), reason }),
            Err(Refusal::Beyond(error)) => Err(beyond(refusal::reason(&error, &file.info().operators))),
        }
    }
}

/// The first thing in the model that tract has not, in words.
fn missing_feature(file: &ModelFile) -> Option<String> {
    let info = file.info();
    let known = tract_onnx::onnx().op_register.0;
    let operator = info.operators.keys().find(|name| {
        let in_ml_domain = name.strip_prefix("ai.onnx.ml.");
        !known.contains_key(in_ml_domain.unwrap_or(name))
    });
    if let Some(operator) = operator {
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

fn read(file: &ModelFile) -> Result<InferenceModel, Refusal> {
    let onnx = tract_onnx::onnx();
    let proto: ModelProto = match file.whole().map_err(|reason| anyhow!(reason))? {
        Some(bytes) => onnx.proto_model_for_read(&mut &*bytes)?,
        None => onnx.proto_model_for_path(file.path())?,
    };
    let folder = file.path().parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = folder.to_str().ok_or_else(|| anyhow!("the model's folder is not UTF-8"))?;
    let parsed = onnx.parse(&proto, Some(folder))?;
    if let Some(name) = parsed.unresolved_inputs.first() {
        return Err(Refusal::Invalid(format!("nothing produces the value `{name}`")));
    }
    Ok(parsed.model)
}
