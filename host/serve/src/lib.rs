//! Pipelines on HTTP and gRPC.
//!
//! Three layers, each of which sees only those above it in this list:
//!
//! - `engine` holds the loaded pipelines and runs requests. It knows no protocol.
//! - `protocol` turns bytes into requests and results into bytes: `predict`, the Open Inference Protocol, OpenAPI.
//! - `edge` owns the connections: TLS, authentication, limits, request IDs, the access log, traces.

#![forbid(unsafe_code)]

mod edge;
mod engine;
mod protocol;
mod settings;

#[doc(hidden)]
pub use edge::listener::Unconnected;
pub use edge::listener::{Ended, Event, ListenError, serve};
pub use edge::tls::TlsError;
pub use engine::error::ServeError;
pub use engine::execution::Turn;
pub use engine::loaded_pipeline::Served;
pub use engine::pipeline_slot::{Entry, State};
pub use engine::repository::{Repository, RepositoryError, Source};
pub use engine::request_options::{Ask, Priority};
pub use engine::scheduler::{Load, Refusal};
pub use engine::server::Server;
pub use settings::{Otlp, Settings, TlsFiles};
