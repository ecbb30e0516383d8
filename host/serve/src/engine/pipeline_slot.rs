//! The slot of a pipeline in the repository.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::loaded_pipeline::LoadedPipeline;
use super::pipeline_source::PipelineSource;
use gpux_core::sanitize::redact_paths;

/// State of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipelineState {
    /// it is being loaded; nothing is served meanwhile
    Loading,
    /// it serves requests
    Ready,
    /// its process ended too often, or cannot be started again; requests are rejected until it is
    Crashed,
    /// it was taken out of service
    Unloaded,
}

/// The slot of a pipeline: its status, and the lock for updates.
pub struct PipelineSlot {
    name: String,
    source: PipelineSource,
    status: ArcSwap<PipelineStatus>,
    /// held while the pipeline is loaded or unloaded, so that an earlier update does not overwrite a later one
    update_lock: Arc<Mutex<()>>,
}

/// Status of a pipeline, swapped as a whole.
#[derive(Clone, Default)]
struct PipelineStatus {
    loaded: Option<Arc<LoadedPipeline>>,
    loading: bool,
    /// the failure of the last load, if it failed
    failure: Option<LoadFailure>,
}

/// The reason that a pipeline's files cannot be loaded.
#[derive(Clone)]
struct LoadFailure {
    /// for the log, with lines of the files
    details: String,
    /// for clients
    public: String,
}

impl PipelineSlot {
    pub(crate) fn new(name: String, source: PipelineSource, loaded: LoadedPipeline) -> Self {
        let status = PipelineStatus { loaded: Some(Arc::new(loaded)), ..PipelineStatus::default() };
        Self { name, source, status: ArcSwap::from_pointee(status), update_lock: Arc::default() }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it is loaded from.
    pub const fn source(&self) -> &PipelineSource {
        &self.source
    }

    /// Its state.
    pub fn state(&self) -> PipelineState {
        match &**self.status.load() {
            PipelineStatus { loaded: Some(loaded), .. } if loaded.crash().is_some() => PipelineState::Crashed,
            PipelineStatus { loaded: Some(_), .. } => PipelineState::Ready,
            PipelineStatus { loading: true, .. } => PipelineState::Loading,
            PipelineStatus { .. } => PipelineState::Unloaded,
        }
    }

    /// The pipeline, if it is loaded.
    pub fn loaded(&self) -> Option<Arc<LoadedPipeline>> {
        self.status.load().loaded.clone()
    }

    /// The failure of the last load, with paths and lines: for the log.
    pub fn failure(&self) -> Option<String> {
        self.status.load().failure.as_ref().map(|failure| failure.details.clone())
    }

    /// The failure of the last load without paths and lines, or why it does not answer: for clients.
    pub fn public_failure(&self) -> Option<String> {
        let status = self.status.load();
        let crash = status.loaded.as_ref().and_then(|loaded| loaded.crash());
        crash.map(|reason| redact_paths(&reason)).or_else(|| Some(status.failure.as_ref()?.public.clone()))
    }

    /// Waits for the update lock, without blocking a thread.
    pub(crate) async fn lock_update(self: Arc<Self>) -> PipelineUpdate {
        let guard = self.update_lock.clone().lock_owned().await;
        PipelineUpdate { slot: self, _guard: guard }
    }

    /// Waits for the update lock, blocking the thread.
    pub(crate) fn blocking_lock_update(self: Arc<Self>) -> PipelineUpdate {
        let guard = self.update_lock.clone().blocking_lock_owned();
        PipelineUpdate { slot: self, _guard: guard }
    }
}

/// The exclusive right to update a slot.
pub(crate) struct PipelineUpdate {
    slot: Arc<PipelineSlot>,
    _guard: OwnedMutexGuard<()>,
}

impl PipelineUpdate {
    pub(crate) fn slot(&self) -> &PipelineSlot {
        &self.slot
    }

    /// Marks the pipeline as loading until this update is dropped.
    pub(crate) fn set_loading(&self) {
        self.set(|status| status.loading = true);
    }

    /// Serves this pipeline from now on.
    pub(crate) fn set_loaded(&self, loaded: LoadedPipeline) {
        self.set(|status| *status = PipelineStatus { loaded: Some(Arc::new(loaded)), ..PipelineStatus::default() });
    }

    /// Records that its files cannot be loaded; the pipeline stays as it was.
    pub(crate) fn set_failure(&self, details: String, public: String) {
        self.set(|status| status.failure = Some(LoadFailure { details, public }));
    }

    /// Takes the pipeline out of service; requests under way complete.
    pub(crate) fn unload(&self) {
        self.set(|status| *status = PipelineStatus::default());
    }

    fn set(&self, update: impl FnOnce(&mut PipelineStatus)) {
        let mut status = PipelineStatus::clone(&self.slot.status.load());
        update(&mut status);
        self.slot.status.store(Arc::new(status));
    }
}

impl Drop for PipelineUpdate {
    fn drop(&mut self) {
        self.set(|status| status.loading = false);
    }
}
