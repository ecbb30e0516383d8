//! The report of `gpux run --benchmark`.

use std::time::Duration;

use serde_json::{Value as Json, json};

use super::arguments::Arguments;
use crate::commands::schema::save_or_print;
use crate::exit::Exit;
use crate::interrupt;
use crate::printer::{self, Printer};
use gpux::Pipeline;
use gpux_core::{Benchmark, CallStatistics, FlattenedCalls, LatencyStatistics, StepBenchmark, StepCalls};

/// Prints a benchmark, or writes it to `--output`, with a note if it was interrupted.
pub(super) fn report(benchmark: &Benchmark, pipeline: &Pipeline, arguments: &Arguments, printer: Printer) -> Exit {
    if benchmark.runs == 0 {
        return printer.fail("Interrupted", "stopped before a run was timed", Exit::Interrupted);
    }
    if benchmark.runs < arguments.runs {
        printer.warning(&format!("stopped after {} of {} runs", benchmark.runs, arguments.runs));
    }
    let text = if printer.json {
        printer::pretty(&to_json(benchmark, pipeline, arguments.runs))
    } else {
        printer.note(&format!("{} runs on {}", benchmark.runs, pipeline.engine()));
        table(benchmark)
    };
    match save_or_print(printer, arguments.output.as_deref(), &text) {
        Exit::Done if interrupt::is_interrupted() => Exit::Interrupted,
        exit => exit,
    }
}

fn to_json(benchmark: &Benchmark, pipeline: &Pipeline, asked: usize) -> Json {
    let step = |StepBenchmark { name, times, calls }: &StepBenchmark| {
        let mut step = json!({ "name": name, "times_ms": times });
        if !calls.is_empty() {
            step["calls"] = calls_to_json(calls, benchmark.runs);
        }
        step
    };
    let steps: Vec<_> = benchmark.steps.iter().map(step).collect();
    let mut report =
        json!({ "engine": pipeline.engine(), "runs": benchmark.runs, "runs_asked": asked, "steps": steps });
    let total = serde_json::to_value(&benchmark.total);
    if let (Some(report), Ok(Json::Object(total))) = (report.as_object_mut(), total) {
        report.extend(total);
    }
    report
}

/// The calls that a step made, a run.
fn calls_to_json(calls: &CallStatistics, runs: usize) -> Json {
    let one = |calls: &StepCalls| {
        let mut json = json!({
            "name": calls.name,
            "calls_per_run": calls.count as f64 / runs.max(1) as f64,
            "failed": calls.failed,
            "time_ms_per_run": calls.time.as_secs_f64() * 1e3 / runs.max(1) as f64,
        });
        if !calls.calls.is_empty() {
            json["calls"] = calls_to_json(&calls.calls, runs);
        }
        json
    };
    Json::Array(calls.iter().map(one).collect())
}

/// How often a step was called in a run, on average.
fn per_run(count: u64, runs: usize) -> String {
    let runs = runs.max(1) as u64;
    if count.is_multiple_of(runs) { (count / runs).to_string() } else { format!("{:.1}", count as f64 / runs as f64) }
}

/// The steps, each with the calls that it made, and the whole pipeline last.
fn table(benchmark: &Benchmark) -> String {
    let millis = |value: f64| printer::duration(Duration::from_secs_f64(value / 1e3));
    let row = |name: &str, times: &LatencyStatistics, fps: String| {
        let columns = [
            times.avg_inference_time,
            times.min_inference_time,
            times.max_inference_time,
            times.p50,
            times.p95,
            times.p99,
        ];
        let mut row = vec![name.to_owned()];
        row.extend(columns.into_iter().map(millis));
        row.push(fps);
        row
    };
    let mut rows = Vec::new();
    for StepBenchmark { name, times, calls } in &benchmark.steps {
        rows.push(row(name, times, String::new()));
        rows.extend(calls.flattened().iter().map(|called| {
            let FlattenedCalls { depth, calls, .. } = called;
            let time = calls.time.div_f64(benchmark.runs.max(1) as f64);
            let name = format!("{}{} × {}", "  ".repeat(depth + 1), calls.name, per_run(calls.count, benchmark.runs));
            let mut row = vec![name, printer::duration(time)];
            row.resize(8, String::new());
            row
        }));
    }
    rows.push(row("pipeline", &benchmark.total, format!("{:.1}", benchmark.total.fps)));
    let heading = ["step", "avg", "min", "max", "p50", "p95", "p99", "fps"];
    printer::table(&heading, &[1, 2, 3, 4, 5, 6, 7], rows)
}
