//! Reads a gpux.yml into a checked [`Spec`] that keeps the place of every value.
//!
//! [`parse`] turns text into a [`Document`] (a tree of [`Node`]s that know where they stand) and a
//! [`Spec`] (the pipeline, complete), or into a [`ConfigurationError`] with every mistake.

#![forbid(unsafe_code)]

mod config_parser;
mod deserialize;
mod diagnostic;
mod document;
mod file_text;
#[cfg(test)]
mod golden_tests;
mod interpolate;
mod load;
mod node;
mod scalar;
mod schema;
mod source_file;
mod spec;
mod typed_file;
mod yaml_error;

pub use config_parser::ConfigParser;
pub use diagnostic::{ConfigurationError, Diagnostic};
pub use document::{Document, FileKind};
pub use file_text::LoadError;
pub use interpolate::{Variables, is_secret, variable_names};
pub use load::{FILE_NAMES, find, load, parse, read_name, spec_of};
pub use node::{Content, Entry, Node, Number, Spanned};
pub use schema::check;
pub use source_file::{Position, SourceFile, Span};
pub use spec::{
    Action, Backend, BatchingSpec, DEFAULT_MODEL_NAME, Dimension, DirGrant, Endpoint, ForEachSpec, GpuSpec, InputSpec,
    Instances, Isolation, Labels, ModelCall, ModelFormat, ModelSpec, OutputSpec, Overflow, PortType, RuntimeSpec,
    ServingSpec, Spec, StepCheck, StepSchema, StepSpec, UnknownPortType, Wasi, WasmGrant, WasmLimits, WasmSpec, Wiring,
    accept_any_step, json_schema,
};
pub use typed_file::{load_as, load_with, parse_as};
