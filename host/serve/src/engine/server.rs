//! State that all connections share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

use super::body_budget::BodyBudget;
use super::error::ServeError;
use super::execution;
use super::execution::{Execution, Prepared};
use super::loaded_pipeline::LoadedPipeline;
use super::metrics::Metrics;
use super::repository::Repository;
use super::request_options::RequestOptions;
use super::scheduler::Scheduler;
use super::single_flight::SingleFlight;
use crate::engine::pipeline_source::PipelineSource;
use crate::settings::Settings;
use gpux::{GpuxError, LoadOptions};
use gpux_core::Outputs;

/// The engine behind the protocols: pipelines, budgets, metrics and the shutdown state.
pub struct Server {
    settings: Settings,
    repository: Repository,
    metrics: Arc<Metrics>,
    request_budget: BodyBudget,
    documents: SingleFlight,
    scrapes: SingleFlight,
    closing: AtomicBool,
    /// whether new connections are no longer accepted
    stopping: watch::Sender<bool>,
}

impl Server {
    /// Starts the threads that run requests. Without this call they start on demand.
    pub(crate) fn start_workers(&self) -> std::io::Result<()> {
        self.repository.start_workers()
    }

    /// A server without pipelines.
    pub fn new(settings: Settings, mut load_options: LoadOptions) -> Self {
        load_options.serving = true;
        let metrics = Arc::new(Metrics::new());
        let repository =
            Repository::new(load_options, Scheduler::new(settings.workers), settings.clone(), metrics.clone());
        let request_budget = BodyBudget::requests(&settings, &metrics);
        let (closing, stopping) = (AtomicBool::new(false), watch::Sender::new(false));
        Self {
            settings,
            repository,
            metrics,
            request_budget,
            documents: SingleFlight::new(),
            scrapes: SingleFlight::new(),
            closing,
            stopping,
        }
    }

    /// The operator's settings.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The pipelines.
    pub const fn repository(&self) -> &Repository {
        &self.repository
    }

    pub(crate) const fn request_budget(&self) -> &BodyBudget {
        &self.request_budget
    }

    /// The memory budget of responses.
    pub(crate) const fn response_budget(&self) -> &BodyBudget {
        self.repository.response_budget()
    }

    /// Builds documents, one at a time.
    pub(crate) const fn documents(&self) -> &SingleFlight {
        &self.documents
    }

    /// Renders metrics, one at a time.
    pub(crate) const fn scrapes(&self) -> &SingleFlight {
        &self.scrapes
    }

    /// Loads and warms up pipelines.
    pub fn add(&self, sources: &[PipelineSource]) -> Result<(), GpuxError> {
        self.repository.add(sources)
    }

    /// Whether the server is ready: every pipeline is warm, and no shutdown has begun.
    pub fn is_ready(&self) -> bool {
        !self.closing.load(Ordering::Relaxed) && self.repository.is_ready()
    }

    /// The metrics.
    pub(crate) const fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Whether a shutdown has begun.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Begins a shutdown: readiness fails, requests under way continue.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    /// Stops accepting connections, and ends streams.
    pub(crate) fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Signals [`stop`](Self::stop).
    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.stopping.subscribe()
    }

    /// Fails if [`run`](Self::run) would fail at once. Called before a body is read.
    pub fn check(&self, loaded: &LoadedPipeline, options: &RequestOptions) -> Result<(), ServeError> {
        execution::check(loaded, options)
    }

    /// Runs `work` once: parses, executes and encodes on one thread. A small request of a cheap pipeline runs inline on
    /// the calling I/O thread; every other one waits in the queue of the pipeline's lane for a worker. Rejects the
    /// request at once if the queue is full or its deadline cannot be met. Dropping the future cancels the request.
    pub async fn run<T: Send + 'static>(
        &self,
        loaded: &Arc<LoadedPipeline>,
        options: RequestOptions,
        work: impl FnOnce(&Execution) -> Result<T, ServeError> + Send + 'static,
    ) -> Result<T, ServeError> {
        execution::execute(loaded, options, work).await
    }

    /// Runs `prepare`, the pipeline on what that returns, and `finish` on the outputs, as [`run`](Self::run) does.
    pub(crate) async fn run_parts<S: Send + 'static, T: Send + 'static>(
        &self,
        loaded: &Arc<LoadedPipeline>,
        options: RequestOptions,
        prepare: impl FnOnce(&Execution) -> Result<Prepared<S, T>, ServeError> + Send + 'static,
        finish: impl FnOnce(&Execution, S, Outputs) -> Result<T, ServeError> + Send + 'static,
    ) -> Result<T, ServeError> {
        execution::execute_parts(loaded, options, prepare, finish).await
    }
}
