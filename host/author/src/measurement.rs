//! Runs a pipeline on one engine, provider and precision in a child process of the program: a process can load one
//! engine library only.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use gpux::{EngineChoice, ErrorCategory, GpuxError, LoadOptions, Pipeline};
use gpux_core::child_process::{self, ChildError};
use gpux_core::{
    BenchmarkOptions, LatencyStatistics, Precision, Request, RunOptions, Value, deadline_after, from_npy,
    lossless_path, to_json, to_npy,
};

/// Where a measurement runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MeasureTarget {
    /// a provider of the engine that is used anyway
    Provider(String),
    /// the same, in a precision
    Precision(String, Precision),
    /// the embedded engine
    Embedded,
    /// an engine library, on a provider of it
    Library(PathBuf, Option<String>),
}

impl FromStr for MeasureTarget {
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

impl std::fmt::Display for MeasureTarget {
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

impl MeasureTarget {
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
pub struct Measurement {
    /// engine and provider
    pub engine: String,
    /// the requests, in order
    pub items: Vec<MeasuredItem>,
    /// milliseconds
    pub times: Option<LatencyStatistics>,
    /// requests a second
    pub throughput: Option<f64>,
}

/// What one request gave.
#[derive(Debug, Serialize, Deserialize)]
pub struct MeasuredItem {
    /// the name of its source
    pub source: String,
    /// the outputs by name, as files in the folder; or the error
    pub result: Result<Vec<(String, PathBuf)>, String>,
}

/// A measurement that could not be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasureError {
    /// the reason
    pub message: String,
    /// whose it is
    pub category: ErrorCategory,
}

impl From<GpuxError> for MeasureError {
    fn from(error: GpuxError) -> Self {
        Self { category: error.category(), message: error.to_string() }
    }
}

impl From<std::io::Error> for MeasureError {
    fn from(error: std::io::Error) -> Self {
        Self { category: ErrorCategory::Environment, message: error.to_string() }
    }
}

impl From<ChildError> for MeasureError {
    fn from(fault: ChildError) -> Self {
        let category = if fault.is_environment() { ErrorCategory::Environment } else { ErrorCategory::Run };
        Self { category, message: fault.to_string() }
    }
}

/// A measurement, which several children make.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MeasureRequest<I> {
    /// what [`Pipeline::open`] takes
    #[serde(with = "lossless_path")]
    pub pipeline: PathBuf,
    /// the requests, as the program's child reads them
    pub input: I,
    /// of each child but for its target
    pub load_options: LoadOptions,
    /// how many requests to run
    pub samples: usize,
    /// how many timed runs of the first request
    pub runs: usize,
    /// how many runs before those
    pub warmup: usize,
    /// how long one request may take
    pub timeout: Option<Duration>,
    /// whether to run golden cases, else warm-up requests, rather than made-up inputs, where no input is given
    pub cases: bool,
    /// how long to measure requests a second, after as much of warming up
    pub throughput: Option<Duration>,
    /// the file for the comparison, which must not be one of the inputs
    #[serde(with = "lossless_path::option")]
    pub output: Option<PathBuf>,
}

/// The most threads that send requests: enough for the largest usual batch.
const MAX_THREADS: usize = 32;

/// A request with the name of its source, or why there is none.
pub type NamedRequest = (String, Result<Request, String>);

impl<I: Clone + Serialize> MeasureRequest<I> {
    /// Runs the pipeline in a child of the program at `target`, for at most `limit`, with what comes out in `folder`.
    pub fn run(&self, target: &MeasureTarget, folder: &Path, limit: Duration) -> Result<Measurement, MeasureError> {
        let mut request = self.clone();
        target.apply(&mut request.load_options);
        let program = self.load_options.program.as_deref();
        let program = program.ok_or_else(|| std::io::Error::other("measuring takes the program `gpux`"))?;
        let told = (request, folder.as_os_str());
        child_process::run_json_with_input::<Result<_, MeasureError>>(program, &["__measure".as_ref()], &told, limit)?
    }
}

impl<I> MeasureRequest<I> {
    /// How the child opens the pipeline.
    pub fn child_options(&self) -> LoadOptions {
        let mut load_options = self.load_options.clone();
        // Batches are as large as in the server.
        load_options.serving = self.throughput.is_some();
        load_options
    }

    /// Runs the requests, in the child, with what comes out in `folder`.
    pub fn measure(
        &self,
        pipeline: &Pipeline,
        requests: Vec<NamedRequest>,
        folder: &Path,
    ) -> Result<Measurement, MeasureError> {
        let timeout = self.timeout.or(pipeline.timeout());
        let mut times = None;
        if self.runs > 0
            && let Some((_, Ok(request))) = requests.first()
        {
            let options = BenchmarkOptions { runs: self.runs, warmup: self.warmup, timeout, cancelled: None };
            times = Some(pipeline.plan().benchmark(request, options).map_err(GpuxError::from)?.total);
        }
        let throughput = self.throughput.map(|time| {
            let requests: Vec<_> = requests.iter().filter_map(|(_, request)| request.clone().ok()).collect();
            throughput(pipeline, &requests, time)
        });
        let run = |(number, (source, request)): (usize, NamedRequest)| {
            let result = request.and_then(|request| run_one(pipeline, request, timeout, folder, number));
            MeasuredItem { source, result }
        };
        let items = requests.into_iter().enumerate().map(run).collect();
        Ok(Measurement { engine: pipeline.engine().to_owned(), items, times, throughput })
    }
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
pub fn read_output(path: &Path) -> Result<Value, String> {
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    if path.extension().is_some_and(|ending| ending == "npy") {
        return from_npy(&bytes).map(Value::Tensor).map_err(|error| error.to_string());
    }
    serde_json::from_slice::<serde_json::Value>(&bytes).map(Value::from).map_err(|error| error.to_string())
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
        target.parse::<MeasureTarget>().unwrap().apply(&mut child);
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
