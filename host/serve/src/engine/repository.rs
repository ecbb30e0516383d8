//! The repository of pipelines, by name.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;

use super::body_budget::BodyBudget;
use super::error::ServeError;
use super::loaded_pipeline::LoadedPipeline;
use super::metrics::Metrics;
use super::pipeline_slot::{PipelineSlot, PipelineState, PipelineUpdate};
use super::pipeline_source::PipelineSource;
use super::request_context::RequestContext;
use super::runner::StartedRunner;
use super::scheduler::Scheduler;
use crate::settings::{IsolationPolicy, Settings};
use gpux::{GpuxError, Isolation, LoadOptions, Pipeline};
use gpux_config::LoadError;
use gpux_core::catch_panic::catch_panic;
use gpux_inference::PendingDrop;
#[cfg(target_os = "linux")]
use gpux_worker::{OnWorkerEvent, WorkerCommand};

/// The reason that pipelines cannot be served together.
#[derive(Debug, thiserror::Error)]
pub enum RepositoryError {
    /// one of them cannot be loaded
    #[error(transparent)]
    Pipeline(#[from] GpuxError),
    /// two have the same name
    #[error("two pipelines are called `{name}`: `{first}` and `{second}`; a name stands for one")]
    SameName {
        /// the name
        name: String,
        /// the source of the first
        first: String,
        /// the source of the second
        second: String,
    },
}

/// The pipelines that are served.
pub struct Repository {
    slots: ArcSwap<BTreeMap<String, Arc<PipelineSlot>>>,
    load_options: LoadOptions,
    scheduler: Scheduler,
    settings: Settings,
    metrics: Arc<Metrics>,
    /// as much again as for bodies is for answers
    answers: BodyBudget,
    /// where pipelines run that do not ask for more isolation; not set: in this process
    isolation: OnceLock<Isolation>,
    #[cfg(target_os = "linux")]
    on_worker_event: OnceLock<OnWorkerEvent>,
}

impl Repository {
    /// An empty repository, which loads pipelines with these options.
    pub(crate) fn new(
        load_options: LoadOptions,
        scheduler: Scheduler,
        settings: Settings,
        metrics: Arc<Metrics>,
    ) -> Self {
        let answers = BodyBudget::new(&settings, &metrics);
        Self {
            slots: ArcSwap::default(),
            load_options,
            scheduler,
            settings,
            metrics,
            answers,
            isolation: OnceLock::new(),
            #[cfg(target_os = "linux")]
            on_worker_event: OnceLock::new(),
        }
    }

    /// The room for answers.
    pub(crate) const fn response_budget(&self) -> &BodyBudget {
        &self.answers
    }

    /// Starts the threads that run requests.
    pub(crate) fn start_workers(&self) -> std::io::Result<()> {
        self.scheduler.start_workers()
    }

    /// Loads and warms up new pipelines.
    pub(crate) fn add(&self, sources: &[PipelineSource]) -> Result<(), RepositoryError> {
        let mut slots = BTreeMap::<String, Arc<PipelineSlot>>::clone(&self.slots.load());
        for (source, loaded) in sources.iter().zip(self.open_all(sources)) {
            let loaded = loaded?;
            let name = loaded.name().to_owned();
            if let Some(other) = slots.get(&name) {
                let (first, second) = (other.source().0.clone(), source.0.clone());
                return Err(RepositoryError::SameName { name, first, second });
            }
            let slot = PipelineSlot::new(name.clone(), source.clone(), loaded);
            slots.insert(name, Arc::new(slot));
        }
        self.slots.store(Arc::new(slots));
        Ok(())
    }

    /// Opens pipelines concurrently: as many at once as there are workers, or fewer if threads cannot be started.
    fn open_all(&self, sources: &[PipelineSource]) -> Vec<Result<LoadedPipeline, GpuxError>> {
        let next = AtomicUsize::new(0);
        let each = || {
            let taken = std::iter::from_fn(|| {
                let place = next.fetch_add(1, Ordering::Relaxed);
                sources.get(place).map(|source| (place, source))
            });
            taken.map(|(place, source)| (place, self.open(source))).collect::<Vec<_>>()
        };
        let mut opened: Vec<_> = std::thread::scope(|scope| {
            let others = self.settings.workers.min(sources.len()).saturating_sub(1);
            let start = |_| std::thread::Builder::new().spawn_scoped(scope, each).ok();
            let opening: Vec<_> = (0..others).map_while(start).collect();
            let own = each();
            let opened = opening.into_iter().map(|opening| opening.join().unwrap_or_else(|panic| resume_unwind(panic)));
            opened.flatten().chain(own).collect()
        });
        opened.sort_by_key(|(place, _)| *place);
        opened.into_iter().map(|(_, loaded)| loaded).collect()
    }

    fn open(&self, source: &PipelineSource) -> Result<LoadedPipeline, GpuxError> {
        Ok(self.add_lane(self.start(source)?))
    }

    /// Loads and warms up a pipeline, in this process or in one of its own.
    fn start(&self, source: &PipelineSource) -> Result<StartedRunner, GpuxError> {
        let asked = Pipeline::isolation(&source.0, &self.load_options)?;
        if self.isolation().max(asked) == Isolation::Pipeline {
            #[cfg(target_os = "linux")]
            if let Some(command) = &self.settings.worker {
                let on_event = self.on_worker_event.get().cloned();
                return StartedRunner::isolated(&source.0, command, on_event.unwrap_or_else(|| Arc::new(|_| {})));
            }
            return Err(gpux_worker::environment_error(format!(
                "`{}` asks for a process of its own (`serving.isolation`), which `gpux serve` on Linux can give",
                source.0
            )));
        }
        StartedRunner::local(Pipeline::open(&source.0, &self.load_options)?)
    }

    /// Where pipelines run that do not ask for more isolation.
    fn isolation(&self) -> Isolation {
        self.isolation.get().copied().unwrap_or_default()
    }

    /// Decides where so many pipelines run, which so many tenants use. Returns the decision, with a reason if it is
    /// less than the policy wants.
    pub(crate) fn decide_isolation(&self, pipelines: usize, tenants: usize) -> (Isolation, Option<String>) {
        let (isolation, reason) = match self.settings.isolation {
            IsolationPolicy::None => (Isolation::None, None),
            IsolationPolicy::Pipeline => (Isolation::Pipeline, None),
            IsolationPolicy::Auto if pipelines < 2 && tenants < 2 => (Isolation::None, None),
            IsolationPolicy::Auto => self.available_isolation(),
        };
        // Only the first decision counts; there is one for each server.
        (*self.isolation.get_or_init(|| isolation), reason)
    }

    /// The most isolation that this server can give, with a reason if the system cannot give it.
    #[cfg(target_os = "linux")]
    fn available_isolation(&self) -> (Isolation, Option<String>) {
        match self.settings.worker.as_ref().map(WorkerCommand::check_support) {
            None => (Isolation::None, None),
            Some(Ok(())) => (Isolation::Pipeline, None),
            Some(Err(error)) => (Isolation::None, Some(error.to_string())),
        }
    }

    #[cfg(not(target_os = "linux"))]
    #[expect(clippy::unused_self, reason = "as on Linux")]
    const fn available_isolation(&self) -> (Isolation, Option<String>) {
        (Isolation::None, None)
    }

    fn add_lane(&self, started: StartedRunner) -> LoadedPipeline {
        LoadedPipeline::new(started, &self.scheduler, &self.settings, &self.metrics, self.answers.clone())
    }

    /// Reports what happens to the processes of pipelines that are loaded from now on.
    #[cfg(target_os = "linux")]
    pub(crate) fn report_workers(&self, on_event: OnWorkerEvent) {
        // Only the first call counts; there is one for each server.
        let _ = self.on_worker_event.set(on_event);
    }

    /// All pipelines, by name.
    pub fn slots(&self) -> Vec<Arc<PipelineSlot>> {
        self.slots.load().values().cloned().collect()
    }

    /// The pipelines that the current request may use, by name.
    pub fn visible(&self) -> Vec<Arc<PipelineSlot>> {
        self.slots.load().values().filter(|slot| self.permits(slot.name())).cloned().collect()
    }

    fn permits(&self, name: &str) -> bool {
        RequestContext::permits(self.settings.keys.is_some(), name)
    }

    fn permitted(&self, name: &str) -> Result<(), ServeError> {
        let refused = || ServeError::Forbidden(format!("this key may not use `{name}`"));
        if self.permits(name) { Ok(()) } else { Err(refused()) }
    }

    /// Whether the pipelines were added, each of them warm, and not all of them have crashed. Later only an explicit
    /// unload removes one from service.
    pub fn is_ready(&self) -> bool {
        let slots = self.slots.load();
        !slots.is_empty() && slots.values().any(|slot| slot.state() != PipelineState::Crashed)
    }

    /// The pipeline of this name, if the request may use it.
    pub fn get(&self, name: &str) -> Result<Arc<LoadedPipeline>, ServeError> {
        self.permitted(name)?;
        let slots = self.slots.load();
        if let Some(slot) = slots.get(name) {
            return slot.loaded().ok_or_else(|| not_loaded(slot));
        }
        let names: Vec<_> = self.visible().iter().map(|slot| format!("`{}`", slot.name())).collect();
        Err(ServeError::NotFound(format!("no pipeline is called `{name}`; there is {}", names.join(", "))))
    }

    /// The only pipeline that the request may use. If there are several, the error lists the path of `call` for each.
    pub fn only_pipeline(&self, call: &str) -> Result<Arc<LoadedPipeline>, ServeError> {
        let slots = self.slots.load();
        let mut values = slots.values().filter(|slot| self.permits(slot.name()));
        match (values.next(), values.next()) {
            (Some(slot), None) => slot.loaded().ok_or_else(|| not_loaded(slot)),
            (None, _) if !slots.is_empty() => Err(ServeError::Forbidden("this key may use no pipeline".to_owned())),
            (None, _) => Err(ServeError::NotReady("the pipelines are being loaded".to_owned())),
            (Some(_), Some(_)) => {
                let path = |slot: &Arc<PipelineSlot>| format!("/pipelines/{}/{call}", slot.name());
                let paths: Vec<_> = self.visible().iter().map(path).collect();
                Err(ServeError::NotFound(format!("several pipelines are served: {}", paths.join(", "))))
            }
        }
    }

    /// Waits for the lock to load or unload a pipeline.
    pub(crate) async fn lock_update(&self, name: &str) -> Result<PipelineUpdate, ServeError> {
        self.permitted(name)?;
        Ok(self.slot(name)?.lock_update().await)
    }

    /// Reloads a pipeline that is in service; `None` if it was unloaded. Blocks on the update lock: must not be called
    /// on a thread that serves requests.
    pub fn reload(&self, slot: &Arc<PipelineSlot>) -> Option<Result<(), ServeError>> {
        let update = slot.clone().blocking_lock_update();
        slot.loaded().map(|_| self.load(&update))
    }

    /// Loads a pipeline from its source, for the first time or again. The old one serves until the new one is warm. If
    /// loading fails, everything stays as it is, and [`PipelineSlot::failure`] has the reason.
    pub(crate) fn load(&self, update: &PipelineUpdate) -> Result<(), ServeError> {
        update.set_loading();
        let reloads = self.metrics.pipeline(update.slot().name());
        // A panic must not end the thread, which also loads other pipelines.
        let opened = catch_panic(|| self.open_again(update.slot()));
        match opened.unwrap_or_else(|panic| Err(ServeError::NotReady(format!("loading was broken off: {panic}")))) {
            Ok(loaded) => {
                update.set_loaded(loaded);
                reloads.reloads.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => {
                let details = details(&error);
                let error = ServeError::NotLoaded(Box::new(error));
                update.set_failure(details, error.to_string());
                reloads.failed_reloads.fetch_add(1, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    /// Opens a pipeline again from its files.
    fn open_again(&self, slot: &PipelineSlot) -> Result<LoadedPipeline, ServeError> {
        let started = self.start(slot.source())?;
        let name = &started.info.name;
        if name != slot.name() {
            return Err(ServeError::NotFound(format!("`{}` is now called `{name}`", slot.source().0)));
        }
        Ok(self.add_lane(started))
    }

    fn slot(&self, name: &str) -> Result<Arc<PipelineSlot>, ServeError> {
        let slots = self.slots.load();
        slots.get(name).cloned().ok_or_else(|| ServeError::NotFound(format!("no pipeline is called `{name}`")))
    }
}

impl Drop for Repository {
    /// Waits until all pipelines are closed: the process may end after this.
    fn drop(&mut self) {
        self.slots.store(Arc::default());
        PendingDrop::wait();
    }
}

/// The reason that a pipeline cannot be loaded, with the location of each mistake in its file.
fn details(error: &ServeError) -> String {
    match error {
        ServeError::Gpux(GpuxError::Configuration(LoadError::Invalid(error))) => {
            let reason = error.render();
            reason.strip_prefix("error: ").unwrap_or(&reason).trim_end().to_owned()
        }
        other => other.to_string(),
    }
}

fn not_loaded(slot: &PipelineSlot) -> ServeError {
    let name = slot.name();
    match slot.state() {
        PipelineState::Unloaded => ServeError::NotFound(format!("`{name}` was unloaded")),
        PipelineState::Loading | PipelineState::Ready | PipelineState::Crashed => {
            ServeError::NotReady(format!("`{name}` is being loaded"))
        }
    }
}

#[cfg(test)]
mod tests;
