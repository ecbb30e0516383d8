//! A pipeline that is served.

use std::sync::Arc;
use std::time::Duration;

use super::detached::Detached;
use super::http::Bodies;
use super::metrics::{Inferences, Metrics, PipelineMetrics, StepMetrics, Steps};
use super::oip::version_number;
use super::schedule::{Lane, Load, Scheduler};
use super::settings::Settings;
use super::short::Short;
use super::warm_up::{self, Warmth};
use gpux::GpuxError;
use gpux::Pipeline;
use gpux_core::Plan;

/// A pipeline, loaded and warm, with the queue before it.
pub struct Served {
    pipeline: Detached<Pipeline>,
    lane: Lane,
    warmth: Warmth,
    metrics: Arc<PipelineMetrics>,
    steps: Steps,
    inferences: Arc<Inferences>,
    /// which requests have their turn on the connection's thread; `None`: never any
    short: Option<Short>,
    /// the room for answers
    answers: Bodies,
}

impl Served {
    /// Warms the pipeline up and gives it a lane. Fails if a request does that it is to be warmed with.
    pub(super) fn new(
        pipeline: Pipeline,
        scheduler: &Scheduler,
        settings: &Settings,
        metrics: &Metrics,
        answers: Bodies,
    ) -> Result<Self, GpuxError> {
        let warmth = warm_up::warm_up(&pipeline)?;
        let lane = scheduler.lane(settings.lane(&pipeline));
        let metrics = metrics.pipeline(&pipeline.spec().name.value);
        let steps = metrics.steps(pipeline.plan());
        let inferences = metrics.inferences(&version_number(&pipeline.spec().version.value));
        inferences.add_batches(&pipeline);
        let short = Short::of(&pipeline);
        let pipeline = Detached::new(pipeline);
        Ok(Self { pipeline, lane, warmth, metrics, steps, inferences, short, answers })
    }

    /// Its name in its gpux.yml.
    pub fn name(&self) -> &str {
        &self.pipeline.spec().name.value
    }

    /// Its version in its gpux.yml.
    pub fn version(&self) -> &str {
        &self.pipeline.spec().version.value
    }

    /// Its version as the Open Inference Protocol counts versions.
    pub(super) fn version_number(&self) -> String {
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

    /// What waits and runs.
    pub fn load(&self) -> Load {
        self.lane.load()
    }

    /// What is counted of it.
    pub(super) const fn metrics(&self) -> &Arc<PipelineMetrics> {
        &self.metrics
    }

    /// What is counted of its steps, in order.
    pub(super) fn steps(&self) -> &[Arc<StepMetrics>] {
        &self.steps
    }

    /// What inferences of this version came to.
    pub(super) const fn inferences(&self) -> &Arc<Inferences> {
        &self.inferences
    }

    pub(super) const fn lane(&self) -> &Lane {
        &self.lane
    }

    /// The room for answers, which is the server's.
    pub(super) const fn answers(&self) -> &Bodies {
        &self.answers
    }

    /// How long a request may take: `serving.timeout`, though not more than `runtime.timeout`.
    pub fn timeout(&self) -> Duration {
        let spec = self.pipeline.spec();
        spec.serving.timeout.0.min(spec.runtime.timeout.0)
    }

    /// What warming up showed.
    pub const fn warmth(&self) -> &Warmth {
        &self.warmth
    }

    /// Which requests are known to be done before a worker would have begun with them, if any are.
    pub(super) const fn short(&self) -> Option<&Short> {
        self.short.as_ref()
    }

    /// Whether a request with a body of so many bytes may be such a one, and would wait for no other.
    pub(super) fn may_be_short(&self, bytes: usize) -> bool {
        self.short.as_ref().is_some_and(|short| short.may_be(bytes))
            && self.pipeline.models().all(|(_, model)| model.sessions().is_free())
    }
}
