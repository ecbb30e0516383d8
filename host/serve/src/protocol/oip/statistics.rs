//! The extension `statistics`.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value as Json};

use super::lookup::Model;
use super::proto;
use crate::engine::metrics::{Inferences, Total};

/// What the inferences of pipelines came to.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ModelStatisticsResponse")]
pub(crate) struct Statistics {
    model_stats: Vec<ModelStatistics>,
}

/// Those of one version of a pipeline since the server started.
#[derive(Serialize, JsonSchema)]
struct ModelStatistics {
    name: String,
    version: String,
    /// when the last success was, in milliseconds since 1970; 0 if there was none
    last_inference: u64,
    inference_count: u64,
    /// runs, of those that ran together one
    execution_count: u64,
    inference_stats: InferStatistics,
    batch_stats: Vec<BatchStatistics>,
    /// none: of pipelines that answer a request more than once
    response_stats: Map<String, Json>,
    /// none: what runs a model does not say what it holds
    memory_usage: [Json; 0],
}

/// Where the time went.
#[derive(Clone, Copy, Serialize, JsonSchema)]
struct InferStatistics {
    success: Duration,
    fail: Duration,
    /// before their turn
    queue: Duration,
    /// reading inputs
    compute_input: Duration,
    /// all steps
    compute_infer: Duration,
    /// writing outputs
    compute_output: Duration,
    /// never: no results are kept
    cache_hit: Duration,
    cache_miss: Duration,
}

/// The same by the size of requests, each of which is one inference.
#[derive(Serialize, JsonSchema)]
struct BatchStatistics {
    batch_size: u64,
    compute_input: Duration,
    compute_infer: Duration,
    compute_output: Duration,
}

/// A count and a total duration.
#[derive(Clone, Copy, Default, Serialize, JsonSchema)]
#[schemars(rename = "StatisticDuration")]
struct Duration {
    count: u64,
    /// nanoseconds
    ns: u64,
}

impl From<Total> for Duration {
    fn from(total: Total) -> Self {
        Self { count: total.count, ns: total.nanos }
    }
}

impl From<Duration> for proto::StatisticDuration {
    fn from(Duration { count, ns }: Duration) -> Self {
        Self { count, ns }
    }
}

impl InferStatistics {
    fn new(inferences: &Inferences) -> Self {
        let (success, compute) = (Duration::from(inferences.success()), inferences.compute());
        let part = |ns| Duration { count: success.count, ns };
        Self {
            success,
            fail: Duration::from(inferences.fail()),
            queue: part(compute.queue),
            compute_input: part(compute.input),
            compute_infer: part(compute.infer),
            compute_output: part(compute.output),
            cache_hit: Duration::default(),
            cache_miss: Duration::default(),
        }
    }
}

impl ModelStatistics {
    fn new(model: &Model) -> Self {
        let inferences = model.loaded.inferences();
        let stats = InferStatistics::new(inferences);
        let InferStatistics { success, compute_input, compute_infer, compute_output, .. } = stats;
        let batch = BatchStatistics { batch_size: 1, compute_input, compute_infer, compute_output };
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

impl From<ModelStatistics> for proto::ModelStatistics {
    fn from(statistics: ModelStatistics) -> Self {
        let ModelStatistics { name, version, last_inference, inference_count, execution_count, .. } = statistics;
        let stats = statistics.inference_stats;
        let batch = |batch: BatchStatistics| proto::InferBatchStatistics {
            batch_size: batch.batch_size,
            compute_input: Some(batch.compute_input.into()),
            compute_infer: Some(batch.compute_infer.into()),
            compute_output: Some(batch.compute_output.into()),
        };
        Self {
            name,
            version,
            last_inference,
            inference_count,
            execution_count,
            inference_stats: Some(proto::InferStatistics {
                success: Some(stats.success.into()),
                fail: Some(stats.fail.into()),
                queue: Some(stats.queue.into()),
                compute_input: Some(stats.compute_input.into()),
                compute_infer: Some(stats.compute_infer.into()),
                compute_output: Some(stats.compute_output.into()),
                cache_hit: Some(stats.cache_hit.into()),
                cache_miss: Some(stats.cache_miss.into()),
            }),
            batch_stats: statistics.batch_stats.into_iter().map(batch).collect(),
        }
    }
}

impl Statistics {
    /// Those of these pipelines.
    pub(super) fn new(models: &[Model]) -> Self {
        Self { model_stats: models.iter().map(ModelStatistics::new).collect() }
    }
}

impl From<Statistics> for proto::ModelStatisticsResponse {
    fn from(statistics: Statistics) -> Self {
        Self { model_stats: statistics.model_stats.into_iter().map(Into::into).collect() }
    }
}
