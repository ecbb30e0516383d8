//! The origin of a pipeline.

/// Where a pipeline comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source(
    /// a folder with a gpux.yml, such a file, the `name` in one, or a model (.onnx) alone
    pub String,
);
