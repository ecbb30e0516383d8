//! The pipelines that are served, by name.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::OwnedMutexGuard;

use super::context::Context;
use super::error::ServeError;
use super::marks::{Marks, read_since};
use super::metrics::Metrics;
use super::schedule::Scheduler;
use super::served::{Served, State};
use super::settings::Settings;
use crate::assemble::{Operator, Pipeline};
use crate::config::LoadError;
use crate::error::GpuxError;

/// Where a pipeline comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source(
    /// a folder with a gpux.yml, such a file, the `name` in one, or a model (.onnx) alone
    pub String,
);

/// Why pipelines cannot be served together.
#[derive(Debug, thiserror::Error)]
pub enum RepositoryError {
    /// one of them cannot be loaded
    #[error(transparent)]
    Pipeline(#[from] GpuxError),
    /// two of the same name
    #[error("two pipelines are called `{name}`: `{first}` and `{second}`; a name stands for one")]
    SameName {
        /// the name
        name: String,
        /// where it comes from
        first: String,
        /// where it comes from as well
        second: String,
    },
}

/// The pipelines that are served.
pub struct Repository {
    entries: ArcSwap<BTreeMap<String, Arc<Entry>>>,
    operator: Operator,
    scheduler: Scheduler,
    settings: Settings,
    metrics: Arc<Metrics>,
}

/// A pipeline's place.
pub struct Entry {
    name: String,
    source: Source,
    current: ArcSwapOption<Served>,
    /// whoever loads it has this: what was read last must not be replaced by what was read before
    loading: Arc<tokio::sync::Mutex<()>>,
    state: Mutex<State>,
    /// why what its files hold now is not what answers
    failure: Mutex<Option<String>>,
}

impl Entry {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is doing.
    pub fn state(&self) -> State {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The pipeline, if it is loaded.
    pub fn served(&self) -> Option<Arc<Served>> {
        self.current.load_full()
    }

    /// Why what its files hold now is not what answers.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn fail(&self, failure: Option<String>) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
    }

    fn set(&self, state: State) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }
}

impl Repository {
    /// An empty repository, whose pipelines will be opened under the operator's word.
    pub(super) fn new(operator: Operator, scheduler: Scheduler, settings: Settings, metrics: Arc<Metrics>) -> Self {
        Self { entries: ArcSwap::default(), operator, scheduler, settings, metrics }
    }

    /// Loads and warms pipelines that are not there yet.
    pub(super) fn add(&self, sources: &[Source]) -> Result<(), RepositoryError> {
        let mut entries = BTreeMap::<String, Arc<Entry>>::clone(&self.entries.load());
        for (source, served) in sources.iter().zip(self.open_all(sources)) {
            let served = served?;
            let name = served.name().to_owned();
            if let Some(other) = entries.get(&name) {
                let (first, second) = (other.source.0.clone(), source.0.clone());
                return Err(RepositoryError::SameName { name, first, second });
            }
            let (current, state) = (ArcSwapOption::from_pointee(served), Mutex::new(State::Ready));
            let failure = Mutex::default();
            let loading = Arc::default();
            let entry = Entry { name: name.clone(), source: source.clone(), current, loading, state, failure };
            entries.insert(name, Arc::new(entry));
        }
        self.entries.store(Arc::new(entries));
        Ok(())
    }

    /// Opens them side by side, as many at once as there are workers.
    fn open_all(&self, sources: &[Source]) -> Vec<Result<Served, GpuxError>> {
        let next = AtomicUsize::new(0);
        let each = || {
            let taken = std::iter::from_fn(|| {
                let place = next.fetch_add(1, Ordering::Relaxed);
                sources.get(place).map(|source| (place, source))
            });
            taken.map(|(place, source)| (place, self.open(source))).collect::<Vec<_>>()
        };
        let mut opened: Vec<_> = std::thread::scope(|scope| {
            let workers = self.settings.workers.clamp(1, sources.len().max(1));
            let opening: Vec<_> = (0..workers).map(|_| scope.spawn(each)).collect();
            let opened = opening.into_iter().map(|opening| opening.join().unwrap_or_else(|panic| resume_unwind(panic)));
            opened.flatten().collect()
        });
        opened.sort_by_key(|(place, _)| *place);
        opened.into_iter().map(|(_, served)| served).collect()
    }

    fn open(&self, source: &Source) -> Result<Served, GpuxError> {
        let (pipeline, marks) = self.read(source)?;
        self.warm(pipeline, marks)
    }

    fn read(&self, source: &Source) -> Result<(Pipeline, Marks), GpuxError> {
        let opened = SystemTime::now();
        let pipeline = Pipeline::open_any(&source.0, &self.operator)?;
        let marks = read_since(pipeline.files(), opened);
        Ok((pipeline, marks))
    }

    fn warm(&self, pipeline: Pipeline, marks: Marks) -> Result<Served, GpuxError> {
        Served::new(pipeline, marks, &self.scheduler, &self.settings, &self.metrics)
    }

    /// All pipelines, by name.
    pub fn entries(&self) -> Vec<Arc<Entry>> {
        self.entries.load().values().cloned().collect()
    }

    /// Those that the request which the caller works for may know of, by name.
    pub fn visible(&self) -> Vec<Arc<Entry>> {
        self.entries.load().values().filter(|entry| self.permits(&entry.name)).cloned().collect()
    }

    fn permits(&self, name: &str) -> bool {
        Context::permits(self.settings.keys.is_some(), name)
    }

    /// Whether every pipeline that should answer does; `false` while there is none.
    pub fn is_ready(&self) -> bool {
        let entries = self.entries.load();
        !entries.is_empty() && entries.values().all(|entry| matches!(entry.state(), State::Ready | State::Unloaded))
    }

    /// The pipeline of this name, if the request may use it.
    pub fn get(&self, name: &str) -> Result<Arc<Served>, ServeError> {
        if !self.permits(name) {
            return Err(ServeError::Forbidden(format!("this key may not use `{name}`")));
        }
        let entries = self.entries.load();
        if let Some(entry) = entries.get(name) {
            return entry.current.load_full().ok_or_else(|| not_loaded(entry));
        }
        let names: Vec<_> = self.visible().iter().map(|entry| format!("`{}`", entry.name)).collect();
        Err(ServeError::NotFound(format!("no pipeline is called `{name}`; there is {}", names.join(", "))))
    }

    /// The only pipeline that the request may use.
    pub fn only(&self) -> Result<Arc<Served>, ServeError> {
        let entries = self.entries.load();
        let mut values = entries.values().filter(|entry| self.permits(&entry.name));
        match (values.next(), values.next()) {
            (Some(entry), None) => entry.current.load_full().ok_or_else(|| not_loaded(entry)),
            (None, _) if !entries.is_empty() => Err(ServeError::Forbidden("this key may use no pipeline".to_owned())),
            (None, _) => Err(ServeError::NotReady("the pipelines are being loaded".to_owned())),
            (Some(_), Some(_)) => {
                let path = |entry: &Arc<Entry>| format!("/pipelines/{}/predict", entry.name);
                let paths: Vec<_> = self.visible().iter().map(path).collect();
                Err(ServeError::NotFound(format!("several pipelines are served: {}", paths.join(", "))))
            }
        }
    }

    /// Loads a pipeline again, from where it came. The old one answers until the new one is warm; if
    /// that fails, it goes on. Waits until nobody else loads it; not to be called where requests are served.
    pub(super) fn load(&self, name: &str) -> Result<(), ServeError> {
        let entry = self.entry(name)?;
        let turn = entry.loading.clone().blocking_lock_owned();
        self.load_in(&entry, turn)
    }

    /// Waits for the turn to load a pipeline, which [`load_in`](Self::load_in) needs. However many wait,
    /// none of them holds a thread.
    pub(super) async fn turn(&self, name: &str) -> Result<(Arc<Entry>, OwnedMutexGuard<()>), ServeError> {
        let entry = self.entry(name)?;
        let turn = entry.loading.clone().lock_owned().await;
        Ok((entry, turn))
    }

    /// [`load`](Self::load), in one's turn.
    pub(super) fn load_in(&self, entry: &Entry, _turn: OwnedMutexGuard<()>) -> Result<(), ServeError> {
        let name = entry.name();
        let before = entry.state();
        if entry.current.load().is_none() {
            entry.set(State::Loading);
        }
        let read = self.read(&entry.source);
        if let Ok((pipeline, _)) = &read
            && pipeline.spec().name.value != name
        {
            entry.set(before);
            let message = format!("`{}` is now called `{}`", entry.source.0, pipeline.spec().name.value);
            self.failed(entry, &message);
            return Err(ServeError::NotFound(message));
        }
        match read.and_then(|(pipeline, marks)| self.warm(pipeline, marks)) {
            Ok(served) => {
                entry.current.store(Some(Arc::new(served)));
                entry.set(State::Ready);
                entry.fail(None);
                self.metrics.pipeline(name).reloads.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => {
                let unavailable = || State::Unavailable(error.to_string());
                entry.set(if before == State::Ready { before } else { unavailable() });
                self.failed(entry, &whole(&error));
                Err(error.into())
            }
        }
    }

    fn failed(&self, entry: &Entry, message: &str) {
        entry.fail(Some(message.to_owned()));
        self.metrics.pipeline(&entry.name).failed_reloads.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes a pipeline out of service; requests under way end as they would.
    pub fn unload(&self, name: &str) -> Result<(), ServeError> {
        let entry = self.entry(name)?;
        entry.current.store(None);
        entry.set(State::Unloaded);
        Ok(())
    }

    fn entry(&self, name: &str) -> Result<Arc<Entry>, ServeError> {
        let entries = self.entries.load();
        entries.get(name).cloned().ok_or_else(|| ServeError::NotFound(format!("no pipeline is called `{name}`")))
    }
}

/// Why a pipeline cannot be loaded, each mistake in its file with its place.
fn whole(error: &GpuxError) -> String {
    match error {
        GpuxError::Configuration(LoadError::Invalid(error)) => error.render().trim_end().to_owned(),
        other => other.to_string(),
    }
}

fn not_loaded(entry: &Entry) -> ServeError {
    ServeError::NotReady(match entry.state() {
        State::Unavailable(reason) => format!("`{}` cannot be loaded: {reason}", entry.name),
        State::Unloaded => format!("`{}` was unloaded", entry.name),
        State::Loading | State::Ready => format!("`{}` is being loaded", entry.name),
    })
}
