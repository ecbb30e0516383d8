//! The edge of the server: connections, TLS, authentication, limits, request IDs, the access log, traces.

pub(crate) mod access_log;
pub(crate) mod authentication;
pub(crate) mod connections;
pub(crate) mod cors;
pub(crate) mod cross_site;
pub(crate) mod drain_body;
pub(crate) mod error_response;
pub(crate) mod forwarded;
pub(crate) mod host_check;
pub(crate) mod lifecycle;
pub(crate) mod listen_error;
pub(crate) mod listeners;
pub(crate) mod load_generation;
pub(crate) mod request_id;
pub(crate) mod response_budget;
pub(crate) mod root_path;
pub(crate) mod service;
pub(crate) mod signals;
#[cfg(feature = "otlp")]
pub(crate) mod telemetry;
#[cfg(not(feature = "otlp"))]
#[path = "no_telemetry.rs"]
pub(crate) mod telemetry;
pub(crate) mod tls;
#[cfg(unix)]
pub(crate) mod unix_socket;
