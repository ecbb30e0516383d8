//! Traces: a span for a request, one below it for each step, sent by OTLP on gRPC.

use std::time::{Duration, Instant, SystemTime};

use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method};
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::{Span as _, SpanKind, Status, TraceContextExt as _, Tracer as _, TracerProvider as _};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, Span};

use super::front::{route, shown};
use super::metrics::{Protocol, StepTime};

/// Where traces go. What is sampled, and how spans are batched, the environment says (`OTEL_*`).
pub(super) struct Telemetry {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    propagator: TraceContextPropagator,
}

/// A request's span, which has begun.
pub(super) struct RequestSpan(Span);

/// What came of a request.
pub(super) struct Outcome<'a> {
    pub(super) protocol: Protocol,
    pub(super) status: u16,
    pub(super) pipeline: &'a str,
    pub(super) request_id: &'a HeaderValue,
    pub(super) queued: Duration,
    pub(super) steps: Vec<StepTime>,
}

impl Telemetry {
    /// Sends to this address from now on. Must be called where the runtime is.
    pub(super) fn new(endpoint: &str) -> Result<Self, String> {
        let exporter = SpanExporter::builder().with_tonic().with_endpoint(endpoint).build();
        let exporter = exporter.map_err(|error| format!("traces cannot be sent to `{endpoint}`: {error}"))?;
        let mut resource = Resource::builder();
        if std::env::var_os("OTEL_SERVICE_NAME").is_none() {
            resource = resource.with_service_name("gpux");
        }
        let resource = resource.with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION"))).build();
        let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build();
        let tracer = provider.tracer("gpux");
        Ok(Self { provider, tracer, propagator: TraceContextPropagator::new() })
    }

    /// A request has come; its span is below the one that its `traceparent` names.
    pub(super) fn begin(&self, head: &Parts) -> RequestSpan {
        let parent = self.propagator.extract_with_context(&Context::new(), &Headers(&head.headers));
        let method = method(&head.method);
        let span = self.tracer.span_builder(method.unwrap_or(OTHER)).with_kind(SpanKind::Server);
        let mut span = self.tracer.build_with_context(span.with_start_time(SystemTime::now()), &parent);
        if span.is_recording() {
            // Without what follows `?`: that may be a secret.
            let path = head.uri.path();
            span.set_attribute(KeyValue::new("url.path", shown(path).to_owned()));
            span.set_attribute(KeyValue::new("http.request.method", method.unwrap_or("_OTHER")));
            if let Some(route) = route::of(path) {
                span.update_name(name(method, route));
                span.set_attribute(KeyValue::new("http.route", route));
            }
        }
        RequestSpan(span)
    }

    /// A request has been answered.
    pub(super) fn end(&self, RequestSpan(mut span): RequestSpan, outcome: Outcome<'_>) {
        if !span.is_recording() {
            return;
        }
        let (now, system) = (Instant::now(), SystemTime::now());
        let at = |moment: Instant| {
            system.checked_sub(now.saturating_duration_since(moment)).unwrap_or(SystemTime::UNIX_EPOCH)
        };
        let below = Context::new().with_remote_span_context(span.span_context().clone());
        for step in outcome.steps {
            let end = at(step.end);
            let start = end.checked_sub(step.time).unwrap_or(end);
            let mut child =
                self.tracer.build_with_context(self.tracer.span_builder(step.name).with_start_time(start), &below);
            if let Some(failure) = step.failure {
                child.set_status(Status::error(failure));
            }
            child.end_with_timestamp(end);
        }
        let status = match outcome.protocol {
            Protocol::Grpc => "rpc.grpc.status_code",
            _ => "http.response.status_code",
        };
        let failed = match outcome.protocol {
            Protocol::Grpc => outcome.status != 0,
            _ => outcome.status >= 500,
        };
        span.set_attributes([
            KeyValue::new(status, i64::from(outcome.status)),
            KeyValue::new("gpux.protocol", outcome.protocol.name()),
            KeyValue::new("gpux.pipeline", outcome.pipeline.to_owned()),
            KeyValue::new("gpux.request_id", outcome.request_id.to_str().unwrap_or_default().to_owned()),
            KeyValue::new("gpux.queue_seconds", outcome.queued.as_secs_f64()),
        ]);
        if failed {
            span.set_status(Status::error(""));
        }
        span.end();
    }

    /// Sends what has not been sent, for a moment at most.
    pub(super) fn flush(&self) {
        let _ = self.provider.shutdown_with_timeout(Duration::from_secs(3));
    }
}

impl RequestSpan {
    /// Whether it was sampled.
    pub(super) fn is_recording(&self) -> bool {
        self.0.is_recording()
    }
}

/// A method, if it is one that there is: clients may write what they like.
fn method(method: &Method) -> Option<&'static str> {
    const KNOWN: [&str; 9] = ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "CONNECT", "TRACE"];
    KNOWN.into_iter().find(|known| method.as_str() == *known)
}

/// What OpenTelemetry calls a span of a method that there is not.
const OTHER: &str = "HTTP";

/// A span's name: one of few, whatever clients ask for. Calls of gRPC have their own.
fn name(method: Option<&str>, route: &str) -> String {
    match route.strip_prefix('/') {
        Some(call) if route::is_call(route) => call.to_owned(),
        _ => format!("{} {route}", method.unwrap_or(OTHER)),
    }
}

/// The head of a request, as a carrier of `traceparent` and `tracestate`.
struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(http::HeaderName::as_str).collect()
    }
}
