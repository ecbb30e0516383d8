//! The trace of one request, step by step, for its client.

mod preview;
mod statistics;

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use preview::{Preview, PreviewBudget};

use gpux_core::sanitize::redact_paths;
use gpux_core::{
    Context, FlattenedCalls, Observer, Observers, Outputs, Plan, PlannedStep, Request, RunError, RunOptions,
    StepFailure, Value,
};

/// What a request went through.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Trace {
    /// Milliseconds that it waited for its turn
    queued_ms: f64,
    /// Milliseconds in which the body was made into values
    read_ms: f64,
    /// Milliseconds of all steps together
    steps_ms: f64,
    /// The steps, in the order they ran
    steps: Vec<TracedStep>,
    #[serde(skip)]
    room: PreviewBudget,
}

/// What a step did.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct TracedStep {
    /// Its place in the pipeline, from 1
    number: usize,
    /// Its name
    name: String,
    /// Milliseconds from its inputs to its outputs
    time_ms: f64,
    /// The most memory that its sandbox had, in bytes, if it ran in one
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<u64>,
    /// How many texts were too long, so that it left out a part
    #[serde(default, skip_serializing_if = "Option::is_none")]
    truncated: Option<u32>,
    /// Why it failed, if it did
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
    /// What it logged, the newest last
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    log: Vec<String>,
    /// The steps and models that it called, in the order of their first calls
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    calls: Vec<TracedCalls>,
    /// What it gave
    gave: Vec<Preview>,
}

/// The calls that a step made of another.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct TracedCalls {
    /// The called step's name, or `model` and the model's
    name: String,
    /// How often it was called
    count: u64,
    /// How many of the calls failed
    #[serde(default, skip_serializing_if = "is_zero")]
    failed: u64,
    /// Milliseconds of all calls together
    time_ms: f64,
    /// How many steps lie between: 0 if the step itself called it
    #[serde(default, skip_serializing_if = "is_zero")]
    depth: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// The most log lines of a step, and characters per line.
const LOG_LINES: usize = 50;
const LOG_LINE: usize = 500;

impl Trace {
    /// The trace of a request before its first step, with its time in the queue and its parsing time.
    pub fn new(queued: Duration, read: Duration) -> Self {
        Self { queued_ms: milliseconds(queued), read_ms: milliseconds(read), ..Self::default() }
    }

    /// Takes the steps of a trace that another process recorded.
    pub fn set_steps(&mut self, recorded: Self) {
        (self.steps_ms, self.steps) = (recorded.steps_ms, recorded.steps);
    }

    fn push(&mut self, step: &PlannedStep, time: Duration, context: &Context, failed: Option<String>) {
        self.steps_ms += milliseconds(time);
        let newest = context.log.len().saturating_sub(LOG_LINES);
        self.steps.push(TracedStep {
            number: self.steps.len() + 1,
            name: step.name.clone(),
            time_ms: milliseconds(time),
            memory: context.memory_peak,
            truncated: Some(context.texts.truncated).filter(|texts| *texts > 0),
            failed,
            log: context.log[newest..].iter().map(|line| line.chars().take(LOG_LINE).collect()).collect(),
            calls: context.calls.flattened().iter().map(TracedCalls::new).collect(),
            gave: Vec::new(),
        });
    }
}

impl TracedCalls {
    fn new(FlattenedCalls { depth, calls, .. }: &FlattenedCalls<'_>) -> Self {
        Self {
            name: calls.name.clone(),
            count: calls.count,
            failed: calls.failed,
            time_ms: milliseconds(calls.time),
            depth: *depth as u64,
        }
    }
}

impl Observer for Trace {
    fn failed(&mut self, step: &PlannedStep, failure: &StepFailure, time: Duration, context: &Context) {
        let failed = match failure {
            StepFailure::InvalidInput(_) => failure.to_string(),
            _ => redact_paths(&failure.to_string()),
        };
        self.push(step, time, context, Some(failed));
    }

    fn after(&mut self, step: &PlannedStep, time: Duration, outputs: &[Value], context: &Context) {
        self.push(step, time, context, None);
        let gave = step.output_names().zip(outputs).map(|(name, value)| Preview::new(name, value, &mut self.room));
        let gave = gave.collect();
        if let Some(last) = self.steps.last_mut() {
            last.gave = gave;
        }
    }
}

/// Runs a request, watched by `observer` and, if there is one, by `trace`.
pub fn run_observed(
    plan: &Plan,
    request: Request,
    options: RunOptions<'_>,
    observer: &mut dyn Observer,
    trace: Option<&mut Trace>,
) -> Result<Outputs, RunError> {
    match trace {
        None => plan.run(request, RunOptions { observer: Some(observer), ..options }),
        Some(trace) => {
            let mut observers = Observers(vec![trace, observer]);
            plan.run(request, RunOptions { observer: Some(&mut observers), ..options })
        }
    }
}

/// Milliseconds, rounded to microseconds.
fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}
