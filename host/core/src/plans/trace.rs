//! What each step of one run did.

use std::time::Duration;

use super::calls::CallStatistics;
use super::plan::PlannedStep;
use super::run::Observer;
use super::step::{Context, StepFailure};
use crate::values::value::Value;

/// The record of a run: an [`Observer`] that keeps everything.
#[derive(Clone, Debug, Default)]
pub struct RunTrace {
    /// one entry a step, in order
    pub steps: Vec<StepTrace>,
    bytes_in: u64,
}

/// The record of one step.
#[derive(Clone, Debug)]
pub struct StepTrace {
    /// its name
    pub name: String,
    /// time from its inputs to its outputs
    pub time: Duration,
    /// size of its inputs, in bytes
    pub bytes_in: u64,
    /// size of its outputs, in bytes
    pub bytes_out: u64,
    /// highest memory of its sandbox, in bytes, if it ran in one
    pub memory_peak: Option<u64>,
    /// its outputs, described; `failed` if it failed
    pub outputs: Vec<String>,
    /// its log lines
    pub log: Vec<String>,
    /// the calls that it made of other steps
    pub calls: CallStatistics,
}

impl RunTrace {
    fn record(&mut self, step: &PlannedStep, time: Duration, bytes_out: u64, outputs: Vec<String>, context: &Context) {
        self.steps.push(StepTrace {
            name: step.name.clone(),
            time,
            bytes_in: self.bytes_in,
            bytes_out,
            memory_peak: context.memory_peak,
            outputs,
            log: context.log.clone(),
            calls: context.calls.clone(),
        });
    }

    /// Time of all steps together.
    pub fn total(&self) -> Duration {
        self.steps.iter().map(|step| step.time).sum()
    }
}

impl Observer for RunTrace {
    fn before(&mut self, _: &PlannedStep, inputs: &[Option<Value>]) {
        self.bytes_in = bytes(inputs.iter().flatten());
    }

    fn failed(&mut self, step: &PlannedStep, _: &StepFailure, time: Duration, context: &Context) {
        self.record(step, time, 0, vec!["failed".to_owned()], context);
    }

    fn after(&mut self, step: &PlannedStep, time: Duration, outputs: &[Value], context: &Context) {
        let described = outputs.iter().map(|value| value.kind().to_string()).collect();
        self.record(step, time, bytes(outputs), described, context);
    }
}

fn bytes<'a>(values: impl IntoIterator<Item = &'a Value>) -> u64 {
    values.into_iter().map(|value| value.byte_len() as u64).sum()
}
