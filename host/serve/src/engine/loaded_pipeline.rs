//! A loaded pipeline.

use std::sync::Arc;
use std::time::Duration;

use super::body_budget::BodyBudget;
use super::inline_execution;
use super::metrics::{Inferences, Metrics, PipelineMetrics, StepMetrics, Steps};
use super::runner::{Runner, StartedRunner};
use super::scheduler::{Lane, LaneOptions, Load, Scheduler, ShortRequest};
use crate::settings::Settings;
#[cfg(target_os = "linux")]
use gpux::GpuxError;
use gpux::internal::PipelineInfo;
use gpux_core::{PlanSignature, TimeLimit};
#[cfg(target_os = "linux")]
use gpux_worker::PipelineEnvironment;
use gpux_worker::{ModelStatistics, WarmUpReport};

/// A pipeline that is loaded and warm, with its lane.
pub struct LoadedPipeline {
    info: PipelineInfo,
    runner: Runner,
    lane: Lane,
    warm_up_report: WarmUpReport,
    metrics: Arc<PipelineMetrics>,
    steps: Steps,
    inferences: Arc<Inferences>,
    /// whether requests with small bodies run on the I/O thread
    is_cheap: bool,
    /// the memory budget of responses
    answers: BodyBudget,
}

impl LoadedPipeline {
    /// Adds a lane and metrics for a pipeline that is ready to run.
    pub(crate) fn new(
        started: StartedRunner,
        scheduler: &Scheduler,
        settings: &Settings,
        metrics: &Metrics,
        answers: BodyBudget,
    ) -> Self {
        let StartedRunner { runner, info, warm_up_report, is_cheap } = started;
        let lane = scheduler.lane(lane_options(settings, &info, runner.is_isolated()));
        let metrics = metrics.pipeline(&info.name);
        let steps = metrics.steps(&info.steps);
        let inferences = metrics.inferences(&version_number(&info.version));
        inferences.add_batches(runner.batch_sizes().into_iter());
        Self { info, runner, lane, warm_up_report, metrics, steps, inferences, is_cheap, answers }
    }

    /// Its name in its gpux.yml.
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// Its version in its gpux.yml.
    pub fn version(&self) -> &str {
        &self.info.version
    }

    /// Its version number in the Open Inference Protocol.
    pub(crate) fn version_number(&self) -> String {
        version_number(self.version())
    }

    /// What is known about it.
    pub const fn info(&self) -> &PipelineInfo {
        &self.info
    }

    /// Its inputs and outputs.
    pub const fn signature(&self) -> &PlanSignature {
        &self.info.signature
    }

    /// Runs its requests.
    pub(crate) const fn runner(&self) -> &Runner {
        &self.runner
    }

    /// The environment of its process, for another that runs the pipeline; `None` if it has no process of its own.
    #[cfg(target_os = "linux")]
    pub fn worker_environment(&self) -> Option<Result<PipelineEnvironment, GpuxError>> {
        match &self.runner {
            Runner::Local(_) => None,
            Runner::Isolated(pipeline) => Some(pipeline.environment()),
        }
    }

    /// The current numbers of its models, in the order of the file.
    pub(crate) fn model_statistics(&self) -> Vec<ModelStatistics> {
        self.runner.model_statistics()
    }

    /// Why its process does not answer and is not started again at once; `None` while it answers.
    pub fn crash(&self) -> Option<String> {
        self.runner.failure()
    }

    /// How often its process has ended.
    pub(crate) fn crashes(&self) -> u64 {
        self.runner.crashes()
    }

    /// Waiting and running requests.
    pub fn load(&self) -> Load {
        self.lane.load()
    }

    /// Its metrics.
    pub(crate) const fn metrics(&self) -> &Arc<PipelineMetrics> {
        &self.metrics
    }

    /// Metrics of its steps, in order.
    pub(crate) fn steps(&self) -> &[Arc<StepMetrics>] {
        &self.steps
    }

    /// Inference statistics of this version.
    pub(crate) const fn inferences(&self) -> &Arc<Inferences> {
        &self.inferences
    }

    pub(crate) const fn lane(&self) -> &Lane {
        &self.lane
    }

    /// The server's memory budget of responses.
    pub(crate) const fn response_budget(&self) -> &BodyBudget {
        &self.answers
    }

    /// Timeout of a request: the lesser of `serving.timeout` and `runtime.timeout`.
    pub const fn timeout(&self) -> Duration {
        self.info.timeout.value
    }

    /// The time of a request that asks for `timeout`, and where that comes from.
    pub(crate) fn time_limit(&self, timeout: Option<Duration>) -> TimeLimit {
        match timeout.filter(|timeout| *timeout < self.timeout()) {
            Some(timeout) => TimeLimit::new(timeout, "as the request asked"),
            None => self.info.timeout.clone(),
        }
    }

    /// Result of the warm-up.
    pub const fn warm_up_report(&self) -> &WarmUpReport {
        &self.warm_up_report
    }

    /// Whether a request with a body of this size may run on the I/O thread.
    pub(crate) fn may_run_inline(&self, body_bytes: Option<usize>) -> bool {
        self.is_cheap && body_bytes.is_some_and(|bytes| bytes <= inline_execution::MAX_BODY)
    }

    /// Lets the I/O thread send a request with a body of this size to the pipeline's process, if it may.
    pub(crate) fn begin_short(&self, body_bytes: Option<usize>) -> Option<ShortRequest> {
        let is_small = body_bytes.is_some_and(|bytes| bytes <= inline_execution::MAX_BODY);
        if self.runner.is_isolated() && is_small { self.lane.begin_short() } else { None }
    }
}

/// The most requests of a pipeline that run at once: each takes a thread.
const MAX_CONCURRENCY: usize = 512;

/// Concurrency: one request per worker, plus the requests in the models' batches, plus as many that are prepared
/// meanwhile.
fn lane_options(settings: &Settings, info: &PipelineInfo, is_isolated: bool) -> LaneOptions {
    let workers = settings.workers.saturating_mul(if is_isolated { 2 } else { 1 });
    let concurrency = workers.saturating_add(info.concurrency.saturating_mul(2));
    let concurrency = concurrency.min(MAX_CONCURRENCY.max(settings.workers));
    LaneOptions { workers: settings.workers, concurrency, queue: settings.max_queue, is_isolated }
}

/// The protocol's versions are whole numbers: the first number of a pipeline's version, else 1.
pub(crate) fn version_number(version: &str) -> String {
    let digits: String = version.trim_start_matches(['v', 'V']).chars().take_while(char::is_ascii_digit).collect();
    let trimmed = digits.trim_start_matches('0');
    match (digits.is_empty(), trimmed.is_empty() || trimmed.len() > MAX_DIGITS) {
        // A version 0.x counts as 1.
        (true, _) | (_, true) => "1".to_owned(),
        _ => trimmed.to_owned(),
    }
}

/// The most digits that fit a 64-bit integer.
const MAX_DIGITS: usize = 18;

#[cfg(test)]
mod tests {
    use crate::engine::loaded_pipeline::version_number;

    #[test]
    fn versions_are_whole_numbers() {
        for (version, number) in [
            ("1.0.0", "1"),
            ("12", "12"),
            ("v3.1", "3"),
            ("2024-11-02", "2024"),
            ("0.4.0", "1"),
            ("latest", "1"),
            ("007", "7"),
            ("", "1"),
            ("99999999999999999999", "1"),
        ] {
            assert_eq!(version_number(version), number, "{version}");
        }
    }
}
