//! Traces: one span per request, with a child span per step, exported by OTLP over gRPC.

mod span_queue;
mod trace_parent;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::Method;
use http::request::Parts;
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{Span as _, SpanKind, Status, TraceContextExt as _, Tracer as _, TracerProvider as _};
use opentelemetry::{Context, Key, KeyValue};
use opentelemetry_otlp::tonic_types::transport::{Certificate, ClientTlsConfig};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithTonicConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, Span};

use crate::edge::host_check::Sender;
use crate::engine::metrics::{Metrics, ProtocolLabel};
use crate::engine::step_spans::StepSpans;
use crate::protocol::route::{self, Purpose, Route, truncated};
use trace_parent::TraceParent;

/// The trace exporter. The environment (`OTEL_*`) configures sampling and batching.
pub(crate) struct Telemetry {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    propagator: TraceContextPropagator,
}

/// The span of a request under way.
pub(crate) struct RequestSpan {
    span: Span,
    /// whether it asks whether something is ready: its answer is no error
    is_probe: bool,
}

/// The outcome of a request.
pub(crate) struct Outcome<'a> {
    pub(crate) protocol: ProtocolLabel,
    pub(crate) status: u16,
    pub(crate) pipeline: &'a str,
    pub(crate) request_id: &'a str,
    pub(crate) queued: Duration,
    pub(crate) truncated: u32,
}

impl Telemetry {
    /// Starts to export to `endpoint`. Must be called within the tokio runtime.
    pub(crate) fn new(endpoint: &str, metrics: &Arc<Metrics>) -> Result<Self, String> {
        let unusable = |why: &dyn std::fmt::Display| format!("traces cannot be sent to `{endpoint}`: {why}");
        let exporter = SpanExporter::builder().with_tonic().with_endpoint(endpoint);
        let exporter = match endpoint.split_once("://") {
            Some(("http", _)) => exporter,
            Some(("https", _)) => exporter.with_tls_config(tls().map_err(|why| unusable(&why))?),
            _ => return Err(unusable(&"an address is like http://localhost:4317")),
        };
        let exporter = exporter.build().map_err(|error| unusable(&error))?;
        let resource = Resource::builder();
        let named = Resource::builder().build().get(&Key::new("service.name"));
        let is_named = named.is_some_and(|name| !name.as_str().starts_with("unknown_service"));
        let resource = if is_named { resource } else { resource.with_service_name("gpux") };
        let resource = resource.with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION"))).build();
        metrics.note_span_export();
        let sending = span_queue::sending(exporter, metrics);
        let provider = SdkTracerProvider::builder().with_span_processor(sending).with_resource(resource).build();
        let tracer = provider.tracer("gpux");
        Ok(Self { provider, tracer, propagator: TraceContextPropagator::new() })
    }

    /// Starts the span of a request, as a child of the span that its `traceparent` names.
    pub(crate) fn begin(&self, head: &Parts, is_https: bool, sender: Option<Sender>) -> RequestSpan {
        let parent = self.propagator.extract_with_context(&Context::new(), &TraceParent::from_headers(&head.headers));
        let method = method(&head.method);
        let span = self.tracer.span_builder(method.unwrap_or(OTHER)).with_kind(SpanKind::Server);
        let mut span = self.tracer.build_with_context(span.with_start_time(SystemTime::now()), &parent);
        let path = head.uri.path();
        let route = route::find(path);
        if span.is_recording() {
            // The query may hold a secret and is left out.
            span.set_attribute(KeyValue::new("url.path", truncated(path).to_owned()));
            span.set_attribute(KeyValue::new("url.scheme", if is_https { "https" } else { "http" }));
            if let Some(sender) = sender {
                span.set_attribute(KeyValue::new("client.address", sender.ip().to_string()));
            }
            span.set_attribute(KeyValue::new("http.request.method", method.unwrap_or("_OTHER")));
            if let Some(route) = route {
                span.update_name(name(method, route));
                span.set_attribute(KeyValue::new("http.route", route.template));
            }
        }
        RequestSpan { span, is_probe: route.is_some_and(|route| route.purpose == Purpose::Probe) }
    }

    /// The parent for the spans of this request's steps, if the request is sampled.
    pub(crate) fn steps(&self, RequestSpan { span, .. }: &RequestSpan) -> Option<StepSpans> {
        let request = || Context::new().with_remote_span_context(span.span_context().clone());
        span.is_recording().then(|| StepSpans::new(self.tracer.clone(), request()))
    }

    /// Ends the span of a request that was answered.
    pub(crate) fn end(RequestSpan { mut span, is_probe }: RequestSpan, outcome: Outcome<'_>) {
        if !span.is_recording() {
            return;
        }
        let status = match outcome.protocol {
            ProtocolLabel::Grpc => "rpc.grpc.status_code",
            _ => "http.response.status_code",
        };
        let failed = match outcome.protocol {
            ProtocolLabel::Grpc => SERVERS.contains(&outcome.status),
            _ => outcome.status >= 500,
        };
        span.set_attributes([
            KeyValue::new(status, i64::from(outcome.status)),
            KeyValue::new("gpux.protocol", outcome.protocol.name()),
            KeyValue::new("gpux.pipeline", outcome.pipeline.to_owned()),
            KeyValue::new("gpux.request_id", outcome.request_id.to_owned()),
            KeyValue::new("gpux.queue_seconds", outcome.queued.as_secs_f64()),
        ]);
        if outcome.truncated > 0 {
            span.set_attribute(KeyValue::new("gpux.truncated_texts", i64::from(outcome.truncated)));
        }
        if failed && !is_probe {
            span.set_status(Status::error(""));
        }
        span.end();
    }

    /// Exports the remaining spans, for at most 3 s.
    pub(crate) fn flush(&self) {
        let _ = self.provider.shutdown_with_timeout(Duration::from_secs(3));
    }
}

/// The trusted roots: the operator's certificate file if `OTEL_*` names one, else the system's.
fn tls() -> Result<ClientTlsConfig, String> {
    let variables = ["OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE"];
    let own = variables.iter().find_map(|name| std::env::var_os(name).filter(|path| !path.is_empty()));
    let Some(path) = own else { return Ok(ClientTlsConfig::new().with_enabled_roots()) };
    let pem = std::fs::read(&path).map_err(|error| format!("`{}` cannot be read: {error}", path.display()))?;
    Ok(ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)))
}

/// The gRPC codes that OpenTelemetry's conventions count as server errors: UNKNOWN, DEADLINE_EXCEEDED, UNIMPLEMENTED,
/// INTERNAL, UNAVAILABLE, DATA_LOSS.
const SERVERS: [u16; 6] = [2, 4, 12, 13, 14, 15];

/// A known method, else `None`: clients may send any text.
fn method(method: &Method) -> Option<&'static str> {
    const KNOWN: [&str; 9] = ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "CONNECT", "TRACE"];
    KNOWN.into_iter().find(|known| method.as_str() == *known)
}

/// OpenTelemetry's span name for an unknown method.
const OTHER: &str = "HTTP";

/// A span's name, from a small set that clients cannot extend. gRPC calls are named by service and method.
fn name(method: Option<&str>, Route { template, is_call, .. }: Route) -> String {
    match template.strip_prefix('/') {
        Some(call) if is_call => call.to_owned(),
        _ => format!("{} {template}", method.unwrap_or(OTHER)),
    }
}
