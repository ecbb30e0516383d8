//! gpux.yml → Spec: what the file says, checked, with the place of every word.
//!
//! [`parse`] turns text into a [`Document`] (a tree of [`Node`]s that know where they stand) and a
//! [`Spec`] (the pipeline, complete), or into a [`ConfigurationError`] with every mistake.

#![forbid(unsafe_code)]

mod diagnostic;
mod document;
#[cfg(test)]
mod golden;
mod interpolate;
mod load;
mod node;
mod parser;
mod read;
mod scalar;
mod schema;
mod source;
mod spec;
mod typed;
mod yaml_error;

pub use diagnostic::{ConfigurationError, Diagnostic};
pub use document::{Document, Form};
pub use interpolate::Variables;
pub use load::{FILE_NAMES, LoadError, find, load, parse};
pub use node::{Content, Entry, Node, Number, Spanned};
pub use parser::ConfigParser;
pub use schema::check;
pub use source::{Position, Source, Span};
pub use spec::{
    Action, Backend, BatchingSpec, Dimension, DirGrant, GpuSpec, InputSpec, Instances, Labels, ModelCall, ModelFormat,
    ModelSpec, ONLY_MODEL, OutputSpec, PortType, RuntimeSpec, ServingSpec, Spec, StepCheck, StepSchema, StepSpec,
    UnknownPortType, Wasi, WasmGrant, WasmLimits, WasmSpec, Wiring, any_step, json_schema,
};
pub use typed::{load_as, load_with, parse_as, spec_of};
