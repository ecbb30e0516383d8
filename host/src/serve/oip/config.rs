//! The configuration of a model, in the form of Triton's, which `perf_analyzer` and others read.

use serde_json::{Value as Json, json};

use super::datatype;
use super::grpc::proto;
use super::lookup::Model;
use super::metadata::{self, TensorMetadata};

/// How Triton calls what runs ONNX.
const PLATFORM: &str = "onnxruntime_onnx";
const BACKEND: &str = "onnxruntime";

/// `GET /v2/models/NAME/config`. A batch's axis is part of the shapes, so `max_batch_size` is 0.
pub(super) fn to_json(model: &Model) -> Json {
    let inputs = metadata::inputs(model).into_iter().map(|tensor| {
        let mut input = described(&tensor);
        input["format"] = json!("FORMAT_NONE");
        input["optional"] = json!(tensor.optional);
        input
    });
    let outputs = metadata::outputs(model);
    json!({
        "name": model.served.name(),
        "platform": PLATFORM,
        "backend": BACKEND,
        "version_policy": { "latest": { "num_versions": 1 } },
        "max_batch_size": 0,
        "input": inputs.collect::<Vec<_>>(),
        "output": outputs.iter().map(described).collect::<Vec<_>>(),
    })
}

fn described(tensor: &TensorMetadata) -> Json {
    json!({ "name": tensor.name, "data_type": datatype::config_name(tensor.element), "dims": tensor.shape })
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
