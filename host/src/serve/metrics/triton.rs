//! The metrics under the names that NVIDIA Triton gives them, for dashboards and autoscalers that
//! are there already: `--triton-metrics`.

use std::fmt::Error;
use std::sync::Arc;

use super::prometheus::Writer;
use crate::serve::Served;

/// Each pipeline is a model of Triton's, whose compute is the run of its steps.
pub(super) fn write(out: &mut Writer<'_, '_>, served: &[Arc<Served>]) -> Result<(), Error> {
    // Triton's names do not end in `_total`, as those of counters must.
    let mut counters = |name: &str, help: &str, count: fn(&Served) -> u64| {
        out.gauges(name, help, None, served.iter().map(|served| (labels(served), count(served) as i64)))
    };
    counters("nv_inference_request_success", "Successful requests", |served| served.metrics().answers.outcome().0)?;
    counters("nv_inference_request_failure", "Failed requests", |served| served.metrics().answers.outcome().1)?;
    counters("nv_inference_count", "Inferences, each item of a batch counted", |served| {
        served.metrics().run.snapshot().count
    })?;
    counters("nv_inference_exec_count", "Runs of models, a batch counted once", executions)?;
    counters("nv_inference_request_duration_us", "Time of requests", |served| {
        micros(served.metrics().request.snapshot().sum)
    })?;
    counters("nv_inference_queue_duration_us", "Time in the queue", |served| {
        micros(served.metrics().queue.snapshot().sum)
    })?;
    counters("nv_inference_compute_infer_duration_us", "Time of the steps", |served| {
        micros(served.metrics().run.snapshot().sum)
    })?;
    out.gauges(
        "nv_inference_pending_request_count",
        "Requests in the queue",
        None,
        served.iter().map(|served| (labels(served), served.load().waiting as i64)),
    )
}

fn labels(served: &Served) -> Vec<(&str, &str)> {
    vec![("model", served.name()), ("version", served.version())]
}

fn micros(seconds: f64) -> u64 {
    (seconds * 1e6) as u64
}

/// Where requests run together, batches; elsewhere, runs.
fn executions(served: &Served) -> u64 {
    let batches = served.pipeline().models().find_map(|(_, model)| Some(model.batcher()?.ok()?.sizes()));
    batches.map_or_else(|| served.metrics().run.snapshot().count, |sizes| sizes.iter().skip(1).sum())
}
