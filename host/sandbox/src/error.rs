//! Why a component cannot be a step.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::preview_1;
use super::refusal::{Refusal, RefusalReason};
use gpux_core::{LimitExceeded, StepFailure};

/// Why the sandbox, or a component in it, cannot be had.
#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum SandboxError {
    /// wasmtime does not run on this machine
    #[error("the sandbox cannot start on this machine: {0}")]
    Engine(String),
    /// the folder of compiled components cannot be used
    #[error("cannot use the cache for compiled components: {0}")]
    Cache(String),
    /// neither a component nor a core module
    #[error("this is not WebAssembly: {0}")]
    NotWasm(Cow<'static, str>),
    /// a limit was reached before the component ran
    #[error("{0}")]
    Limit(LimitExceeded),
    /// a core module whose exports or imports are not those of a step
    #[error(
        "this is a core WebAssembly module that cannot be made a component: {0}; its exports and imports must be those \
         of wit/pipeline.wit, world `pipeline-step`: gpux-step, wit-bindgen and the headers in C write them"
    )]
    Componentize(String),
    /// a core module that imports these functions of WASI 0.1
    #[error("this module is built for WASI 0.1, which gpux does not offer: {}", preview_1::causes(.0))]
    WasiPreview1(Vec<String>),
    /// the end of the file is missing
    #[error(
        "this component is cut off: its sections go on after the {size} bytes that are there; copy or build it again"
    )]
    Truncated {
        /// how many bytes there are
        size: usize,
    },
    /// the bytes are damaged, or use features that the sandbox refuses
    #[error("this component is damaged or uses what the sandbox does not allow: {0}")]
    Compile(String),
    /// a component, but not a step
    #[error(
        "this component is no pipeline step: it does not export `{expected}`; it exports {}",
        NameList(.exports)
    )]
    OtherWorld {
        /// the interface that a step exports
        expected: Cow<'static, str>,
        /// what this one exports
        exports: Vec<String>,
    },
    /// it exports the right interface with other types
    #[error("this component's `{call}` has another type than gpux:pipeline@0.1 says: {reason}")]
    OtherTypes {
        /// which export
        call: Cow<'static, str>,
        /// what differs
        reason: String,
    },
    /// it imports an interface that is not linked
    #[error("{}", Refusals(.0))]
    Imports(Vec<Refusal>),
    /// a granted folder cannot be opened
    #[error("the granted folder `{}` cannot be opened: {why}", .folder.display())]
    Folder {
        /// where it should be
        folder: PathBuf,
        /// the system's reason
        why: String,
    },
    /// a grant names a model that the pipeline does not have
    #[error("`grant: {{ models: [{name}] }}` names no model of this pipeline; it has {}", NameList(.models))]
    UnknownModel {
        /// the name granted
        name: String,
        /// the names there are
        models: Vec<String>,
    },
    /// it stopped while it was described or configured
    #[error("the component's `{call}` did not succeed: {failure}")]
    Setup {
        /// `describe` or `configure`
        call: Cow<'static, str>,
        /// why
        failure: StepFailure,
        /// its log lines, the newest last
        log: Vec<String>,
    },
    /// the steps that its `configure` prepared cannot be prepared again
    #[error("the steps that this component's `configure` prepared cannot be prepared for its requests: {0}")]
    Prepared(String),
    /// its description breaks the contract
    #[error("the component's `{call}` gives {what}")]
    Contract {
        /// `describe` or `configure`
        call: Cow<'static, str>,
        /// the reason
        what: String,
    },
    /// the options do not fit the component's schema
    #[error("{}", Violations(.faults))]
    Options {
        /// each option that does not fit
        faults: Vec<OptionViolation>,
        /// the component's schema, sanitized for terminals
        schema: serde_json::Value,
    },
}

impl SandboxError {
    /// Whether the machine is at fault, whatever the component.
    pub const fn is_environment(&self) -> bool {
        matches!(self, Self::Engine(_) | Self::Cache(_))
    }
}

/// One option that does not fit the component's schema.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OptionViolation {
    /// where, as a path of keys; empty for the options as a whole
    pub path: Vec<String>,
    /// the reason
    pub message: String,
}

struct Violations<'a>(&'a [OptionViolation]);

impl fmt::Display for Violations<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the options do not fit the component's schema: ")?;
        for (index, violation) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{}", violation.message)?;
            if !violation.path.is_empty() {
                write!(f, " (at `{}`)", violation.path.join("."))?;
            }
        }
        Ok(())
    }
}

struct Refusals<'a>(&'a [Refusal]);

impl fmt::Display for Refusals<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, refusal) in self.0.iter().enumerate() {
            write!(f, "{}{refusal}", if index == 0 { "" } else { "; " })?;
            if let RefusalReason::NotGranted(capability) = &refusal.reason {
                write!(f, ": its step needs `grant: {{ {} }}`", capability.grant())?;
            }
        }
        Ok(())
    }
}

struct NameList<'a>(&'a [String]);

impl fmt::Display for NameList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { f.write_str("none") } else { write!(f, "`{}`", self.0.join("`, `")) }
    }
}
