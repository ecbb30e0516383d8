//! `case.yml` as written.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::value_difference::Tolerance;
use gpux_config::{ConfigurationError, Diagnostic, Document, FileKind, LoadError, Node, Span};

/// The file that makes a folder a case.
pub const CASE_FILE: &str = "case.yml";

const FORM: FileKind = FileKind { name: CASE_FILE, start: "start with `inputs:`; `gpux test --bless` writes the rest" };

/// The schema of a mapping whose content another module reads.
type AnyMapping = Option<serde_json::Map<String, serde_json::Value>>;

/// The file as written. Step settings are checked as in a gpux.yml, values once the signature is
/// known.
#[derive(Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct RawCase {
    /// What the case shows, for people
    #[serde(default)]
    description: Option<String>,
    /// The component's options
    #[serde(default, rename = "options")]
    #[schemars(with = "AnyMapping")]
    _options: IgnoredAny,
    /// The component's limits, as in gpux.yml
    #[serde(default, rename = "limits")]
    #[schemars(with = "AnyMapping")]
    _limits: IgnoredAny,
    /// What the component may use beyond computing, as in gpux.yml
    #[serde(default, rename = "grant")]
    #[schemars(with = "AnyMapping")]
    _grant: IgnoredAny,
    /// The models that the component may be granted, as in gpux.yml
    #[serde(default, rename = "models")]
    #[schemars(with = "AnyMapping")]
    _models: IgnoredAny,
    /// What goes in, by name
    #[serde(default, rename = "inputs")]
    #[schemars(with = "AnyMapping")]
    _inputs: IgnoredAny,
    /// What must come out, by name
    #[serde(default, rename = "outputs")]
    #[schemars(with = "AnyMapping")]
    _outputs: IgnoredAny,
    /// How far numbers may be off
    #[serde(default)]
    tolerance: Option<CaseTolerance>,
    /// The error that must come instead
    #[serde(default)]
    error: Option<ExpectedError>,
    /// Where the case comes from, if `gpux run --record` wrote it
    #[serde(default)]
    recorded: Option<RecordingInfo>,
}

/// The tolerance of a case, and of single outputs.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub(crate) struct CaseTolerance {
    #[serde(flatten)]
    all: Tolerance,
    /// How far the numbers of single outputs may be off, by name, in place of the rest
    outputs: BTreeMap<String, Tolerance>,
}

impl CaseTolerance {
    /// The tolerance of an output.
    pub(crate) fn for_output(&self, output: &str) -> Tolerance {
        self.outputs.get(output).copied().unwrap_or(self.all)
    }
}

/// The error that a case expects.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExpectedError {
    /// Whose fault it is
    pub kind: ErrorKind,
    /// A part of its message
    #[serde(default)]
    pub contains: Option<String>,
}

/// Whose fault an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub(crate) enum ErrorKind {
    /// the request's: it cannot be worked on
    InvalidInput,
    /// the step's
    Failed,
    /// a limit of the sandbox, or the request's timeout
    Limit,
    /// an error of the options, limits or grants: nothing could be run
    Configuration,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::InvalidInput => "invalid-input",
            Self::Failed => "failed",
            Self::Limit => "limit",
            Self::Configuration => "configuration",
        })
    }
}

/// The origin of a recorded case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordingInfo {
    /// The step's place in its pipeline, from 1
    pub step: usize,
    /// The step's name there
    pub name: String,
    /// SHA-256 of the component
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component: Option<String>,
    /// How long it took, in milliseconds
    pub time_ms: f64,
    /// The highest memory of its sandbox, in bytes
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_peak: Option<u64>,
    /// Why there is no result, if it is nothing that a test can expect: the request's timeout
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// What it logged
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<String>,
}

/// The expectation of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expectation {
    /// the values under `outputs:`
    Outputs,
    /// an error
    Error(ExpectedError),
    /// nothing yet
    Unknown,
}

/// A case whose shape is checked.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// the name of its folder
    pub name: String,
    /// its folder
    pub folder: PathBuf,
    /// for people
    pub description: Option<String>,
    /// its expectation
    pub expectation: Expectation,
    /// how far numbers may be off
    pub tolerance: CaseTolerance,
    /// where it comes from, if it was recorded
    pub recorded: Option<RecordingInfo>,
    /// the file, with the place of every word
    pub document: Document,
}

/// Keys that are about a component step; a pipeline says these things itself.
const STEP_ONLY_KEYS: [&str; 4] = ["options", "limits", "grant", "models"];

impl Case {
    /// Whether `folder` is a case.
    pub(crate) fn exists_in(folder: &Path) -> bool {
        folder.join(CASE_FILE).is_file()
    }

    /// Reads the case of a folder.
    pub(crate) fn load(folder: &Path) -> Result<Self, LoadError> {
        let path: PathBuf =
            folder.join(CASE_FILE).components().filter(|part| *part != std::path::Component::CurDir).collect();
        let (document, written) = gpux_config::load_as::<RawCase>(FORM, &path)?;
        let node = |key| document.root.get(key).filter(|node| !node.is_null());
        let expectation = match (node("outputs"), written.error) {
            (Some(_), None) => Expectation::Outputs,
            (None, Some(error)) => Expectation::Error(error),
            (None, None) => Expectation::Unknown,
            (Some(_), Some(_)) => {
                let span = document.root.entry("error").map_or(0..0, |(key, _)| key.span.clone());
                let fault = Diagnostic::new("expectation", span, "a case expects `outputs` or an `error`, not both");
                return Err(Box::new(fail(&document, vec![fault.hint("remove one of them")])).into());
            }
        };
        let name = folder.file_name().unwrap_or(folder.as_os_str()).to_string_lossy().into_owned();
        Ok(Self {
            name,
            folder: folder.to_owned(),
            description: written.description,
            expectation,
            tolerance: written.tolerance.unwrap_or_default(),
            recorded: written.recorded,
            document,
        })
    }

    /// The value of `key`, unless it is missing or empty.
    pub(crate) fn node(&self, key: &str) -> Option<&Node> {
        self.document.root.get(key).filter(|node| !node.is_null())
    }

    /// The place of `key`, else the beginning of the file.
    pub(crate) fn span(&self, key: &str) -> Span {
        self.document.root.entry(key).map_or(0..0, |(key, _)| key.span.clone())
    }

    /// An error about this file.
    pub(crate) fn configuration_error(&self, faults: Vec<Diagnostic>) -> ConfigurationError {
        fail(&self.document, faults)
    }

    /// Rejects fields that a case of a pipeline cannot have.
    pub(crate) fn require_pipeline_case(&self) -> Result<(), Box<ConfigurationError>> {
        let fault = |key: &&str| {
            let message = format!("`{key}` is about a component step, but this is a case of a pipeline");
            Diagnostic::new("not-of-a-pipeline", self.span(key), message).hint("say it in the gpux.yml")
        };
        let faults: Vec<_> = STEP_ONLY_KEYS.iter().filter(|key| self.node(key).is_some()).map(fault).collect();
        if faults.is_empty() { Ok(()) } else { Err(self.configuration_error(faults).into()) }
    }
}

fn fail(document: &Document, faults: Vec<Diagnostic>) -> ConfigurationError {
    ConfigurationError::new(document.source.clone(), faults)
}
