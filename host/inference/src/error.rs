//! Why a model, an engine library or a provider cannot be used.

use std::path::PathBuf;

use super::providers::ProviderError;

/// A model that cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelLoadError {
    /// the file cannot be read
    #[error("cannot read the model `{shown}`: {source}", shown = path.display())]
    Io {
        /// the model's file
        path: PathBuf,
        /// the system's reason
        source: std::io::Error,
    },
    /// it is not there in the precision that was asked for
    #[error("the model `{shown}` cannot be used in this precision: {reason}", shown = path.display())]
    Precision {
        /// the model's file
        path: PathBuf,
        /// what is missing, and what to do
        reason: String,
    },
    /// the file is not an ONNX model, or breaks a rule of the format
    #[error("`{shown}` is not a valid ONNX model: {reason}", shown = path.display())]
    Invalid {
        /// the model's file
        path: PathBuf,
        /// which rule, and where
        reason: String,
    },
    /// weights outside the model's file that may not or cannot be read
    #[error("the model `{shown}` keeps `{tensor}` in another file: {reason}", shown = path.display())]
    ExternalData {
        /// the model's file
        path: PathBuf,
        /// the tensor whose data is elsewhere
        tensor: String,
        /// what is wrong with where it is
        reason: String,
    },
    /// an input or output of a kind that gpux does not carry
    #[error("the model `{shown}` cannot be used: {what} `{port}` is {kind}, which gpux does not carry", shown = path.display())]
    UnsupportedKind {
        /// the model's file
        path: PathBuf,
        /// `input` or `output`
        what: &'static str,
        /// its name
        port: String,
        /// its ONNX type
        kind: String,
    },
    /// the embedded engine lacks something that ONNX Runtime has
    #[error(
        "the model `{shown}` needs ONNX Runtime: the embedded engine has no {feature}; run `gpux engine install`",
        shown = path.display()
    )]
    NeedsOnnxRuntime {
        /// the model's file
        path: PathBuf,
        /// the operator or feature, for example `operator NonMaxSuppression`
        feature: String,
    },
    /// the embedded engine has every operator of the model, but not for what the model does
    #[error(
        "the model `{shown}` needs ONNX Runtime: the embedded engine cannot load it ({reason}); run `gpux engine install`",
        shown = path.display()
    )]
    BeyondEmbedded {
        /// the model's file
        path: PathBuf,
        /// the operator and the node if they are known, and the cause
        reason: String,
    },
    /// it has an operator that no engine has, of another domain or of none
    #[error(
        "the model `{shown}` cannot be used: `{operator}` is a custom operator, which neither ONNX Runtime nor the \
         embedded engine has; export the model without it",
        shown = path.display()
    )]
    CustomOperator {
        /// the model's file
        path: PathBuf,
        /// the operator with its domain
        operator: String,
    },
    /// this machine, or the execution provider on it, lacks something that the model needs
    #[error("{engine} cannot run the model `{shown}` here: {reason}", shown = path.display())]
    Lacking {
        /// the model's file
        path: PathBuf,
        /// the engine's name and version
        engine: String,
        /// what is missing, and what to do
        reason: String,
    },
    /// the engine refused the model
    #[error("{engine} cannot load the model `{shown}`: {reason}", shown = path.display())]
    Engine {
        /// the model's file
        path: PathBuf,
        /// the engine's name and version
        engine: String,
        /// the engine's own message
        reason: String,
    },
    /// the trial in a child process did not end well
    #[error("the model `{shown}` was tried in a process of its own first, and {reason}", shown = path.display())]
    Validation {
        /// the model's file
        path: PathBuf,
        /// how the child ended
        reason: String,
    },
    /// the machine lets no child process try it
    #[error("the model `{shown}` cannot be tried before it is loaded: {reason}", shown = path.display())]
    CannotValidate {
        /// the model's file
        path: PathBuf,
        /// what the machine lacks
        reason: String,
    },
    /// the asked-for execution provider cannot run it
    #[error(transparent)]
    Provider(#[from] ProviderError),
}

impl ModelLoadError {
    /// Whether the cause is the machine (no engine, no provider, no process) rather than the model.
    pub fn is_environment(&self) -> bool {
        matches!(
            self,
            Self::NeedsOnnxRuntime { .. }
                | Self::BeyondEmbedded { .. }
                | Self::CannotValidate { .. }
                | Self::Lacking { .. }
                | Self::Precision { .. }
                | Self::Provider(_)
        )
    }
}
