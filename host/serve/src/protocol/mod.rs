//! Protocols: parse the bytes of a request into values, encode results as bytes. One folder per protocol.

pub(crate) mod health;
pub(crate) mod http;
pub(crate) mod metrics;
pub(crate) mod oip;
pub(crate) mod openapi;
pub(crate) mod page;
pub(crate) mod predict;
pub(crate) mod route;
pub(crate) mod router;
