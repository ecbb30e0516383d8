//! A loaded pipeline.

use super::scheduler::LaneOptions;
use std::sync::Arc;
use std::time::Duration;

use super::background_drop::BackgroundDrop;
use super::body_budget::BodyBudget;
use super::inline_execution;
use super::metrics::{Inferences, Metrics, PipelineMetrics, StepMetrics, Steps};
use super::scheduler::{Lane, Load, Scheduler};
use super::warm_up;
use super::warm_up::WarmUpReport;
use crate::settings::Settings;
use gpux::GpuxError;
use gpux::Pipeline;
use gpux_core::Plan;
use gpux_inference::SessionSet;

/// A pipeline that is loaded and warm, with its lane.
pub struct LoadedPipeline {
    pipeline: BackgroundDrop<Pipeline>,
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
    /// Warms up the pipeline and adds a lane. Fails if a configured warm-up request fails.
    pub(crate) fn new(
        pipeline: Pipeline,
        scheduler: &Scheduler,
        settings: &Settings,
        metrics: &Metrics,
        answers: BodyBudget,
    ) -> Result<Self, GpuxError> {
        let warm_up_report = warm_up::warm_up(&pipeline)?;
        let lane = scheduler.lane(lane_options(settings, &pipeline));
        let metrics = metrics.pipeline(&pipeline.spec().name.value);
        let steps = metrics.steps(pipeline.plan());
        let inferences = metrics.inferences(&version_number(&pipeline.spec().version.value));
        inferences.add_batches(&pipeline);
        let is_cheap = inline_execution::is_cheap(&pipeline);
        let pipeline = BackgroundDrop::new(pipeline);
        Ok(Self { pipeline, lane, warm_up_report, metrics, steps, inferences, is_cheap, answers })
    }

    /// Its name in its gpux.yml.
    pub fn name(&self) -> &str {
        &self.pipeline.spec().name.value
    }

    /// Its version in its gpux.yml.
    pub fn version(&self) -> &str {
        &self.pipeline.spec().version.value
    }

    /// Its version number in the Open Inference Protocol.
    pub(crate) fn version_number(&self) -> String {
        version_number(self.version())
    }

    /// The pipeline itself.
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// Its checked steps.
    pub fn plan(&self) -> &Plan {
        self.pipeline.plan()
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
    pub fn timeout(&self) -> Duration {
        let spec = self.pipeline.spec();
        spec.serving.timeout.0.min(spec.runtime.timeout.0)
    }

    /// Result of the warm-up.
    pub const fn warm_up_report(&self) -> &WarmUpReport {
        &self.warm_up_report
    }

    /// Whether a request with a body of this size may run on the I/O thread.
    pub(crate) fn may_run_inline(&self, body_bytes: Option<usize>) -> bool {
        self.is_cheap && body_bytes.is_some_and(|bytes| bytes <= inline_execution::MAX_BODY)
    }

    /// The sessions of its models. A cheap pipeline has at most one model.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = &SessionSet> {
        self.pipeline.models().map(|(_, model)| model.sessions())
    }
}

/// Concurrency: one request per worker, plus the requests in the models' batches, plus as many that are prepared
/// meanwhile.
fn lane_options(settings: &Settings, pipeline: &Pipeline) -> LaneOptions {
    LaneOptions { concurrency: settings.workers + 2 * pipeline.concurrency(), queue: settings.max_queue }
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
