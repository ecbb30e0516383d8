//! Numbers of a pipeline's models that change while they run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use gpux::Pipeline;
use gpux_inference::{Batcher, ModelStep};

/// The current numbers of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelStatistics {
    /// its sessions
    pub sessions: usize,
    /// sessions that were left behind in a run that would not end, and have not ended yet
    pub retired_sessions: usize,
    /// requests that wait for a session; `None` if it is not batched
    pub waiting: Option<usize>,
    /// runs of a shape that is not among `lengths` and `sizes`; `None` without such a list
    pub unrounded_runs: Option<u64>,
    /// the number of runs by rows, if it is batched
    pub batch_sizes: BTreeMap<usize, u64>,
}

impl ModelStatistics {
    /// The numbers of all models of the pipeline, in the order of the file.
    pub fn of(pipeline: &Pipeline) -> Vec<Self> {
        pipeline.models().map(|(_, model)| Self::of_model(model)).collect()
    }

    fn of_model(model: &ModelStep) -> Self {
        let batcher = model.batcher().and_then(Result::ok);
        Self {
            sessions: model.sessions().count(),
            retired_sessions: model.sessions().retired(),
            waiting: batcher.map(Batcher::waiting),
            unrounded_runs: batcher.and_then(Batcher::unrounded_runs),
            batch_sizes: batcher.map(|batcher| batcher.sizes().by_rows()).unwrap_or_default(),
        }
    }
}
