//! The report of `gpux run --trace`.

use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::printer;
use gpux_core::{RunTrace, StepTrace};

/// A row for each step, for people.
pub(super) fn to_table(trace: &RunTrace, engine: &str) -> String {
    let share = |time: Duration| 100.0 * time.as_secs_f64() / trace.total().as_secs_f64().max(f64::MIN_POSITIVE);
    let rows = trace.steps.iter().enumerate().map(|(index, step)| {
        vec![
            (index + 1).to_string(),
            step.name.clone(),
            printer::duration(step.time),
            format!("{:.0} %", share(step.time)),
            printer::size(step.bytes_in),
            printer::size(step.bytes_out),
            step.memory_peak.map(printer::size).unwrap_or_default(),
            step.outputs.join(", "),
        ]
    });
    let heading = ["#", "step", "time", "share", "in", "out", "sandbox", "gave"];
    let table = printer::table(&heading, &[0, 2, 3, 4, 5, 6], rows);
    format!("{table}\ntotal {}; {engine}", printer::duration(trace.total()))
}

/// For `--json`.
pub(super) fn to_json(trace: &RunTrace, engine: &str) -> Json {
    let step = |step: &StepTrace| {
        json!({
            "name": step.name,
            "time_ms": step.time.as_secs_f64() * 1e3,
            "bytes_in": step.bytes_in,
            "bytes_out": step.bytes_out,
            "sandbox_memory_bytes": step.memory_peak,
            "gave": step.outputs,
            "log": step.log,
        })
    };
    let steps: Vec<_> = trace.steps.iter().map(step).collect();
    json!({ "total_ms": trace.total().as_secs_f64() * 1e3, "engine": engine, "steps": steps })
}
