//! The configuration of a model in Triton's form, which `perf_analyzer` and other tools read.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value as Json};

use super::datatype;
use super::lookup::Model;
use super::metadata;
use super::metadata::TensorMetadata;
use super::placement;
use super::placement::InstanceGroup;
use gpux::internal::ModelSummary;

/// Triton's names for the ONNX backend.
pub(super) const PLATFORM: &str = "onnxruntime_onnx";
pub(super) const BACKEND: &str = "onnxruntime";

/// The parameters of the configuration: `precision` of each model and, where it is `auto`, `precision_choice` with gain
/// and loss; `precision.NAME` and `precision_choice.NAME` where there are several models.
pub(super) fn parameters(model: &Model) -> impl Iterator<Item = (String, String)> {
    let models = &model.loaded.info().models;
    models.iter().flat_map(move |ModelSummary { name, precision, .. }| {
        let key = move |key: &str| if models.len() > 1 { format!("{key}.{name}") } else { key.to_owned() };
        let choice = precision.decision.as_ref().map(|decision| (key("precision_choice"), decision.to_string()));
        [(key("precision"), precision.precision.to_string())].into_iter().chain(choice)
    })
}

/// A pipeline, as Triton's configuration of a model.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ModelConfig {
    name: String,
    platform: &'static str,
    backend: &'static str,
    runtime: &'static str,
    version_policy: VersionPolicy,
    /// 0: a batch's axis is part of the shapes
    max_batch_size: u32,
    input: Vec<Input>,
    output: Vec<Output>,
    batch_input: [Json; 0],
    batch_output: [Json; 0],
    optimization: Optimization,
    /// where each model of the pipeline runs
    instance_group: Vec<InstanceGroup>,
    /// empty where there is not one model
    default_model_filename: String,
    cc_model_filenames: Map<String, Json>,
    metric_tags: Map<String, Json>,
    /// what each model is computed in
    parameters: BTreeMap<String, Parameter>,
    model_warmup: [Json; 0],
}

/// A parameter of the backend.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ModelParameter")]
struct Parameter {
    string_value: String,
}

#[derive(Serialize, JsonSchema)]
struct VersionPolicy {
    latest: Latest,
}

/// The newest versions are served.
#[derive(Serialize, JsonSchema)]
struct Latest {
    num_versions: u32,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ModelInput")]
struct Input {
    #[serde(flatten)]
    common: Common,
    format: &'static str,
    allow_ragged_batch: bool,
    optional: bool,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ModelOutput")]
struct Output {
    #[serde(flatten)]
    common: Common,
    /// empty: gpux.yml says what classes are called
    label_filename: &'static str,
}

/// What inputs and outputs have in common.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ModelTensor")]
struct Common {
    name: String,
    /// `TYPE_FP32`, `TYPE_STRING` …
    data_type: &'static str,
    /// -1 is a dimension that each request decides
    dims: Vec<i64>,
    is_shape_tensor: bool,
    is_non_linear_format_io: bool,
}

/// What Triton would do around a model; gpux does none of it.
#[derive(Default, Serialize, JsonSchema)]
struct Optimization {
    priority: Urgency,
    input_pinned_memory: PinnedMemory,
    output_pinned_memory: PinnedMemory,
    gather_kernel_buffer_threshold: u32,
    eager_batching: bool,
}

/// Each request says how urgent it is.
#[derive(Default, Serialize, JsonSchema)]
enum Urgency {
    #[default]
    #[serde(rename = "PRIORITY_DEFAULT")]
    Default,
}

#[derive(Default, Serialize, JsonSchema)]
struct PinnedMemory {
    enable: bool,
}

impl ModelConfig {
    /// `GET /v2/models/NAME/config`.
    pub(super) fn new(model: &Model) -> Self {
        let input = |input: TensorMetadata| {
            let optional = input.optional;
            Input { common: Common::new(input), format: "FORMAT_NONE", allow_ragged_batch: false, optional }
        };
        let output = |output: TensorMetadata| Output { common: Common::new(output), label_filename: "" };
        Self {
            name: model.loaded.name().to_owned(),
            platform: PLATFORM,
            backend: BACKEND,
            runtime: "",
            version_policy: VersionPolicy { latest: Latest { num_versions: 1 } },
            max_batch_size: 0,
            input: metadata::inputs(model).into_iter().map(input).collect(),
            output: metadata::outputs(model).into_iter().map(output).collect(),
            batch_input: [],
            batch_output: [],
            optimization: Optimization::default(),
            instance_group: placement::instance_groups(model),
            default_model_filename: placement::file_name(model),
            cc_model_filenames: Map::new(),
            metric_tags: Map::new(),
            parameters: parameters(model).map(|(key, string_value)| (key, Parameter { string_value })).collect(),
            model_warmup: [],
        }
    }
}

impl Common {
    fn new(tensor: TensorMetadata) -> Self {
        Self {
            name: tensor.name,
            data_type: datatype::config_name(tensor.element),
            dims: tensor.shape,
            is_shape_tensor: false,
            is_non_linear_format_io: false,
        }
    }
}
