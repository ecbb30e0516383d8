//! Metrics of the server and its pipelines.
//!
//! Recording for a request is a few atomic additions to counters that its pipeline holds, without locks or lookups by
//! name; only the calls that a step made of others are counted by name, under a lock of the step. Labels, sums and text are produced when the metrics are read.

mod calls;
mod counters;
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
pub(crate) use responses::ProtocolLabel;
pub(crate) use step_timer::{StepTime, StepTimer};

/// Metrics of the server.
#[derive(Debug)]
pub(crate) struct Metrics {
    started: Instant,
    pub(crate) started_at: SystemTime,
    pipelines: Mutex<BTreeMap<String, Arc<PipelineMetrics>>>,
    /// requests that reached no pipeline
    none: Arc<PipelineMetrics>,
    connections: AtomicUsize,
    pub(crate) accepted: AtomicU64,
    pub(crate) accept_errors: AtomicU64,
    pub(crate) cut: AtomicU64,
    evictions: [AtomicU64; EvictionReason::ALL.len()],
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
            evictions: Default::default(),
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

    /// Metrics of all pipelines by name; last the metrics of requests without a pipeline.
    pub(crate) fn all(&self) -> Vec<Arc<PipelineMetrics>> {
        let pipelines = self.pipelines.lock().unwrap_or_else(PoisonError::into_inner);
        pipelines.values().chain([&self.none]).cloned().collect()
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// Counts an accepted connection; it counts as open until the result is dropped.
    pub(crate) fn connection(self: &Arc<Self>) -> Connection {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        self.connections.fetch_add(1, Ordering::Relaxed);
        Connection(self.clone())
    }

    /// Counts a failed `accept`.
    pub(crate) fn count_accept_error(&self) {
        self.accept_errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection that was closed because it was idle or its client was too slow.
    pub(crate) fn count_closed_connection(&self) {
        self.cut.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection that closes for others.
    pub(crate) fn count_eviction(&self, reason: EvictionReason) {
        self.evictions[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Connections that closed for others, for this reason.
    pub(crate) fn evictions(&self, reason: EvictionReason) -> u64 {
        self.evictions[reason as usize].load(Ordering::Relaxed)
    }

    /// Notes that spans are exported to a collector.
    #[cfg(feature = "otlp")]
    pub(crate) fn note_span_export(&self) {
        self.exports_spans.store(true, Ordering::Relaxed);
    }

    /// Whether spans are exported to a collector.
    pub(crate) fn exports_spans(&self) -> bool {
        self.exports_spans.load(Ordering::Relaxed)
    }

    /// Counts spans that did not reach the collector.
    #[cfg(feature = "otlp")]
    pub(crate) fn count_lost_spans(&self, spans: usize) {
        self.spans_lost.fetch_add(spans as u64, Ordering::Relaxed);
    }

    /// Spans that did not reach the collector.
    pub(crate) fn spans_lost(&self) -> u64 {
        self.spans_lost.load(Ordering::Relaxed)
    }

    /// Open connections.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

/// Why a connection closes for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EvictionReason {
    /// it had no complete first head
    NoRequest,
    /// it was idle after an answer
    Idle,
    /// near the limit, an answer asked the client to close it
    Crowded,
}

impl EvictionReason {
    pub(crate) const ALL: [Self; 3] = [Self::NoRequest, Self::Idle, Self::Crowded];

    /// The value of the label `reason`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::NoRequest => "no_request",
            Self::Idle => "idle",
            Self::Crowded => "crowded",
        }
    }
}

/// Counts a connection as open until it is dropped.
pub(crate) struct Connection(Arc<Metrics>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
