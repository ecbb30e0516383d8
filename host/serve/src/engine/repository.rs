//! The pipelines that are served, by name.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arc_swap::ArcSwap;

use super::error::ServeError;
use super::loaded_pipeline::Served;
use super::memory_budget::Bodies;
use super::metrics::Metrics;
use super::pipeline_slot::{Change, Entry, State};
use super::request_context::Context;
use super::scheduler::Scheduler;
use crate::settings::Settings;
use gpux::GpuxError;
use gpux::{LoadOptions, Pipeline};
use gpux_config::LoadError;
use gpux_core::catch_panic::catch_panic;
use gpux_inference::BackgroundDrop;

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
    operator: LoadOptions,
    scheduler: Scheduler,
    settings: Settings,
    metrics: Arc<Metrics>,
    /// as much again as for bodies is for answers
    answers: Bodies,
}

impl Repository {
    /// An empty repository, whose pipelines will be opened under the operator's word.
    pub(crate) fn new(operator: LoadOptions, scheduler: Scheduler, settings: Settings, metrics: Arc<Metrics>) -> Self {
        let answers = Bodies::new(&settings, &metrics);
        Self { entries: ArcSwap::default(), operator, scheduler, settings, metrics, answers }
    }

    /// The room for answers.
    pub(crate) const fn answers(&self) -> &Bodies {
        &self.answers
    }

    /// Starts the threads that run requests.
    pub(crate) fn start_workers(&self) -> std::io::Result<()> {
        self.scheduler.start_workers()
    }

    /// Loads and warms pipelines that are not there yet.
    pub(crate) fn add(&self, sources: &[Source]) -> Result<(), RepositoryError> {
        let mut entries = BTreeMap::<String, Arc<Entry>>::clone(&self.entries.load());
        for (source, served) in sources.iter().zip(self.open_all(sources)) {
            let served = served?;
            let name = served.name().to_owned();
            if let Some(other) = entries.get(&name) {
                let (first, second) = (other.source().0.clone(), source.0.clone());
                return Err(RepositoryError::SameName { name, first, second });
            }
            let entry = Entry::new(name.clone(), source.clone(), served);
            entries.insert(name, Arc::new(entry));
        }
        self.entries.store(Arc::new(entries));
        Ok(())
    }

    /// Opens them side by side, as many at once as there are workers, or as there can be threads.
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
            let others = self.settings.workers.min(sources.len()).saturating_sub(1);
            let start = |_| std::thread::Builder::new().spawn_scoped(scope, each).ok();
            let opening: Vec<_> = (0..others).map_while(start).collect();
            let own = each();
            let opened = opening.into_iter().map(|opening| opening.join().unwrap_or_else(|panic| resume_unwind(panic)));
            opened.flatten().chain(own).collect()
        });
        opened.sort_by_key(|(place, _)| *place);
        opened.into_iter().map(|(_, served)| served).collect()
    }

    fn open(&self, source: &Source) -> Result<Served, GpuxError> {
        self.warm(self.read(source)?)
    }

    fn read(&self, source: &Source) -> Result<Pipeline, GpuxError> {
        Pipeline::open(&source.0, &self.operator)
    }

    fn warm(&self, pipeline: Pipeline) -> Result<Served, GpuxError> {
        Served::new(pipeline, &self.scheduler, &self.settings, &self.metrics, self.answers.clone())
    }

    /// All pipelines, by name.
    pub fn entries(&self) -> Vec<Arc<Entry>> {
        self.entries.load().values().cloned().collect()
    }

    /// Those that the request which the caller works for may know of, by name.
    pub fn visible(&self) -> Vec<Arc<Entry>> {
        self.entries.load().values().filter(|entry| self.permits(entry.name())).cloned().collect()
    }

    fn permits(&self, name: &str) -> bool {
        Context::permits(self.settings.keys.is_some(), name)
    }

    fn permitted(&self, name: &str) -> Result<(), ServeError> {
        let refused = || ServeError::Forbidden(format!("this key may not use `{name}`"));
        if self.permits(name) { Ok(()) } else { Err(refused()) }
    }

    /// Whether every pipeline that should answer does: they came together, each of them warm, and what
    /// does not answer since was taken out of service.
    pub fn is_ready(&self) -> bool {
        !self.entries.load().is_empty()
    }

    /// The pipeline of this name, if the request may use it.
    pub fn get(&self, name: &str) -> Result<Arc<Served>, ServeError> {
        self.permitted(name)?;
        let entries = self.entries.load();
        if let Some(entry) = entries.get(name) {
            return entry.served().ok_or_else(|| not_loaded(entry));
        }
        let names: Vec<_> = self.visible().iter().map(|entry| format!("`{}`", entry.name())).collect();
        Err(ServeError::NotFound(format!("no pipeline is called `{name}`; there is {}", names.join(", "))))
    }

    /// The only pipeline that the request may use. Where there are several, the error says where each takes
    /// this `call`.
    pub fn only(&self, call: &str) -> Result<Arc<Served>, ServeError> {
        let entries = self.entries.load();
        let mut values = entries.values().filter(|entry| self.permits(entry.name()));
        match (values.next(), values.next()) {
            (Some(entry), None) => entry.served().ok_or_else(|| not_loaded(entry)),
            (None, _) if !entries.is_empty() => Err(ServeError::Forbidden("this key may use no pipeline".to_owned())),
            (None, _) => Err(ServeError::NotReady("the pipelines are being loaded".to_owned())),
            (Some(_), Some(_)) => {
                let path = |entry: &Arc<Entry>| format!("/pipelines/{}/{call}", entry.name());
                let paths: Vec<_> = self.visible().iter().map(path).collect();
                Err(ServeError::NotFound(format!("several pipelines are served: {}", paths.join(", "))))
            }
        }
    }

    /// Waits for the turn to load or unload a pipeline.
    pub(crate) async fn turn(&self, name: &str) -> Result<Change, ServeError> {
        self.permitted(name)?;
        Ok(self.entry(name)?.turn().await)
    }

    /// Loads a pipeline again that is in service; `None` for one that was taken out. Waits for the
    /// turn, so it must not be called where requests are served.
    pub(crate) fn reload(&self, entry: &Arc<Entry>) -> Option<Result<(), ServeError>> {
        let change = entry.clone().blocking_turn();
        entry.served().map(|_| self.load(&change))
    }

    /// Loads a pipeline, again or at last, from where it came. The old one answers until the new one
    /// is warm; if that fails, everything stays as it is, and [`Entry::failure`] says why.
    pub(crate) fn load(&self, change: &Change) -> Result<(), ServeError> {
        change.loading();
        let reloads = self.metrics.pipeline(change.entry().name());
        // Whoever loads, for a client or on SIGHUP, is there for the next one as well.
        let opened = catch_panic(|| self.open_again(change.entry()));
        match opened.unwrap_or_else(|panic| Err(ServeError::NotReady(format!("loading was broken off: {panic}")))) {
            Ok(served) => {
                change.loaded(served);
                reloads.reloads.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => {
                let whole = whole(&error);
                let error = ServeError::NotLoaded(Box::new(error));
                change.failed(whole, error.to_string());
                reloads.failed_reloads.fetch_add(1, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    /// What the files of a pipeline hold now.
    fn open_again(&self, entry: &Entry) -> Result<Served, ServeError> {
        let pipeline = self.read(entry.source())?;
        let name = &pipeline.spec().name.value;
        if name != entry.name() {
            return Err(ServeError::NotFound(format!("`{}` is now called `{name}`", entry.source().0)));
        }
        Ok(self.warm(pipeline)?)
    }

    fn entry(&self, name: &str) -> Result<Arc<Entry>, ServeError> {
        let entries = self.entries.load();
        entries.get(name).cloned().ok_or_else(|| ServeError::NotFound(format!("no pipeline is called `{name}`")))
    }
}

impl Drop for Repository {
    /// Whoever has let go of all pipelines may end the process.
    fn drop(&mut self) {
        self.entries.store(Arc::default());
        BackgroundDrop::wait();
    }
}

/// Why a pipeline cannot be loaded, each mistake in its file with its place.
fn whole(error: &ServeError) -> String {
    match error {
        ServeError::Gpux(GpuxError::Configuration(LoadError::Invalid(error))) => {
            let reason = error.render();
            reason.strip_prefix("error: ").unwrap_or(&reason).trim_end().to_owned()
        }
        other => other.to_string(),
    }
}

fn not_loaded(entry: &Entry) -> ServeError {
    let name = entry.name();
    match entry.state() {
        State::Unloaded => ServeError::NotFound(format!("`{name}` was unloaded")),
        State::Loading | State::Ready => ServeError::NotReady(format!("`{name}` is being loaded")),
    }
}

#[cfg(test)]
mod tests;
