//! Metrics for Prometheus and OpenMetrics.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Error;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::writer::Writer;
use super::{process, triton};
use crate::engine::metrics::histogram::HistogramSnapshot;
use crate::engine::metrics::{EvictionReason, Metrics, PipelineMetrics, StepMetrics};
use crate::{LoadedPipeline, PipelineState, Server};
use gpux::internal::ModelSummary;

/// The two text formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricsFormat {
    /// `application/openmetrics-text`, version 1.0.0
    OpenMetrics,
    /// `text/plain`, version 0.0.4
    Prometheus,
}

impl MetricsFormat {
    /// The media type in `Accept`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text",
            Self::Prometheus => "text/plain",
        }
    }

    /// The value of `Content-Type`.
    pub(crate) const fn media_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// All metrics as text.
pub(crate) fn to_text(server: &Arc<Server>, exposition: MetricsFormat) -> Result<String, Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Reading(Arc::downgrade(server))));
    let mut written = String::new();
    text::encode(&mut written, &registry)?;
    Ok(match exposition {
        MetricsFormat::OpenMetrics => written,
        MetricsFormat::Prometheus => to_prometheus_text(&written),
    })
}

/// Converts OpenMetrics to Prometheus text: OpenMetrics names a counter family without `_total`, ends with `# EOF`, and
/// has units.
fn to_prometheus_text(written: &str) -> String {
    let mut to_prometheus_text = String::with_capacity(written.len());
    let mut counters = BTreeSet::new();
    for line in written.lines() {
        if let Some(name) = line.strip_prefix("# TYPE ").and_then(|rest| rest.strip_suffix(" counter")) {
            counters.insert(name);
        }
    }
    for line in written.lines() {
        let described = ["# HELP ", "# TYPE "].iter().find_map(|start| Some((start, line.strip_prefix(start)?)));
        match described {
            Some((start, rest)) => {
                let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
                // In this format, a counter may have any name.
                let rest = if *start == "# TYPE " && rest == "unknown" { "counter" } else { rest };
                let total = if counters.contains(name) { "_total" } else { "" };
                to_prometheus_text.push_str(&format!("{start}{name}{total} {rest}\n"));
            }
            None if line.starts_with('#') => {}
            None => {
                to_prometheus_text.push_str(line);
                to_prometheus_text.push('\n');
            }
        }
    }
    to_prometheus_text
}

/// Collects all metrics of a server.
struct Reading(Weak<Server>);

impl std::fmt::Debug for Reading {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Reading")
    }
}

impl Collector for Reading {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let Some(server) = self.0.upgrade() else { return Ok(()) };
        let loaded: Vec<_> = server.repository().slots().iter().filter_map(|slot| slot.loaded()).collect();
        let mut out = Writer::new(&mut encoder);
        write_server(&mut out, &server)?;
        write_requests(&mut out, &server.metrics().all())?;
        write_pipelines(&mut out, &server, &loaded)?;
        if server.settings().triton_metrics {
            triton::write(&mut out, &loaded)?;
        }
        Ok(())
    }
}

const SECONDS: Option<&Unit> = Some(&Unit::Seconds);
const BYTES: Option<&Unit> = Some(&Unit::Bytes);

fn write_server(out: &mut Writer<'_, '_>, server: &Server) -> Result<(), Error> {
    let metrics: &Metrics = server.metrics();
    out.gauges("gpux_build_info", "The program", None, [(vec![("version", env!("CARGO_PKG_VERSION"))], 1)])?;
    out.gauge("gpux_uptime", "Time since the start", SECONDS, metrics.uptime().as_secs_f64())?;
    out.gauge("gpux_ready", "1 if requests are answered", None, i64::from(server.is_ready()))?;
    out.gauge("gpux_connections", "Connections that are open", None, metrics.connections() as i64)?;
    let count = |count: &std::sync::atomic::AtomicU64| [(Vec::new(), count.load(Ordering::Relaxed))];
    out.counters("gpux_connections_accepted", "Connections that were taken", count(&metrics.accepted))?;
    out.counters("gpux_accept_errors", "Connections that could not be taken", count(&metrics.accept_errors))?;
    let cut = "Connections that were closed because the client was too slow or had nothing to say";
    out.counters("gpux_connections_cut", cut, count(&metrics.cut))?;
    let evictions = EvictionReason::ALL.map(|reason| (vec![("reason", reason.name())], metrics.evictions(reason)));
    out.counters("gpux_connections_evicted", "Connections that closed for others near the limit, by why", evictions)?;
    if metrics.exports_spans() {
        let lost = "Spans of traces that did not get to the collector";
        out.counters("gpux_trace_spans_lost", lost, [(Vec::new(), metrics.spans_lost())])?;
    }
    if let Some(bytes) = process::resident_memory_bytes() {
        out.gauge("process_resident_memory", "Memory of the process", BYTES, bytes as i64)?;
    }
    if let Some(files) = process::open_fds() {
        out.gauge("process_open_fds", "Open file descriptors", None, files as i64)?;
    }
    if let Some(time) = process::cpu_time() {
        let mut family = out.family("process_cpu", "Time of processors", SECONDS, MetricType::Counter)?;
        family.encode_counter::<[(&str, &str); 0], _, u64>(&time.as_secs_f64(), None)?;
    }
    let started = metrics.started_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    out.gauge("process_start_time", "Start, since the epoch", SECONDS, started.as_secs_f64())
}

/// Metrics of requests, whether their pipeline is loaded or not.
fn write_requests(out: &mut Writer<'_, '_>, all: &[Arc<PipelineMetrics>]) -> Result<(), Error> {
    let named = || all.iter().filter(|metrics| !metrics.name.is_empty());
    let answers: Vec<_> = all
        .iter()
        .flat_map(|of| {
            of.responses.counts().map(|(protocol, status, count)| (of.name.as_str(), protocol, status, count))
        })
        .collect();
    out.counters(
        "gpux_requests",
        "Answers, by pipeline, protocol and status; without a pipeline, those of requests that got to none",
        answers.iter().map(|(name, protocol, status, count)| {
            (vec![("pipeline", *name), ("protocol", protocol.name()), ("status", status)], *count)
        }),
    )?;
    let labels = |of: &'_ Arc<PipelineMetrics>| -> String { of.name.clone() };
    let names: Vec<_> = named().map(labels).collect();
    let pipelines = || named().zip(&names);
    out.histograms(
        "gpux_request_duration",
        "From the head of a request to the head of its answer",
        SECONDS,
        pipelines().map(|(of, name)| (vec![("pipeline", name.as_str())], of.request.snapshot())),
    )?;
    out.histograms(
        "gpux_queue_duration",
        "From a request's arrival to its turn",
        SECONDS,
        pipelines().map(|(of, name)| (vec![("pipeline", name.as_str())], of.queue.snapshot())),
    )?;
    out.histograms(
        "gpux_run_duration",
        "Runs of a pipeline; each item of a list or a stream is one",
        SECONDS,
        pipelines().map(|(of, name)| (vec![("pipeline", name.as_str())], of.run.snapshot())),
    )?;
    out.counters(
        "gpux_refusals",
        "Requests that did not run, by why",
        all.iter().flat_map(|of| {
            of.refusals
                .counts()
                .filter(|(_, count)| !of.name.is_empty() || *count > 0)
                .map(|(reason, count)| (vec![("pipeline", of.name.as_str()), ("reason", reason)], count))
        }),
    )?;
    out.counters(
        "gpux_truncated_texts",
        "Texts that were too long, so that a step left out a part",
        pipelines().map(|(of, name)| (vec![("pipeline", name.as_str())], of.truncated.load(Ordering::Relaxed))),
    )?;
    out.counters(
        "gpux_reloads",
        "Pipelines loaded again, by what came of it; first loads that failed count, too",
        pipelines().flat_map(|(of, name)| {
            let of = [("succeeded", &of.reloads), ("failed", &of.failed_reloads)];
            of.map(|(result, count)| {
                (vec![("pipeline", name.as_str()), ("result", result)], count.load(Ordering::Relaxed))
            })
        }),
    )
}

/// Metrics of loaded pipelines.
fn write_pipelines(out: &mut Writer<'_, '_>, server: &Server, loaded: &[Arc<LoadedPipeline>]) -> Result<(), Error> {
    let slots = server.repository().slots();
    out.gauges(
        "gpux_pipeline_ready",
        "1 if the pipeline answers",
        None,
        slots.iter().map(|slot| (vec![("pipeline", slot.name())], i64::from(slot.state() == PipelineState::Ready))),
    )?;
    out.gauges(
        "gpux_reload_failing",
        "1 if the files of the pipeline cannot be loaded: what was there before answers, or nothing",
        None,
        slots.iter().map(|slot| (vec![("pipeline", slot.name())], i64::from(slot.failure().is_some()))),
    )?;
    out.counters(
        "gpux_pipeline_crashes",
        "Ends of the processes of pipelines that run in one of their own, since they were loaded",
        loaded.iter().map(|loaded| (vec![("pipeline", loaded.name())], loaded.crashes())),
    )?;
    let loads: Vec<_> = loaded.iter().map(|loaded| (loaded.name(), loaded.load())).collect();
    out.gauges(
        "gpux_requests_waiting",
        "Requests in the queue",
        None,
        loads.iter().map(|(name, load)| (vec![("pipeline", *name)], load.waiting as i64)),
    )?;
    out.gauges(
        "gpux_requests_running",
        "Requests that have begun",
        None,
        loads.iter().map(|(name, load)| (vec![("pipeline", *name)], load.running as i64)),
    )?;
    out.gauges(
        "gpux_pipeline_info",
        "The pipeline that answers: its version, and the digest of its manifest if it was loaded from a store",
        None,
        loaded.iter().map(|loaded| {
            let digest = loaded.info().digest.as_deref().unwrap_or_default();
            (vec![("pipeline", loaded.name()), ("version", loaded.version()), ("digest", digest)], 1)
        }),
    )?;
    write_steps(out, loaded)?;
    write_models(out, loaded)
}

fn write_steps(out: &mut Writer<'_, '_>, loaded: &[Arc<LoadedPipeline>]) -> Result<(), Error> {
    let numbers: Vec<_> = (1..=loaded.iter().map(|loaded| loaded.steps().len()).max().unwrap_or(0))
        .map(|number| number.to_string())
        .collect();
    let steps = || {
        loaded.iter().flat_map(|loaded| {
            let steps = loaded.info().steps.iter().zip(loaded.steps()).zip(&numbers);
            steps.map(|((step, counted), number)| {
                (vec![("pipeline", loaded.name()), ("step", step.as_str()), ("number", number.as_str())], counted)
            })
        })
    };
    out.histograms(
        "gpux_step_duration",
        "Steps of pipelines",
        SECONDS,
        steps().map(|(labels, counted)| (labels, counted.time.snapshot())),
    )?;
    write_calls(out, steps())?;
    let failures: Vec<_> = steps()
        .flat_map(|(labels, counted)| counted.failures.counts().into_iter().map(move |count| (labels.clone(), count)))
        .collect();
    out.counters(
        "gpux_step_failures",
        "Requests that ended at a step, by why",
        failures.iter().map(|(labels, (reason, count))| {
            (labels.iter().copied().chain([("reason", reason.as_str())]).collect(), *count)
        }),
    )?;
    out.counters(
        "gpux_sandbox_limits",
        "Requests that ended at a limit of the sandbox, by limit",
        failures.iter().filter_map(|(labels, (reason, count))| {
            let limit = reason.strip_prefix("limit_")?;
            Some((labels.iter().copied().chain([("limit", limit)]).collect(), *count))
        }),
    )
}

/// The calls that steps made of built-in steps and models.
fn write_calls<'a>(
    out: &mut Writer<'_, '_>,
    steps: impl Iterator<Item = (Vec<(&'a str, &'a str)>, &'a Arc<StepMetrics>)>,
) -> Result<(), Error> {
    let calls: Vec<_> = steps
        .flat_map(|(labels, counted)| counted.calls.counts().into_iter().map(move |call| (labels.clone(), call)))
        .collect();
    let labelled = || {
        calls.iter().map(|(labels, (name, calls))| {
            let labels: Vec<_> = labels.iter().copied().chain([("called", name.as_str())]).collect();
            (labels, calls)
        })
    };
    out.counters(
        "gpux_step_calls",
        "Calls that steps made of built-in steps and models",
        labelled().map(|(labels, calls)| (labels, calls.count)),
    )?;
    out.counters(
        "gpux_step_call_failures",
        "Of those, calls that failed",
        labelled().map(|(labels, calls)| (labels, calls.failed)),
    )?;
    let help = "Time of the calls that steps made of built-in steps and models";
    let mut family = out.family("gpux_step_call_time", help, SECONDS, MetricType::Counter)?;
    for (labels, calls) in labelled() {
        let seconds = calls.time.as_secs_f64();
        family.encode_family(&labels)?.encode_counter::<[(&str, &str); 0], _, u64>(&seconds, None)?;
    }
    Ok(())
}

fn write_models(out: &mut Writer<'_, '_>, loaded: &[Arc<LoadedPipeline>]) -> Result<(), Error> {
    let models: Vec<_> = loaded
        .iter()
        .flat_map(|loaded| {
            let models = loaded.info().models.iter().zip(loaded.model_statistics());
            models.map(|(model, statistics)| {
                (vec![("pipeline", loaded.name()), ("model", model.name.as_str())], model, statistics)
            })
        })
        .collect();
    out.gauges(
        "gpux_provider_info",
        "The execution provider that runs the model, and what it is computed in",
        None,
        models.iter().map(|(labels, model, _)| {
            let mut labels = labels.clone();
            labels.extend([("engine", model.engine.as_str()), ("provider", model.provider.name())]);
            labels.push(("precision", model.precision.precision.name()));
            (labels, 1)
        }),
    )?;
    let decisions =
        || models.iter().filter_map(|(labels, model, _)| Some((labels.clone(), model.precision.decision.as_ref()?)));
    out.gauges(
        "gpux_precision_speedup",
        "The time of a request in `exact` divided by that in the precision that `auto` chose, as measured",
        None,
        decisions().map(|(labels, decision)| (labels, decision.speedup)),
    )?;
    out.gauges(
        "gpux_precision_error",
        "The largest difference from `exact` in the precision that `auto` chose, as a part of an output's largest number",
        None,
        decisions().map(|(labels, decision)| (labels, decision.error)),
    )?;
    out.gauges(
        "gpux_sessions",
        "Sessions of the model",
        None,
        models.iter().map(|(labels, _, statistics)| (labels.clone(), statistics.sessions as i64)),
    )?;
    out.gauges(
        "gpux_sessions_retired",
        "Sessions that were left behind in a run that would not end, and have not ended yet",
        None,
        models.iter().map(|(labels, _, statistics)| (labels.clone(), statistics.retired_sessions as i64)),
    )?;
    out.gauges(
        "gpux_batch_waiting",
        "Requests that wait for a session of the model",
        None,
        models.iter().filter_map(|(labels, _, statistics)| Some((labels.clone(), statistics.waiting? as i64))),
    )?;
    out.counters(
        "gpux_batch_unrounded_runs",
        "Runs of a shape that is not among `lengths` and `sizes`, which some providers compile while a request waits",
        models.iter().filter_map(|(labels, _, statistics)| Some((labels.clone(), statistics.unrounded_runs?))),
    )?;
    out.histograms(
        "gpux_batch_size",
        "Rows that the model ran on at once",
        None,
        loaded.iter().flat_map(|loaded| {
            let models = loaded.info().models.iter().filter(|model| model.is_batched);
            models.map(|ModelSummary { name, .. }| {
                (vec![("pipeline", loaded.name()), ("model", name.as_str())], rows(&loaded.metrics().batch_sizes(name)))
            })
        }),
    )
}

/// Counts of batches by size, in buckets of powers of two.
fn rows(sizes: &BTreeMap<usize, u64>) -> HistogramSnapshot {
    let mut buckets: Vec<(f64, u64)> =
        (0..=8).map(|power| (f64::from(1 << power), 0)).chain([(f64::INFINITY, 0)]).collect();
    let (mut count, mut sum) = (0, 0.0);
    for (rows, times) in sizes {
        if let Some((_, bucket)) = buckets.iter_mut().find(|(bound, _)| *rows as f64 <= *bound) {
            *bucket += times;
        }
        count += times;
        sum += *rows as f64 * *times as f64;
    }
    HistogramSnapshot { buckets, count, sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_format_names_counters_like_samples() {
        let written = "# HELP a Things.\n# TYPE a counter\na_total{x=\"1\"} 2\n# HELP b_seconds Time.\n# TYPE b_seconds gauge\n\
                       # UNIT b_seconds seconds\nb_seconds 1.0\n# TYPE c unknown\nc 3\n# EOF\n";
        let expected = "# HELP a_total Things.\n# TYPE a_total counter\na_total{x=\"1\"} 2\n# HELP b_seconds Time.\n\
                        # TYPE b_seconds gauge\nb_seconds 1.0\n# TYPE c counter\nc 3\n";
        assert_eq!(to_prometheus_text(written), expected);
    }

    #[test]
    fn groups_batches_by_powers_of_two() {
        let snapshot = rows(&BTreeMap::from([(1, 5), (3, 1), (4, 1)]));
        let filled: Vec<_> = snapshot.buckets.iter().filter(|(_, count)| *count > 0).copied().collect();
        assert_eq!((filled, snapshot.count), (vec![(1.0, 5), (4.0, 2)], 7));
        assert!((snapshot.sum - 12.0).abs() < 1e-9);
    }
}
