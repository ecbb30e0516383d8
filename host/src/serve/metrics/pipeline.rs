//! What is counted of one pipeline.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::answers::{Answers, Protocol};
use super::histogram::Histogram;
use super::inferences::Inferences;
use super::ledger::Ledger;
use super::refusals::{Refusals, Refused};
use crate::pipeline::{Failures, Plan};

/// What is counted of one step.
#[derive(Debug, Default)]
pub(in crate::serve) struct StepMetrics {
    pub(super) time: Histogram,
    pub(super) failures: Ledger<Failures>,
}

/// What is counted of a plan's steps, in order.
pub(in crate::serve) type Steps = Vec<Arc<StepMetrics>>;

/// What is counted of one pipeline, through all its reloads.
#[derive(Debug, Default)]
pub(in crate::serve) struct PipelineMetrics {
    pub(super) name: String,
    pub(super) answers: Answers,
    pub(super) refusals: Refusals,
    /// from the head of a request to the head of its answer
    pub(super) request: Histogram,
    /// from its arrival to its turn
    pub(super) queue: Histogram,
    /// runs of the plan: of requests' lists and streams each item is one
    pub(super) run: Histogram,
    /// what was loaded anew and answers now
    pub(in crate::serve) reloads: AtomicU64,
    /// what could not be loaded; the one before answers
    pub(in crate::serve) failed_reloads: AtomicU64,
    /// by place and name
    steps: Mutex<BTreeMap<(usize, String), Arc<StepMetrics>>>,
    /// by version
    inferences: Mutex<BTreeMap<String, Arc<Inferences>>>,
}

impl PipelineMetrics {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// The pipeline's name; empty for none.
    pub(in crate::serve) fn name(&self) -> &str {
        &self.name
    }

    /// Those of the plan's steps; one of the same name at the same place is the one there was.
    pub(in crate::serve) fn steps(&self, plan: &Plan) -> Steps {
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        let planned = plan.steps().iter().enumerate();
        let metrics = planned.map(|(index, step)| {
            let metrics = steps.entry((index, step.name.clone())).or_default();
            metrics.failures.add(step.failures.clone());
            metrics.clone()
        });
        metrics.collect()
    }

    /// Those of this version.
    pub(in crate::serve) fn inferences(&self, version: &str) -> Arc<Inferences> {
        let mut inferences = self.inferences.lock().unwrap_or_else(PoisonError::into_inner);
        inferences.entry(version.to_owned()).or_insert_with(|| Arc::new(Inferences::new())).clone()
    }

    /// How often the model of this name ran on so many rows, whichever version it was of.
    pub(super) fn batch_sizes(&self, model: &str) -> BTreeMap<usize, u64> {
        let inferences = self.inferences.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sizes = BTreeMap::new();
        for (rows, count) in inferences.values().flat_map(|inferences| inferences.batch_sizes(model)) {
            *sizes.entry(rows).or_default() += count;
        }
        sizes
    }

    /// An answer has gone out, `time` after its request came.
    pub(in crate::serve) fn answered(&self, protocol: Protocol, status: u16, time: Duration) {
        self.answers.count(protocol, status);
        self.request.observe(time);
    }

    /// A request has got its turn.
    pub(in crate::serve) fn queued(&self, time: Duration) {
        self.queue.observe(time);
    }

    /// A run has ended.
    pub(in crate::serve) fn ran(&self, time: Duration) {
        self.run.observe(time);
    }

    /// A request did not run.
    pub(in crate::serve) fn refused(&self, refused: Refused) {
        self.refusals.count(refused);
    }
}
