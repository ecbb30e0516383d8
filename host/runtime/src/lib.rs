//! Runs ONNX models and the pipelines around them inside a Rust program.
//!
//! ```
//! use gpux::{Runtime, Value, to_json};
//!
//! # let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
//! # let photo = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/samples/seven.png");
//! let runtime = Runtime::from_config(folder)?;
//! let outputs = runtime.infer([("image", Value::from(std::fs::read(photo)?))])?;
//! for (name, value) in &outputs {
//!     println!("{name}: {}", to_json(value));
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Concepts
//!
//! - A **pipeline** is a list of steps that a gpux.yml describes: built-in steps, sandboxed WebAssembly components, and
//!   models. A model alone is a pipeline of one step.
//! - A [`Runtime`] holds one loaded pipeline. Any number of threads may share it; each request runs on the thread that
//!   calls [`Runtime::infer`].
//! - A [`Value`] is a [`Tensor`], text, bytes (an encoded image, a sound file) or JSON. Requests and results are values
//!   by name. Cloning one is cheap.
//! - [`LoadOptions`] are the operator's: engine, execution provider, cache, and the [`Policy`] that bounds what a
//!   gpux.yml may do. A gpux.yml cannot change them.
//! - A [`Plan`] is the checked pipeline: every step made, every value connected. [`RunOptions`] say how one request runs
//!   through it: a deadline, cancellation, an [`Observer`] that sees each step.
//! - An **engine** runs models: ONNX Runtime, whose shared library is looked for when a pipeline with a model is loaded,
//!   else the embedded one.
//!
//! # Cargo features
//!
//! | feature | default | adds |
//! | --- | --- | --- |
//! | `audio` | yes | the steps that work on sound |
//! | `embedded` | yes | the embedded engine; without it, a model needs an ONNX Runtime library |
//!
//! # Errors
//!
//! Everything fails with a [`GpuxError`]. [`GpuxError::category`] says who must act: the caller, the author of the
//! pipeline, the operator of the machine, or nobody (a run failed). [`GpuxError::render`] gives the text for people, with
//! the lines of gpux.yml that are wrong; [`GpuxError::to_json`] the same as data. [`error`] has the errors inside.
//!
//! ```
//! use gpux::{ErrorCategory, GpuxError, Runtime, StepFailure};
//!
//! # let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
//! let runtime = Runtime::from_config(folder)?;
//! let error = runtime.infer([("image", b"not an image".to_vec())]).unwrap_err();
//! match error.category() {
//!     ErrorCategory::Request => println!("send another request: {error}"),
//!     ErrorCategory::Configuration => println!("correct the pipeline: {}", error.render()),
//!     ErrorCategory::Environment => println!("install what is missing: {error}"),
//!     ErrorCategory::Run => println!("try again later: {error}"),
//! }
//! if let GpuxError::Step(step) = &error
//!     && let StepFailure::InvalidInput(message) = &step.failure
//! {
//!     assert_eq!((step.number, step.name.as_str()), (1, "decode-image"), "{message}");
//! }
//! # Ok::<(), gpux::GpuxError>(())
//! ```
//!
//! # Where to look
//!
//! | to | use |
//! | --- | --- |
//! | run a model or a pipeline | [`Runtime`], [`RuntimeBuilder`] |
//! | choose engine, provider and cache | [`LoadOptions`]: [`EngineOptions`], [`ProviderSelection`], [`CacheDir`] |
//! | compute in another precision, or measure which is the fastest | [`RuntimeBuilder::precision`], [`RuntimeBuilder::choose_precision`] |
//! | bound what a gpux.yml may do | [`Policy`], [`AllowedGrants`], [`Limits`] |
//! | make inputs and read outputs | [`Value`], [`Tensor`], [`ElementType`], [`to_json`], [`from_json`] |
//! | see a pipeline's inputs, outputs and labels | [`Runtime::plan`], [`Pipeline`] |
//! | run with a deadline, an observer or cancellation | [`Runtime::infer_with`], [`RunOptions`], [`Observer`] |
//! | explain a file without running it | [`ConfigParser`], [`ModelInspector`] |
//! | list execution providers | [`ProviderManager`], [`Runtime::available_providers`] |
//!
//! # Telemetry
//!
//! ONNX Runtime reports usage to Microsoft unless `ORT_DISABLE_TELEMETRY=1` is set before its
//! library is loaded. The program `gpux` sets it; a program that embeds this crate sets it itself.

#![forbid(unsafe_code)]

mod access;
mod branches;
mod build_plan;
mod computation;
mod description;
pub mod details;
mod endpoints;
mod engine;
pub mod error;
mod file_content;
mod fork;
mod grants;
#[doc(hidden)]
pub mod internal;
mod labels;
mod limits;
mod lineage;
mod load_options;
mod models;
mod named_files;
mod pipeline;
mod pipeline_info;
mod policy;
mod ports;
mod precision;
mod provider_options;
mod runtime;
mod source;
mod space;
mod step_factory;
mod warm_up;

#[doc(inline)]
pub use error::{ErrorCategory, GpuxError};
pub use load_options::{EngineChoice, EngineOptions, LoadOptions, ProviderSelection};
pub use pipeline::Pipeline;
pub use policy::{AllowedDir, AllowedGrants, Policy};
pub use precision::{PrecisionCandidate, PrecisionDecision, PrecisionGain, PrecisionReport};
pub use runtime::{Runtime, RuntimeBuilder};
pub use space::Space;

pub use gpux_config::ConfigParser;
pub use gpux_core::{
    CacheDir, Context, Dim, ElementType, Elements, Kind, LatencyStatistics, Observer, Outputs, Plan, PlannedStep, Port,
    Precision, Request, RunError, RunOptions, Size, StepError, StepFailure, Tensor, TensorData, TensorElement,
    TimeLimit, ValidationError, Value, deadline_after, from_json, to_json,
};
pub use gpux_inference::{
    ExecutionProvider, ModelInfo, ModelInspector, ProviderInfo, ProviderLibrary, ProviderManager,
};
pub use gpux_sandbox::Limits;

use gpux_config::StepSchema;
use gpux_core::Registry;

/// A registry of every built-in step.
#[doc(hidden)]
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
