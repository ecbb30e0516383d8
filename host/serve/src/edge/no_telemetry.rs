//! Replaces `telemetry` in builds without the feature `otlp`: no traces are exported.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;

use crate::edge::host_check::Sender;
use crate::engine::metrics::{Metrics, ProtocolLabel};
use crate::engine::step_spans::StepSpans;

/// Cannot be constructed.
pub(crate) struct Telemetry(Infallible);

/// Cannot be constructed.
pub(crate) struct RequestSpan(Infallible);

/// The outcome of a request.
#[expect(dead_code, reason = "what a span would say")]
pub(crate) struct Outcome<'a> {
    pub(crate) protocol: ProtocolLabel,
    pub(crate) status: u16,
    pub(crate) pipeline: &'a str,
    pub(crate) request_id: &'a str,
    pub(crate) queued: Duration,
    pub(crate) truncated: u32,
}

impl Telemetry {
    /// Always fails.
    pub(crate) fn new(endpoint: &str, _metrics: &Arc<Metrics>) -> Result<Self, String> {
        Err(format!("traces cannot be sent to `{endpoint}`: this gpux was built without the feature `otlp`"))
    }

    pub(crate) fn begin(&self, _head: &Parts, _is_https: bool, _sender: Option<Sender>) -> RequestSpan {
        RequestSpan(self.0)
    }

    pub(crate) fn steps(&self, _span: &RequestSpan) -> Option<StepSpans> {
        match self.0 {}
    }

    pub(crate) fn end(RequestSpan(span): RequestSpan, _outcome: Outcome<'_>) {
        match span {}
    }

    pub(crate) fn flush(&self) {
        match self.0 {}
    }
}
