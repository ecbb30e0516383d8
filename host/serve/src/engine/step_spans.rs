//! Spans of the steps of one request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Instant, SystemTime};

use opentelemetry::trace::{Span as _, Status, TraceContextExt as _, Tracer as _};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::SdkTracer;

use super::metrics::StepTime;
use gpux_core::CallStatistics;

/// The most spans of a request for the calls that its steps make of others.
const MAX_CALL_SPANS: usize = 64;

/// Records the steps of a traced request as child spans.
#[derive(Clone, Debug)]
pub(crate) struct StepSpans {
    tracer: SdkTracer,
    request: Context,
    /// further spans that the request may have for calls
    call_spans: Arc<AtomicUsize>,
}

impl StepSpans {
    pub(crate) fn new(tracer: SdkTracer, request: Context) -> Self {
        Self { tracer, request, call_spans: Arc::new(AtomicUsize::new(MAX_CALL_SPANS)) }
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
            if !step.calls.is_empty() {
                let parent = self.request.with_remote_span_context(span.span_context().clone());
                self.record_calls(&parent, start, end, &step.calls);
            }
            span.end_with_timestamp(end);
        }
    }

    /// Records calls as child spans of their step's span: one for each called step, as long as all its calls together,
    /// from where the step began.
    fn record_calls(&self, parent: &Context, start: SystemTime, latest: SystemTime, calls: &CallStatistics) {
        for called in calls.iter() {
            let take = |left: usize| left.checked_sub(1);
            if self.call_spans.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
                return;
            }
            let end = start.checked_add(called.time).unwrap_or(latest).min(latest);
            let span = self.tracer.span_builder(called.name.clone()).with_start_time(start);
            let mut span = self.tracer.build_with_context(span, parent);
            let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
            span.set_attribute(KeyValue::new("gpux.calls", count(called.count)));
            if called.failed > 0 {
                span.set_attribute(KeyValue::new("gpux.failed_calls", count(called.failed)));
            }
            if !called.calls.is_empty() {
                let parent = parent.with_remote_span_context(span.span_context().clone());
                self.record_calls(&parent, start, end, &called.calls);
            }
            span.end_with_timestamp(end);
        }
    }
}
