//! Runs a pipeline on one engine and provider in a child process, for `gpux verify` and comparing
//! benchmarks. A process can load one engine library only.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

use clap::Args;
use serde::{Deserialize, Serialize};

use super::exit::Exit;
use super::input::{InputArguments, RequestItem, UsageError, reject_overwrites};
use super::load_arguments::{LoadArguments, PipelineArguments};
use super::precision::SYNTHETIC_INPUTS;
use super::printer::{LogLevel, Printer};
use gpux::{GpuxError, Pipeline};
use gpux_config::PrecisionChoice;
use gpux_core::child_process::{self, ChildError};
use gpux_core::{
    BenchmarkOptions, LatencyStatistics, Request, RunOptions, SyntheticInputs, Value, deadline_after, from_npy,
    to_json, to_npy,
};

/// The flags of the child, named like those of the commands that start it.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    pub(super) pipeline: PipelineArguments,

    #[command(flatten)]
    pub(super) input: InputArguments,

    #[command(flatten)]
    pub(super) load: LoadArguments,

    /// Where to put what comes out
    #[arg(long)]
    folder: PathBuf,

    /// How many requests to run
    #[arg(long, default_value_t = 1)]
    samples: usize,

    /// Run the golden cases, else the warm-up requests, rather than synthetic numbers, where no input is given
    #[arg(long)]
    cases: bool,

    /// Time for measuring requests a second, in seconds, after as much of warming up
    #[arg(long)]
    throughput: Option<f64>,

    /// How many timed runs of the first request
    #[arg(long, default_value_t = 0)]
    runs: usize,

    /// How many runs before those
    #[arg(long, default_value_t = 0)]
    warmup: usize,

    /// Seconds that one request may take
    #[arg(long)]
    timeout: Option<f64>,

    /// The file for the measurements, which must not be one of the inputs
    #[arg(long)]
    output: Option<PathBuf>,
}

/// Where a measurement runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// a provider of the engine that is used anyway
    Provider(String),
    /// the same, in a precision
    Precision(String, PrecisionChoice),
    /// the embedded engine
    Embedded,
    /// an engine library, on a provider of it
    Library(PathBuf, Option<String>),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "embedded" {
            return Ok(Self::Embedded);
        }
        let (path, provider) = match text.rsplit_once('=') {
            Some((path, provider)) => (path, Some(provider)),
            None => (text, None),
        };
        let known = |name: &str| name.parse::<gpux_inference::ExecutionProvider>().map_err(|error| error.to_string());
        if Path::new(path).components().count() > 1 || Path::new(path).exists() {
            provider.map(known).transpose()?;
            return Ok(Self::Library(PathBuf::from(path), provider.map(str::to_owned)));
        }
        if let Some((provider, precision)) = text.split_once(':') {
            known(provider)?;
            return Ok(Self::Precision(provider.to_owned(), precision.parse()?));
        }
        known(text)?;
        Ok(Self::Provider(text.to_owned()))
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Provider(provider) => f.pad(provider),
            Self::Precision(provider, precision) => write!(f, "{provider}:{precision}"),
            Self::Embedded => f.pad("embedded"),
            Self::Library(path, None) => write!(f, "{}", path.display()),
            Self::Library(path, Some(provider)) => write!(f, "{}={provider}", path.display()),
        }
    }
}

impl Target {
    /// The flags that say so. Nothing else will do: a comparison with a stand-in is none.
    fn flags(&self) -> Vec<OsString> {
        let strings = |flags: &[&str]| flags.iter().map(Into::into).collect::<Vec<OsString>>();
        match self {
            Self::Provider(provider) => strings(&["--strict", "--provider", provider]),
            Self::Precision(provider, precision) => {
                strings(&["--strict", "--provider", provider, "--precision", precision.name()])
            }
            Self::Embedded => strings(&["--engine", "embedded", "--provider", "cpu"]),
            Self::Library(path, provider) => {
                let mut flags = strings(&["--strict", "--provider", provider.as_deref().unwrap_or("auto")]);
                flags.extend(["--engine-library".into(), path.clone().into_os_string()]);
                flags
            }
        }
    }
}

/// The child's answer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Measurement {
    /// engine and provider
    pub(super) engine: String,
    pub(super) items: Vec<MeasuredItem>,
    /// milliseconds
    pub(super) times: Option<LatencyStatistics>,
    /// requests a second
    pub(super) throughput: Option<f64>,
}

/// The outputs of one request by name, as files in the folder; or the error.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct MeasuredItem {
    pub(super) source: String,
    pub(super) result: Result<Vec<(String, PathBuf)>, String>,
}

/// The child's error.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct MeasureError {
    pub(super) message: String,
    /// the exit code of the program
    pub(super) exit: Exit,
}

impl From<GpuxError> for MeasureError {
    fn from(error: GpuxError) -> Self {
        Self { exit: error.category().into(), message: error.to_string() }
    }
}

/// The options of a measurement, which all children share.
pub(super) struct MeasureRequest<'a> {
    pub(super) pipeline: &'a PipelineArguments,
    pub(super) input: &'a InputArguments,
    pub(super) load: &'a LoadArguments,
    pub(super) samples: usize,
    pub(super) runs: usize,
    pub(super) warmup: usize,
    pub(super) timeout: Option<Duration>,
    /// whether to run golden cases, else warm-up requests, where no input is given
    pub(super) cases: bool,
    /// how long to measure requests a second
    pub(super) throughput: Option<Duration>,
    /// where the comparison will be written
    pub(super) output: Option<&'a Path>,
    /// the longest that a child may take
    pub(super) child_timeout: Duration,
}

/// The most threads that send requests: enough for the largest usual batch.
const MAX_THREADS: usize = 32;
/// The longest that a child may take, where nobody waits beside it.
pub(super) const CHILD_TIMEOUT: Duration = Duration::from_hours(1);

impl MeasureRequest<'_> {
    /// Runs the pipeline in a child at `place`, with what comes out in `folder`.
    pub(super) fn run(&self, place: &Target, folder: &Path) -> Result<Measurement, MeasureError> {
        let failed = |message: String| MeasureError { message, exit: Exit::Environment };
        let program = child_process::own_program().map_err(|error| failed(error.to_string()))?;
        let mut words: Vec<OsString> = vec!["__measure".into(), "--folder".into(), folder.into()];
        for (flag, number) in [("--samples", self.samples), ("--runs", self.runs), ("--warmup", self.warmup)] {
            words.extend([flag.into(), number.to_string().into()]);
        }
        if let Some(timeout) = self.timeout {
            words.extend(["--timeout".into(), timeout.as_secs_f64().to_string().into()]);
        }
        if let Some(output) = self.output {
            words.extend(["--output".into(), output.into()]);
        }
        if let Some(throughput) = self.throughput {
            words.extend(["--throughput".into(), throughput.as_secs_f64().to_string().into()]);
        }
        if self.cases {
            words.push("--cases".into());
        }
        if matches!(place, Target::Provider(_) | Target::Precision(..)) {
            words.extend(self.load.engine_flags());
        }
        if !matches!(place, Target::Precision(..)) {
            words.extend(self.load.precision.map(|precision| format!("--precision={precision}").into()));
        }
        words.extend(self.load.to_flags());
        words.extend(place.flags());
        words.extend(self.input.to_flags());
        words.extend(self.pipeline.to_flags());
        let words: Vec<&OsStr> = words.iter().map(OsString::as_os_str).collect();
        let answer: Result<Result<Measurement, MeasureError>, ChildError> =
            child_process::run_json(&program, &words, self.child_timeout);
        answer.map_err(|fault| MeasureError {
            message: fault.to_string(),
            exit: if fault.is_environment() { Exit::Environment } else { Exit::Failed },
        })?
    }
}

/// Runs in the child; returns the line to print.
pub(super) fn answer(arguments: &Arguments) -> String {
    let quiet = Printer { json: true, level: LogLevel::Error };
    let answer = measure(arguments, quiet);
    serde_json::to_string(&answer).unwrap_or_default()
}

fn measure(arguments: &Arguments, printer: Printer) -> Result<Measurement, MeasureError> {
    let usage = |message: String| MeasureError { message, exit: Exit::Usage };
    let mut load_options = arguments.load.options().map_err(MeasureError::from)?;
    // Batches are as large as in the server.
    load_options.serving = arguments.throughput.is_some();
    let pipeline = arguments.pipeline.open_as(load_options, printer).map_err(MeasureError::from)?;
    let timeout = arguments.timeout.map(Duration::from_secs_f64).or(pipeline.timeout());
    let wrong = |error: UsageError| usage(error.to_string());
    let outputs = arguments.output.as_slice();
    let requests: Vec<(String, Result<Request, String>)> = if arguments.input.is_given() {
        let requests = arguments.input.requests(pipeline.plan(), printer).map_err(wrong)?;
        reject_overwrites(&pipeline, requests.source_paths(), outputs).map_err(wrong)?;
        let item = |item: RequestItem| (item.source, item.request.map_err(|error| error.to_string()));
        requests.take(arguments.samples.max(1)).map(item).collect()
    } else {
        reject_overwrites(&pipeline, std::iter::empty(), outputs).map_err(wrong)?;
        let known = if arguments.cases { known_requests(&pipeline).map_err(MeasureError::from)? } else { Vec::new() };
        if known.is_empty() {
            vec![(SYNTHETIC_INPUTS.to_owned(), Ok(synthetic_request(&pipeline).map_err(wrong)?))]
        } else {
            known.into_iter().take(arguments.samples.max(1)).map(|(source, request)| (source, Ok(request))).collect()
        }
    };
    let mut times = None;
    if arguments.runs > 0
        && let Some((_, Ok(request))) = requests.first()
    {
        let options = BenchmarkOptions { runs: arguments.runs, warmup: arguments.warmup, timeout, cancelled: None };
        times = Some(pipeline.plan().benchmark(request, options).map_err(GpuxError::from)?.total);
    }
    let throughput = arguments.throughput.map(|seconds| {
        let requests: Vec<_> = requests.iter().filter_map(|(_, request)| request.clone().ok()).collect();
        throughput(&pipeline, &requests, Duration::from_secs_f64(seconds))
    });
    let run = |(number, (source, request)): (usize, (String, Result<Request, String>))| {
        let result = request.and_then(|request| run_one(&pipeline, request, timeout, &arguments.folder, number));
        MeasuredItem { source, result }
    };
    let items = requests.into_iter().enumerate().map(run).collect();
    Ok(Measurement { engine: pipeline.engine().to_owned(), items, times, throughput })
}

/// The requests of golden cases, else those that warm the server up.
pub(super) fn known_requests(pipeline: &Pipeline) -> Result<Vec<(String, Request)>, GpuxError> {
    let cases = gpux_author::case_requests(pipeline)?;
    if !cases.is_empty() {
        return Ok(cases);
    }
    Ok(pipeline.warm_up().iter().map(|request| ("warm-up request".to_owned(), request.clone())).collect())
}

/// Requests a second of as many threads as requests run together, after as long a time that is not counted.
fn throughput(pipeline: &Pipeline, requests: &[Request], time: Duration) -> f64 {
    let threads = pipeline.concurrency().clamp(1, MAX_THREADS);
    let count = |time: Duration| {
        let start = Instant::now();
        let done: usize = std::thread::scope(|scope| {
            let run = |thread: usize| {
                let run = move || {
                    let mut done = 0;
                    for request in requests.iter().cycle().skip(thread % requests.len().max(1)) {
                        if start.elapsed() >= time
                            || pipeline.plan().run(request.clone(), RunOptions::default()).is_err()
                        {
                            break;
                        }
                        done += 1;
                    }
                    done
                };
                std::thread::Builder::new().spawn_scoped(scope, run).ok()
            };
            let started: Vec<_> = (0..threads).filter_map(run).collect();
            started.into_iter().filter_map(|thread| thread.join().ok()).sum()
        });
        done as f64 / start.elapsed().as_secs_f64()
    };
    count(time);
    count(time)
}

fn run_one(
    pipeline: &Pipeline,
    request: Request,
    timeout: Option<Duration>,
    folder: &Path,
    number: usize,
) -> Result<Vec<(String, PathBuf)>, String> {
    let options = RunOptions { deadline: deadline_after(timeout), ..RunOptions::default() };
    let outputs = pipeline.plan().run(request, options).map_err(|error| error.to_string())?;
    let save = |(index, (name, value)): (usize, (String, Value))| {
        let (bytes, ending) = match &value {
            Value::Tensor(tensor) => (to_npy(tensor).map_err(|error| format!("output `{name}`: {error}"))?, "npy"),
            other => (to_json(other).to_string().into_bytes(), "json"),
        };
        let path = folder.join(format!("{number}-{index}.{ending}"));
        std::fs::write(&path, bytes).map_err(|error| format!("cannot write `{}`: {error}", path.display()))?;
        Ok((name, path))
    };
    outputs.into_iter().enumerate().map(save).collect()
}

/// Reads an output file of a child.
pub(super) fn read_output(path: &Path) -> Result<Value, String> {
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    if path.extension().is_some_and(|ending| ending == "npy") {
        return from_npy(&bytes).map(Value::Tensor).map_err(|error| error.to_string());
    }
    serde_json::from_slice::<serde_json::Value>(&bytes).map(Value::from).map_err(|error| error.to_string())
}

/// A synthetic request, the same every time.
pub(super) fn synthetic_request(pipeline: &Pipeline) -> Result<Request, UsageError> {
    let signature = pipeline.plan().signature();
    let request = SyntheticInputs::default().request(signature, |port| pipeline.media_type(port));
    request.map_err(|port| UsageError::NotMadeUp { name: port.name.clone(), inputs: signature.describe_inputs() })
}
