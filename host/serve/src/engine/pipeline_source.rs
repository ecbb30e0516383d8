//! The origin of a pipeline.

/// The origin of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineSource(
    /// a folder with a gpux.yml, a gpux.yml file, the `name` in one, or a model (.onnx) alone
    pub String,
);
