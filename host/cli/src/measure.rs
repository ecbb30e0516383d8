//! Runs a pipeline on one engine and provider in a child process, for `gpux verify` and comparing
//! benchmarks. A process can load one engine library only.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::exit::Exit;
use super::input::{InputArguments, RequestItem, UsageError, reject_overwrites};
use super::load_arguments::open;
use super::precision::SYNTHETIC_INPUTS;
use super::printer::{LogLevel, Printer};
use gpux::{EngineChoice, GpuxError, LoadOptions, Pipeline};
use gpux_core::child_process::{self, ChildError};
use gpux_core::{
    BenchmarkOptions, LatencyStatistics, Precision, Request, RunOptions, SyntheticInputs, Value, deadline_after,
    from_npy, lossless_path, to_json, to_npy,
};

/// Where a measurement runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// a provider of the engine that is used anyway
    Provider(String),
    /// the same, in a precision
    Precision(String, Precision),
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
    /// Sets the options so. Nothing else will do: a comparison with a stand-in is none.
    fn apply(&self, options: &mut LoadOptions) {
        let (engine, providers) = (&mut options.engine, &mut options.providers);
        let (strict, name) = match self {
            Self::Provider(provider) => (true, provider.as_str()),
            Self::Precision(provider, precision) => {
                providers.precision = Some(*precision);
                (true, provider.as_str())
            }
            Self::Embedded => (false, "cpu"),
            Self::Library(_, provider) => (true, provider.as_deref().unwrap_or("auto")),
        };
        (providers.strict, providers.names) = (strict, Some(name.to_owned()));
        let (choice, library) = match self {
            Self::Provider(_) | Self::Precision(..) => return,
            Self::Embedded => (EngineChoice::Embedded, None),
            Self::Library(path, _) => (EngineChoice::Auto, Some(path.clone())),
        };
        // Plug-ins and options are those of another engine.
        (engine.choice, engine.library) = (choice, library);
        engine.provider_libraries.clear();
        providers.options.clear();
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

/// A measurement, which several children make.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct MeasureRequest {
    /// as [`PipelineArguments::path`](super::load_arguments::PipelineArguments::path) gives it
    #[serde(with = "lossless_path")]
    pub(super) pipeline: PathBuf,
    pub(super) input: InputArguments,
    /// of each child but for its target
    pub(super) load_options: LoadOptions,
    /// how many requests to run
    pub(super) samples: usize,
    /// how many timed runs of the first request
    pub(super) runs: usize,
    /// how many runs before those
    pub(super) warmup: usize,
    /// how long one request may take
    pub(super) timeout: Option<Duration>,
    /// whether to run golden cases, else warm-up requests, rather than made-up inputs, where no input is given
    pub(super) cases: bool,
    /// how long to measure requests a second, after as much of warming up
    pub(super) throughput: Option<Duration>,
    /// the file for the comparison, which must not be one of the inputs
    #[serde(with = "lossless_path::option")]
    pub(super) output: Option<PathBuf>,
}

/// The most threads that send requests: enough for the largest usual batch.
const MAX_THREADS: usize = 32;
/// The longest that a child may take, where nobody waits beside it.
pub(super) const CHILD_TIMEOUT: Duration = Duration::from_hours(1);

impl MeasureRequest {
    /// Runs the pipeline in a child at `target`, for at most `limit`, with what comes out in `folder`.
    pub(super) fn run(&self, target: &Target, folder: &Path, limit: Duration) -> Result<Measurement, MeasureError> {
        let program = child_process::own_program().map_err(environment_error)?;
        let mut request = self.clone();
        target.apply(&mut request.load_options);
        let told = (request, folder.as_os_str());
        let answer: Result<Result<Measurement, MeasureError>, ChildError> =
            child_process::run_json_with_input(&program, &["__measure".as_ref()], &told, limit);
        answer.map_err(|fault| MeasureError {
            message: fault.to_string(),
            exit: if fault.is_environment() { Exit::Environment } else { Exit::Failed },
        })?
    }
}

/// The machine's fault.
pub(super) fn environment_error(error: std::io::Error) -> MeasureError {
    MeasureError { message: error.to_string(), exit: Exit::Environment }
}

/// Runs in the child; returns the line to print.
pub(super) fn answer(told: std::io::Result<(MeasureRequest, OsString)>) -> String {
    let quiet = Printer { json: true, level: LogLevel::Error };
    let told = told.map_err(environment_error);
    let answer = told.and_then(|(request, folder)| measure(&request, Path::new(&folder), quiet));
    serde_json::to_string(&answer).unwrap_or_default()
}

fn measure(asked: &MeasureRequest, folder: &Path, printer: Printer) -> Result<Measurement, MeasureError> {
    let usage = |message: String| MeasureError { message, exit: Exit::Usage };
    // Batches are as large as in the server.
    let load_options = LoadOptions { serving: asked.throughput.is_some(), ..asked.load_options.clone() };
    let pipeline = open(&asked.pipeline, &load_options, printer)?;
    let timeout = asked.timeout.or(pipeline.timeout());
    let wrong = |error: UsageError| usage(error.to_string());
    let outputs = asked.output.as_slice();
    let requests: Vec<(String, Result<Request, String>)> = if asked.input.is_given() {
        let requests = asked.input.requests(pipeline.plan(), printer).map_err(wrong)?;
        reject_overwrites(&pipeline, requests.source_paths(), outputs).map_err(wrong)?;
        let item = |item: RequestItem| (item.source, item.request.map_err(|error| error.to_string()));
        requests.take(asked.samples.max(1)).map(item).collect()
    } else {
        reject_overwrites(&pipeline, std::iter::empty(), outputs).map_err(wrong)?;
        let known = if asked.cases { known_requests(&pipeline)? } else { Vec::new() };
        if known.is_empty() {
            vec![(SYNTHETIC_INPUTS.to_owned(), Ok(synthetic_request(&pipeline).map_err(wrong)?))]
        } else {
            known.into_iter().take(asked.samples.max(1)).map(|(source, request)| (source, Ok(request))).collect()
        }
    };
    let mut times = None;
    if asked.runs > 0
        && let Some((_, Ok(request))) = requests.first()
    {
        let options = BenchmarkOptions { runs: asked.runs, warmup: asked.warmup, timeout, cancelled: None };
        times = Some(pipeline.plan().benchmark(request, options).map_err(GpuxError::from)?.total);
    }
    let throughput = asked.throughput.map(|time| {
        let requests: Vec<_> = requests.iter().filter_map(|(_, request)| request.clone().ok()).collect();
        throughput(&pipeline, &requests, time)
    });
    let run = |(number, (source, request)): (usize, (String, Result<Request, String>))| {
        let result = request.and_then(|request| run_one(&pipeline, request, timeout, folder, number));
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// The operator's options, and those of a child at this target.
    fn applied(target: &str) -> (LoadOptions, LoadOptions) {
        let mut operator = LoadOptions::default();
        operator.engine.choice = EngineChoice::OnnxRuntime;
        operator.engine.library = Some("libonnxruntime.so".into());
        operator.engine.provider_libraries = vec!["openvino=/opt/ep.so".parse().unwrap()];
        operator.engine.threads = std::num::NonZeroU32::new(3);
        operator.providers.names = Some("cuda".to_owned());
        operator.providers.options = vec![("device_id".to_owned(), 1.into())];
        operator.providers.precision = Some(Precision::Bf16);
        operator.policy.outside_files = true;
        let mut child = operator.clone();
        target.parse::<Target>().unwrap().apply(&mut child);
        (operator, child)
    }

    #[test]
    fn targets_keep_the_other_options() {
        let (mut operator, child) = applied("cpu");
        (operator.providers.strict, operator.providers.names) = (true, Some("cpu".to_owned()));
        assert_eq!(child, operator);
        let (_, child) = applied("cpu:fp16");
        operator.providers.precision = Some(Precision::Fp16);
        assert_eq!(child, operator);
        operator.providers.precision = Some(Precision::Bf16);
        // Another engine has other plug-ins and options.
        operator.providers.options.clear();
        operator.engine.provider_libraries.clear();
        let (_, child) = applied("./lib.so=cuda");
        operator.providers.names = Some("cuda".to_owned());
        (operator.engine.choice, operator.engine.library) = (EngineChoice::Auto, Some("./lib.so".into()));
        assert_eq!(child, operator);
        let (_, child) = applied("embedded");
        (operator.providers.strict, operator.providers.names) = (false, Some("cpu".to_owned()));
        (operator.engine.choice, operator.engine.library) = (EngineChoice::Embedded, None);
        assert_eq!(child, operator);
    }
}
