//! The extension `statistics`.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value as Json};

use super::lookup::Model;
use crate::engine::metrics::{Inferences, Total};

/// What the inferences of pipelines came to.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ModelStatisticsResponse")]
pub(crate) struct Statistics {
    pub(super) model_stats: Vec<ModelStatistics>,
}

/// Those of one version of a pipeline since the server started.
#[derive(Serialize, JsonSchema)]
pub(super) struct ModelStatistics {
    pub(super) name: String,
    pub(super) version: String,
    /// when the last success was, in milliseconds since 1970; 0 if there was none
    pub(super) last_inference: u64,
    pub(super) inference_count: u64,
    /// runs, of those that ran together one
    pub(super) execution_count: u64,
    pub(super) inference_stats: InferStatistics,
    pub(super) batch_stats: Vec<InferBatchStatistics>,
    /// none: of pipelines that answer a request more than once
    pub(super) response_stats: Map<String, Json>,
    /// none: what runs a model does not say what it holds
    pub(super) memory_usage: [Json; 0],
}

/// Where the time went.
#[derive(Clone, Copy, Serialize, JsonSchema)]
pub(super) struct InferStatistics {
    pub(super) success: StatisticDuration,
    pub(super) fail: StatisticDuration,
    /// before their turn
    pub(super) queue: StatisticDuration,
    /// reading inputs
    pub(super) compute_input: StatisticDuration,
    /// all steps
    pub(super) compute_infer: StatisticDuration,
    /// writing outputs
    pub(super) compute_output: StatisticDuration,
    /// never: no results are kept
    pub(super) cache_hit: StatisticDuration,
    pub(super) cache_miss: StatisticDuration,
}

/// The same by the size of requests, each of which is one inference.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BatchStatistics")]
pub(super) struct InferBatchStatistics {
    pub(super) batch_size: u64,
    pub(super) compute_input: StatisticDuration,
    pub(super) compute_infer: StatisticDuration,
    pub(super) compute_output: StatisticDuration,
}

/// A count and a total duration.
#[derive(Clone, Copy, Default, Serialize, JsonSchema)]
pub(super) struct StatisticDuration {
    pub(super) count: u64,
    /// nanoseconds
    pub(super) ns: u64,
}

impl From<Total> for StatisticDuration {
    fn from(total: Total) -> Self {
        Self { count: total.count, ns: total.nanos }
    }
}

impl InferStatistics {
    fn new(inferences: &Inferences) -> Self {
        let (success, compute) = (StatisticDuration::from(inferences.success()), inferences.compute());
        let part = |ns| StatisticDuration { count: success.count, ns };
        Self {
            success,
            fail: StatisticDuration::from(inferences.fail()),
            queue: part(compute.queue),
            compute_input: part(compute.input),
            compute_infer: part(compute.infer),
            compute_output: part(compute.output),
            cache_hit: StatisticDuration::default(),
            cache_miss: StatisticDuration::default(),
        }
    }
}

impl ModelStatistics {
    fn new(model: &Model) -> Self {
        let inferences = model.loaded.inferences();
        let stats = InferStatistics::new(inferences);
        let InferStatistics { success, compute_input, compute_infer, compute_output, .. } = stats;
        let batch = InferBatchStatistics { batch_size: 1, compute_input, compute_infer, compute_output };
        Self {
            name: model.loaded.name().to_owned(),
            version: model.loaded.version_number(),
            last_inference: inferences.last(),
            inference_count: success.count,
            execution_count: inferences.executions(),
            inference_stats: stats,
            batch_stats: if success.count == 0 { Vec::new() } else { vec![batch] },
            response_stats: Map::new(),
            memory_usage: [],
        }
    }
}

impl Statistics {
    /// The statistics of these pipelines.
    pub(super) fn new(models: &[Model]) -> Self {
        Self { model_stats: models.iter().map(ModelStatistics::new).collect() }
    }
}
