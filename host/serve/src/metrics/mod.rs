//! What is counted, and how it is read: `GET /metrics`.
//!
//! On a request's way, counting is a handful of additions to numbers that its pipeline holds; no lock
//! is taken and no name is looked up. Everything else (labels, sums, text) happens when somebody reads.

mod answers;
mod clock;
mod histogram;
mod inferences;
mod json;
mod ledger;
mod pipeline;
mod process;
mod prometheus;
mod refusals;
mod spread;
mod triton;
mod writer;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

pub(crate) use answers::{Protocol, grpc_code};
pub(crate) use clock::{StepClock, StepTime};
pub(crate) use inferences::{Inferences, Laps, Total};
pub(crate) use json::to_json;
pub(crate) use pipeline::{PipelineMetrics, StepMetrics, Steps};
pub(crate) use prometheus::{Exposition, to_text};
pub(crate) use refusals::Refused;

/// What is counted of the whole server.
#[derive(Debug)]
pub(crate) struct Metrics {
    started: Instant,
    started_at: SystemTime,
    pipelines: Mutex<BTreeMap<String, Arc<PipelineMetrics>>>,
    /// requests that got to no pipeline
    none: Arc<PipelineMetrics>,
    connections: AtomicUsize,
    accepted: AtomicU64,
    accept_errors: AtomicU64,
    cut: AtomicU64,
    spans_lost: AtomicU64,
}

impl Metrics {
    pub(super) fn new() -> Self {
        Self {
            started: Instant::now(),
            started_at: SystemTime::now(),
            pipelines: Mutex::default(),
            none: Arc::new(PipelineMetrics::new("")),
            connections: AtomicUsize::new(0),
            accepted: AtomicU64::new(0),
            accept_errors: AtomicU64::new(0),
            cut: AtomicU64::new(0),
            spans_lost: AtomicU64::new(0),
        }
    }

    /// Those of the pipeline of this name, whether it is loaded for the first time or again.
    pub(super) fn pipeline(&self, name: &str) -> Arc<PipelineMetrics> {
        let mut pipelines = self.pipelines.lock().unwrap_or_else(PoisonError::into_inner);
        pipelines.entry(name.to_owned()).or_insert_with(|| Arc::new(PipelineMetrics::new(name))).clone()
    }

    /// Those of requests that got to no pipeline.
    pub(super) const fn none(&self) -> &Arc<PipelineMetrics> {
        &self.none
    }

    /// All, by name; last those of no pipeline.
    fn all(&self) -> Vec<Arc<PipelineMetrics>> {
        let pipelines = self.pipelines.lock().unwrap_or_else(PoisonError::into_inner);
        pipelines.values().chain([&self.none]).cloned().collect()
    }

    fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// A connection was taken; it is open until the result is dropped.
    pub(super) fn connection(self: &Arc<Self>) -> Connection {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        self.connections.fetch_add(1, Ordering::Relaxed);
        Connection(self.clone())
    }

    /// A connection could not be taken.
    pub(super) fn accept_error(&self) {
        self.accept_errors.fetch_add(1, Ordering::Relaxed);
    }

    /// A connection was closed because its client was too slow, or had nothing to say.
    pub(super) fn connection_cut(&self) {
        self.cut.fetch_add(1, Ordering::Relaxed);
    }

    /// So many spans of traces did not get to the collector.
    pub(super) fn lost_spans(&self, spans: usize) {
        self.spans_lost.fetch_add(spans as u64, Ordering::Relaxed);
    }

    /// Spans of traces that did not get to the collector.
    pub(super) fn spans_lost(&self) -> u64 {
        self.spans_lost.load(Ordering::Relaxed)
    }

    /// Connections that are open.
    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

/// A connection that is counted as open.
pub(super) struct Connection(Arc<Metrics>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
