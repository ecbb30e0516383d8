//! A loaded pipeline or model.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use gpux::{Dim, ElementType, GpuxError, Kind, Outputs, RunOptions, Value, deadline_after};
use gpux_core::{CancelFlag, TensorKind, WaitObserver};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::errors::exception;
use crate::options::Options;
use crate::run_queue::RunQueue;
use crate::{fork, inputs, interrupt, json, outputs};

/// Runs shorter than this stay on the main thread, where ctrl-C is seen after them.
const QUICK_NANOS: u64 = 2_000_000;

/// A loaded pipeline or model; any number of threads may run requests on it.
#[pyclass(frozen, subclass, module = "gpux._gpux")]
pub(crate) struct Runtime {
    /// `None` after [`close`](Self::close)
    loaded: RwLock<Option<Arc<gpux::Runtime>>>,
    /// how long the last run took
    last_nanos: AtomicU64,
    queue: Arc<RunQueue>,
}

/// Set by another thread to end a run between two steps.
#[pyclass(frozen, module = "gpux._gpux")]
#[derive(Default)]
pub(crate) struct Cancellation(Arc<AtomicBool>);

#[pymethods]
impl Cancellation {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Ends the run.
    fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// An input or an output.
#[pyclass(frozen, get_all, module = "gpux._gpux")]
pub(crate) struct Port {
    name: String,
    /// `tensor`, `text`, `bytes`, `json` or `any`
    r#type: &'static str,
    dtype: Option<&'static str>,
    shape: Option<Py<PyList>>,
    optional: bool,
    description: String,
}

#[pymethods]
impl Port {
    fn __repr__(&self) -> String {
        let optional = if self.optional { ", optional" } else { "" };
        format!("Port({}: {}{optional})", self.name, self.description)
    }
}

impl Port {
    fn new(py: Python<'_>, name: &str, kind: &Kind, optional: bool, text: &str) -> PyResult<Self> {
        let (r#type, tensor) = match kind {
            Kind::Any => ("any", None),
            Kind::Text => ("text", None),
            Kind::Bytes => ("bytes", None),
            Kind::Json => ("json", None),
            Kind::Tensor(tensor) => ("tensor", Some(tensor)),
        };
        let shape = tensor.and_then(|tensor| tensor.shape.as_ref());
        let shape = shape.map(|dims| PyList::new(py, dims.iter().map(|dim| size(py, dim))).map(Bound::unbind));
        Ok(Self {
            name: name.to_owned(),
            r#type,
            dtype: tensor.and_then(TensorKind::element).map(ElementType::name),
            shape: shape.transpose()?,
            optional,
            description: if text.is_empty() { kind.to_string() } else { format!("{kind}: {text}") },
        })
    }
}

/// A size, the name of one, or `None` where it is open.
fn size(py: Python<'_>, dim: &Dim) -> Option<Py<PyAny>> {
    match dim {
        Dim::Fixed(size) => size.into_pyobject(py).ok().map(|size| size.into_any().unbind()),
        Dim::Named(name) => name.into_pyobject(py).ok().map(|name| name.into_any().unbind()),
        Dim::Dynamic => None,
    }
}

#[pymethods]
impl Runtime {
    /// Loads the model (`is_model`) or the pipeline at `path`.
    #[new]
    fn new(py: Python<'_>, path: PathBuf, is_model: bool, options: Options<'_>) -> PyResult<Self> {
        fork::before_load()?;
        let builder = options.builder(py)?;
        let load = move || if is_model { builder.model(path) } else { builder.config(path) };
        let loaded = interrupt::run(py, load)?.map_err(|error| exception(py, &error))?;
        let queue = RunQueue::new(loaded.pipeline().concurrency());
        Ok(Self { loaded: RwLock::new(Some(Arc::new(loaded))), last_nanos: AtomicU64::new(u64::MAX), queue })
    }

    /// Runs one request: `inputs` by name, results by name.
    #[pyo3(signature = (input_data, cancellation = None))]
    fn infer<'py>(
        &self,
        py: Python<'py>,
        input_data: &Bound<'py, PyDict>,
        cancellation: Option<&Bound<'py, Cancellation>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let runtime = self.loaded()?;
        let values = inputs::values(py, runtime.plan(), input_data)?;
        let cancelled = cancellation.map(|cancellation| cancellation.get().0.clone());
        let queue = self.queue.clone();
        let is_quick = self.last_nanos.load(Ordering::Relaxed) < QUICK_NANOS;
        let (result, nanos) = if is_quick || !interrupt::is_main_thread(py)? {
            py.detach(|| run(&runtime, &queue, values, cancelled))
        } else {
            interrupt::run(py, move || run(&runtime, &queue, values, cancelled))?
        };
        self.last_nanos.store(nanos, Ordering::Relaxed);
        outputs::to_dict(py, result.map_err(|error| exception(py, &error))?)
    }

    /// Milliseconds of repeated runs of one request, by name.
    fn benchmark<'py>(
        &self,
        py: Python<'py>,
        input_data: &Bound<'py, PyDict>,
        num_runs: usize,
        warmup_runs: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let runtime = self.loaded()?;
        let values = inputs::values(py, runtime.plan(), input_data)?;
        let times = interrupt::run(py, move || runtime.benchmark(values, num_runs, warmup_runs))?;
        let times = times.map_err(|error| exception(py, &error))?;
        json::to_python(py, &serde_json::to_value(times).unwrap_or_default())
    }

    /// The inputs, in order.
    #[getter]
    fn inputs(&self, py: Python<'_>) -> PyResult<Vec<Port>> {
        let runtime = self.loaded()?;
        let inputs = runtime.plan().inputs().iter();
        inputs
            .map(|input| {
                let port = &input.port;
                Port::new(py, &port.name, &port.kind, port.optional, &port.description)
            })
            .collect()
    }

    /// The outputs, in order.
    #[getter]
    fn outputs(&self, py: Python<'_>) -> PyResult<Vec<Port>> {
        let runtime = self.loaded()?;
        let info = runtime.pipeline().info();
        let outputs = runtime.plan().outputs().iter();
        outputs
            .map(|output| Port::new(py, &output.name, &output.kind, false, info.output_description(&output.name)))
            .collect()
    }

    /// The name in gpux.yml, `model` for a model alone.
    #[getter]
    fn name(&self) -> PyResult<String> {
        Ok(self.loaded()?.pipeline().spec().name.value.clone())
    }

    /// The engine, for people.
    #[getter]
    fn engine(&self) -> PyResult<String> {
        Ok(self.loaded()?.pipeline().engine().to_owned())
    }

    /// What was noticed while loading.
    #[getter]
    fn warnings(&self) -> PyResult<Vec<String>> {
        Ok(self.loaded()?.pipeline().warnings().to_vec())
    }

    /// How many requests are worth running at the same time.
    #[getter]
    fn concurrency(&self) -> PyResult<usize> {
        Ok(self.loaded()?.pipeline().concurrency())
    }

    /// What the (first) model takes and gives, as a dict.
    fn model_info<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.loaded()?.model_info().map(|info| json::to_python(py, &info.to_dict())).transpose()
    }

    /// The execution provider of the (first) model, as a dict.
    fn provider_info<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let info = self.loaded()?.provider_info();
        info.map(|info| json::to_python(py, &serde_json::to_value(info).unwrap_or_default())).transpose()
    }

    /// Full names of the execution providers that the engine offers, best first.
    fn available_providers(&self) -> PyResult<Vec<&'static str>> {
        Ok(self.loaded()?.available_providers())
    }

    /// Frees the models once the last run has ended.
    fn close(&self, py: Python<'_>) {
        let loaded = self.loaded.write().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(loaded));
    }
}

impl Runtime {
    fn loaded(&self) -> PyResult<Arc<gpux::Runtime>> {
        fork::check()?;
        let loaded = self.loaded.read().unwrap_or_else(PoisonError::into_inner);
        loaded.clone().ok_or_else(|| PyRuntimeError::new_err("it is closed"))
    }
}

/// The result of one request, once it is its turn, and how long it took from then on, in nanoseconds.
fn run(
    runtime: &gpux::Runtime,
    queue: &Arc<RunQueue>,
    values: Vec<(String, Value)>,
    cancelled: Option<Arc<AtomicBool>>,
) -> (Result<Outputs, GpuxError>, u64) {
    // Without a permit it is cancelled, which the plan says.
    let permit = queue.acquire(cancelled.as_deref());
    let waits = permit.is_some().then(|| queue.clone() as Arc<dyn WaitObserver>);
    let start = Instant::now();
    let cancelled = cancelled.map(|flag| flag as Arc<dyn CancelFlag>);
    let options = RunOptions { deadline: deadline_after(runtime.timeout()), waits, cancelled, ..RunOptions::default() };
    let limit = || runtime.time_limit();
    let result = runtime.plan().run(values, options).map_err(|error| GpuxError::from(error).explain_timeout(limit));
    (result, u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))
}
