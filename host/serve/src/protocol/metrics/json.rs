//! Metrics as JSON.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value as Json, json};

use super::process;
use crate::engine::metrics::PipelineMetrics;
use crate::engine::metrics::histogram::HistogramSnapshot;
use crate::{LoadedPipeline, Server};
use gpux_inference::ProviderManager;

/// All metrics as an object.
pub(crate) fn to_json(server: &Server) -> Json {
    let loaded: Vec<_> = server.repository().slots().iter().filter_map(|slot| slot.loaded()).collect();
    let models = || loaded.iter().flat_map(|loaded| loaded.pipeline().models());
    let providers = models().next().map(|(_, model)| (ProviderManager::new(model.engine()), model.provider()));
    let metrics = server.metrics();
    json!({
        "provider": providers.as_ref().map(|(manager, provider)| manager.provider_info(*provider)),
        "available_providers": providers.as_ref().map_or_else(Vec::new, |(manager, _)| manager.available_providers()),
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_seconds": metrics.uptime().as_secs_f64(),
        "memory_bytes": process::resident_memory_bytes(),
        "connections": metrics.connections(),
        "pipelines": loaded.iter().map(pipeline).collect::<Vec<_>>(),
    })
}

fn pipeline(loaded: &Arc<LoadedPipeline>) -> Json {
    let metrics = loaded.metrics();
    let (succeeded, failed) = metrics.responses.outcome();
    let load = loaded.load();
    let refusals = metrics.refusals.counts().map(|(name, count)| (name.to_owned(), json!(count)));
    json!({
        "name": loaded.name(),
        "version": loaded.version(),
        "requests": { "succeeded": succeeded, "failed": failed },
        "refusals": refusals.collect::<serde_json::Map<_, _>>(),
        "waiting": load.waiting,
        "running": load.running,
        "request_ms": times(&metrics.request.snapshot()),
        "queue_ms": times(&metrics.queue.snapshot()),
        "run_ms": times(&metrics.run.snapshot()),
        "steps": loaded.plan().steps().iter().zip(loaded.steps()).map(|(step, counted)| json!({
            "name": step.name,
            "time_ms": times(&counted.time.snapshot()),
            "failures": counted.failures.counts(),
        })).collect::<Vec<_>>(),
        "models": loaded.pipeline().precisions().map(|(name, model, precision)| json!({
            "name": name,
            "provider": model.provider().name(),
            "precision": precision.precision,
            "precision_choice": precision.decision,
            "sessions": model.sessions().count(),
            "sessions_retired": model.sessions().retired(),
            "batch_sizes": model.batcher().and_then(Result::ok).map(|_| metrics.batch_sizes(name)),
        })).collect::<Vec<_>>(),
        "reloads": reloads(metrics),
    })
}

fn reloads(metrics: &PipelineMetrics) -> Json {
    json!({
        "succeeded": metrics.reloads.load(Ordering::Relaxed),
        "failed": metrics.failed_reloads.load(Ordering::Relaxed),
    })
}

/// The count, the mean, the bounds of the median and of the 99th percentile, in milliseconds.
fn times(snapshot: &HistogramSnapshot) -> Json {
    let millis = |seconds: f64| seconds * 1e3;
    json!({
        "count": snapshot.count,
        "mean": millis(snapshot.mean()),
        "p50_below": snapshot.quantile(0.5).map(millis),
        "p99_below": snapshot.quantile(0.99).map(millis),
    })
}
