//! A pipeline's place among those that are served.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::loaded_pipeline::Served;
use super::repository::Source;

/// What a pipeline is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// it is loaded, or warmed, and nothing answers meanwhile
    Loading,
    /// it answers
    Ready,
    /// it was taken out of service
    Unloaded,
}

/// A pipeline's place.
pub struct Entry {
    name: String,
    source: Source,
    now: ArcSwap<Standing>,
    /// whoever loads or unloads it has this: what was asked last must not be undone by what was asked
    /// before
    turn: Arc<Mutex<()>>,
}

/// How it stands with a pipeline, all of it at once: nobody sees one that is ready and not there.
#[derive(Clone, Default)]
struct Standing {
    served: Option<Arc<Served>>,
    loading: bool,
    /// why what its files hold now is not what answers
    failure: Option<Failure>,
}

/// Why a pipeline's files cannot be served.
#[derive(Clone)]
struct Failure {
    /// for the log, with lines of the files
    whole: String,
    /// for clients
    told: String,
}

impl Entry {
    pub(crate) fn new(name: String, source: Source, served: Served) -> Self {
        let now = Standing { served: Some(Arc::new(served)), ..Standing::default() };
        Self { name, source, now: ArcSwap::from_pointee(now), turn: Arc::default() }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) const fn source(&self) -> &Source {
        &self.source
    }

    /// What it is doing.
    pub fn state(&self) -> State {
        match &**self.now.load() {
            Standing { served: Some(_), .. } => State::Ready,
            Standing { loading: true, .. } => State::Loading,
            Standing { .. } => State::Unloaded,
        }
    }

    /// The pipeline, if it is loaded.
    pub fn served(&self) -> Option<Arc<Served>> {
        self.now.load().served.clone()
    }

    /// Why what its files hold now is not what answers, with lines of the files and where they are: for the log.
    pub fn failure(&self) -> Option<String> {
        self.now.load().failure.as_ref().map(|failure| failure.whole.clone())
    }

    /// The same for clients, who hear neither.
    pub fn told_failure(&self) -> Option<String> {
        self.now.load().failure.as_ref().map(|failure| failure.told.clone())
    }

    /// Waits for the turn to change it. However many wait, none of them holds a thread.
    pub(crate) async fn turn(self: Arc<Self>) -> Change {
        let turn = self.turn.clone().lock_owned().await;
        Change { entry: self, _turn: turn }
    }

    /// The same on a thread that may wait.
    pub(crate) fn blocking_turn(self: Arc<Self>) -> Change {
        let turn = self.turn.clone().blocking_lock_owned();
        Change { entry: self, _turn: turn }
    }
}

/// The turn to change a pipeline's place: there is one at a time.
pub(crate) struct Change {
    entry: Arc<Entry>,
    _turn: OwnedMutexGuard<()>,
}

impl Change {
    pub(crate) fn entry(&self) -> &Entry {
        &self.entry
    }

    /// It is being loaded, until this turn ends.
    pub(crate) fn loading(&self) {
        self.set(|standing| standing.loading = true);
    }

    /// This one answers from now on.
    pub(crate) fn loaded(&self, served: Served) {
        self.set(|standing| *standing = Standing { served: Some(Arc::new(served)), ..Standing::default() });
    }

    /// What its files hold cannot be served: all is as it was before.
    pub(crate) fn failed(&self, whole: String, told: String) {
        self.set(|standing| standing.failure = Some(Failure { whole, told }));
    }

    /// None answers from now on; requests under way end as they would.
    pub(crate) fn unload(&self) {
        self.set(|standing| *standing = Standing::default());
    }

    fn set(&self, change: impl FnOnce(&mut Standing)) {
        let mut standing = Standing::clone(&self.entry.now.load());
        change(&mut standing);
        self.entry.now.store(Arc::new(standing));
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        self.set(|standing| standing.loading = false);
    }
}
