//! `gpux run --benchmark --provider a,b,c`: the same pipeline on one provider after the other.

use std::time::Duration;

use serde_json::json;

use super::arguments::Arguments;
use crate::commands::schema::save_or_print;
use crate::exit::Exit;
use crate::measure::{CHILD_TIMEOUT, MeasureRequest};
use crate::printer::{Printer, duration, pretty, table};
use gpux_author::{MeasureError, MeasureTarget, Measurement};

/// Times each provider in a process of its own, and compares them with the CPU if it is among them,
/// else with the first that works.
pub(super) fn compare(arguments: &Arguments, printer: Printer) -> Exit {
    if arguments.input.is_streamed() {
        let message = "several providers cannot share standard input: give a file";
        return printer.fail("UsageError", message, Exit::Usage);
    }
    let load_options = match arguments.load.options() {
        Ok(load_options) => load_options,
        Err(error) => return printer.error(&error),
    };
    let asked = MeasureRequest {
        pipeline: arguments.pipeline.path(),
        input: arguments.input.clone(),
        load_options,
        samples: 1,
        runs: arguments.runs,
        warmup: arguments.warmup,
        timeout: arguments.timeout,
        cases: false,
        throughput: None,
        output: arguments.output.clone(),
    };
    let mut rows = Vec::new();
    for provider in arguments.load.providers() {
        let place: MeasureTarget = match provider.parse() {
            Ok(place) => place,
            Err(error) => return printer.fail("UsageError", &error, Exit::Usage),
        };
        let folder = match tempfile::tempdir() {
            Ok(folder) => folder,
            Err(error) => return printer.fail("RunError", &error.to_string(), Exit::Failed),
        };
        rows.push((provider, asked.run(&place, folder.path(), CHILD_TIMEOUT)));
    }
    let wrong = |(_, measured): &Row| measured.as_ref().is_err_and(|failed| Exit::from(failed.category) == Exit::Usage);
    if let Some((_, Err(failed))) = rows.first().filter(|_| rows.iter().all(wrong)) {
        return printer.fail("UsageError", &failed.message, Exit::Usage);
    }
    let text = if printer.json { pretty(&to_json(&rows)) } else { to_table(&rows) };
    match save_or_print(printer, arguments.output.as_deref(), &text) {
        Exit::Done if rows.iter().all(|(_, measured)| time(measured).is_none()) => Exit::Environment,
        exit => exit,
    }
}

type Row = (String, Result<Measurement, MeasureError>);

/// The mean time of a run, in milliseconds.
fn time(measured: &Result<Measurement, MeasureError>) -> Option<f64> {
    measured.as_ref().ok()?.times.as_ref().map(|times| times.avg_inference_time)
}

fn baseline(rows: &[Row]) -> Option<f64> {
    let cpu = rows.iter().find(|(provider, _)| provider == "cpu").and_then(|(_, measured)| time(measured));
    cpu.or_else(|| rows.iter().find_map(|(_, measured)| time(measured)))
}

fn why_not(measured: &Result<Measurement, MeasureError>) -> String {
    match measured {
        Err(failed) => failed.message.clone(),
        Ok(measured) => measured.items.iter().find_map(|item| item.result.as_ref().err().cloned()).unwrap_or_default(),
    }
}

fn to_json(rows: &[Row]) -> serde_json::Value {
    let baseline = baseline(rows);
    let row = |(provider, measured): &Row| match (measured, time(measured)) {
        (Ok(ran), Some(time)) => json!({
            "provider": provider,
            "engine": ran.engine,
            "times_ms": ran.times,
            "speedup": baseline.map(|baseline| baseline / time),
        }),
        (measured, _) => json!({ "provider": provider, "error": why_not(measured) }),
    };
    json!({ "providers": rows.iter().map(row).collect::<Vec<_>>() })
}

fn to_table(rows: &[Row]) -> String {
    let baseline = baseline(rows);
    let millis = |value: f64| duration(Duration::from_secs_f64(value / 1e3));
    let row = |(provider, measured): &Row| {
        let times = measured.as_ref().ok().and_then(|measured| measured.times.as_ref());
        let mut row = vec![provider.clone()];
        if let (Some(times), Some(baseline)) = (times, baseline) {
            row.extend([times.avg_inference_time, times.p50, times.p99].map(millis));
            row.push(format!("{:.1}", times.fps));
            row.push(format!("{:.2}x", baseline / times.avg_inference_time));
        } else {
            row.extend(std::iter::repeat_n("-".to_owned(), 5));
            row.push(why_not(measured));
        }
        row
    };
    table(&["provider", "time", "p50", "p99", "fps", "speedup", ""], &[1, 2, 3, 4, 5], rows.iter().map(row))
}
