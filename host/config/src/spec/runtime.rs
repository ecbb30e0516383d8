//! `runtime:` and `serving:`.

use std::num::NonZeroU32;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::node::Spanned;
use gpux_core::{Precision, Size, TimeSpan};

/// What runs the models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// the best that the machine has
    #[default]
    Auto,
    /// the one that was measured to be the fastest for the model on this machine
    Fastest,
    /// the processor
    Cpu,
    /// NVIDIA, through CUDA
    Cuda,
    /// NVIDIA, through `TensorRT`
    #[serde(alias = "trt")]
    Tensorrt,
    /// AMD, through `ROCm`
    Rocm,
    /// AMD, through `MIGraphX`
    Migraphx,
    /// Apple, through Core ML
    Coreml,
    /// Windows, through `DirectML`
    #[serde(alias = "dml")]
    Directml,
    /// any GPU, through Vulkan, Direct3D 12 or Metal
    #[serde(alias = "wgpu", alias = "vulkan")]
    Webgpu,
    /// Intel, through `OpenVINO`
    Openvino,
}

impl Backend {
    /// The name in gpux.yml.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Fastest => "fastest",
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
            Self::Tensorrt => "tensorrt",
            Self::Rocm => "rocm",
            Self::Migraphx => "migraphx",
            Self::Coreml => "coreml",
            Self::Directml => "directml",
            Self::Webgpu => "webgpu",
            Self::Openvino => "openvino",
        }
    }
}

impl std::fmt::Display for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// How models run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RuntimeSpec {
    /// what runs the models, and its memory
    pub gpu: GpuSpec,
    /// What float32 models are computed in
    pub precision: Precision,
    /// How many items the model gets at once
    pub batch_size: NonZeroU32,
    /// How long one run may take
    pub timeout: TimeSpan,
}

impl Default for RuntimeSpec {
    fn default() -> Self {
        Self {
            gpu: GpuSpec::default(),
            precision: Precision::Exact,
            batch_size: NonZeroU32::MIN,
            timeout: TimeSpan(Duration::from_secs(30)),
        }
    }
}

/// The execution provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GpuSpec {
    /// The most that one session of a model takes of the GPU's memory
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Size>,
    /// What runs the models
    pub backend: Spanned<Backend>,
    /// Options of the execution provider, under its own names
    pub options: serde_json::Map<String, serde_json::Value>,
}

/// Where a server runs a pipeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// in its own process
    #[default]
    None,
    /// in a process of the pipeline's own
    Pipeline,
}

impl Isolation {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// What a pipeline answers beside its own requests, for the clients of other servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Endpoint {
    /// the vector of a text
    Embeddings,
    /// the scores of documents for a query
    Rerank,
    /// the classes of a text, with their scores
    Classify,
}

/// The server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServingSpec {
    /// The port to listen on
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
    /// The address to listen on; `0.0.0.0` is every network of the machine
    #[schemars(length(min = 1, max = 253))]
    pub host: String,
    /// How many waiting requests are run together at most
    pub batch_size: NonZeroU32,
    /// How long one request may take
    pub timeout: TimeSpan,
    /// `pipeline` asks for a process of its own (Linux); the operator's `--isolation` can only add to this
    #[serde(skip_serializing_if = "Isolation::is_none")]
    pub isolation: Isolation,
    /// Requests that are run before the pipeline is ready: each a mapping from inputs to a value,
    /// or to `{file: PATH}`
    #[schemars(length(max = 100))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warmup: Vec<Spanned<serde_json::Map<String, serde_json::Value>>>,
    /// Endpoints for the clients of other servers, such as OpenAI's; guessed from the steps where it is left out, none
    /// if it is empty
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<Vec<Spanned<Endpoint>>>,
    /// Further names by which those clients may call the pipeline
    #[schemars(length(max = 20), inner(length(min = 1, max = 200)))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// Whether clients of those endpoints may send numbers of tokens in place of a text: they must be of the pipeline's own
    /// tokenizer
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub token_ids: bool,
}

impl Default for ServingSpec {
    fn default() -> Self {
        Self {
            port: 8080,
            host: "0.0.0.0".to_owned(),
            batch_size: NonZeroU32::MIN,
            timeout: TimeSpan(Duration::from_secs(5)),
            isolation: Isolation::None,
            warmup: Vec::new(),
            endpoints: None,
            aliases: Vec::new(),
            token_ids: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize as _;
    use serde::de::value::{Error, StrDeserializer};

    use super::*;

    #[test]
    fn parses_backend_aliases() {
        let read = |name: &str| Backend::deserialize(StrDeserializer::<Error>::new(name));
        for (name, backend) in [
            ("webgpu", Backend::Webgpu),
            ("wgpu", Backend::Webgpu),
            ("vulkan", Backend::Webgpu),
            ("trt", Backend::Tensorrt),
            ("dml", Backend::Directml),
        ] {
            assert_eq!(read(name), Ok(backend), "{name}");
        }
    }
}
