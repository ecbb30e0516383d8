//! Spans of the steps of one request.

use std::time::{Instant, SystemTime};

use opentelemetry::Context;
use opentelemetry::trace::{Span as _, Status, Tracer as _};
use opentelemetry_sdk::trace::SdkTracer;

use super::metrics::StepTime;

/// Records the steps of a traced request as child spans.
#[derive(Clone, Debug)]
pub(crate) struct StepSpans {
    tracer: SdkTracer,
    request: Context,
}

impl StepSpans {
    pub(crate) const fn new(tracer: SdkTracer, request: Context) -> Self {
        Self { tracer, request }
    }

    /// Records steps that have run. They are exported before the request ends: a stream may have any number of steps.
    pub(crate) fn record(&self, steps: Vec<StepTime>) {
        let (now, system) = (Instant::now(), SystemTime::now());
        let at = |moment: Instant| {
            system.checked_sub(now.saturating_duration_since(moment)).unwrap_or(SystemTime::UNIX_EPOCH)
        };
        for step in steps {
            let end = at(step.end);
            let start = end.checked_sub(step.time).unwrap_or(end);
            let span = self.tracer.span_builder(step.name).with_start_time(start);
            let mut span = self.tracer.build_with_context(span, &self.request);
            if let Some(failure) = step.failure {
                span.set_status(Status::error(failure));
            }
            span.end_with_timestamp(end);
        }
    }
}
