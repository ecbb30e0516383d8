//! `gpux run`: requests in, results out.

mod arguments;
mod benchmark;
mod benchmark_providers;
mod item_result;
mod output_folder;
mod parallel;
mod record_replay;
mod result_writer;
mod trace;

use std::mem::ManuallyDrop;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::arguments::Arguments;
use self::item_result::{ItemResult, WriteError};
use self::result_writer::{Format, ResultWriter};
use crate::exit::Exit;
use crate::input::{RequestItem, Requests, UsageError, reject_overwrites};
use crate::interrupt;
use crate::measure;
use crate::printer::{OutputError, Printer};
use gpux::GpuxError;
use gpux::Pipeline;
use gpux_author::{RecordError, Recorder, SYNTHETIC_INPUTS};
use gpux_config::LoadError;
use gpux_core::files::read_head;
use gpux_core::{
    BenchmarkOptions, CancelFlag, Observer, Observers, Outputs, PlanOutput, Request, RunOptions, RunTrace, TimeLimit,
    deadline_after, foreign_file,
};

/// An error before the first item.
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

pub(crate) fn main(mut arguments: Arguments) -> Exit {
    let printer = crate::printer(arguments.json, arguments.verbose);
    if let Err(exit) = arguments.pipeline.fetch(arguments.pull, printer) {
        return exit;
    }
    let data = arguments.pipeline.take_data_file();
    arguments.input.add_files(data.iter().cloned().chain(std::mem::take(&mut arguments.files)));
    match run(&arguments, printer) {
        Ok(exit) => exit,
        // Without a pipeline that runs on it, the file was meant to be one.
        Err(Failure::Gpux(error @ GpuxError::Configuration(LoadError::NotFound { .. }))) => {
            let what = data
                .and_then(|file| Some(format!("`{file}`: {}", foreign_file(&read_head(Path::new(&file), 1 << 10)?)?)));
            what.map_or_else(|| printer.error(&error), |what| printer.fail("UsageError", &what, Exit::Usage))
        }
        Err(Failure::Gpux(error)) => printer.error(&error),
        Err(Failure::Usage(error)) => printer.usage(&error),
        // A closed pipe is no error.
        Err(Failure::Write(WriteError::Stdout(OutputError::Closed))) => Exit::Done,
        Err(Failure::Write(error)) => printer.output_error(&error),
    }
}

fn run(arguments: &Arguments, printer: Printer) -> Result<Exit, Failure> {
    if arguments.benchmark && arguments.load.providers().len() > 1 {
        return Ok(benchmark_providers::compare(arguments, printer));
    }
    interrupt::install_handler();
    // Dropping sessions and sandboxes takes longer than many a run, and the
    // process is about to end: the system frees their memory.
    let pipeline = ManuallyDrop::new(arguments.pipeline.open(&arguments.load, printer)?);
    let timeout = arguments.timeout.or(pipeline.timeout());
    if let Some(exit) = arguments.records.replay(&pipeline, timeout, printer) {
        return Ok(exit);
    }
    if arguments.format == Some(Format::Npy) && arguments.output.is_none() {
        return Err(UsageError::NoFolder.into());
    }
    if arguments.benchmark && !arguments.input.is_given() {
        let (source, request) = match measure::known_requests(&pipeline)?.into_iter().next() {
            Some(known) => known,
            None => (SYNTHETIC_INPUTS.to_owned(), measure::synthetic_request(&pipeline)?),
        };
        printer.note(&format!("no input is given; timed on: {source}"));
        return time(arguments, printer, &pipeline, timeout, &request);
    }
    let outputs = selected_outputs(&arguments.only, &pipeline)?;
    let mut requests = arguments.input.requests(pipeline.plan(), printer)?;
    check_outputs(arguments, &pipeline, &outputs, &mut requests)?;
    if arguments.format.is_none()
        && let Some(path) = &arguments.output
    {
        result_writer::check_extension(path, &outputs)?;
    }
    if arguments.benchmark {
        let Some(RequestItem { request, .. }) = requests.next() else {
            printer.note("the input has 0 rows: there is nothing to time");
            return Ok(Exit::Done);
        };
        return time(arguments, printer, &pipeline, timeout, &request.map_err(GpuxError::from)?);
    }
    run_all(arguments, printer, &pipeline, &outputs, timeout, requests)
}

/// The pipeline's outputs, or those of these names.
fn selected_outputs(names: &[String], pipeline: &Pipeline) -> Result<Vec<PlanOutput>, UsageError> {
    let outputs = pipeline.plan().outputs();
    if names.is_empty() {
        return Ok(outputs.to_vec());
    }
    let select = |name: &String| {
        outputs.iter().find(|output| output.name == *name).cloned().ok_or_else(|| {
            let known: Vec<_> = outputs.iter().map(|output| format!("`{}`", output.name)).collect();
            UsageError::UnknownOutput { name: name.clone(), known: known.join(", ") }
        })
    };
    names.iter().map(select).collect()
}

/// Refuses to overwrite an input, which would destroy it or be read again without end.
fn check_outputs(
    arguments: &Arguments,
    pipeline: &Pipeline,
    selected: &[PlanOutput],
    requests: &mut Requests<'_>,
) -> Result<(), UsageError> {
    // Asking whether they are a batch takes the first out.
    let read: Vec<_> = requests.source_paths().map(Path::to_owned).collect();
    let outputs = match &arguments.output {
        None => vec![PathBuf::from("/dev/stdout")],
        Some(folder) if arguments.format == Some(Format::Npy) => {
            let names: Vec<_> = selected.iter().map(|output| output.name.as_str()).collect();
            output_folder::existing_files(folder, &names, requests.is_batch())
        }
        Some(file) => vec![file.clone()],
    };
    reject_overwrites(pipeline, read.iter().map(PathBuf::as_path), &outputs)
}

/// Times the pipeline on a request.
fn time(
    arguments: &Arguments,
    printer: Printer,
    pipeline: &Pipeline,
    timeout: Option<Duration>,
    request: &Request,
) -> Result<Exit, Failure> {
    let cancelled = Some(interrupt::install_handler());
    let options = BenchmarkOptions { runs: arguments.runs, warmup: arguments.warmup, timeout, cancelled };
    let benchmark =
        interrupt::with_grace_period(|| pipeline.plan().benchmark(request, options)).map_err(GpuxError::from)?;
    Ok(benchmark::report(&benchmark, pipeline, arguments, printer))
}

/// Runs every request and writes its results.
fn run_all(
    arguments: &Arguments,
    printer: Printer,
    pipeline: &Pipeline,
    outputs: &[PlanOutput],
    timeout: Option<Duration>,
    mut requests: Requests<'_>,
) -> Result<Exit, Failure> {
    let recorder = match arguments.records.recorder(pipeline) {
        Ok(recorder) => recorder,
        Err(error @ RecordError::Io { .. }) => return Ok(printer.output_error(&error)),
        Err(error) => return Ok(printer.usage(&error)),
    };

    let batch = requests.is_batch();
    let mut run = Run {
        arguments,
        printer,
        pipeline,
        batch,
        recorder,
        results: ResultWriter::new(printer, arguments.output.as_deref(), arguments.format, batch, pipeline, outputs)?,
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

    let at_once = if batch && run.recorder.is_none() { pipeline.concurrency() } else { 1 };
    if at_once > 1 {
        let work =
            |item: RequestItem| interrupt::with_grace_period(|| run_item(pipeline, arguments, timeout, None, item));
        parallel::run(requests, at_once, work, |result| Ok::<_, WriteError>(end(run.write(result)?)))?;
    } else {
        for item in requests {
            let result =
                interrupt::with_grace_period(|| run_item(pipeline, arguments, timeout, run.recorder.as_mut(), item));
            if end(run.write(result)?).is_break() {
                break;
            }
        }
    }

    run.bar.finish_and_clear();
    if run.results.is_empty() && exit == Exit::Done {
        let output = arguments.output.as_ref().map(|path| format!(", and now `{}`", path.display()));
        printer.note(&format!("the input has 0 rows{}", output.unwrap_or_default()));
    }
    if exit != Exit::Interrupted || !run.results.is_empty() {
        run.results.finish()?;
    }

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

/// Runs one item.
fn run_item(
    pipeline: &Pipeline,
    arguments: &Arguments,
    timeout: Option<Duration>,
    recorder: Option<&mut Recorder<'_>>,
    RequestItem { source, request }: RequestItem,
) -> ItemResult {
    let mut trace = (arguments.trace || arguments.verbose).then(RunTrace::default);
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
        let cancelled: Option<Arc<dyn CancelFlag>> = Some(Arc::new(interrupt::install_handler()));
        let options = RunOptions { deadline: deadline_after(timeout), observer, cancelled, ..RunOptions::default() };
        let limit = || match arguments.timeout {
            Some(timeout) => TimeLimit::new(timeout, "`--timeout`"),
            None => pipeline.time_limit(),
        };
        pipeline.plan().run(request, options).map_err(|error| GpuxError::from(error).explain_timeout(limit))
    };
    let select = |mut outputs: Outputs| {
        if arguments.only.is_empty() {
            return outputs;
        }
        let take =
            |name: &String| outputs.iter().position(|(known, _)| known == name).map(|at| outputs.swap_remove(at));
        arguments.only.iter().filter_map(take).collect()
    };
    let result = request.map_err(GpuxError::from).and_then(run).map(select);
    ItemResult { source, result, trace }
}

/// The state of a run over one or many items.
struct Run<'a> {
    arguments: &'a Arguments,
    printer: Printer,
    pipeline: &'a Pipeline,
    batch: bool,
    recorder: Option<Recorder<'a>>,
    results: ResultWriter,
    bar: indicatif::ProgressBar,
}

impl Run<'_> {
    /// Writes the result of an item; an error of a batch's item is a result in its place.
    fn write(&mut self, ItemResult { source, result, trace }: ItemResult) -> Result<Exit, WriteError> {
        let (arguments, printer) = (self.arguments, self.printer);
        if interrupt::is_interrupted() {
            return Ok(Exit::Interrupted);
        }
        self.bar.suspend(|| show_trace(arguments, printer, self.pipeline, trace.as_ref()));
        let exit = match &result {
            Ok(_) => Exit::Done,
            Err(error) if !self.batch => return Ok(printer.error(error)),
            Err(_) => Exit::Failed,
        };
        let trace = trace.filter(|_| arguments.trace && printer.json);
        let item = ItemResult { source, result, trace };
        let results = &mut self.results;
        self.bar.suspend(|| results.write(&item))?;
        self.bar.inc(1);
        Ok(exit)
    }
}

/// Notes the steps at which requests of a batch failed, with the reasons.
fn show_failures(pipeline: &Pipeline, printer: Printer) {
    for (number, step) in pipeline.plan().all_steps() {
        let reasons: Vec<_> =
            step.failures.counts().into_iter().map(|(why, count)| format!("{why} × {count}")).collect();
        if !reasons.is_empty() {
            printer.note(&format!("failed at step {number} ({}): {}", step.name, reasons.join(", ")));
        }
    }
}

/// The table for `--trace`; what components logged for `--verbose`.
fn show_trace(arguments: &Arguments, printer: Printer, pipeline: &Pipeline, trace: Option<&RunTrace>) {
    let Some(trace) = trace else { return };
    if arguments.trace {
        printer.note(&trace::to_table(trace, pipeline.engine()));
    }
    for step in &trace.steps {
        for line in &step.log {
            printer.detail(&format!("{}: {line}", step.name));
        }
    }
}
