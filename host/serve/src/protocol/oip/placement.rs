//! Instance groups of the models, as in Triton's configuration.

use schemars::JsonSchema;
use serde::Serialize;

use super::lookup::Model;
use gpux::ExecutionProvider;
use gpux::internal::ModelSummary;

/// The sessions of one model of the pipeline.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub(super) struct InstanceGroup {
    /// the model's, as the pipeline calls it
    name: String,
    /// `KIND_CPU`, `KIND_GPU`, or `KIND_MODEL` where the provider decides
    kind: &'static str,
    /// sessions that are there for a single caller
    count: usize,
    /// which GPUs they are on, the provider decides
    gpus: [u32; 0],
    secondary_devices: [u32; 0],
    profile: [String; 0],
    passive: bool,
    host_policy: &'static str,
}

/// The sessions of one model.
pub(super) struct ModelInstances<'a> {
    /// the model's name
    pub(super) name: &'a str,
    /// the name of the kind, and its number in gRPC messages
    pub(super) kind: (&'static str, i32),
    /// the number of sessions
    pub(super) count: usize,
}

pub(super) fn model_instances<'a>(model: &'a Model) -> impl Iterator<Item = ModelInstances<'a>> {
    let instances = |model: &'a ModelSummary| ModelInstances {
        name: &model.name,
        kind: kind(model.provider),
        count: model.instances,
    };
    model.loaded.info().models.iter().map(instances)
}

/// One group per model.
pub(super) fn instance_groups(model: &Model) -> Vec<InstanceGroup> {
    model_instances(model).map(InstanceGroup::from).collect()
}

/// The name of the model's file; empty unless the pipeline has exactly one model.
pub(super) fn file_name(model: &Model) -> String {
    let [only] = model.loaded.info().models.as_slice() else { return String::new() };
    only.file_name.clone()
}

/// The name of a kind, and its number in gRPC messages.
const fn kind(provider: ExecutionProvider) -> (&'static str, i32) {
    match provider {
        ExecutionProvider::Cpu => ("KIND_CPU", 2),
        ExecutionProvider::TensorRt
        | ExecutionProvider::Cuda
        | ExecutionProvider::Rocm
        | ExecutionProvider::DirectMl
        | ExecutionProvider::WebGpu => ("KIND_GPU", 1),
        ExecutionProvider::CoreMl | ExecutionProvider::OpenVino | ExecutionProvider::Plugin(_) => ("KIND_MODEL", 3),
    }
}

impl From<ModelInstances<'_>> for InstanceGroup {
    fn from(instances: ModelInstances<'_>) -> Self {
        Self {
            name: instances.name.to_owned(),
            kind: instances.kind.0,
            count: instances.count,
            gpus: [],
            secondary_devices: [],
            profile: [],
            passive: false,
            host_policy: "",
        }
    }
}
