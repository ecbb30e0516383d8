//! One run on one session: checked out, timed, and given back.

use std::ops::ControlFlow;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::cores::Begun;
use super::costs::Costs;
use super::pace::Pace;
use super::places::Places;
use super::slot::{Slot, Width};
use super::trial::Trial;
use crate::background_work::Maker;
use crate::engine::{Engine, RunFailure, Session, SessionOptions};
use crate::error::ModelLoadError;
use crate::model_file::ModelFile;
use crate::providers::ExecutionProvider;
use crate::turns;
use gpux_core::catch_panic::catch_panic;
use gpux_core::threads;

/// Why a run did not happen, or gave no result.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// no session was free, or the run had not ended, when the deadline came
    #[error("the model gave no result in time")]
    Timeout,
    /// a broken session could not be replaced
    #[error("a session broke and cannot be replaced: {0}")]
    Lost(#[from] ModelLoadError),
    /// the run itself failed
    #[error(transparent)]
    Run(#[from] RunFailure),
}

/// What is done with a session.
pub(super) trait Work<T>: FnOnce(&mut dyn Session) -> Result<T, RunFailure> + Send + 'static {}

impl<T, F: FnOnce(&mut dyn Session) -> Result<T, RunFailure> + Send + 'static> Work<T> for F {}

/// What all runs on the sessions of one model have in common.
pub(super) struct Shared {
    pub(super) engine: Arc<dyn Engine>,
    pub(super) file: Arc<ModelFile>,
    pub(super) options: SessionOptions,
    /// whether one thread of the process may be at such sessions at a time
    pub(super) alone: bool,
    pub(super) places: Places,
    pub(super) retired: AtomicUsize,
    pub(super) pace: Pace,
    pub(super) trial: Trial,
    /// for models whose requests may be padded
    pub(super) costs: OnceLock<Costs>,
}

impl Shared {
    /// Works on the session in `slot`, which is made if there is none and taken away if it breaks.
    /// Where there are turns, `begins` is told that this is one: what it waits is no part of the run.
    pub(super) fn run<T>(
        &self,
        slot: &mut Slot,
        bytes: usize,
        deadline: Option<Instant>,
        begins: impl FnOnce(),
        work: impl Work<T>,
    ) -> Result<T, Unavailable> {
        let _turn = turns::take(self.alone, deadline).map_err(|turns::Late| Unavailable::Timeout)?;
        begins();
        let mut session = match slot.session.take() {
            Some(session) => session,
            None => catch_panic(|| self.load(slot.width)).map_err(|panic| failed_within(&panic))??,
        };
        let core = self.is_for_one_core(slot.width, bytes).then(Begun::on_a_free_core);
        let start = Instant::now();
        let result = catch_panic(|| work(session.as_mut()));
        let took = start.elapsed();
        drop(core);
        self.pace.note(bytes, took);
        let result = result.unwrap_or_else(|panic| Err(failed_within(&panic)));
        if result.is_ok() {
            self.trial.note(slot.width, bytes, took);
            if let Some(costs) = self.costs.get() {
                costs.note(slot.width, bytes, took);
            }
        }
        if !matches!(result, Err(RunFailure::Broken(_))) {
            slot.session = Some(session);
        }
        Ok(result?)
    }

    pub(super) fn load(&self, width: Width) -> Result<Box<dyn Session>, ModelLoadError> {
        match width {
            Width::Wide => self.engine.load(&self.file, &self.options),
            Width::Narrow => {
                let options = SessionOptions { threads: Some(1), ..self.options.clone() };
                self.engine.load(&self.file, &options)
            }
        }
    }

    /// Whether a run on so many bytes may keep the caller's thread, though it has a deadline.
    pub(super) fn stays_here(&self, slot: &Slot, bytes: usize) -> bool {
        slot.session.is_some() && self.pace.is_short(bytes)
    }

    /// Whether a run computes on its own thread alone, and long enough that its core matters.
    fn is_for_one_core(&self, width: Width, bytes: usize) -> bool {
        let one = width == Width::Narrow || self.options.threads == Some(1);
        one && self.options.provider == ExecutionProvider::Cpu && !self.pace.is_brief(bytes)
    }

    pub(super) fn check_out(self: &Arc<Self>, bytes: usize, deadline: Option<Instant>) -> Option<Slot> {
        self.free(bytes).or_else(|| self.places.wait(self.trial.takes(bytes), deadline))
    }

    /// A session that is free now.
    pub(super) fn free(self: &Arc<Self>, bytes: usize) -> Option<Slot> {
        let short = self.trial.takes(bytes);
        let slot = self.places.pop(short);
        if slot.as_ref().is_none_or(|slot| slot.width == Width::Wide) && self.places.asks_for_narrow(short) {
            self.make_narrow();
        }
        slot
    }

    /// Makes a narrow session on another thread; meanwhile requests make do with what there is.
    #[cold]
    fn make_narrow(self: &Arc<Self>) {
        let maker = Maker::begin();
        let shared = self.clone();
        let job = move || {
            shared.places.made(catch_panic(|| shared.load(Width::Narrow).ok()).ok().flatten());
            drop(maker);
            ControlFlow::Continue(())
        };
        if threads::start(Box::new(job)).is_err() {
            self.places.made(None);
        }
    }
}

fn failed_within(panic: &str) -> RunFailure {
    RunFailure::Broken(format!("the engine failed within ({panic})"))
}

/// Gives its slot back however the run ends.
pub(super) struct CheckedOut<'a> {
    pub(super) shared: &'a Arc<Shared>,
    pub(super) slot: Slot,
}

impl Drop for CheckedOut<'_> {
    fn drop(&mut self) {
        self.shared.places.give_back(self.slot.take());
    }
}

impl CheckedOut<'_> {
    pub(super) fn run<T>(
        mut self,
        bytes: usize,
        deadline: Option<Instant>,
        work: impl Work<T>,
    ) -> Result<T, Unavailable> {
        self.shared.run(&mut self.slot, bytes, deadline, || (), work)
    }
}
