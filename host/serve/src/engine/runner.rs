//! Runs the requests of a loaded pipeline.

#[cfg(target_os = "linux")]
use std::cell::RefCell;
use std::sync::Arc;
#[cfg(target_os = "linux")]
use std::time::Duration;
use std::time::Instant;

use super::background_drop::BackgroundDrop;
use super::body_budget::RequestBudget;
use super::error::ServeError;
use super::inline_execution;
use super::metrics::StepTimer;
#[cfg(target_os = "linux")]
use super::scheduler::{Rejection, ShortRequest};
#[cfg(target_os = "linux")]
use gpux::internal::Definition;
use gpux::internal::PipelineInfo;
use gpux::{GpuxError, Pipeline};
#[cfg(target_os = "linux")]
use gpux_core::{BRANCH, MemoryPermit, PlanOutput, RunError, StepError, StepFailure, Value};
use gpux_core::{Outputs, Request, RunOptions};
use gpux_inference::{BatchSizes, Batcher, SessionSet};
#[cfg(target_os = "linux")]
use gpux_worker::{
    BRIEFLY, CallOptions, IsolatedPipeline, OnWorkerEvent, PendingCall, Reply, SmallAnswer, WorkerCommand, WorkerError,
};
use gpux_worker::{GoldenCase, ModelStatistics, Trace, WarmUpReport};

/// A request that was sent to the process of a pipeline.
pub(crate) enum SentRequest {
    /// without a small answer yet
    #[cfg(target_os = "linux")]
    Pending(PendingCall),
    /// with one
    #[cfg(target_os = "linux")]
    Answered(SmallAnswer),
}

impl SentRequest {
    /// Waits for a small answer, without a thread. `false` if none came soon: a thread is to [finish](Runner::finish) it.
    pub(crate) async fn answered(self, short: &ShortRequest) -> (Self, bool) {
        match self {
            #[cfg(target_os = "linux")]
            Self::Pending(pending) => {
                match pending.answered(SOON, inline_execution::MAX_OUTPUT, short.is_alone(BRIEFLY)).await {
                    Ok(answer) => (Self::Answered(answer), true),
                    Err(pending) => (Self::Pending(pending), false),
                }
            }
            #[cfg(target_os = "linux")]
            Self::Answered(answer) => (Self::Answered(answer), true),
        }
    }
}

/// How long no thread waits for an answer: long beside a thread's turn, short beside what a deadline allows.
#[cfg(target_os = "linux")]
const SOON: Duration = Duration::from_millis(20);

/// A pipeline that is loaded and warm.
pub(crate) enum Runner {
    /// in this process
    Local(BackgroundDrop<Pipeline>),
    /// in a process of its own
    #[cfg(target_os = "linux")]
    Isolated(IsolatedPipeline),
}

/// A runner before its first request.
pub(crate) struct StartedRunner {
    pub(crate) runner: Runner,
    pub(crate) info: PipelineInfo,
    pub(crate) warm_up_report: WarmUpReport,
    /// whether requests with small bodies run on the I/O thread
    pub(crate) is_cheap: bool,
}

impl StartedRunner {
    /// Warms up the pipeline. Fails if a configured warm-up request fails.
    pub(crate) fn local(pipeline: Pipeline, golden_case: GoldenCase) -> Result<Self, GpuxError> {
        let warm_up_report = gpux_worker::warm_up(&pipeline, golden_case)?;
        let is_cheap = inline_execution::is_cheap(&pipeline);
        let info = pipeline.info();
        Ok(Self { runner: Runner::Local(BackgroundDrop::new(pipeline)), info, warm_up_report, is_cheap })
    }

    /// Loads and warms up the pipeline in a process of its own.
    #[cfg(target_os = "linux")]
    pub(crate) fn isolated(
        definition: Definition,
        command: &WorkerCommand,
        on_event: OnWorkerEvent,
    ) -> Result<Self, GpuxError> {
        let digest = definition.source().digest();
        let (pipeline, mut info, warm_up_report) = IsolatedPipeline::start(definition, command, on_event)?;
        // Its process knows the folder alone.
        info.digest = digest;
        Ok(Self { runner: Runner::Isolated(pipeline), info, warm_up_report, is_cheap: false })
    }
}

impl Runner {
    /// Runs a request of the pipeline that `info` describes, and waits for its end on the calling thread.
    #[cfg_attr(not(target_os = "linux"), expect(unused_variables, reason = "pipelines are isolated on Linux alone"))]
    pub(crate) fn run(
        &self,
        info: &PipelineInfo,
        request: Request,
        options: RunOptions<'_>,
        budget: &dyn Fn() -> RequestBudget,
        timer: &mut StepTimer<'_>,
        trace: Option<&mut Trace>,
    ) -> Result<Outputs, ServeError> {
        match self {
            Self::Local(pipeline) => Ok(gpux_worker::run_observed(pipeline.plan(), request, options, timer, trace)?),
            #[cfg(target_os = "linux")]
            Self::Isolated(pipeline) => {
                let promised = info.promised_outputs(&request);
                let call = |call: &CallOptions<'_>| pipeline.run(&request, call);
                run_isolated(call, info, promised, options, budget, timer, trace)
            }
        }
    }

    /// Whether the pipeline has a process of its own.
    pub(crate) const fn is_isolated(&self) -> bool {
        self.local().is_none()
    }

    /// Sends a request to the process of the pipeline. Gives it back if it is to be [run](Self::run) instead.
    pub(crate) fn send(
        &self,
        request: Request,
        deadline: Option<Instant>,
        priority: i32,
    ) -> Result<SentRequest, Request> {
        match self {
            Self::Local(_) => Err(request),
            // What a branch gives is compared where it is run.
            #[cfg(target_os = "linux")]
            Self::Isolated(_) if request.iter().any(|(name, _)| name == BRANCH) => Err(request),
            #[cfg(target_os = "linux")]
            Self::Isolated(pipeline) => {
                let options = CallOptions { deadline, priority, ..CallOptions::default() };
                pipeline.begin(request, &options).map(SentRequest::Pending)
            }
        }
    }

    /// The outputs of a request that was sent; waits for its end on the calling thread, unless the answer is there.
    #[cfg_attr(not(target_os = "linux"), expect(unused_variables, reason = "pipelines are isolated on Linux alone"))]
    pub(crate) fn finish(
        &self,
        info: &PipelineInfo,
        sent: SentRequest,
        options: RunOptions<'_>,
        budget: &dyn Fn() -> RequestBudget,
        timer: &mut StepTimer<'_>,
    ) -> Result<Outputs, ServeError> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Isolated(pipeline) => {
                let call = |call: &CallOptions<'_>| match sent {
                    SentRequest::Pending(pending) => pending.finish(pipeline, call),
                    SentRequest::Answered(answer) => answer.read(call),
                };
                run_isolated(call, info, info.signature.outputs(), options, budget, timer, None)
            }
            Self::Local(_) => Err(ServeError::NotReady("the pipeline has no process of its own".to_owned())),
        }
    }

    /// The pipeline, if it is in this process.
    const fn local(&self) -> Option<&BackgroundDrop<Pipeline>> {
        match self {
            Self::Local(pipeline) => Some(pipeline),
            #[cfg(target_os = "linux")]
            Self::Isolated(_) => None,
        }
    }

    /// The sessions of its models, if they are in this process. A cheap pipeline has at most one model.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = &SessionSet> {
        self.local().into_iter().flat_map(|pipeline| pipeline.models().map(|(_, model)| model.sessions()))
    }

    /// The current numbers of its models, in the order of the file.
    pub(crate) fn model_statistics(&self) -> Vec<ModelStatistics> {
        match self {
            Self::Local(pipeline) => ModelStatistics::of(pipeline),
            #[cfg(target_os = "linux")]
            Self::Isolated(pipeline) => pipeline.model_statistics(),
        }
    }

    /// The counts of batches, by the names of the batched models.
    pub(crate) fn batch_sizes(&self) -> Vec<(&str, Arc<BatchSizes>)> {
        match self {
            Self::Local(pipeline) => {
                let batchers = pipeline.models().filter_map(|(name, model)| Some((name, model.batcher()?.ok()?)));
                batchers.map(|(name, batcher): (_, &Batcher)| (name, batcher.sizes().clone())).collect()
            }
            #[cfg(target_os = "linux")]
            Self::Isolated(pipeline) => pipeline.batch_sizes().map(|(name, sizes)| (name, sizes.clone())).collect(),
        }
    }

    /// Why it does not answer; `None` while it does, or will soon.
    pub(crate) fn failure(&self) -> Option<String> {
        match self {
            Self::Local(_) => None,
            #[cfg(target_os = "linux")]
            Self::Isolated(pipeline) => pipeline.failure(),
        }
    }

    /// How often its process has ended.
    pub(crate) fn crashes(&self) -> u64 {
        match self {
            Self::Local(_) => 0,
            #[cfg(target_os = "linux")]
            Self::Isolated(pipeline) => pipeline.crashes(),
        }
    }
}

#[cfg(target_os = "linux")]
fn run_isolated(
    call: impl FnOnce(&CallOptions<'_>) -> Result<Reply, WorkerError>,
    info: &PipelineInfo,
    promised: &[PlanOutput],
    options: RunOptions<'_>,
    budget: &dyn Fn() -> RequestBudget,
    timer: &mut StepTimer<'_>,
    trace: Option<&mut Trace>,
) -> Result<Outputs, ServeError> {
    // While the answer is read; what is made of it is charged later.
    let reserved = RefCell::new(None::<Result<MemoryPermit, ServeError>>);
    let admits = |bytes| {
        let mut reserved = reserved.borrow_mut();
        let held = reserved.as_ref().and_then(|held| held.as_ref().ok()).map_or(0, MemoryPermit::bytes);
        match (budget().holding(held).reserve(bytes), &mut *reserved) {
            (Ok(more), Some(Ok(held))) => held.merge(more),
            (result, reserved) => *reserved = Some(result),
        }
        matches!(*reserved, Some(Ok(_)))
    };

    let call_options = CallOptions {
        deadline: options.deadline,
        priority: options.priority,
        waits: options.waits.as_deref(),
        cancelled: options.cancelled.as_deref(),
        is_traced: trace.is_some(),
        max_outputs: promised.len(),
        admits: Some(&admits),
    };

    let Reply { result, steps, trace: recorded } = call(&call_options).map_err(|error| match error {
        WorkerError::Crash(crash) => GpuxError::from(crash).into(),
        WorkerError::Unavailable(reason) => ServeError::NotReady(reason),
        WorkerError::Timeout => Rejection::Expired.into(),
        WorkerError::TooLarge(reason) => ServeError::invalid(reason),
        WorkerError::Full => Rejection::Memory.into(),
        WorkerError::NotAdmitted => match reserved.take() {
            Some(Err(error)) => error,
            _ => Rejection::Memory.into(),
        },
    })?;

    let failure = match &result {
        Err(RunError::Step(error)) => {
            let StepError { failure, .. } = &**error;
            Some(failure)
        }
        _ => None,
    };

    // As if each had begun when the one before ended, and the last had ended now.
    let mut left = steps.iter().map(|step| step.time).sum();
    let now = Instant::now();
    for (step, name) in steps.iter().zip(&info.steps) {
        left = Duration::saturating_sub(left, step.time);
        timer.texts.add(step.texts);
        let end = now.checked_sub(left).unwrap_or(now);
        timer.record(name, end, step.time, failure.filter(|_| step.has_failed), &step.calls);
    }

    if let (Some(trace), Some(recorded)) = (trace, recorded) {
        trace.set_steps(recorded);
    }
    let outputs = result?;

    // The process may be hostile: its results have the names and kinds that the pipeline promises. Their shapes are not
    // compared, since honest models have others than they declare.
    let is_promised = |(name, value): &(String, Value)| {
        let known = promised.iter().find(|output| output.name == *name);
        known.is_some_and(|output| output.kind.without_shape().accepts(&value.kind()).is_ok())
    };
    if outputs.len() > promised.len() || !outputs.iter().all(is_promised) {
        let failure = StepFailure::Failed("its process gave other outputs than it promised".to_owned());
        return Err(RunError::from(Box::new(StepError::of_pipeline(failure))).into());
    }

    Ok(outputs)
}
