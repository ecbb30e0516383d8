//! `gpux run`: requests in, results out.

mod requests;
mod results;
mod sources;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use self::requests::{Item, Request, Requests};
use self::results::{Finished, Format, Results, WriteError};
use self::sources::UsageError;
use super::exit::Exit;
use super::interrupt;
use super::operator::{OperatorArguments, PipelineArguments};
use super::printer::{self, Printer};
use crate::assemble::Pipeline;
use crate::error::GpuxError;
use crate::pipeline::{Benchmark, BenchmarkOptions, Metrics, RunOptions, Trace};

/// Examples:
///   gpux run --file photo.jpg
///   gpux run my-model --input '{"data": [1, 2, 3]}'
///   gpux run . --input text='a sentence' --input top=3
///   gpux run . --file 'photos/*.jpg' --output results.csv
///   gpux run . --file photo.jpg --benchmark --runs 1000
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(super) struct Arguments {
    #[command(flatten)]
    pipeline: PipelineArguments,

    /// Input: JSON, `@file.json`, `name=value` or `name=@path`; may be repeated
    #[arg(short, long, value_name = "INPUT")]
    input: Vec<String>,

    /// File to run on: JSON (a list is a batch), JSON lines, an image, a sound, a text, `-` for
    /// standard input; several files or a pattern in quotes are a batch
    #[arg(short, long, value_name = "PATH", num_args = 1..)]
    file: Vec<String>,

    /// Write results to this file instead of standard output
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,

    /// How to write results [default: by the ending of --output; text on a terminal; else JSON]
    #[arg(long)]
    format: Option<Format>,

    /// Results, errors and traces as JSON
    #[arg(long)]
    json: bool,

    /// Seconds that one request may take [default: the pipeline's `runtime.timeout`]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,

    /// Show what each step did: time, bytes in and out, memory of its sandbox
    #[arg(long)]
    trace: bool,

    /// Time the pipeline on the first request instead of printing its result
    #[arg(long)]
    benchmark: bool,

    /// How many runs to time
    #[arg(long, value_name = "N", default_value_t = 100, requires = "benchmark", value_parser = at_least_one)]
    runs: usize,

    /// How many runs to make before timing
    #[arg(long, value_name = "N", default_value_t = 10, requires = "benchmark")]
    warmup: usize,

    #[command(flatten)]
    operator: OperatorArguments,

    /// Say more: engine, provider, where files were found
    #[arg(long)]
    verbose: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if seconds <= 0.0 {
        return Err("must be more than 0".to_owned());
    }
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "must be a whole number from 1".to_owned())
}

/// Why a run ended before its items.
enum Failure {
    Gpux(GpuxError),
    Usage(UsageError),
    Write(WriteError),
}

impl From<GpuxError> for Failure {
    fn from(error: GpuxError) -> Self {
        Self::Gpux(error)
    }
}

impl From<UsageError> for Failure {
    fn from(error: UsageError) -> Self {
        Self::Usage(error)
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        Self::Write(error)
    }
}

pub(super) fn main(arguments: Arguments) -> Exit {
    let printer = super::printer(arguments.json, arguments.verbose);
    match run(&arguments, printer) {
        Ok(exit) => exit,
        Err(Failure::Gpux(error)) => printer.error(&error),
        Err(Failure::Usage(error)) => printer.usage(&error),
        // Whoever reads a pipe may leave early; that is no error of ours.
        Err(Failure::Write(WriteError::Closed)) => Exit::Done,
        Err(Failure::Write(error)) => printer.fail("OutputError", &error.to_string(), Exit::Failed),
    }
}

fn run(arguments: &Arguments, printer: Printer) -> Result<Exit, Failure> {
    let cancelled = interrupt::watch();
    let pipeline = arguments.pipeline.open(&arguments.operator, printer)?;
    let timeout = arguments.timeout.or(pipeline.timeout());
    let mut requests = Requests::new(pipeline.plan(), &arguments.input, &arguments.file)?;
    if arguments.benchmark {
        let Some(Item { request, .. }) = requests.next() else { return Ok(Exit::Done) };
        let request = request.map_err(GpuxError::from)?;
        let options =
            BenchmarkOptions { runs: arguments.runs, warmup: arguments.warmup, timeout, cancelled: Some(cancelled) };
        let benchmark = pipeline.plan().benchmark(&request, options).map_err(GpuxError::from)?;
        return report(&benchmark, &pipeline, printer).map_err(Failure::from);
    }

    let batch = requests.is_batch();
    let mut results = Results::new(printer, arguments.output.as_deref(), arguments.format, batch)?;
    let bar = if batch { printer.progress(requests.total, "items") } else { indicatif::ProgressBar::hidden() };
    let mut exit = Exit::Done;
    for Item { source, request } in requests {
        let mut trace = (arguments.trace || arguments.verbose).then(Trace::default);
        let result = match request {
            Ok(request) => run_one(&pipeline, request, timeout, trace.as_mut()),
            Err(error) => Err(error.into()),
        };
        if interrupt::stopped() {
            exit = Exit::Interrupted;
            break;
        }
        if let (Err(error), false) = (&result, batch) {
            show_trace(arguments, printer, trace.as_ref());
            return Ok(printer.error(error));
        }
        if result.is_err() {
            exit = Exit::Failed;
        }
        if !printer.json {
            bar.suspend(|| show_trace(arguments, printer, trace.as_ref()));
        }
        let finished = Finished { source, result, trace: trace.filter(|_| arguments.trace && printer.json) };
        bar.suspend(|| results.write(&finished))?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    results.finish()?;
    if exit == Exit::Interrupted {
        printer.note("stopped; the results so far are complete");
    }
    Ok(exit)
}

fn run_one(
    pipeline: &Pipeline,
    request: Request,
    timeout: Option<Duration>,
    trace: Option<&mut Trace>,
) -> Result<crate::pipeline::Outputs, GpuxError> {
    let options = RunOptions {
        deadline: timeout.map(|timeout| Instant::now() + timeout),
        observer: trace.map(|trace| trace as _),
        cancelled: Some(interrupt::watch()),
    };
    pipeline.plan().run(request, options).map_err(GpuxError::from)
}

/// The table for `--trace`; what components logged for `--verbose`.
fn show_trace(arguments: &Arguments, printer: Printer, trace: Option<&Trace>) {
    let Some(trace) = trace else { return };
    if arguments.trace {
        printer.note(&results::trace_table(trace));
    }
    for step in &trace.steps {
        for line in &step.log {
            printer.detail(&format!("{}: {line}", step.name));
        }
    }
}

/// Prints a benchmark: the whole first, then its steps.
fn report(benchmark: &Benchmark, pipeline: &Pipeline, printer: Printer) -> Result<Exit, WriteError> {
    if printer.json {
        let steps: Vec<_> =
            benchmark.steps.iter().map(|(name, times)| json!({ "name": name, "times_ms": times })).collect();
        let mut report = json!({ "engine": pipeline.engine(), "runs": benchmark.runs, "steps": steps });
        if let (Some(report), Ok(serde_json::Value::Object(total))) =
            (report.as_object_mut(), serde_json::to_value(&benchmark.total))
        {
            report.extend(total);
        }
        printer.result(&printer::pretty(&report)).map_err(|_| WriteError::Closed)?;
        return Ok(Exit::Done);
    }
    let millis = |value: f64| printer::duration(Duration::from_secs_f64(value / 1e3));
    let row = |name: &str, times: &Metrics, fps: String| {
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
    printer.note(&format!("{} runs on {}", benchmark.runs, pipeline.engine()));
    let table = printer::table(&heading, &[1, 2, 3, 4, 5, 6, 7], rows);
    printer.result(&table).map_err(|_| WriteError::Closed)?;
    Ok(if interrupt::stopped() { Exit::Interrupted } else { Exit::Done })
}
