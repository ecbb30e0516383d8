//! Runs a model or a pipeline from Rust.

use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use serde_json::Value as Json;

use super::load_options::LoadOptions;
use super::pipeline::Pipeline;
use super::precision::{PrecisionReport, PrecisionRequest};
use super::source::Source;
use crate::GpuxError;
use gpux_core::{
    BenchmarkOptions, Kind, LatencyStatistics, Outputs, Plan, Port, Precision, Request, RunOptions, Size, TimeLimit,
    ValidationError, Value, deadline_after, from_json,
};
use gpux_inference::{ExecutionProvider, ModelInfo, ProviderInfo, ProviderManager};

/// Runs a model, or a pipeline around one.
///
/// ```
/// use gpux::{Runtime, Tensor};
///
/// # let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/digits.onnx");
/// let runtime = Runtime::new(model)?;
/// let image = Tensor::new([1, 1, 8, 8], vec![0_f32; 64])?;
/// let results = runtime.infer([("image", image)])?;
/// assert_eq!(results[0].0, "logits");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A pipeline takes the inputs of its first step:
///
/// ```
/// use gpux::{Runtime, to_json};
///
/// # let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// # let photo = format!("{root}/models/samples/seven.png");
/// let runtime = Runtime::from_config(root)?;
/// let results = runtime.infer([("image", std::fs::read(photo)?)])?;
/// let (name, top) = &results[0];
/// assert_eq!((name.as_str(), &to_json(top)[0]["label"]), ("top", &"seven".into()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Runtime {
    pipeline: Pipeline,
    timeout: Option<Duration>,
}

/// Builds a [`Runtime`]: [`Runtime::builder`].
#[derive(Clone, Debug, Default)]
pub struct RuntimeBuilder {
    options: LoadOptions,
    timeout: Option<Duration>,
    gpu_memory: Option<Size>,
    batch_size: Option<NonZeroU32>,
}

impl RuntimeBuilder {
    /// The execution provider: `auto`, `cuda`, `cpu` …, or several with commas, tried in order.
    /// Default: the pipeline's setting, else the best provider that works.
    #[must_use]
    pub fn provider(mut self, provider: impl Into<String>) -> Self {
        self.options.providers.names = Some(provider.into());
        self
    }

    /// Whether a provider that cannot be used is an error, instead of being replaced by the next.
    #[must_use]
    pub const fn strict(mut self, strict: bool) -> Self {
        self.options.providers.strict = strict;
        self
    }

    /// What float32 models are computed in. Default: the pipeline's `precision`, `exact`.
    ///
    /// With [`Precision::Auto`], models run in `exact` until [`choose_precision`](Self::choose_precision), `gpux build`
    /// or a server has measured on this machine.
    #[must_use]
    pub const fn precision(mut self, precision: Precision) -> Self {
        self.options.providers.precision = Some(precision);
        self
    }

    /// How long one request may take. Default: the pipeline's `runtime.timeout`, 30 s.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The most that one session of a [`model`](Self::model) takes of a GPU's memory. Default: no limit of its own.
    #[must_use]
    pub const fn gpu_memory(mut self, most: Size) -> Self {
        self.gpu_memory = Some(most);
        self
    }

    /// The most rows of concurrent requests that a [`model`](Self::model) runs together. Default: 1.
    #[must_use]
    pub const fn batch_size(mut self, rows: NonZeroU32) -> Self {
        self.batch_size = Some(rows);
        self
    }

    /// Changes any of the other options.
    #[must_use]
    pub fn options(mut self, change: impl FnOnce(&mut LoadOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// Measures the pipeline or the model at `path` in every precision that this machine has, in processes of the `gpux`
    /// program ([`LoadOptions::program`]), on the requests in the files `samples`, else those of golden cases, else of
    /// `serving.warmup`, else made-up ones. The choice is remembered in the cache. `None` if no precision is `auto`.
    pub fn choose_precision(
        &self,
        path: impl AsRef<Path>,
        samples: &[String],
    ) -> Result<Option<PrecisionReport>, GpuxError> {
        let request = PrecisionRequest {
            pipeline: path.as_ref().to_owned(),
            samples: samples.to_vec(),
            load_options: self.options.clone(),
            background: false,
        };
        request.choose()
    }

    /// A runtime for the ONNX model at `path`, and nothing around it.
    pub fn model(self, path: impl AsRef<Path>) -> Result<Runtime, GpuxError> {
        let mut definition = Source::Model(path.as_ref().to_owned()).read(&self.options)?;
        let runtime = &mut definition.spec.runtime;
        runtime.gpu.memory = self.gpu_memory.or(runtime.gpu.memory);
        runtime.batch_size = self.batch_size.unwrap_or(runtime.batch_size);
        Ok(Runtime { pipeline: Pipeline::load(definition, &self.options)?, timeout: self.timeout })
    }

    /// A runtime for the pipeline of a folder, a gpux.yml, a bundle, or a name, also one of the store.
    pub fn config(self, path: impl AsRef<Path>) -> Result<Runtime, GpuxError> {
        Ok(Runtime { pipeline: Pipeline::open(path, &self.options)?, timeout: self.timeout })
    }
}

impl Runtime {
    /// A runtime for the ONNX model at `path`, on the best provider.
    pub fn new(path: impl AsRef<Path>) -> Result<Self, GpuxError> {
        Self::builder().model(path)
    }

    /// A runtime for the pipeline of a folder, a gpux.yml, a bundle, or a name, also one of the store.
    pub fn from_config(path: impl AsRef<Path>) -> Result<Self, GpuxError> {
        Self::builder().config(path)
    }

    /// A runtime with options:
    ///
    /// ```
    /// use std::time::Duration;
    /// use gpux::Runtime;
    ///
    /// # let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/digits.onnx");
    /// let runtime = Runtime::builder().provider("cpu").timeout(Duration::from_secs(5)).model(model)?;
    /// assert_eq!(runtime.provider_info().unwrap().provider, "CPUExecutionProvider");
    /// # Ok::<(), gpux::GpuxError>(())
    /// ```
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::default()
    }

    /// Runs one request on the calling thread. Any number of threads may call this concurrently. A tensor may be given
    /// as JSON, as in a request over HTTP:
    ///
    /// ```
    /// # let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/digits.onnx");
    /// let runtime = gpux::Runtime::new(model)?;
    /// let results = runtime.infer([("image", serde_json::json!(vec![0.5; 64]))])?;
    /// assert_eq!(results[0].0, "logits");
    /// # Ok::<(), gpux::GpuxError>(())
    /// ```
    pub fn infer<N, V>(&self, inputs: impl IntoIterator<Item = (N, V)>) -> Result<Outputs, GpuxError>
    where
        N: Into<String>,
        V: Into<Value>,
    {
        let deadline = deadline_after(self.timeout());
        let result = self.infer_with(inputs, RunOptions { deadline, ..RunOptions::default() });
        result.map_err(|error| error.explain_timeout(|| self.time_limit()))
    }

    /// [`infer`](Self::infer) with a deadline, cancellation or an observer of its own. [`timeout`](Self::timeout) does
    /// not apply:
    ///
    /// ```
    /// use std::time::Duration;
    /// use gpux::{Context, Observer, PlannedStep, RunOptions, Runtime, Value, deadline_after};
    ///
    /// /// Prints how long each step took.
    /// struct Times;
    ///
    /// impl Observer for Times {
    ///     fn after(&mut self, step: &PlannedStep, time: Duration, _: &[Value], _: &Context) {
    ///         println!("{}: {time:?}", step.name);
    ///     }
    /// }
    ///
    /// # let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    /// # let photo = format!("{root}/models/samples/seven.png");
    /// let runtime = Runtime::from_config(root)?;
    /// let deadline = deadline_after(Some(Duration::from_secs(5)));
    /// let options = RunOptions { deadline, observer: Some(&mut Times), ..RunOptions::default() };
    /// let results = runtime.infer_with([("image", std::fs::read(photo)?)], options)?;
    /// assert_eq!(results[0].0, "top");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn infer_with<N, V>(
        &self,
        inputs: impl IntoIterator<Item = (N, V)>,
        options: RunOptions<'_>,
    ) -> Result<Outputs, GpuxError>
    where
        N: Into<String>,
        V: Into<Value>,
    {
        Ok(self.plan().run(self.request(inputs)?, options)?)
    }

    /// Runs requests one after the other; each has its own result.
    pub fn batch_infer<N, V, R>(&self, requests: impl IntoIterator<Item = R>) -> Vec<Result<Outputs, GpuxError>>
    where
        N: Into<String>,
        V: Into<Value>,
        R: IntoIterator<Item = (N, V)>,
    {
        requests.into_iter().map(|request| self.infer(request)).collect()
    }

    fn request<N: Into<String>, V: Into<Value>>(
        &self,
        inputs: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Request, ValidationError> {
        let named = inputs.into_iter().map(|(name, value)| {
            let (name, value) = (name.into(), value.into());
            let read = self.plan().signature().port(&name).and_then(|port| from_json_input(&value, port));
            Ok((name, read.unwrap_or(Ok(value))?))
        });
        named.collect()
    }

    /// Times `num_runs` runs of one request, after `warmup_runs` that are not timed.
    ///
    /// ```
    /// # use gpux::{Runtime, Tensor};
    /// # let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/digits.onnx");
    /// let runtime = Runtime::new(model)?;
    /// let image = Tensor::new([1, 1, 8, 8], vec![0_f32; 64])?;
    /// let metrics = runtime.benchmark([("image", image)], 20, 5)?;
    /// println!("{:.3} ms, {:.0} a second", metrics.avg_inference_time, metrics.fps);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn benchmark<N, V>(
        &self,
        inputs: impl IntoIterator<Item = (N, V)>,
        num_runs: usize,
        warmup_runs: usize,
    ) -> Result<LatencyStatistics, GpuxError>
    where
        N: Into<String>,
        V: Into<Value>,
    {
        let options =
            BenchmarkOptions { runs: num_runs, warmup: warmup_runs, timeout: self.timeout(), cancelled: None };
        Ok(self.plan().benchmark(&self.request(inputs)?, options)?.total)
    }

    /// The metadata of the (first) model; `None` for a pipeline without one.
    pub fn model_info(&self) -> Option<&ModelInfo> {
        self.pipeline.models.first().map(|model| model.step.file().info())
    }

    /// The execution provider that the (first) model runs on.
    pub fn provider_info(&self) -> Option<ProviderInfo> {
        let model = self.pipeline.models.first()?;
        Some(self.providers()?.provider_info(model.step.provider()))
    }

    /// Full names of the execution providers that the engine offers, best first.
    pub fn available_providers(&self) -> Vec<&'static str> {
        self.providers().map(|providers| providers.available_providers()).unwrap_or_default()
    }

    fn providers(&self) -> Option<ProviderManager> {
        Some(ProviderManager::new(self.pipeline.models.first()?.step.engine()))
    }

    /// The provider as an enum, for callers that branch on it.
    pub fn provider(&self) -> Option<ExecutionProvider> {
        self.pipeline.models.first().map(|model| model.step.provider())
    }

    /// The checked steps.
    pub fn plan(&self) -> &Plan {
        self.pipeline.plan()
    }

    /// The pipeline with everything that is known about it.
    pub const fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// How long one request may take; `None` for no limit.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout.or(self.pipeline.timeout())
    }

    /// [`timeout`](Self::timeout), for the error of a request that took longer.
    pub fn time_limit(&self) -> TimeLimit {
        let own = self.timeout.map(|timeout| TimeLimit::new(timeout, "the `timeout` that this program set"));
        own.unwrap_or_else(|| self.pipeline.time_limit())
    }

    /// Ends the sessions and frees their memory. Dropping the runtime does the same.
    pub fn cleanup(self) {}
}

/// JSON for an input of another kind is read as in a request over HTTP.
fn from_json_input(value: &Value, port: &Port) -> Option<Result<Value, ValidationError>> {
    let Value::Json(json) = value else { return None };
    if matches!(port.kind, Kind::Json | Kind::Any) {
        return None;
    }
    Some(from_json(Json::clone(json), &port.kind).map_err(|error| ValidationError::input(&port.name, error)))
}
