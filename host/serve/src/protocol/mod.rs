//! Protocols: parse the bytes of a request into values, encode results as bytes. One folder per protocol.
//!
//! To add a protocol:
//!
//! 1. Make a folder for it. A handler finds the pipeline with `repository().get`, reads the body with
//!    `http::body::read_for`, reserves what the parsed request takes with `request_budget`, runs it with
//!    `server.run_parts` (parse in the first part, `execution.reserve_response` and encode in the second), and turns a
//!    `ServeError` into the protocol's own form of an error. `predict` is the shortest example. Work that runs the
//!    pipeline within it, with `execution.infer`, takes `server.run`, and then never runs on the I/O thread of an
//!    isolated pipeline.
//! 2. Merge its routes in `router.rs`, and list their templates in `route.rs` (`PATHS`, or `CALLS` for gRPC).
//! 3. Describe it in `openapi/`.
//! 4. Give it a `ProtocolLabel` (`engine/metrics/responses.rs`), which `edge/service.rs` selects by the path, and the
//!    form of early rejections in `edge/error_response.rs`.
//!
//! The other parts of the server need no change: API keys, limits, request IDs, logs, traces, TLS, decompression, the
//! queue, deadlines and metrics apply to every route.

pub(crate) mod health;
pub(crate) mod http;
pub(crate) mod metrics;
pub(crate) mod oip;
pub(crate) mod openai;
pub(crate) mod openapi;
pub(crate) mod page;
pub(crate) mod predict;
pub(crate) mod rerank;
pub(crate) mod route;
pub(crate) mod router;
pub(crate) mod tei;
pub(crate) mod texts;
