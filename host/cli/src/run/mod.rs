//! `gpux run`: requests in, results out.

mod benchmark;
mod folder;
mod input;
mod providers;
mod record;
mod requests;
mod results;
mod side_by_side;
mod sources;

use std::mem::ManuallyDrop;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(super) use self::input::InputArguments;
use self::requests::Requests;
pub(super) use self::requests::{Item, sample_requests};
use self::results::{Finished, Format, Results, WriteError};
pub(super) use self::sources::UsageError;
use super::exit::Exit;
use super::interrupt;
use super::operator::{OperatorArguments, PipelineArguments};
use super::printer::{Printer, Unwritten};
use clap::Args;
use gpux::GpuxError;
use gpux::Pipeline;
use gpux_author::{RecordError, Recorder};
use gpux_core::files::is_same;
use gpux_core::{BenchmarkOptions, Observer, Observers, Outputs, Request, RunOptions, Trace, deadline_after};

/// Examples:
///   gpux run --file photo.jpg
///   gpux run my-model --input '{"data": [1, 2, 3]}'
///   gpux run . --input text='a sentence' --input top=3
///   gpux run . --file 'photos/*.jpg' --output results.csv
///   gpux run model.onnx --input image=@image.npy --format npy --output results
///   gpux run . --file photo.jpg --benchmark --runs 1000
///   gpux run . --file photo.jpg --benchmark --provider cuda,openvino,cpu
///   gpux run . --file 'photos/*.jpg' --record recorded
///   gpux run . --replay recorded --step center-ink.wasm
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(super) struct Arguments {
    #[command(flatten)]
    pipeline: PipelineArguments,

    #[command(flatten)]
    input: InputArguments,

    /// Write results to this file (with `--format npy`, folder) instead of standard output
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
    #[arg(long, conflicts_with_all = ["trace", "format", "record"])]
    benchmark: bool,

    /// How many runs to time
    #[arg(long, value_name = "N", default_value_t = 100, requires = "benchmark", value_parser = at_least_one)]
    runs: usize,

    /// How many runs to make before timing
    #[arg(long, value_name = "N", default_value_t = 10, requires = "benchmark")]
    warmup: usize,

    #[command(flatten)]
    records: record::RecordArguments,

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
        Err(Failure::Write(WriteError::Stdout(Unwritten::Closed))) => Exit::Done,
        Err(Failure::Write(error)) => printer.unwritten(&error),
    }
}

fn run(arguments: &Arguments, printer: Printer) -> Result<Exit, Failure> {
    if arguments.benchmark && arguments.operator.providers().len() > 1 {
        return Ok(providers::compare(arguments, printer));
    }
    interrupt::watch();
    // Taking sessions and sandboxes down piece by piece takes longer than many a run, and the
    // process is about to end: the system frees them all at once.
    let pipeline = ManuallyDrop::new(arguments.pipeline.open(&arguments.operator, printer)?);
    let timeout = arguments.timeout.or(pipeline.timeout());
    if let Some(exit) = arguments.records.replay(&pipeline, timeout, printer) {
        return Ok(exit);
    }
    if arguments.format == Some(Format::Npy) && arguments.output.is_none() {
        return Err(UsageError::NoFolder.into());
    }
    let mut requests = arguments.input.requests(pipeline.plan())?;
    check_outputs(arguments, &pipeline, &mut requests)?;
    if arguments.format.is_none()
        && let Some(path) = &arguments.output
    {
        results::check_ending(path, pipeline.plan())?;
    }
    if arguments.benchmark {
        return time_first(arguments, printer, &pipeline, timeout, requests);
    }
    run_all(arguments, printer, &pipeline, timeout, requests)
}

/// Refuses to write over what is read: that would destroy it, or be read again without end.
fn check_outputs(arguments: &Arguments, pipeline: &Pipeline, requests: &mut Requests<'_>) -> Result<(), UsageError> {
    // Asking whether they are a batch takes the first out.
    let read: Vec<_> = requests.read().map(Path::to_owned).collect();
    let outputs = match &arguments.output {
        None => vec![PathBuf::from("/dev/stdout")],
        Some(folder) if arguments.format == Some(Format::Npy) => {
            let names: Vec<_> = pipeline.plan().outputs().iter().map(|output| output.name.as_str()).collect();
            folder::in_the_way(folder, &names, requests.is_batch())
        }
        Some(file) => vec![file.clone()],
    };
    spare(pipeline, read.iter().map(PathBuf::as_path), &outputs)
}

/// Refuses outputs that are read, by the pipeline or for its requests.
pub(super) fn spare<'a>(
    pipeline: &'a Pipeline,
    requests: impl Iterator<Item = &'a Path>,
    outputs: &[PathBuf],
) -> Result<(), UsageError> {
    let own = pipeline.files().keys().map(PathBuf::as_path).filter(|path| path.is_file());
    match own.chain(requests).find(|path| outputs.iter().any(|output| is_same(path, output))) {
        Some(path) => Err(UsageError::Overwrites(path.display().to_string())),
        None => Ok(()),
    }
}

/// Times the pipeline on the first request.
fn time_first(
    arguments: &Arguments,
    printer: Printer,
    pipeline: &Pipeline,
    timeout: Option<Duration>,
    mut requests: Requests<'_>,
) -> Result<Exit, Failure> {
    let Some(Item { request, .. }) = requests.next() else { return Ok(Exit::Done) };
    let request = request.map_err(GpuxError::from)?;
    let cancelled = Some(interrupt::watch());
    let options = BenchmarkOptions { runs: arguments.runs, warmup: arguments.warmup, timeout, cancelled };
    let benchmark = interrupt::finishing(|| pipeline.plan().benchmark(&request, options)).map_err(GpuxError::from)?;
    Ok(benchmark::report(&benchmark, pipeline, arguments, printer))
}

/// Runs every request and writes what comes of it.
fn run_all(
    arguments: &Arguments,
    printer: Printer,
    pipeline: &Pipeline,
    timeout: Option<Duration>,
    mut requests: Requests<'_>,
) -> Result<Exit, Failure> {
    let recorder = match arguments.records.recorder(pipeline) {
        Ok(recorder) => recorder,
        Err(error @ RecordError::Io { .. }) => return Ok(printer.unwritten(&error)),
        Err(error) => return Ok(printer.usage(&error)),
    };
    let batch = requests.is_batch();
    let mut run = Run {
        arguments,
        printer,
        pipeline,
        batch,
        recorder,
        results: Results::new(printer, arguments.output.as_deref(), arguments.format, batch, pipeline)?,
        bar: if batch { printer.progress(requests.total, "items") } else { indicatif::ProgressBar::hidden() },
    };
    let mut exit = Exit::Done;
    let mut end = |ended: Exit| match ended {
        Exit::Done => ControlFlow::Continue(()),
        Exit::Failed if batch => {
            exit = Exit::Failed;
            ControlFlow::Continue(())
        }
        last => {
            exit = last;
            ControlFlow::Break(())
        }
    };
    let at_once = if batch && run.recorder.is_none() { pipeline.at_once() } else { 1 };
    if at_once > 1 {
        let work = |item: Item| interrupt::finishing(|| attempt(pipeline, arguments, timeout, None, item));
        side_by_side::run(requests, at_once, work, |attempt| Ok::<_, WriteError>(end(run.write(attempt)?)))?;
    } else {
        for item in requests {
            let attempt = interrupt::finishing(|| attempt(pipeline, arguments, timeout, run.recorder.as_mut(), item));
            if end(run.write(attempt)?).is_break() {
                break;
            }
        }
    }
    run.bar.finish_and_clear();
    run.results.finish()?;
    if batch {
        show_failures(pipeline, printer);
    }
    if let Some(recorder) = &run.recorder {
        exit = arguments.records.report(recorder, exit, printer);
    }
    if exit == Exit::Interrupted {
        printer.note("stopped; the results so far are complete");
    }
    Ok(exit)
}

/// One item, run.
struct Attempt {
    source: String,
    result: Result<Outputs, GpuxError>,
    trace: Option<Trace>,
}

/// Runs one item.
fn attempt(
    pipeline: &Pipeline,
    arguments: &Arguments,
    timeout: Option<Duration>,
    recorder: Option<&mut Recorder<'_>>,
    Item { source, request }: Item,
) -> Attempt {
    let mut trace = (arguments.trace || arguments.verbose).then(Trace::default);
    let run = |request: Request| {
        let trace = trace.as_mut().map(|trace| trace as &mut dyn Observer);
        let recorder = recorder.map(|recorder| recorder as &mut dyn Observer);
        let mut both;
        let observer = match (trace, recorder) {
            (Some(trace), Some(recorder)) => {
                both = Observers(vec![trace, recorder]);
                Some(&mut both as &mut dyn Observer)
            }
            (one, other) => one.or(other),
        };
        let (deadline, cancelled) = (deadline_after(timeout), Some(interrupt::watch()));
        let options = RunOptions { deadline, observer, cancelled, ..RunOptions::default() };
        pipeline.plan().run(request, options).map_err(GpuxError::from)
    };
    let result = request.map_err(GpuxError::from).and_then(run);
    Attempt { source, result, trace }
}

/// What comes of a run over one or many items.
struct Run<'a> {
    arguments: &'a Arguments,
    printer: Printer,
    pipeline: &'a Pipeline,
    batch: bool,
    recorder: Option<Recorder<'a>>,
    results: Results,
    bar: indicatif::ProgressBar,
}

impl Run<'_> {
    /// Writes the result of an item; an error of a batch's item is a result in its place.
    fn write(&mut self, Attempt { source, result, trace }: Attempt) -> Result<Exit, WriteError> {
        let (arguments, printer) = (self.arguments, self.printer);
        if interrupt::stopped() {
            return Ok(Exit::Interrupted);
        }
        self.bar.suspend(|| show_trace(arguments, printer, self.pipeline, trace.as_ref()));
        let exit = match &result {
            Ok(_) => Exit::Done,
            Err(error) if !self.batch => return Ok(printer.error(error)),
            Err(_) => Exit::Failed,
        };
        let trace = trace.filter(|_| arguments.trace && printer.json);
        let trace = trace.map(|trace| (trace, self.pipeline.engine().to_owned()));
        let finished = Finished { source, result, trace };
        let results = &mut self.results;
        self.bar.suspend(|| results.write(&finished))?;
        self.bar.inc(1);
        Ok(exit)
    }
}

/// Where requests of a batch ended, and why.
fn show_failures(pipeline: &Pipeline, printer: Printer) {
    for (index, step) in pipeline.plan().steps().iter().enumerate() {
        let reasons: Vec<_> =
            step.failures.counts().into_iter().map(|(why, count)| format!("{why} × {count}")).collect();
        if !reasons.is_empty() {
            printer.note(&format!("failed at step {} ({}): {}", index + 1, step.name, reasons.join(", ")));
        }
    }
}

/// The table for `--trace`; what components logged for `--verbose`.
fn show_trace(arguments: &Arguments, printer: Printer, pipeline: &Pipeline, trace: Option<&Trace>) {
    let Some(trace) = trace else { return };
    if arguments.trace {
        printer.note(&results::trace_table(trace, pipeline.engine()));
    }
    for step in &trace.steps {
        for line in &step.log {
            printer.detail(&format!("{}: {line}", step.name));
        }
    }
}
