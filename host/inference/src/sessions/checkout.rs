//! One run on one session: checked out, timed, and given back.

use std::ops::ControlFlow;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::core_selection::CoreReservation;
use super::pool::SessionPool;
use super::run_cost::CostModel;
use super::run_duration::RunDurations;
use super::slot::{SessionSlot, ThreadMode};
use super::threading_trial::ThreadingTrial;
use crate::background_work::BackgroundLoad;
use crate::engine::{Engine, RunFailure, Session, SessionOptions};
use crate::error::ModelLoadError;
use crate::exclusive_device;
use crate::model_file::ModelFile;
use crate::providers::ExecutionProvider;
use gpux_core::DeadlineExceeded;
use gpux_core::catch_panic::catch_panic;
use gpux_core::threads;

/// Why a run did not happen, or gave no result.
#[derive(Debug, thiserror::Error)]
pub enum SessionRunError {
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

/// The work of a run.
pub(super) trait Work<T>: FnOnce(&mut dyn Session) -> Result<T, RunFailure> + Send + 'static {}

impl<T, F: FnOnce(&mut dyn Session) -> Result<T, RunFailure> + Send + 'static> Work<T> for F {}

/// The state that all runs on a model's sessions share.
pub(super) struct Shared {
    pub(super) engine: Arc<dyn Engine>,
    pub(super) file: Arc<ModelFile>,
    pub(super) options: SessionOptions,
    /// whether only one thread of the process may use these sessions at a time
    pub(super) exclusive: bool,
    pub(super) pool: SessionPool,
    pub(super) retired: AtomicUsize,
    pub(super) durations: RunDurations,
    pub(super) threading_trial: ThreadingTrial,
    /// for models whose requests may be padded
    pub(super) cost_model: OnceLock<CostModel>,
}

impl Shared {
    /// Runs `work` on the session in `slot`, which is loaded if there is none and dropped if it breaks.
    /// `begins` is called once the device's lock is held: waiting for it is no part of the run.
    pub(super) fn run<T>(
        &self,
        slot: &mut SessionSlot,
        bytes: usize,
        deadline: Option<Instant>,
        begins: impl FnOnce(),
        work: impl Work<T>,
    ) -> Result<T, SessionRunError> {
        let _guard =
            exclusive_device::acquire(self.exclusive, deadline).map_err(|DeadlineExceeded| SessionRunError::Timeout)?;
        begins();
        let mut session = match slot.session.take() {
            Some(session) => session,
            None => catch_panic(|| self.load(slot.mode)).map_err(|panic| engine_panicked(&panic))??,
        };
        let core = self.needs_free_core(slot.mode, bytes).then(CoreReservation::acquire);
        let start = Instant::now();
        let result = catch_panic(|| work(session.as_mut()));
        let duration = start.elapsed();
        drop(core);
        self.durations.record(bytes, duration);
        let result = result.unwrap_or_else(|panic| Err(engine_panicked(&panic)));
        if result.is_ok() {
            self.threading_trial.record(slot.mode, bytes, duration);
            if let Some(cost_model) = self.cost_model.get() {
                cost_model.record(slot.mode, bytes, duration);
            }
        }
        if !matches!(result, Err(RunFailure::Broken(_))) {
            slot.session = Some(session);
        }
        Ok(result?)
    }

    pub(super) fn load(&self, mode: ThreadMode) -> Result<Box<dyn Session>, ModelLoadError> {
        match mode {
            ThreadMode::MultiThreaded => self.engine.load(&self.file, &self.options),
            ThreadMode::SingleThreaded => {
                let options = SessionOptions { threads: Some(1), ..self.options.clone() };
                self.engine.load(&self.file, &options)
            }
        }
    }

    /// Whether a run with a deadline may use the caller's thread.
    pub(super) fn can_run_inline(&self, slot: &SessionSlot, bytes: usize) -> bool {
        slot.session.is_some() && self.durations.is_short(bytes)
    }

    /// Whether the run is single-threaded, and long enough that its core matters.
    fn needs_free_core(&self, mode: ThreadMode, bytes: usize) -> bool {
        let one = mode == ThreadMode::SingleThreaded || self.options.threads == Some(1);
        one && self.options.provider == ExecutionProvider::Cpu && !self.durations.is_brief(bytes)
    }

    pub(super) fn check_out(self: &Arc<Self>, bytes: usize, deadline: Option<Instant>) -> Option<SessionSlot> {
        self.free(bytes).or_else(|| self.pool.wait(self.threading_trial.prefers_single_threaded(bytes), deadline))
    }

    /// A session that is free now.
    pub(super) fn free(self: &Arc<Self>, bytes: usize) -> Option<SessionSlot> {
        let short = self.threading_trial.prefers_single_threaded(bytes);
        let slot = self.pool.pop(short);
        if slot.as_ref().is_none_or(|slot| slot.mode == ThreadMode::MultiThreaded)
            && self.pool.claim_single_threaded_load(short)
        {
            self.add_single_threaded();
        }
        slot
    }

    /// Loads a single-threaded session on another thread, without blocking requests.
    #[cold]
    fn add_single_threaded(self: &Arc<Self>) {
        let maker = BackgroundLoad::begin();
        let shared = self.clone();
        let job = move || {
            shared.pool.loaded(catch_panic(|| shared.load(ThreadMode::SingleThreaded).ok()).ok().flatten());
            drop(maker);
            ControlFlow::Continue(())
        };
        if threads::start(Box::new(job)).is_err() {
            self.pool.loaded(None);
        }
    }
}

fn engine_panicked(panic: &str) -> RunFailure {
    RunFailure::Broken(format!("the engine failed within ({panic})"))
}

/// Returns its slot when dropped.
pub(super) struct CheckedOut<'a> {
    pub(super) shared: &'a Arc<Shared>,
    pub(super) slot: SessionSlot,
}

impl Drop for CheckedOut<'_> {
    fn drop(&mut self) {
        self.shared.pool.give_back(self.slot.take());
    }
}

impl CheckedOut<'_> {
    pub(super) fn run<T>(
        mut self,
        bytes: usize,
        deadline: Option<Instant>,
        work: impl Work<T>,
    ) -> Result<T, SessionRunError> {
        self.shared.run(&mut self.slot, bytes, deadline, || (), work)
    }
}
