//! A bounded queue of spans before the collector; counts and logs lost spans.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use opentelemetry::Context;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, Span, SpanData, SpanExporter, SpanProcessor};

use crate::engine::metrics::Metrics;

/// The default of `OTEL_BSP_MAX_QUEUE_SIZE`: OpenTelemetry's own default.
const WAITING: usize = 2048;

/// Interval between warnings about lost spans.
const TELL: Duration = Duration::from_mins(1);

/// Counts waiting and lost spans.
#[derive(Debug)]
struct SpanQueue {
    metrics: Arc<Metrics>,
    waiting: AtomicUsize,
    most: usize,
    public_message: Mutex<Option<Instant>>,
}

impl SpanQueue {
    fn lose(&self, spans: usize, why: &dyn std::fmt::Display) {
        self.metrics.count_lost_spans(spans);
        let mut public_message = self.public_message.lock().unwrap_or_else(PoisonError::into_inner);
        if public_message.is_none_or(|public_message| public_message.elapsed() >= TELL) {
            *public_message = Some(Instant::now());
            tracing::warn!(target: "gpux", spans, "traces are lost: {why}; see gpux_trace_spans_lost_total");
        }
    }
}

/// Sends spans in batches, from a thread of its own.
pub(crate) fn sending(exporter: impl SpanExporter + 'static, metrics: &Arc<Metrics>) -> impl SpanProcessor + 'static {
    let most = std::env::var("OTEL_BSP_MAX_QUEUE_SIZE").ok().and_then(|most| most.trim().parse().ok());
    let most = most.filter(|most| *most > 0).unwrap_or(WAITING);
    let (metrics, waiting, public_message) = (metrics.clone(), AtomicUsize::new(0), Mutex::default());
    let queue = Arc::new(SpanQueue { metrics, waiting, most, public_message });
    // Both queues have the same limit: a span that the processor drops would stay counted as waiting.
    let config = BatchConfigBuilder::default().with_max_queue_size(most).build();
    let batches = BatchSpanProcessor::builder(CountingExporter { exporter, queue: queue.clone() })
        .with_batch_config(config)
        .build();
    BoundedProcessor { batches, queue }
}

/// Queues ended spans up to the limit and counts the rest as lost. The processor behind it would drop them silently.
#[derive(Debug)]
struct BoundedProcessor {
    batches: BatchSpanProcessor,
    queue: Arc<SpanQueue>,
}

impl SpanProcessor for BoundedProcessor {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.batches.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        if self.queue.waiting.fetch_add(1, Ordering::Relaxed) < self.queue.most {
            self.batches.on_end(span);
        } else {
            self.queue.waiting.fetch_sub(1, Ordering::Relaxed);
            self.queue.lose(1, &"there are more than the collector takes");
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.batches.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.batches.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.batches.set_resource(resource);
    }
}

/// Counts the spans of each batch that fails to export.
#[derive(Debug)]
struct CountingExporter<E> {
    exporter: E,
    queue: Arc<SpanQueue>,
}

impl<E: SpanExporter> SpanExporter for CountingExporter<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        self.queue.waiting.fetch_sub(spans, Ordering::Relaxed);
        let result = self.exporter.export(batch).await;
        result.inspect_err(|error| self.queue.lose(spans, error))
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{Tracer as _, TracerProvider as _};
    use opentelemetry_sdk::error::OTelSdkError;
    use opentelemetry_sdk::trace::SdkTracerProvider;

    use super::*;

    /// An exporter that fails every batch.
    #[derive(Debug)]
    struct Refusing;

    impl SpanExporter for Refusing {
        async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
            Err(OTelSdkError::InternalFailure("no".to_owned()))
        }
    }

    #[test]
    fn counts_lost_spans() {
        let metrics = Arc::new(Metrics::new());
        let provider = SdkTracerProvider::builder().with_span_processor(sending(Refusing, &metrics)).build();
        let tracer = provider.tracer("test");
        // More spans than the queue holds: some are lost because it is full, the others because the export fails.
        for _ in 0..3 * WAITING {
            drop(tracer.start("span"));
        }
        let _ = provider.shutdown();
        assert_eq!(metrics.spans_lost(), 3 * WAITING as u64);
    }
}
