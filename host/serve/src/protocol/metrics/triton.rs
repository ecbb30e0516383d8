//! The metrics under NVIDIA Triton's names, for existing dashboards and autoscalers: `--triton-metrics`.

use std::fmt::Error;
use std::sync::Arc;

use super::writer::Writer;
use crate::LoadedPipeline;
use crate::engine::metrics::Inferences;

/// Each pipeline is one model of Triton's, whose compute time is the run of its steps. The numbers are those of
/// `/v2/models/stats`.
pub(crate) fn write(out: &mut Writer<'_, '_>, loaded: &[Arc<LoadedPipeline>]) -> Result<(), Error> {
    let versions: Vec<_> = loaded.iter().map(|loaded| loaded.version_number()).collect();
    let labels = || loaded.iter().zip(&versions).map(|(loaded, version)| labels(loaded, version));
    let mut counters = |name: &str, help: &str, count: fn(&Inferences) -> u64| {
        let counts = loaded.iter().map(|loaded| count(loaded.inferences()));
        out.counters_as_named(name, help, labels().zip(counts))
    };
    counters("nv_inference_request_success", "Successful requests", |counted| counted.success().count)?;
    counters("nv_inference_request_failure", "Failed requests", |counted| counted.fail().count)?;
    counters("nv_inference_count", "Inferences, each item of a batch counted", |counted| counted.success().count)?;
    counters("nv_inference_exec_count", "Runs, a batch counted once", Inferences::executions)?;
    counters("nv_inference_request_duration_us", "Time of successful requests", |counted| {
        counted.success().nanos / 1000
    })?;
    counters("nv_inference_queue_duration_us", "Time in the queue", |counted| counted.compute().queue / 1000)?;
    counters("nv_inference_compute_input_duration_us", "Time of reading inputs", |counted| {
        counted.compute().input / 1000
    })?;
    counters("nv_inference_compute_infer_duration_us", "Time of the steps", |counted| counted.compute().infer / 1000)?;
    counters("nv_inference_compute_output_duration_us", "Time of writing outputs", |counted| {
        counted.compute().output / 1000
    })?;
    let waiting = loaded.iter().map(|loaded| loaded.load().waiting as i64);
    out.gauges("nv_inference_pending_request_count", "Requests in the queue", None, labels().zip(waiting))
}

fn labels<'a>(loaded: &'a LoadedPipeline, version: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![("model", loaded.name()), ("version", version)]
}
