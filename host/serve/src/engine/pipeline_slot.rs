//! The slot of a pipeline in the repository.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::loaded_pipeline::LoadedPipeline;
use super::pipeline_source::PipelineSource;
use gpux_core::sanitize::{redact_paths, sanitize_for_terminal};

/// State of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipelineState {
    /// it is being loaded; nothing is served meanwhile
    Loading,
    /// it serves requests
    Ready,
    /// its process ended too often, or cannot be started again; requests are rejected until it is
    Crashed,
    /// it could not be loaded, and is tried again
    Failed,
    /// it was taken out of service
    Unloaded,
}

/// The slot of a pipeline: its status, and the lock for updates.
pub struct PipelineSlot {
    name: String,
    /// whether the name is that of its file; else it stands for one that cannot be read, or that is another's as well
    is_named: bool,
    source: PipelineSource,
    status: ArcSwap<PipelineStatus>,
    /// when the next attempt to load it begins, if the last failed
    retry_at: ArcSwapOption<Instant>,
    /// held while the pipeline is loaded or unloaded, so that an earlier update does not overwrite a later one
    update_lock: Arc<Mutex<()>>,
}

/// Status of a pipeline, swapped as a whole.
#[derive(Clone, Default)]
struct PipelineStatus {
    loaded: Option<Arc<LoadedPipeline>>,
    /// since when it is being loaded
    loading: Option<Instant>,
    /// whether a client took it out of service
    unloaded: bool,
    /// the failure of the last load, if it failed
    failure: Option<LoadFailure>,
}

impl PipelineStatus {
    const fn is_new(&self) -> bool {
        self.loaded.is_none() && !self.unloaded
    }
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
    /// A pipeline that is still to be loaded.
    pub(crate) fn new(name: String, is_named: bool, source: PipelineSource) -> Self {
        Self {
            name,
            is_named,
            source,
            status: ArcSwap::default(),
            retry_at: ArcSwapOption::default(),
            update_lock: Arc::default(),
        }
    }

    /// Whether its name is that of its file.
    pub(crate) const fn is_named(&self) -> bool {
        self.is_named
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
            PipelineStatus { unloaded: true, loading: None, .. } => PipelineState::Unloaded,
            PipelineStatus { unloaded: false, failure: Some(_), .. } => PipelineState::Failed,
            PipelineStatus { .. } => PipelineState::Loading,
        }
    }

    /// Whether it has never answered.
    pub(crate) fn is_new(&self) -> bool {
        self.status.load().is_new()
    }

    /// Whether its first load has not ended, and takes no longer than `patience`.
    pub(crate) fn is_awaited(&self, patience: Duration) -> bool {
        let status = self.status.load();
        let is_patient = status.loading.is_none_or(|since| since.elapsed() < patience);
        status.is_new() && status.failure.is_none() && is_patient
    }

    /// Whether a client took it out of service, and it was not loaded since.
    pub(crate) fn is_unloaded(&self) -> bool {
        self.status.load().unloaded
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
        crash
            .map(|reason| redact_paths(&sanitize_for_terminal(&reason)))
            .or_else(|| Some(status.failure.as_ref()?.public.clone()))
    }

    /// Records when the next attempt to load it begins; `None` if none is planned.
    pub(crate) fn set_retry_at(&self, retry_at: Option<Instant>) {
        self.retry_at.store(retry_at.map(Arc::new));
    }

    /// When a client may ask again for a pipeline that could not be loaded: after the next attempt has begun, and at
    /// least in a second.
    pub(crate) fn retry_after(&self) -> Duration {
        let pause = self.retry_at.load().as_deref().map(|at| at.saturating_duration_since(Instant::now()));
        pause.unwrap_or_default().max(Duration::from_secs(1))
    }

    /// Waits for the update lock, without blocking a thread.
    pub(crate) async fn lock_update(self: Arc<Self>) -> PipelineUpdate {
        let guard = self.update_lock.clone().lock_owned().await;
        PipelineUpdate { slot: self, _guard: guard }
    }

    /// Waits for the update lock, blocking the thread.
    pub(crate) fn blocking_lock_update(self: Arc<Self>) -> PipelineUpdate {
        let lock = || self.update_lock.clone();
        let guard = lock().try_lock_owned().unwrap_or_else(|_| lock().blocking_lock_owned());
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
        self.set(|status| status.loading = Some(Instant::now()));
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
        self.set(|status| *status = PipelineStatus { unloaded: true, ..PipelineStatus::default() });
    }

    fn set(&self, update: impl FnOnce(&mut PipelineStatus)) {
        let mut status = PipelineStatus::clone(&self.slot.status.load());
        update(&mut status);
        self.slot.status.store(Arc::new(status));
    }
}

impl Drop for PipelineUpdate {
    fn drop(&mut self) {
        self.set(|status| status.loading = None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_may_retry_after_the_next_attempt() {
        let slot = PipelineSlot::new("a".to_owned(), true, PipelineSource("a".to_owned()));
        assert_eq!(slot.retry_after(), Duration::from_secs(1));
        slot.set_retry_at(Some(Instant::now() + Duration::from_secs(30)));
        assert!(slot.retry_after() > Duration::from_secs(25));
        slot.set_retry_at(None);
        assert_eq!(slot.retry_after(), Duration::from_secs(1));
    }
}
