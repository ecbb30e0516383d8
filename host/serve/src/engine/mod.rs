//! Loaded pipelines and the execution of requests, independent of protocols.
//!
//! [`scheduler`] admits a request or rejects it; one worker's [`execution`] turns the body's bytes into the bytes of
//! the response. A request that is known to be cheaper than the hop to a worker runs on the I/O thread
//! ([`inline_execution`]).

pub(crate) mod background_drop;
pub(crate) mod body_budget;
pub(crate) mod error;
pub(crate) mod execution;
pub(crate) mod inline_execution;
pub(crate) mod loaded_pipeline;
pub(crate) mod loader;
pub(crate) mod memory_charge;
pub(crate) mod metrics;
pub(crate) mod pipeline_slot;
pub(crate) mod pipeline_source;
pub(crate) mod repository;
pub(crate) mod request_context;
pub(crate) mod request_options;
pub(crate) mod runner;
pub(crate) mod scheduler;
pub(crate) mod server;
pub(crate) mod single_flight;
#[cfg(feature = "otlp")]
pub(crate) mod step_spans;
#[cfg(not(feature = "otlp"))]
#[path = "no_step_spans.rs"]
pub(crate) mod step_spans;
pub(crate) mod tenant;
pub(crate) mod watched_files;
