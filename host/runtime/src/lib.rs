//! gpux runs, serves and ships an ONNX model together with the code around it.
//!
//! A pipeline is described by a `gpux.yml`: native steps, sandboxed WebAssembly components, and
//! models. [`Runtime`] runs one from Rust; the program `gpux` runs it from the command line.
//!
//! A program that loads ONNX Runtime through this library and does not want it to report to its
//! makers sets `ORT_DISABLE_TELEMETRY=1` before it starts, as `gpux` does for itself.

#![forbid(unsafe_code)]

mod allow;
mod engine;
mod error;
mod grants;
mod labels;
mod limits;
mod lineage;
mod models;
mod operator;
mod pipeline;
mod ports;
mod provider_options;
mod report;
mod runtime;
mod steps;
mod warm_up;

pub use allow::{Allow, AllowedDir, NotAllowable};
pub use engine::{SelectedEngine, search, select};
pub use error::{Fault, GpuxError};
pub use gpux_config::ConfigParser;
pub use gpux_core::files::{Mark, Marks};
pub use gpux_inference::{ModelInfo, ModelInspector, ProviderManager};
pub use operator::{EngineChoice, Operator};
pub use pipeline::{Pipeline, is_model};
pub use runtime::{Runtime, RuntimeBuilder};

use gpux_config::StepSchema;
use gpux_core::Registry;

/// A registry of every built-in step.
pub fn builtins() -> Registry {
    Registry::new(gpux_steps::all())
}

/// The JSON Schema of gpux.yml with the options of every built-in step.
pub fn json_schema() -> schemars::Schema {
    let registry = builtins();
    let schemas: Vec<_> = registry.builtins().map(|step| (step, (step.schema)())).collect();
    let steps: Vec<_> =
        schemas.iter().map(|(step, schema)| StepSchema { name: step.name, summary: step.summary, schema }).collect();
    provider_options::describe(gpux_config::json_schema(&steps))
}
