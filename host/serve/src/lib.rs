//! Serves pipelines over HTTP and gRPC.
//!
//! Three layers, each of which uses only those above it in this list:
//!
//! - `engine` holds the loaded pipelines and runs requests. It knows no protocol.
//! - `protocol` parses requests and encodes results: `predict`, the Open Inference Protocol, OpenAPI.
//! - `edge` owns the connections: TLS, authentication, limits, request IDs, the access log, traces.

#![forbid(unsafe_code)]

mod edge;
mod engine;
mod protocol;
mod settings;

#[doc(hidden)]
pub use edge::lifecycle::InMemoryServer;
pub use edge::lifecycle::{Event, ShutdownOutcome, serve};
pub use edge::listen_error::ListenError;
pub use edge::listeners::{ListenAddress, ListenSocket, Listeners};
pub use edge::root_path::parse as parse_root_path;
pub use edge::tls::TlsError;
pub use engine::error::ServeError;
pub use engine::execution::Execution;
pub use engine::loaded_pipeline::LoadedPipeline;
pub use engine::pipeline_slot::{PipelineSlot, PipelineState};
pub use engine::pipeline_source::PipelineSource;
pub use engine::repository::Repository;
pub use engine::request_options::{Priority, RequestOptions};
pub use engine::scheduler::{Load, Rejection};
pub use engine::server::Server;
#[cfg(target_os = "linux")]
pub use gpux_worker::{
    MemoryLimits, MemoryWatch, TemporaryFiles, WorkerCommand, WorkerEvent, WorkerOptions, remove_control_groups,
};
pub use settings::{IsolationPolicy, Otlp, Settings, StartPolicy, TlsFiles, TrustedProxies, TrustedProxy};
