//! Runs the requests of a loaded pipeline.

use std::sync::Arc;

use super::background_drop::BackgroundDrop;
use super::inline_execution;
use super::metrics::StepTimer;
use gpux::{GpuxError, Pipeline, PipelineInfo};
use gpux_core::{Observers, Outputs, Request, RunError, RunOptions};
use gpux_inference::{BatchSizes, Batcher, SessionSet};
use gpux_worker::{ModelStatistics, Trace, WarmUpReport};

/// A pipeline that is loaded and warm.
pub(crate) enum Runner {
    /// in this process
    Local(BackgroundDrop<Pipeline>),
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
    pub(crate) fn local(pipeline: Pipeline) -> Result<Self, GpuxError> {
        let warm_up_report = gpux_worker::warm_up(&pipeline)?;
        let is_cheap = inline_execution::is_cheap(&pipeline);
        let info = pipeline.info();
        Ok(Self { runner: Runner::Local(BackgroundDrop::new(pipeline)), info, warm_up_report, is_cheap })
    }
}

impl Runner {
    /// Runs a request on the calling thread.
    pub(crate) fn run(
        &self,
        request: Request,
        options: RunOptions<'_>,
        timer: &mut StepTimer<'_>,
        trace: Option<&mut Trace>,
    ) -> Result<Outputs, RunError> {
        match self {
            Self::Local(pipeline) => match trace {
                None => pipeline.plan().run(request, RunOptions { observer: Some(timer), ..options }),
                Some(trace) => {
                    let mut observers = Observers(vec![trace, timer]);
                    pipeline.plan().run(request, RunOptions { observer: Some(&mut observers), ..options })
                }
            },
        }
    }

    /// The sessions of its models, if they are in this process. A cheap pipeline has at most one model.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = &SessionSet> {
        let Self::Local(pipeline) = self;
        pipeline.models().map(|(_, model)| model.sessions())
    }

    /// The current numbers of its models, in the order of the file.
    pub(crate) fn model_statistics(&self) -> Vec<ModelStatistics> {
        let Self::Local(pipeline) = self;
        ModelStatistics::of(pipeline)
    }

    /// The counts of batches, by the names of the batched models.
    pub(crate) fn batch_sizes(&self) -> impl Iterator<Item = (&str, Arc<BatchSizes>)> {
        let Self::Local(pipeline) = self;
        let batchers = pipeline.models().filter_map(|(name, model)| Some((name, model.batcher()?.ok()?)));
        batchers.map(|(name, batcher): (_, &Batcher)| (name, batcher.sizes().clone()))
    }
}
