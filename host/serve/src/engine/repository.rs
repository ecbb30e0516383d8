//! The repository of pipelines, by name.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

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
use crate::settings::{IsolationPolicy, Settings, StartPolicy};
use gpux::internal::Source;
use gpux::{GpuxError, LoadOptions, Pipeline};
use gpux_config::Isolation;
use gpux_config::{FILE_NAMES, Spec};
use gpux_core::catch_panic::catch_panic;
use gpux_inference::PendingDrop;
#[cfg(target_os = "linux")]
use gpux_worker::{OnWorkerEvent, WorkerCommand};

type Slots = BTreeMap<String, Arc<PipelineSlot>>;

/// How long the server waits for a first load before it is ready without that pipeline.
const PATIENCE: Duration = Duration::from_mins(1);

/// The pipelines that are served.
pub struct Repository {
    slots: ArcSwap<Slots>,
    /// held while a slot gets another name
    naming: Mutex<()>,
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
        let answers = BodyBudget::responses(&settings, &metrics);
        Self {
            slots: ArcSwap::default(),
            naming: Mutex::default(),
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

    /// Loads and warms up new pipelines; fails at the first that cannot be loaded.
    pub(crate) fn add(&self, sources: &[PipelineSource]) -> Result<(), GpuxError> {
        let slots = self.register(sources);
        slots.iter().filter_map(|slot| self.attempt(slot).1).collect::<Result<(), _>>().map_err(ServeError::into_cause)
    }

    /// Makes a slot for each source, in their order, under the name that this process reads in its file. One whose name
    /// cannot be read gets that of its folder until it can. So does one whose name is another's as well: neither may
    /// have the other's requests.
    pub(crate) fn register(&self, sources: &[PipelineSource]) -> Vec<Arc<PipelineSlot>> {
        let names: Vec<_> = sources.iter().map(|source| self.name_in(source).ok()).collect();
        let _naming = self.naming.lock().unwrap_or_else(PoisonError::into_inner);
        let mut slots = Slots::clone(&self.slots.load());
        let mut added = Vec::with_capacity(sources.len());
        for (name, source) in names.iter().zip(sources) {
            let is_free = |wanted: &String| {
                !slots.contains_key(wanted) && names.iter().filter(|name| name.as_ref() == Some(wanted)).count() <= 1
            };
            let is_named = name.as_ref().is_some_and(is_free);
            let is_taken = |wanted: &String| slots.contains_key(wanted) || names.contains(&Some(wanted.clone()));
            let name = name.clone().filter(|_| is_named).unwrap_or_else(|| free_name(source, is_taken));
            let slot = Arc::new(PipelineSlot::new(name.clone(), is_named, source.clone()));
            slots.insert(name, slot.clone());
            added.push(slot);
        }
        self.slots.store(Arc::new(slots));
        added
    }

    /// Loads the pipeline of a slot, as [`reload`](Self::reload) does. Returns its slot, too, which is another one once
    /// its name can be read.
    pub(crate) fn attempt(&self, slot: &Arc<PipelineSlot>) -> (Arc<PipelineSlot>, Option<Result<(), ServeError>>) {
        match catch_panic(|| self.find_name(slot)).unwrap_or_else(|panic| Err(ServeError::NotReady(panic))) {
            Ok(slot) => {
                let result = self.reload(&slot);
                (slot, result)
            }
            Err(error) => {
                let update = slot.clone().blocking_lock_update();
                let error = self.note_failure(&update, error);
                (slot.clone(), Some(Err(error)))
            }
        }
    }

    /// The name in the file of a source.
    fn name_in(&self, source: &PipelineSource) -> Result<String, GpuxError> {
        Source::find(&source.0)?.name(&self.load_options)
    }

    /// The slot under the name in its file.
    fn find_name(&self, slot: &Arc<PipelineSlot>) -> Result<Arc<PipelineSlot>, ServeError> {
        if slot.is_named() {
            return Ok(slot.clone());
        }
        let source = slot.source();
        let name = self.name_in(source)?;
        let _naming = self.naming.lock().unwrap_or_else(PoisonError::into_inner);
        let mut slots = Slots::clone(&self.slots.load());
        let is_called_so = |other: &&Arc<PipelineSlot>| {
            other.name() == name || !other.is_named() && self.name_in(other.source()).is_ok_and(|others| others == name)
        };
        if let Some(other) = slots.values().find(|other| !Arc::ptr_eq(other, slot) && is_called_so(other)) {
            let (first, second) = (&other.source().0, &source.0);
            let message = format!("two pipelines are called `{name}`: `{first}` and `{second}`; a name stands for one");
            return Err(gpux_worker::configuration_error(message).into());
        }
        slots.remove(slot.name());
        let named = Arc::new(PipelineSlot::new(name.clone(), true, source.clone()));
        slots.insert(name, named.clone());
        self.slots.store(Arc::new(slots));
        Ok(named)
    }

    /// Loads and warms up the pipeline of a slot, in this process or in one of its own.
    fn start(&self, slot: &PipelineSlot) -> Result<StartedRunner, ServeError> {
        let source = &slot.source().0;
        let definition = Source::find(source)?.read(&self.load_options)?;
        let Spec { name, serving, .. } = definition.spec();
        if name.value != slot.name() {
            let message = format!("`{source}` is now called `{}`", name.value);
            return Err(gpux_worker::configuration_error(message).into());
        }
        if self.isolation().max(serving.isolation) == Isolation::Pipeline {
            #[cfg(target_os = "linux")]
            if let Some(command) = &self.settings.worker {
                let on_event = self.on_worker_event.get().cloned();
                let on_event = on_event.unwrap_or_else(|| Arc::new(|_| {}));
                return Ok(StartedRunner::isolated(definition, command, on_event)?);
            }
            let error = gpux_worker::environment_error(format!(
                "`{source}` asks for a process of its own (`serving.isolation`), which `gpux serve` on Linux can give"
            ));
            return Err(error.into());
        }
        let pipeline = Pipeline::load(definition, &self.load_options)?;
        Ok(StartedRunner::local(pipeline, self.settings.golden_case)?)
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

    /// Whether a pipeline answers, and the first load of each other one has ended or takes long. With
    /// [`StartPolicy::All`], whether each one answers. Later only an explicit unload removes one from service.
    pub fn is_ready(&self) -> bool {
        let slots = self.slots.load();
        let is_in_service = |slot: &Arc<PipelineSlot>| slot.state() == PipelineState::Ready || slot.is_unloaded();
        let is_missing = |slot: &Arc<PipelineSlot>| match self.settings.start {
            StartPolicy::All => slot.is_new(),
            StartPolicy::Any | StartPolicy::Restart => slot.is_awaited(PATIENCE),
        };
        slots.values().any(is_in_service) && !slots.values().any(is_missing)
    }

    /// Whether no other name can be that of a pipeline.
    pub(crate) fn knows_all_names(&self) -> bool {
        let slots = self.slots.load();
        !slots.is_empty() && slots.values().all(|slot| slot.is_named())
    }

    /// The pipeline of this name, if the request may use it.
    pub fn get(&self, name: &str) -> Result<Arc<LoadedPipeline>, ServeError> {
        self.permitted(name)?;
        let slots = self.slots.load();
        if let Some(slot) = slots.get(name) {
            return slot.loaded().ok_or_else(|| not_loaded(slot));
        }
        if !self.knows_all_names() {
            return Err(not_known(name));
        }
        let names: Vec<_> = self.visible().iter().map(|slot| format!("`{}`", slot.name())).collect();
        Err(ServeError::NotFound(format!("no pipeline is called `{name}`; there is {}", names.join(", "))))
    }

    /// The pipeline of this name or, if there is none, that has it as an alias, if the request may use it.
    pub(crate) fn by_name_or_alias(&self, name: &str) -> Result<Arc<LoadedPipeline>, ServeError> {
        if self.slots.load().contains_key(name) {
            return self.get(name);
        }
        let visible = self.visible();
        let loaded = visible.iter().filter_map(|slot| slot.loaded());
        let named: Vec<_> = loaded.filter(|loaded| loaded.info().aliases.iter().any(|alias| alias == name)).collect();
        match named.as_slice() {
            [only] => Ok(only.clone()),
            [] => {
                if visible.iter().any(|slot| slot.state() == PipelineState::Loading && slot.loaded().is_none()) {
                    let message = format!("not every pipeline is loaded yet; `{name}` may be an alias of one");
                    return Err(ServeError::NotReady(message));
                }
                self.get(name)
            }
            several => {
                let names: Vec<_> = several.iter().map(|loaded| format!("`{}`", loaded.name())).collect();
                Err(ServeError::NotFound(format!("`{name}` is an alias of several pipelines: {}", names.join(", "))))
            }
        }
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

    /// Loads a pipeline for the first time or again; `None` if a client unloaded it. Blocks on the update lock: must not
    /// be called on a thread that serves requests.
    pub fn reload(&self, slot: &Arc<PipelineSlot>) -> Option<Result<(), ServeError>> {
        let update = slot.clone().blocking_lock_update();
        (!slot.is_unloaded()).then(|| self.load(&update))
    }

    /// Loads a pipeline from its source, for the first time or again. The old one serves until the new one is warm. If
    /// loading fails, everything stays as it is, and [`PipelineSlot::failure`] has the reason.
    pub(crate) fn load(&self, update: &PipelineUpdate) -> Result<(), ServeError> {
        let is_first = update.slot().is_awaited(Duration::MAX);
        update.set_loading();
        // A panic must not end the thread, which also loads other pipelines.
        let opened = catch_panic(|| self.start(update.slot()).map(|started| self.add_lane(started)));
        match opened.unwrap_or_else(|panic| Err(ServeError::NotReady(format!("loading was broken off: {panic}")))) {
            Ok(loaded) => {
                update.set_loaded(loaded);
                if !is_first {
                    self.metrics.pipeline(update.slot().name()).reloads.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            }
            Err(error) => Err(self.note_failure(update, error)),
        }
    }

    /// Records why a pipeline cannot be loaded; returns that for clients.
    fn note_failure(&self, update: &PipelineUpdate, error: ServeError) -> ServeError {
        let details = details(&error);
        let error = ServeError::NotLoaded(Box::new(error));
        update.set_failure(details, error.to_string());
        self.metrics.pipeline(update.slot().name()).failed_reloads.fetch_add(1, Ordering::Relaxed);
        error
    }

    fn slot(&self, name: &str) -> Result<Arc<PipelineSlot>, ServeError> {
        let slots = self.slots.load();
        let unknown = || {
            let no_such = ServeError::NotFound(format!("no pipeline is called `{name}`"));
            if self.knows_all_names() { no_such } else { not_known(name) }
        };
        slots.get(name).cloned().ok_or_else(unknown)
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
        ServeError::Gpux(error) => error.render(),
        other => other.to_string(),
    }
}

fn not_loaded(slot: &PipelineSlot) -> ServeError {
    let name = slot.name();
    match slot.state() {
        PipelineState::Unloaded => ServeError::NotFound(format!("`{name}` was unloaded")),
        PipelineState::Failed => ServeError::LoadFailed {
            message: format!("`{name}` is not there: {}", slot.public_failure().unwrap_or_default()),
            retry_after: slot.retry_after(),
        },
        PipelineState::Loading | PipelineState::Ready | PipelineState::Crashed => {
            ServeError::NotReady(format!("`{name}` is being loaded"))
        }
    }
}

/// A name that may be that of a pipeline whose file was not read yet, or cannot be read.
fn not_known(name: &str) -> ServeError {
    ServeError::NotReady(format!("not every pipeline's name could be read yet; `{name}` may be one"))
}

/// The name of the source's folder, or of its file without the ending, with a number where that is taken.
fn free_name(source: &PipelineSource, is_taken: impl Fn(&String) -> bool) -> String {
    let path = std::path::absolute(&source.0).unwrap_or_else(|_| source.0.clone().into());
    let is_usual = |name: &std::ffi::OsStr| FILE_NAMES.iter().any(|usual| name == *usual);
    let path = if path.file_name().is_some_and(is_usual) { path.parent().unwrap_or(&path) } else { &path };
    let file = path.file_name().unwrap_or(Path::new("pipeline").as_os_str());
    let file = file.to_string_lossy().into_owned();
    // The end of a name in the store is its version's.
    let name = if path.is_file() { Spec::for_model(file).name.value } else { file };
    let numbered = (2..).map(|number: u64| format!("{name}-{number}"));
    std::iter::once(name.clone()).chain(numbered).find(|name| !is_taken(name)).unwrap_or(name)
}

#[cfg(test)]
mod tests;
