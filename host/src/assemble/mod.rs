//! Spec + built-in steps + components + models → a checked plan. The only room that names all
//! three kinds of step.

mod allow;
mod engine;
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

pub use crate::files::{Mark, Marks};
pub use allow::{Allow, AllowedDir, NotAllowable};
pub use engine::{SelectedEngine, search, select};
pub use operator::{EngineChoice, Operator};
pub use pipeline::{Pipeline, is_model};
pub use runtime::{Runtime, RuntimeBuilder};

use crate::builtin;
use crate::config::{self, StepSchema};
use crate::pipeline::Registry;

/// A registry of every built-in step.
pub fn builtins() -> Registry {
    Registry::new(builtin::all())
}

/// The JSON Schema of gpux.yml with the options of every built-in step.
pub fn json_schema() -> schemars::Schema {
    let registry = builtins();
    let schemas: Vec<_> = registry.builtins().map(|step| (step, (step.schema)())).collect();
    let steps: Vec<_> =
        schemas.iter().map(|(step, schema)| StepSchema { name: step.name, summary: step.summary, schema }).collect();
    provider_options::describe(config::json_schema(&steps))
}
