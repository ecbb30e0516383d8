//! Metrics as JSON.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value as Json, json};

use super::process;
use crate::engine::metrics::PipelineMetrics;
use crate::engine::metrics::histogram::HistogramSnapshot;
use crate::{LoadedPipeline, PipelineState, Server};

/// All metrics as an object.
pub(crate) fn to_json(server: &Server) -> Json {
    let slots = server.repository().slots();
    let loaded: Vec<_> = slots.iter().filter_map(|slot| slot.loaded()).collect();
    let failed = slots.iter().filter(|slot| slot.state() == PipelineState::Failed);
    let first = loaded.iter().map(|loaded| loaded.info()).find_map(|info| Some((info, info.models.first()?)));
    let metrics = server.metrics();
    json!({
        "provider": first.map(|(_, model)| &model.provider_info),
        "available_providers": first.map_or(&[][..], |(info, _)| &info.available_providers),
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_seconds": metrics.uptime().as_secs_f64(),
        "memory_bytes": process::resident_memory_bytes(),
        "connections": metrics.connections(),
        "pipelines": loaded.iter().map(pipeline).collect::<Vec<_>>(),
        "failed": failed.map(|slot| slot.name()).collect::<Vec<_>>(),
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
        "steps": loaded.info().steps.iter().zip(loaded.steps()).map(|(step, counted)| json!({
            "name": step,
            "time_ms": times(&counted.time.snapshot()),
            "failures": counted.failures.counts(),
            "calls": counted.calls.counts().into_iter().map(|(name, calls)| json!({
                "name": name,
                "count": calls.count,
                "failed": calls.failed,
                "time_ms": calls.time.as_secs_f64() * 1e3,
            })).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "models": loaded.info().models.iter().zip(loaded.model_statistics()).map(|(model, statistics)| json!({
            "name": model.name,
            "provider": model.provider.name(),
            "precision": model.precision.precision,
            "precision_choice": model.precision.decision,
            "sessions": statistics.sessions,
            "sessions_retired": statistics.retired_sessions,
            "batch_sizes": model.is_batched.then(|| metrics.batch_sizes(&model.name)),
        })).collect::<Vec<_>>(),
        "reloads": reloads(metrics),
        "crashes": loaded.crashes(),
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
