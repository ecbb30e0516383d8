//! Times the steps of a run.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::pipeline::StepMetrics;
use gpux_core::{CallStatistics, Context, Observer, PlannedStep, StepFailure, TextCounts, Value};

/// One step of one run, for a trace.
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "otlp"), expect(dead_code, reason = "only traces tell them"))]
pub(crate) struct StepTime {
    /// the step's name
    pub(crate) name: String,
    /// the time at which it ended
    pub(crate) end: Instant,
    /// its duration
    pub(crate) time: Duration,
    /// the error, if it failed
    pub(crate) failure: Option<String>,
    /// the calls that it made of other steps
    pub(crate) calls: CallStatistics,
}

/// Times the steps of one run.
pub(crate) struct StepTimer<'a> {
    steps: &'a [Arc<StepMetrics>],
    next: usize,
    /// each step by itself, if the request is traced
    pub(crate) traced: Option<Vec<StepTime>>,
    /// counts of the texts that the steps read
    pub(crate) texts: TextCounts,
    /// the time of steps that are called `tokenize`
    pub(crate) tokenization: Duration,
}

impl<'a> StepTimer<'a> {
    pub(crate) fn new(steps: &'a [Arc<StepMetrics>], traced: bool) -> Self {
        Self {
            steps,
            next: 0,
            traced: traced.then(Vec::new),
            texts: TextCounts::default(),
            tokenization: Duration::ZERO,
        }
    }

    /// Whether a step has run.
    pub(crate) const fn has_begun(&self) -> bool {
        self.next > 0
    }

    /// Records a step that has run.
    pub(crate) fn record(
        &mut self,
        name: &str,
        end: Instant,
        time: Duration,
        failure: Option<&StepFailure>,
        calls: &CallStatistics,
    ) {
        if let Some(step) = self.steps.get(self.next) {
            step.time.observe(time);
            step.calls.record(calls);
        }
        self.next += 1;
        if name == "tokenize" {
            self.tokenization += time;
        }
        if let Some(traced) = &mut self.traced {
            let failure = failure.map(ToString::to_string);
            traced.push(StepTime { name: name.to_owned(), end, time, failure, calls: calls.clone() });
        }
    }
}

impl Observer for StepTimer<'_> {
    fn wants_values(&self) -> bool {
        false
    }

    fn failed(&mut self, step: &PlannedStep, failure: &StepFailure, time: Duration, context: &Context) {
        self.record(&step.name, Instant::now(), time, Some(failure), &context.calls);
    }

    fn after(&mut self, step: &PlannedStep, time: Duration, _: &[Value], context: &Context) {
        self.texts.add(context.texts);
        self.record(&step.name, Instant::now(), time, None, &context.calls);
    }
}
