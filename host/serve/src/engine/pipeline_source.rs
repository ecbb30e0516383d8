//! The origin of a pipeline.

/// The origin of a pipeline, as the operator names it. Each load looks for it anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineSource(
    /// a folder with a gpux.yml, a gpux.yml file, the `name` in one, or a model (.onnx) or a component (.wasm) alone
    pub String,
);
