//! Runs ONNX models and the pipelines around them inside a Rust program.
//!
//! A gpux.yml describes a pipeline: built-in steps, sandboxed WebAssembly components, and models.
//! [`Runtime`] loads one and runs requests; any number of threads may share it:
//!
//! ```
//! use std::time::Duration;
//!
//! use gpux::{ErrorCategory, GpuxError, Runtime, Value, to_json};
//!
//! # let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
//! # let photo = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/samples/seven.png");
//! let runtime = Runtime::builder()
//!     .provider("cpu")
//!     .timeout(Duration::from_secs(5))
//!     .options(|options| options.policy.ceiling.memory = 64 << 20)
//!     .config(folder)?;
//! let outputs = runtime.infer([("image", Value::from(std::fs::read(photo)?))])?;
//! for (name, value) in &outputs {
//!     println!("{name}: {}", to_json(value));
//! }
//!
//! let error: GpuxError = runtime.infer([("text", "not an image")]).unwrap_err();
//! assert_eq!(error.category(), ErrorCategory::Request);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | to | use |
//! | --- | --- |
//! | run a model or a pipeline | [`Runtime`], [`RuntimeBuilder`] |
//! | choose engine, provider and cache | [`LoadOptions`]: [`EngineOptions`], [`ProviderSelection`] |
//! | compute in another precision, or measure which is the fastest | [`RuntimeBuilder::precision`], [`RuntimeBuilder::choose_precision`] |
//! | bound what a gpux.yml may do | [`Policy`], [`AllowedGrants`] |
//! | make inputs and read outputs | [`Value`], [`Tensor`], [`ElementType`], [`to_json`], [`from_json`] |
//! | find out who must act on an error | [`GpuxError::category`] |
//! | explain a file without running it | [`ConfigParser`], [`ModelInspector`] |
//! | list execution providers | [`ProviderManager`] |
//! | run a plan with a deadline, an observer or cancellation | [`Pipeline::plan`], [`RunOptions`] |
//!
//! # Telemetry
//!
//! ONNX Runtime reports usage to Microsoft unless `ORT_DISABLE_TELEMETRY=1` is set before its
//! library is loaded. The program `gpux` sets it; a program that embeds this crate sets it itself.

#![forbid(unsafe_code)]

mod access;
mod description;
mod engine;
mod error;
mod file_content;
mod grants;
mod labels;
mod limits;
mod lineage;
mod load_options;
mod models;
mod pipeline;
mod pipeline_info;
mod policy;
mod ports;
mod precision;
mod provider_options;
mod runtime;
mod source;
mod step_factory;
mod warm_up;

pub use access::PipelineAccess;
pub use engine::{SelectedEngine, engine_search, select_engine};
pub use error::{ErrorCategory, GpuxError, ModelCrash, ReportedError};
pub use file_content::FileContent;
pub use load_options::{EngineChoice, EngineOptions, LoadOptions, MAX_THREADS, ProviderSelection};
pub use pipeline::Pipeline;
pub use pipeline_info::{ModelSummary, PipelineInfo};
pub use policy::{AllowedDir, AllowedGrants, ParseGrantsError, Policy};
pub use precision::{
    ModelPrecision, PrecisionCandidate, PrecisionDecision, PrecisionGain, PrecisionReport, PrecisionRequest,
    auto_models, candidates as precision_candidates, converted_path, remember as remember_precision,
};
pub use runtime::{Runtime, RuntimeBuilder};
pub use source::{Definition, Source};

pub use gpux_config::{ConfigParser, ConfigurationError, Isolation, LoadError, WasmLimits};
pub use gpux_core::files::{FileVersion, FileVersions};
pub use gpux_core::{
    CacheDir, Dim, ElementType, Elements, Kind, LatencyStatistics, Outputs, Plan, Port, Precision, RunError,
    RunOptions, Size, Tensor, TensorData, TensorElement, TimeSpan, ValidationError, Value, deadline_after, from_json,
    to_json,
};
pub use gpux_inference::{
    ExecutionProvider, ModelInfo, ModelInspector, ProviderError, ProviderInfo, ProviderLibrary, ProviderManager,
};
pub use gpux_sandbox::Limits;

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
    provider_options::add_to_schema(gpux_config::json_schema(&steps))
}
