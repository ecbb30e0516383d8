//! Metrics of one pipeline.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::calls::CallMetrics;
use super::histogram::Histogram;
use super::inferences::Inferences;
use super::rejections::{RejectionCounts, RejectionReason};
use super::responses::{ProtocolLabel, ResponseCounts};
use gpux_core::FailureCounts;

/// Metrics of one step.
#[derive(Debug, Default)]
pub(crate) struct StepMetrics {
    pub(crate) time: Histogram,
    pub(crate) failures: FailureCounts,
    pub(crate) calls: CallMetrics,
}

/// Metrics of a plan's steps, in order.
pub(crate) type Steps = Vec<Arc<StepMetrics>>;

/// Metrics of one pipeline across reloads.
#[derive(Debug, Default)]
pub(crate) struct PipelineMetrics {
    pub(crate) name: String,
    pub(crate) responses: ResponseCounts,
    pub(crate) refusals: RejectionCounts,
    /// from the head of a request to the head of its response
    pub(crate) request: Histogram,
    /// from the arrival of a request to the start of its execution
    pub(crate) queue: Histogram,
    /// runs of the plan; each item of a list or stream is one
    pub(crate) run: Histogram,
    /// texts of which a step left out a part
    pub(crate) truncated: AtomicU64,
    /// successful reloads
    pub(crate) reloads: AtomicU64,
    /// failed reloads, after which the previous version keeps serving
    pub(crate) failed_reloads: AtomicU64,
    /// by position and name
    steps: Mutex<BTreeMap<(usize, String), Arc<StepMetrics>>>,
    /// by version
    inferences: Mutex<BTreeMap<String, Arc<Inferences>>>,
}

impl PipelineMetrics {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// The pipeline's name; empty for requests without a pipeline.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Metrics of the steps of these names. A step of the same name and position keeps its metrics.
    pub(crate) fn steps(&self, names: &[String]) -> Steps {
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        let numbered = names.iter().cloned().enumerate();
        numbered.map(|step| steps.entry(step).or_default().clone()).collect()
    }

    /// Inference statistics of this version.
    pub(crate) fn inferences(&self, version: &str) -> Arc<Inferences> {
        let mut inferences = self.inferences.lock().unwrap_or_else(PoisonError::into_inner);
        inferences.entry(version.to_owned()).or_insert_with(|| Arc::new(Inferences::new())).clone()
    }

    /// Batch sizes of the model of this name, across versions.
    pub(crate) fn batch_sizes(&self, model: &str) -> BTreeMap<usize, u64> {
        let inferences = self.inferences.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sizes = BTreeMap::new();
        for (rows, count) in inferences.values().flat_map(|inferences| inferences.batch_sizes(model)) {
            *sizes.entry(rows).or_default() += count;
        }
        sizes
    }

    /// Counts a response and its duration.
    pub(crate) fn record_response(&self, protocol: ProtocolLabel, status: u16, time: Duration) {
        self.responses.count(protocol, status);
        self.request.observe(time);
    }

    /// Records the queue time of a request that starts.
    pub(crate) fn record_queue_time(&self, time: Duration) {
        self.queue.observe(time);
    }

    /// Records the duration of a run.
    pub(crate) fn record_run_time(&self, time: Duration) {
        self.run.observe(time);
    }

    /// Counts a rejection.
    pub(crate) fn note_rejection(&self, refused: RejectionReason) {
        self.refusals.count(refused);
    }
}
