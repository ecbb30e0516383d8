//! The configuration of a model, in the form of Triton's, which `perf_analyzer` and others read.

use schemars::JsonSchema;
use serde::Serialize;

use super::datatype;
use super::grpc::proto;
use super::lookup::Model;
use super::metadata::{self, TensorMetadata};

/// How Triton calls what runs ONNX.
const PLATFORM: &str = "onnxruntime_onnx";
const BACKEND: &str = "onnxruntime";

/// A pipeline, as Triton's configuration of a model.
#[derive(Serialize, JsonSchema)]
pub(in crate::serve) struct ModelConfig {
    name: String,
    platform: &'static str,
    backend: &'static str,
    version_policy: VersionPolicy,
    /// 0: a batch's axis is part of the shapes
    max_batch_size: u32,
    input: Vec<Input>,
    output: Vec<Tensor>,
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
    tensor: Tensor,
    format: &'static str,
    optional: bool,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ModelOutput")]
struct Tensor {
    name: String,
    /// `TYPE_FP32`, `TYPE_STRING` …
    data_type: &'static str,
    /// -1 is a dimension that each request decides
    dims: Vec<i64>,
}

impl ModelConfig {
    /// `GET /v2/models/NAME/config`.
    pub(super) fn of(model: &Model) -> Self {
        let input = |input: TensorMetadata| {
            let optional = input.optional;
            Input { tensor: Tensor::of(input), format: "FORMAT_NONE", optional }
        };
        Self {
            name: model.served.name().to_owned(),
            platform: PLATFORM,
            backend: BACKEND,
            version_policy: VersionPolicy { latest: Latest { num_versions: 1 } },
            max_batch_size: 0,
            input: metadata::inputs(model).into_iter().map(input).collect(),
            output: metadata::outputs(model).into_iter().map(Tensor::of).collect(),
        }
    }
}

impl Tensor {
    fn of(tensor: TensorMetadata) -> Self {
        Self { name: tensor.name, data_type: datatype::config_name(tensor.element), dims: tensor.shape }
    }
}

/// The same in gRPC's message.
pub(super) fn to_message(model: &Model) -> proto::ModelConfig {
    let input = |tensor: TensorMetadata| proto::ModelInput {
        data_type: datatype::config_number(tensor.element),
        name: tensor.name,
        dims: tensor.shape,
        optional: tensor.optional,
    };
    let output = |tensor: TensorMetadata| proto::ModelOutput {
        data_type: datatype::config_number(tensor.element),
        name: tensor.name,
        dims: tensor.shape,
    };
    let latest = proto::model_version_policy::Latest { num_versions: 1 };
    proto::ModelConfig {
        name: model.served.name().to_owned(),
        platform: PLATFORM.to_owned(),
        backend: BACKEND.to_owned(),
        version_policy: Some(proto::ModelVersionPolicy { latest: Some(latest) }),
        max_batch_size: 0,
        input: metadata::inputs(model).into_iter().map(input).collect(),
        output: metadata::outputs(model).into_iter().map(output).collect(),
    }
}
