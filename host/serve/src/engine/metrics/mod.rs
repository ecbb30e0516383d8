//! Metrics of the server and its pipelines.
//!
//! On a request's way, counting is a handful of additions to numbers that its pipeline holds; no lock
//! is taken and no name is looked up. Everything else (labels, sums, text) happens when somebody reads.

pub(crate) mod counters;
pub(crate) mod histogram;
mod inferences;
mod pipeline;
mod rejections;
mod responses;
mod sharded_counter;
mod step_timer;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

pub(crate) use inferences::{Inferences, StageTimings, Total};
pub(crate) use pipeline::{PipelineMetrics, StepMetrics, Steps};
pub(crate) use rejections::RejectionReason;
pub(crate) use responses::Protocol;
pub(crate) use step_timer::{StepTime, StepTimer};

/// Metrics of the server.
#[derive(Debug)]
pub(crate) struct Metrics {
    started: Instant,
    pub(crate) started_at: SystemTime,
    pipelines: Mutex<BTreeMap<String, Arc<PipelineMetrics>>>,
    /// requests that got to no pipeline
    none: Arc<PipelineMetrics>,
    connections: AtomicUsize,
    pub(crate) accepted: AtomicU64,
    pub(crate) accept_errors: AtomicU64,
    pub(crate) cut: AtomicU64,
    exports_spans: AtomicBool,
    spans_lost: AtomicU64,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        Self {
            started: Instant::now(),
            started_at: SystemTime::now(),
            pipelines: Mutex::default(),
            none: Arc::new(PipelineMetrics::new("")),
            connections: AtomicUsize::new(0),
            accepted: AtomicU64::new(0),
            accept_errors: AtomicU64::new(0),
            cut: AtomicU64::new(0),
            exports_spans: AtomicBool::new(false),
            spans_lost: AtomicU64::new(0),
        }
    }

    /// Metrics of the pipeline of this name, across reloads.
    pub(crate) fn pipeline(&self, name: &str) -> Arc<PipelineMetrics> {
        let mut pipelines = self.pipelines.lock().unwrap_or_else(PoisonError::into_inner);
        pipelines.entry(name.to_owned()).or_insert_with(|| Arc::new(PipelineMetrics::new(name))).clone()
    }

    /// Metrics of requests that reached no pipeline.
    pub(crate) const fn none(&self) -> &Arc<PipelineMetrics> {
        &self.none
    }

    /// All, by name; last those of no pipeline.
    pub(crate) fn all(&self) -> Vec<Arc<PipelineMetrics>> {
        let pipelines = self.pipelines.lock().unwrap_or_else(PoisonError::into_inner);
        pipelines.values().chain([&self.none]).cloned().collect()
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// A connection was taken; it is open until the result is dropped.
    pub(crate) fn connection(self: &Arc<Self>) -> Connection {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        self.connections.fetch_add(1, Ordering::Relaxed);
        Connection(self.clone())
    }

    /// A connection could not be taken.
    pub(crate) fn accept_error(&self) {
        self.accept_errors.fetch_add(1, Ordering::Relaxed);
    }

    /// A connection was closed because its client was too slow, or had nothing to say.
    pub(crate) fn connection_cut(&self) {
        self.cut.fetch_add(1, Ordering::Relaxed);
    }

    /// Spans are sent to a collector.
    #[cfg(feature = "otlp")]
    pub(crate) fn note_span_export(&self) {
        self.exports_spans.store(true, Ordering::Relaxed);
    }

    /// Whether spans are sent to a collector.
    pub(crate) fn exports_spans(&self) -> bool {
        self.exports_spans.load(Ordering::Relaxed)
    }

    /// Counts spans that did not reach the collector.
    #[cfg(feature = "otlp")]
    pub(crate) fn lost_spans(&self, spans: usize) {
        self.spans_lost.fetch_add(spans as u64, Ordering::Relaxed);
    }

    /// Spans of traces that did not get to the collector.
    pub(crate) fn spans_lost(&self) -> u64 {
        self.spans_lost.load(Ordering::Relaxed)
    }

    /// Connections that are open.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

/// A connection that is counted as open.
pub(crate) struct Connection(Arc<Metrics>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
