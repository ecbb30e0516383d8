//! The error of this crate, and the errors inside it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};

use gpux_core::{RunError, StepError, StepFailure, TimeLimit, ValidationError};

pub use super::policy::ParseGrantsError;
pub use gpux_config::{ConfigurationError, Diagnostic, LoadError, Position, SourceFile, Span};
pub use gpux_core::{JsonError, LimitExceeded, Mismatch, TensorError, UnitError, UnknownElementType};
pub use gpux_inference::{LibraryError, LibraryOrigin, ModelLoadError, OptionError, ProviderError};
pub use gpux_sandbox::{Capability, OptionViolation, Refusal, RefusalReason, SandboxError};
pub use gpux_store::StoreError;

/// Everything that can go wrong in gpux. The kinds carry the names of the HTTP API.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GpuxError {
    /// gpux.yml is not there, is wrong, or names something that is
    #[error(transparent)]
    Configuration(#[from] LoadError),
    /// a model cannot be read, is not ONNX, or its engine refuses it
    #[error(transparent)]
    ModelLoad(#[from] ModelLoadError),
    /// no engine or execution provider meets the request
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// an option of an execution provider that cannot be set
    #[error("provider option: {0}")]
    ProviderOption(#[from] OptionError),
    /// the engine library cannot be used
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// ONNX Runtime was asked for, or is the only engine that this gpux was built with, and there is none
    #[error("no ONNX Runtime library was found; run `gpux engine install`, or name one with `--engine-library`")]
    NoEngine,
    /// this machine cannot run components
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// the store has no such pipeline, has not all of it, or cannot be used
    #[error(transparent)]
    Store(#[from] StoreError),
    /// the request does not fit the pipeline's inputs
    #[error(transparent)]
    Validation(#[from] ValidationError),
    /// a step failed on a request
    #[error(transparent)]
    Step(#[from] Box<StepError>),
    /// the process that runs the pipeline has ended; only where gpux runs it in a process of its own
    #[error(transparent)]
    Crash(#[from] ModelCrash),
    /// an error of another process of gpux, likewise
    #[error("{}", .0.message)]
    Reported(Box<ReportedError>),
    /// a request that a server warms the pipeline with has failed
    #[error("request {number} of `serving.warmup`: {error}")]
    WarmUp {
        /// its place in the list, from 1
        number: usize,
        /// why it failed
        error: Box<GpuxError>,
    },
}

/// The end of a process that runs a pipeline: native code crashed, or the process was killed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the process of the pipeline ended{}: {reason}", .step.as_ref().map(|(number, name)| format!(" in step {number} ({name})")).unwrap_or_default())]
pub struct ModelCrash {
    /// how it ended
    pub reason: String,
    /// the place, from 1, and the name of the step that ran
    pub step: Option<(usize, String)>,
}

/// An error of another process of gpux, as that process describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedError {
    /// [`GpuxError::kind`]
    pub kind: String,
    /// [`GpuxError::category`]
    pub category: ErrorCategory,
    /// the error with the lines of the file, for people
    pub message: String,
    /// [`GpuxError::to_json`]
    pub json: Json,
}

impl ReportedError {
    /// An error that is described by its message alone.
    pub fn new(category: ErrorCategory, message: String) -> Self {
        let kind = match category {
            ErrorCategory::Request => "ValidationError",
            ErrorCategory::Configuration => "ConfigurationError",
            ErrorCategory::Environment => "ProviderError",
            ErrorCategory::Run => "StepError",
        };
        let json = json!({ "error": kind, "message": message, "details": {} });
        Self { kind: kind.to_owned(), category, message, json }
    }
}

/// Where an error comes from; decides exit code and HTTP status. No further ones will be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ErrorCategory {
    /// the request's
    Request,
    /// the pipeline's files'
    Configuration,
    /// the machine's: no engine, no provider
    Environment,
    /// the run's: a step failed or ran out of a limit
    Run,
}

impl GpuxError {
    /// Says of a timeout which limit the request had, unless that was said before.
    #[must_use]
    pub fn explain_timeout(mut self, limit: impl FnOnce() -> TimeLimit) -> Self {
        if let Self::Step(error) = &mut self {
            error.explain_timeout(limit);
        }
        self
    }

    /// The kind's name: `ConfigurationError`, `ModelLoadError`, `ProviderError`, `ValidationError`, `StepError` or
    /// `ModelCrashError`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Configuration(_) | Self::ProviderOption(_) => "ConfigurationError",
            Self::ModelLoad(error) if error.is_environment() => "ProviderError",
            Self::ModelLoad(_) => "ModelLoadError",
            Self::Provider(_) | Self::Library(_) | Self::NoEngine | Self::Sandbox(_) => "ProviderError",
            Self::Store(error) if error.is_environment() => "ProviderError",
            Self::Store(_) => "ConfigurationError",
            Self::Validation(_) => "ValidationError",
            Self::Step(_) => "StepError",
            Self::Crash(_) => "ModelCrashError",
            Self::Reported(error) => {
                let known = ["ConfigurationError", "ProviderError", "ValidationError", "StepError", "ModelCrashError"];
                known.into_iter().find(|kind| *kind == error.kind).unwrap_or("ModelLoadError")
            }
            Self::WarmUp { error, .. } => error.kind(),
        }
    }

    /// Where it comes from.
    pub fn category(&self) -> ErrorCategory {
        match self {
            Self::Configuration(_) | Self::ProviderOption(_) => ErrorCategory::Configuration,
            Self::Sandbox(_) => ErrorCategory::Environment,
            Self::ModelLoad(error) if error.is_environment() => ErrorCategory::Environment,
            Self::ModelLoad(_) => ErrorCategory::Configuration,
            Self::Provider(ProviderError::Unknown(_)) => ErrorCategory::Configuration,
            Self::Provider(_) | Self::Library(_) | Self::NoEngine => ErrorCategory::Environment,
            Self::Store(error) if error.is_environment() => ErrorCategory::Environment,
            Self::Store(error) if error.is_about_name() => ErrorCategory::Configuration,
            Self::Store(_) => ErrorCategory::Run,
            Self::Validation(_) => ErrorCategory::Request,
            Self::Step(error) if matches!(error.failure, StepFailure::InvalidInput(_)) => ErrorCategory::Request,
            Self::Step(error) if matches!(error.failure, StepFailure::Unsupported(_)) => ErrorCategory::Environment,
            Self::Step(_) | Self::Crash(_) => ErrorCategory::Run,
            Self::Reported(error) => error.category,
            Self::WarmUp { .. } => ErrorCategory::Configuration,
        }
    }

    /// The error for another process, which shows it as its own.
    #[doc(hidden)]
    pub fn to_reported(&self) -> ReportedError {
        let message = self.render();
        ReportedError { kind: self.kind().to_owned(), category: self.category(), message, json: self.to_json() }
    }

    /// The error for people, with the lines of the file where it has some.
    pub fn render(&self) -> String {
        let text = match self {
            Self::Configuration(LoadError::Invalid(error)) => error.render().trim_end().to_owned(),
            other => other.to_string(),
        };
        match text.strip_prefix("error: ") {
            Some(message) => message.to_owned(),
            None => text,
        }
    }

    /// The error as the HTTP API and `--json` show it: `{error, message, details}`.
    pub fn to_json(&self) -> Json {
        let mut details = Map::new();
        match self {
            Self::Configuration(LoadError::Invalid(error)) => {
                details.insert("diagnostics".to_owned(), error.to_json());
            }
            Self::Validation(error) => {
                if let Some(input) = &error.input {
                    details.insert("field".to_owned(), json!(input));
                }
            }
            Self::Step(error) => {
                details.insert("step".to_owned(), json!(error.number));
                details.insert("name".to_owned(), json!(error.name));
                if !error.within.is_empty() {
                    let items: Vec<_> = error.within.iter().map(|place| place.item).collect();
                    details.insert("inner_step".to_owned(), json!(error.label()));
                    details.insert("items".to_owned(), json!(items));
                }
                if let StepFailure::Limit(limit) = &error.failure {
                    details.insert("limit".to_owned(), json!(limit.limit));
                    details.insert("value".to_owned(), json!(limit.value));
                }
                if !error.log.is_empty() {
                    details.insert("log".to_owned(), json!(error.log));
                }
            }
            Self::Crash(crash) => {
                if let Some((number, name)) = &crash.step {
                    details.insert("step".to_owned(), json!(number));
                    details.insert("name".to_owned(), json!(name));
                }
            }
            Self::Reported(error) => return error.json.clone(),
            Self::WarmUp { number, error } => {
                let mut json = error.to_json();
                json["message"] = json!(self.to_string());
                json["details"]["warmup"] = json!(number);
                return json;
            }
            Self::Configuration(_)
            | Self::ModelLoad(_)
            | Self::Provider(_)
            | Self::ProviderOption(_)
            | Self::Library(_)
            | Self::NoEngine
            | Self::Sandbox(_)
            | Self::Store(_) => {}
        }
        json!({ "error": self.kind(), "message": self.to_string(), "details": details })
    }
}

impl From<ReportedError> for GpuxError {
    fn from(error: ReportedError) -> Self {
        Self::Reported(Box::new(error))
    }
}

impl From<ConfigurationError> for GpuxError {
    fn from(error: ConfigurationError) -> Self {
        Self::Configuration(LoadError::Invalid(Box::new(error)))
    }
}

impl From<Box<ConfigurationError>> for GpuxError {
    fn from(error: Box<ConfigurationError>) -> Self {
        Self::Configuration(LoadError::Invalid(error))
    }
}

impl From<RunError> for GpuxError {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Validation(error) => Self::Validation(error),
            RunError::Step(error) => Self::Step(error),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::Runtime;

    const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

    #[test]
    fn says_who_must_act() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let model = format!("{ROOT}/models/digits.onnx");
        let library = |options: &mut crate::LoadOptions| options.engine.library = Some("/no/such.so".into());
        for (error, kind, category) in [
            (Runtime::from_config("no-such").err(), "ConfigurationError", ErrorCategory::Configuration),
            (
                Runtime::from_config(file("a.yml", "name: a\n")).err(),
                "ConfigurationError",
                ErrorCategory::Configuration,
            ),
            (Runtime::new("no.onnx").err(), "ModelLoadError", ErrorCategory::Configuration),
            (Runtime::new(file("text.onnx", "text")).err(), "ModelLoadError", ErrorCategory::Configuration),
            (Runtime::builder().provider("cud").model(&model).err(), "ProviderError", ErrorCategory::Configuration),
            (Runtime::builder().options(library).model(&model).err(), "ProviderError", ErrorCategory::Environment),
        ] {
            let error = error.unwrap();
            assert_eq!((error.kind(), error.category()), (kind, category), "{error}");
        }
        let runtime = Runtime::from_config(ROOT).unwrap();
        for (input, kind, category) in
            [("x", "ValidationError", ErrorCategory::Request), ("image", "StepError", ErrorCategory::Request)]
        {
            let error = runtime.infer([(input, b"no image".to_vec())]).unwrap_err();
            assert_eq!((error.kind(), error.category()), (kind, category), "{error}");
        }
    }
}
