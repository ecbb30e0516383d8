//! The report of `gpux run --trace`.

use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::printer;
use gpux_core::{CallStatistics, FlattenedCalls, RunTrace, StepCalls, StepTrace};

/// A row for each step, with one beneath it for each step that it called, for people.
pub(super) fn to_table(trace: &RunTrace, engine: &str) -> String {
    let share = |time: Duration| 100.0 * time.as_secs_f64() / trace.total().as_secs_f64().max(f64::MIN_POSITIVE);
    let rows = trace.steps.iter().enumerate().flat_map(|(index, step)| {
        let called = step.calls.flattened().into_iter().map(|FlattenedCalls { depth, calls, .. }| {
            let failed = if calls.failed > 0 { format!("{} failed", calls.failed) } else { String::new() };
            let name = format!("{}{} × {}", "  ".repeat(depth + 1), calls.name, calls.count);
            let mut row = vec![String::new(), name, printer::duration(calls.time)];
            row.push(format!("{:.0} %", share(calls.time)));
            row.resize(7, String::new());
            row.push(failed);
            row
        });
        let step = vec![
            (index + 1).to_string(),
            step.name.clone(),
            printer::duration(step.time),
            format!("{:.0} %", share(step.time)),
            printer::size(step.bytes_in),
            printer::size(step.bytes_out),
            step.memory_peak.map(printer::size).unwrap_or_default(),
            step.outputs.join(", "),
        ];
        std::iter::once(step).chain(called.collect::<Vec<_>>())
    });
    let heading = ["#", "step", "time", "share", "in", "out", "sandbox", "gave"];
    let table = printer::table(&heading, &[0, 2, 3, 4, 5, 6], rows);
    format!("{table}\ntotal {}; {engine}", printer::duration(trace.total()))
}

/// For `--json`.
pub(super) fn to_json(trace: &RunTrace, engine: &str) -> Json {
    let step = |step: &StepTrace| {
        let mut json = json!({
            "name": step.name,
            "time_ms": step.time.as_secs_f64() * 1e3,
            "bytes_in": step.bytes_in,
            "bytes_out": step.bytes_out,
            "sandbox_memory_bytes": step.memory_peak,
            "gave": step.outputs,
            "log": step.log,
        });
        if !step.calls.is_empty() {
            json["calls"] = calls_to_json(&step.calls);
        }
        json
    };
    let steps: Vec<_> = trace.steps.iter().map(step).collect();
    json!({ "total_ms": trace.total().as_secs_f64() * 1e3, "engine": engine, "steps": steps })
}

/// The calls that a step made of others.
fn calls_to_json(calls: &CallStatistics) -> Json {
    let one = |calls: &StepCalls| {
        let time_ms = calls.time.as_secs_f64() * 1e3;
        let mut json = json!({ "name": calls.name, "count": calls.count, "failed": calls.failed, "time_ms": time_ms });
        if !calls.calls.is_empty() {
            json["calls"] = calls_to_json(&calls.calls);
        }
        json
    };
    Json::Array(calls.iter().map(one).collect())
}
