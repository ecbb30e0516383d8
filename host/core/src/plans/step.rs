//! The one trait behind built-in steps, component steps and models.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::calls::CallStatistics;
use super::inner_step::InnerStep;
use super::text_counts::TextCounts;
use crate::cancellation::CancelFlag;
use crate::values::device_tensor::{HostOrDevice, Memory};
use crate::values::signature::{Kind, Mismatch, Signature};
use crate::values::value::Value;

/// Conversions of inputs, by the names of their ports.
pub type InputConversions = Vec<(String, Vec<String>)>;

/// Something that turns values into values. One object serves every request, from any thread.
pub trait Step: Send + Sync {
    /// Its inputs and outputs with its options.
    fn signature(&self) -> &Signature;

    /// Whether its optional inputs are offered as the pipeline's, where it comes first and the pipeline names no inputs
    /// of its own.
    fn offers_optional_inputs(&self) -> bool {
        false
    }

    /// Infers its outputs from the known facts about its inputs (one entry for each input port,
    /// in order; `None` for an optional port left out). An error is a plan that cannot work.
    ///
    /// The default checks each input against its port and gives the ports' own kinds.
    fn infer(&self, inputs: &[Option<Kind>]) -> Result<Vec<Kind>, Mismatch> {
        let signature = self.signature();
        for (port, given) in signature.inputs.iter().zip(inputs) {
            if let Some(given) = given {
                port.kind.accepts(given)?;
            }
        }
        Ok(signature.outputs.iter().map(|port| port.kind.clone()).collect())
    }

    /// How many levels deep the JSON that it gives may be, given the same of each input (one entry for each input
    /// port; a tensor counts its axes, which become lists). What builds JSON recurses as deep, and so does what
    /// writes and drops it, so a plan bounds it.
    ///
    /// The default is for a step whose JSON does not hold the JSON that it reads.
    fn json_depth(&self, inputs: &[usize]) -> usize {
        let _ = inputs;
        crate::json::json_conversion::GENERATED_DEPTH
    }

    /// The conversions of each input before its own work: the port, and
    /// the conversions in words, for displaying a plan.
    fn conversions(&self, inputs: &[Option<Kind>]) -> InputConversions {
        let _ = inputs;
        InputConversions::new()
    }

    /// Temporary bytes of a run on these inputs, beside the inputs and the outputs whose
    /// size [`infer`](Self::infer) returns: intermediate values, decoded pictures,
    /// documents that are written. The sandbox reserves them before a component's call. The default: none
    /// worth counting.
    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        let _ = inputs;
        0
    }

    /// Runs once, on the caller's thread. `inputs` has one entry for each input port, in order;
    /// so must the result for the output ports.
    ///
    /// A value that no later step reads arrives unshared, so it can be changed in place.
    fn run(&self, inputs: Vec<Option<Value>>, context: &mut Context) -> Result<Vec<Value>, StepFailure>;

    /// Runs on several items of one request, whose results do not depend on each other. Fails at the first item that
    /// fails, with its index.
    ///
    /// The default runs one after the other.
    fn run_items(
        &self,
        items: Vec<Vec<Option<Value>>>,
        context: &mut Context,
    ) -> Result<Vec<Vec<Value>>, (usize, StepFailure)> {
        run_one_by_one(items, context, |inputs, context| self.run(inputs, context))
    }

    /// The [`Plan`](crate::Plan) that it runs for each item, if it does. Any type here, because plans are made of steps.
    fn inner_plan(&self) -> Option<&dyn Any> {
        None
    }

    /// The names of the classes whose scores it reads; none if it knows none.
    fn class_names(&self) -> &[String] {
        &[]
    }

    /// A step for [`TokenizerRequest`](crate::TokenizerRequest)s, if it has a tokenizer.
    fn tokenizer(&self) -> Option<Arc<dyn Step>> {
        None
    }

    /// Itself, if its tensors may stay in a device's memory.
    fn device(&self) -> Option<&dyn DeviceStep> {
        None
    }

    /// Facts for `gpux inspect`: options in force, digests, providers. An object.
    fn details(&self) -> serde_json::Value {
        serde_json::Value::Object(serde_json::Map::new())
    }
}

/// The newest log lines of several items that are kept.
const MAX_LOG_LINES: usize = 1000;

/// Runs items in order, until one fails.
pub fn run_one_by_one(
    items: Vec<Vec<Option<Value>>>,
    context: &mut Context,
    run: impl Fn(Vec<Option<Value>>, &mut Context) -> Result<Vec<Value>, StepFailure>,
) -> Result<Vec<Vec<Value>>, (usize, StepFailure)> {
    let one = |(index, inputs)| {
        let mut inner = context.for_inner();
        let outcome = context.in_time().and_then(|()| run(inputs, &mut inner));
        context.merge(inner);
        outcome.map_err(|failure| (index, failure))
    };
    items.into_iter().enumerate().map(one).collect()
}

/// A step whose tensors may stay where it computes them.
pub trait DeviceStep {
    /// The memory in which output number `output` can be left; `None` for the host's alone.
    fn output_memory(&self, output: usize) -> Option<&Memory>;

    /// The device memory from which input number `input` can be read; `None` for host memory alone, and
    /// if the `given` value must be converted first.
    fn input_memory(&self, input: usize, given: &Kind) -> Option<&Memory>;

    /// What [`Step::run`] does; outputs whose number is true in `stay` are left in
    /// the memory that [`output_memory`](Self::output_memory) tells.
    fn run_placed(
        &self,
        inputs: Vec<Option<HostOrDevice<Value>>>,
        stay: &[bool],
        context: &mut Context,
    ) -> Result<Vec<HostOrDevice<Value>>, StepFailure>;
}

/// Is notified when a run waits for others, or for a model that runs several requests
/// together, so that other requests may be prepared meanwhile.
pub trait WaitObserver: Send + Sync {
    /// The run waits from now on.
    fn begin(&self);
    /// The run goes on. Meanwhile others have worked `delegated_work` so long: its share of a model's run, say.
    fn end(&self, delegated_work: Duration);
}

impl std::fmt::Debug for dyn WaitObserver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Waits")
    }
}

/// The request that a step works for, and the step's reports.
#[derive(Debug, Default)]
pub struct Context {
    /// when the whole request must be done; `None` for no limit
    pub deadline: Option<Instant>,
    /// where requests wait for each other, a greater one goes first; 0 is usual
    pub priority: i32,
    /// notified when the step waits
    pub waits: Option<Arc<dyn WaitObserver>>,
    /// tells whether the run was cancelled
    pub cancelled: Option<Arc<dyn CancelFlag>>,
    /// highest memory of the step's sandbox, in bytes, if it ran in one
    pub memory_peak: Option<u64>,
    /// log lines of components, the newest last
    pub log: Vec<String>,
    /// counts of the texts that the step read
    pub texts: TextCounts,
    /// the calls that the step made of others
    pub calls: CallStatistics,
    /// the step within it that failed, if it failed there
    pub failed_at: Option<InnerStep>,
}

impl Context {
    /// The context of a step within this one, in the same request.
    pub(crate) fn for_inner(&self) -> Self {
        Self {
            deadline: self.deadline,
            priority: self.priority,
            waits: self.waits.clone(),
            cancelled: self.cancelled.clone(),
            ..Self::default()
        }
    }

    /// Adds the reports of a step within this one, or of one of its items.
    pub(crate) fn merge(&mut self, inner: Self) {
        self.memory_peak = self.memory_peak.max(inner.memory_peak);
        self.texts.add(inner.texts);
        self.calls.merge(&inner.calls);
        self.failed_at = inner.failed_at.or(self.failed_at.take());
        self.log.extend(inner.log);
        let older = self.log.len().saturating_sub(MAX_LOG_LINES);
        self.log.drain(..older);
    }

    /// Time left until the request's deadline; `None` for no limit.
    pub fn time_left(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// An error once the run was cancelled or the deadline has passed, for steps to ask between the parts of long work.
    pub fn in_time(&self) -> Result<(), StepFailure> {
        if self.cancelled.as_ref().is_some_and(|flag| flag.is_cancelled()) {
            return Err(StepFailure::Cancelled);
        }
        if self.time_left().is_some_and(|left| left.is_zero()) { Err(StepFailure::Timeout) } else { Ok(()) }
    }
}

/// Why a step did not give its result.
#[derive(Clone, Debug, PartialEq, thiserror::Error, Serialize, Deserialize)]
pub enum StepFailure {
    /// the request's fault: its values cannot be processed
    #[error("{0}")]
    InvalidInput(String),
    /// the step's fault
    #[error("{0}")]
    Failed(String),
    /// the machine has nothing that can do this: what is missing, and how to get it
    #[error("{0}")]
    Unsupported(String),
    /// a limit of its sandbox stopped it
    #[error("{0}")]
    Limit(LimitExceeded),
    /// the request's own deadline passed
    #[error("the request's timeout passed")]
    Timeout,
    /// the run was cancelled
    #[error("the run was stopped")]
    Cancelled,
}

/// A limit of the sandbox, reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("it reached its limit of {value} ({limit}){}", .hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default())]
pub struct LimitExceeded {
    /// its name in gpux.yml: `time`, `memory` …
    pub limit: Cow<'static, str>,
    /// its value, with its unit
    pub value: String,
    /// how to raise it
    pub hint: Option<Box<str>>,
}

impl From<Mismatch> for StepFailure {
    fn from(mismatch: Mismatch) -> Self {
        Self::InvalidInput(mismatch.to_string())
    }
}

impl From<crate::values::tensor::TensorError> for StepFailure {
    fn from(error: crate::values::tensor::TensorError) -> Self {
        match error {
            // Only the request's time stops a step's work.
            crate::values::tensor::TensorError::Stopped => Self::Timeout,
            error => Self::Failed(error.to_string()),
        }
    }
}
