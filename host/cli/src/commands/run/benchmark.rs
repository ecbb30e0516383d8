//! The report of `gpux run --benchmark`.

use std::time::Duration;

use serde_json::{Value as Json, json};

use super::arguments::Arguments;
use crate::commands::schema::save_or_print;
use crate::exit::Exit;
use crate::interrupt;
use crate::printer::{self, Printer};
use gpux::Pipeline;
use gpux_core::{Benchmark, LatencyStatistics};

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
    let step = |(name, times): &(String, LatencyStatistics)| json!({ "name": name, "times_ms": times });
    let steps: Vec<_> = benchmark.steps.iter().map(step).collect();
    let mut report =
        json!({ "engine": pipeline.engine(), "runs": benchmark.runs, "runs_asked": asked, "steps": steps });
    let total = serde_json::to_value(&benchmark.total);
    if let (Some(report), Ok(Json::Object(total))) = (report.as_object_mut(), total) {
        report.extend(total);
    }
    report
}

/// The steps, and the whole pipeline last.
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
    let mut rows: Vec<_> = benchmark.steps.iter().map(|(name, times)| row(name, times, String::new())).collect();
    rows.push(row("pipeline", &benchmark.total, format!("{:.1}", benchmark.total.fps)));
    let heading = ["step", "avg", "min", "max", "p50", "p95", "p99", "fps"];
    printer::table(&heading, &[1, 2, 3, 4, 5, 6, 7], rows)
}
