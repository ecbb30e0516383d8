//! Messages that describe pipelines: configuration, statistics, the repository index.

use super::proto;
use crate::protocol::oip::lookup::Model;
use crate::protocol::oip::metadata::{self, TensorMetadata};
use crate::protocol::oip::placement::{self, ModelInstances};
use crate::protocol::oip::repository::ModelIndex;
use crate::protocol::oip::statistics::{InferBatchStatistics, ModelStatistics, StatisticDuration, Statistics};
use crate::protocol::oip::{config, datatype};

/// The configuration of a pipeline.
pub(super) fn model_config(model: &Model) -> proto::ModelConfig {
    let input = |tensor: TensorMetadata| proto::ModelInput {
        data_type: datatype::config_number(tensor.element),
        name: tensor.name,
        dims: tensor.shape,
        optional: tensor.optional,
    };
    let output = |tensor: TensorMetadata| proto::ModelOutput {
        data_type: datatype::config_number(tensor.element),
        name: tensor.name,
        dims: tensor.shape,
    };
    let latest = proto::model_version_policy::Latest { num_versions: 1 };
    proto::ModelConfig {
        name: model.loaded.name().to_owned(),
        platform: config::PLATFORM.to_owned(),
        backend: config::BACKEND.to_owned(),
        version_policy: Some(proto::ModelVersionPolicy { latest: Some(latest) }),
        max_batch_size: 0,
        input: metadata::inputs(model).into_iter().map(input).collect(),
        output: metadata::outputs(model).into_iter().map(output).collect(),
        optimization: Some(proto::ModelOptimizationPolicy::default()),
        instance_group: placement::model_instances(model).map(Into::into).collect(),
        default_model_filename: placement::file_name(model),
        parameters: config::parameters(model)
            .map(|(key, string_value)| (key, proto::ModelParameter { string_value }))
            .collect(),
    }
}

impl From<ModelInstances<'_>> for proto::ModelInstanceGroup {
    fn from(instances: ModelInstances<'_>) -> Self {
        let count = i32::try_from(instances.count).unwrap_or(i32::MAX);
        Self { name: instances.name.to_owned(), kind: instances.kind.1, count }
    }
}

impl From<Vec<ModelIndex>> for proto::RepositoryIndexResponse {
    fn from(models: Vec<ModelIndex>) -> Self {
        let message = |model: ModelIndex| proto::repository_index_response::ModelIndex {
            name: model.name,
            version: model.version,
            state: model.state.to_owned(),
            reason: model.reason,
        };
        Self { models: models.into_iter().map(message).collect() }
    }
}

impl From<StatisticDuration> for proto::StatisticDuration {
    fn from(StatisticDuration { count, ns }: StatisticDuration) -> Self {
        Self { count, ns }
    }
}

impl From<InferBatchStatistics> for proto::InferBatchStatistics {
    fn from(batch: InferBatchStatistics) -> Self {
        Self {
            batch_size: batch.batch_size,
            compute_input: Some(batch.compute_input.into()),
            compute_infer: Some(batch.compute_infer.into()),
            compute_output: Some(batch.compute_output.into()),
        }
    }
}

impl From<ModelStatistics> for proto::ModelStatistics {
    fn from(statistics: ModelStatistics) -> Self {
        let stats = statistics.inference_stats;
        Self {
            name: statistics.name,
            version: statistics.version,
            last_inference: statistics.last_inference,
            inference_count: statistics.inference_count,
            execution_count: statistics.execution_count,
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
            batch_stats: statistics.batch_stats.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<Statistics> for proto::ModelStatisticsResponse {
    fn from(statistics: Statistics) -> Self {
        Self { model_stats: statistics.model_stats.into_iter().map(Into::into).collect() }
    }
}
