//! What all connections share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::sync::watch;

use super::access::Access;
use super::aside::Aside;
use super::call::{self, Ask, Turn};
use super::error::ServeError;
use super::http::Bodies;
use super::metrics::Metrics;
use super::repository::{Repository, RepositoryError, Source};
use super::schedule::Scheduler;
use super::served::Served;
use super::settings::Settings;
use super::telemetry::Telemetry;
use gpux::LoadOptions;

/// The server behind its protocols.
pub struct Server {
    settings: Settings,
    repository: Repository,
    metrics: Arc<Metrics>,
    access: Access,
    telemetry: OnceLock<Telemetry>,
    bodies: Bodies,
    documents: Aside,
    scrapes: Aside,
    closing: AtomicBool,
    /// whether no connections are taken any more
    stopping: watch::Sender<bool>,
}

impl Server {
    /// Starts the threads that run requests. Without it, they start as they are needed.
    pub(super) fn start_workers(&self) -> std::io::Result<()> {
        self.repository.start_workers()
    }

    /// A server without pipelines.
    pub fn new(settings: Settings, operator: LoadOptions) -> Self {
        let operator = LoadOptions { serving: true, ..operator };
        let env = operator.policy.env.clone();
        let metrics = Arc::new(Metrics::new());
        let repository = Repository::new(operator, Scheduler::new(settings.workers), settings.clone(), metrics.clone());
        let access = Access::new(settings.keys.clone(), env);
        let bodies = Bodies::new(&settings, &metrics);
        let (telemetry, closing, stopping) = (OnceLock::new(), AtomicBool::new(false), watch::Sender::new(false));
        Self {
            settings,
            repository,
            metrics,
            access,
            telemetry,
            bodies,
            documents: Aside::new(),
            scrapes: Aside::new(),
            closing,
            stopping,
        }
    }

    /// What the operator decided.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The pipelines.
    pub const fn repository(&self) -> &Repository {
        &self.repository
    }

    pub(super) const fn bodies(&self) -> &Bodies {
        &self.bodies
    }

    /// The room for answers that wait for their clients.
    pub(super) const fn answers(&self) -> &Bodies {
        self.repository.answers()
    }

    /// Where descriptions of the server are made.
    pub(super) const fn documents(&self) -> &Aside {
        &self.documents
    }

    /// Where it is written what is counted.
    pub(super) const fn scrapes(&self) -> &Aside {
        &self.scrapes
    }

    /// Loads and warms pipelines.
    pub fn add(&self, sources: &[Source]) -> Result<(), RepositoryError> {
        self.repository.add(sources)
    }

    /// Whether requests would be answered: every pipeline is warm, and nobody asked the server to end.
    pub fn is_ready(&self) -> bool {
        !self.closing.load(Ordering::Relaxed) && self.repository.is_ready()
    }

    /// What is counted.
    pub(super) const fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Who may use what.
    pub(super) const fn access(&self) -> &Access {
        &self.access
    }

    /// Where traces go, if anywhere.
    pub(super) fn telemetry(&self) -> Option<&Telemetry> {
        self.telemetry.get()
    }

    /// Sends traces there from now on.
    pub(super) fn trace_to(&self, telemetry: Telemetry) {
        // The first one stays.
        let _ = self.telemetry.set(telemetry);
    }

    /// Whether the server has been asked to end.
    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Readiness ends; what is under way goes on.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    /// No more connections are taken; what has no end of its own comes to one.
    pub(super) fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Tells when [`stop`](Self::stop) is called.
    pub(super) fn stopping(&self) -> watch::Receiver<bool> {
        self.stopping.subscribe()
    }

    /// Fails if [`run`](Self::run) would fail at once: to be asked before a body is read.
    pub fn check(&self, served: &Served, ask: &Ask) -> Result<(), ServeError> {
        call::check(served, ask)
    }

    /// Runs `work` in a turn of the pipeline: bytes in, bytes out, on one thread. Fails at once if
    /// there is no room or no time for it. Who drops the future takes the request back. `work` may be
    /// begun on one thread and, where it turns out to be long, once more on another.
    pub async fn run<T: Send + 'static>(
        &self,
        served: &Arc<Served>,
        ask: Ask,
        work: impl Fn(&Turn) -> Result<T, ServeError> + Send + 'static,
    ) -> Result<T, ServeError> {
        call::call(served, ask, work).await
    }
}
