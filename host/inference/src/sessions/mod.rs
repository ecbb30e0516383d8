//! A model as a set of sessions, checked out without a lock while one is free.

mod abandonable_run;
mod checkout;
mod core_selection;
mod pool;
mod reservation;
mod run_cost;
mod run_duration;
mod run_timer;
mod session_affinity;
mod slot;
mod threading_trial;
mod trial_sessions;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::background_work;
use super::engine::{Engine, RunFailure, Session, SessionOptions};
use super::error::ModelLoadError;
use super::model_file::ModelFile;
use super::providers::ExecutionProvider;
use super::value::OnnxValue;
use gpux_core::{HostOrDevice, Tensor};

use checkout::{CheckedOut, Shared, Work};
use pool::SessionPool;
use run_cost::CostModel;
use run_duration::RunDurations;
use slot::{SessionSlot, ThreadMode};
use threading_trial::ThreadingTrial;

pub(super) use trial_sessions::TrialSessions;

pub(super) use abandonable_run::OffloadedRun;
pub use checkout::SessionRunError;
pub(super) use pool::CallerGuard;
pub use reservation::SessionReservation;
pub(super) use run_timer::RunTimer;
pub use session_affinity::with_preferred_session;

/// How long a caller waits beyond its deadline for the run to end: ONNX Runtime terminates most runs
/// sooner, and then the session need not be replaced.
pub(super) const GRACE: Duration = Duration::from_millis(15);

/// The largest model whose weights several sessions hold without being asked to, in bytes. Those of
/// larger ones they only map.
const SMALL_MODEL: u64 = 8 << 20;

/// The inputs of a run, each with its index among the model's inputs, in ascending order.
pub type ModelInputs = SmallVec<[(usize, Tensor); 4]>;

/// The sessions of one model. Each run has one to itself.
pub struct SessionSet {
    shared: Arc<Shared>,
}

impl SessionSet {
    /// A set of `instances` sessions (at least one); `first` is loaded already. If neither `instances`
    /// nor threads are set, models on the CPU have one multi-threaded session for few callers, and one
    /// single-threaded session a core, loaded on demand, for more.
    pub fn new(
        engine: Arc<dyn Engine>,
        file: Arc<ModelFile>,
        options: SessionOptions,
        first: Box<dyn Session>,
        instances: Option<usize>,
    ) -> Result<Self, ModelLoadError> {
        let multi_threaded = instances.unwrap_or(1).max(1);
        let single_threaded = if instances.is_none() { single_threaded(&*engine, &file, &options) } else { 0 };
        let pool = SessionPool::new(multi_threaded, single_threaded);
        pool.give_back(SessionSlot { mode: ThreadMode::MultiThreaded, index: 0, session: Some(first) });
        for index in 1..multi_threaded {
            let session = Some(engine.load(&file, &options)?);
            pool.give_back(SessionSlot { mode: ThreadMode::MultiThreaded, index, session });
        }
        Ok(Self::with_pool(engine, file, options, pool, single_threaded > 0))
    }

    /// A set in which every run has one thread, of as many sessions as there are cores: for models whose results
    /// depend on the number of threads. All but the first load on demand.
    pub(super) fn single_threaded(
        engine: Arc<dyn Engine>,
        file: Arc<ModelFile>,
        options: SessionOptions,
    ) -> Result<Self, ModelLoadError> {
        let cores = engine.threads(None).max(1);
        let options = SessionOptions { threads: Some(1), ..options };
        let pool = SessionPool::new(cores, 0);
        let session = Some(engine.load(&file, &options)?);
        pool.give_back(SessionSlot { mode: ThreadMode::MultiThreaded, index: 0, session });
        (1..cores).for_each(|index| pool.give_back(SessionSlot::empty(ThreadMode::MultiThreaded, index)));
        Ok(Self::with_pool(engine, file, options, pool, false))
    }

    fn with_pool(
        engine: Arc<dyn Engine>,
        file: Arc<ModelFile>,
        options: SessionOptions,
        pool: SessionPool,
        tries_threads: bool,
    ) -> Self {
        let (retired, durations, threading_trial) =
            (AtomicUsize::new(0), RunDurations::new(), ThreadingTrial::new(tries_threads));
        let (cost_model, exclusive) = (OnceLock::new(), engine.is_exclusive(&options));
        Self {
            shared: Arc::new(Shared {
                engine,
                file,
                options,
                exclusive,
                pool,
                retired,
                durations,
                threading_trial,
                cost_model,
            }),
        }
    }

    /// The model.
    pub(super) fn file(&self) -> &ModelFile {
        &self.shared.file
    }

    /// Sessions for trials before the set serves requests; `None` while all are in use.
    pub(super) fn trial_sessions(&self) -> Option<TrialSessions<'_>> {
        TrialSessions::new(&self.shared)
    }

    /// A session of another `file` with one thread, as trials look into a model with it.
    pub(super) fn load_variant(&self, file: &ModelFile) -> Result<Box<dyn Session>, ModelLoadError> {
        let options = SessionOptions { threads: Some(1), optimized: None, ..self.shared.options.clone() };
        self.shared.engine.load(file, &options)
    }

    /// The most runs at once.
    pub fn max_concurrency(&self) -> usize {
        self.shared.pool.max_concurrency()
    }

    /// Sessions that exist without load. [`Self::max_concurrency`] may be more.
    pub fn instances(&self) -> usize {
        self.shared.pool.multi_threaded()
    }

    /// The number of sessions now.
    pub fn count(&self) -> usize {
        self.shared.pool.count()
    }

    /// The number of runs to start at once under the current load.
    pub(super) fn target_concurrency(&self) -> usize {
        self.shared.pool.target_concurrency()
    }

    /// Counts a caller that will [`start`](Self::start) a run, or wait for one.
    pub(super) fn count_caller(&self) -> CallerGuard<'_> {
        self.shared.pool.count_caller()
    }

    /// The overhead of a run in bytes of input, once enough runs of different sizes were recorded.
    /// Recording begins with the first call.
    pub(super) fn overhead_bytes(&self) -> Option<usize> {
        self.shared.cost_model.get_or_init(CostModel::new).start()
    }

    /// The options of each session.
    pub fn options(&self) -> &SessionOptions {
        &self.shared.options
    }

    /// Sessions whose caller timed out while a kernel was running. Each is dropped, or free again,
    /// when that kernel returns.
    pub fn retired(&self) -> usize {
        self.shared.retired.load(Ordering::Acquire)
    }

    /// Runs the model on a free session. Returns at `deadline`, or some milliseconds later, even if a
    /// kernel is running: a run that is not known to be short is offloaded to a thread that can be
    /// abandoned.
    pub fn run(&self, inputs: ModelInputs, deadline: Option<Instant>) -> Result<Vec<Tensor>, SessionRunError> {
        self.on_session(bytes(&inputs), deadline, run_tensors(inputs, deadline))
    }

    /// [`Self::run`]; `timer` measures the time on the session.
    pub(super) fn run_timed(
        &self,
        inputs: ModelInputs,
        deadline: Option<Instant>,
        timer: &Arc<RunTimer>,
    ) -> Result<Vec<Tensor>, SessionRunError> {
        self.on_session(bytes(&inputs), deadline, timer.clone().timing(run_tensors(inputs, deadline)))
    }

    /// [`Self::run`] for models of other values than plain tensors.
    pub fn run_values(
        &self,
        inputs: Vec<(usize, OnnxValue)>,
        deadline: Option<Instant>,
    ) -> Result<Vec<OnnxValue>, SessionRunError> {
        let bytes = inputs.iter().map(|(_, value)| value.byte_len()).sum();
        self.on_session(bytes, deadline, move |session: &mut dyn Session| {
            let views: Vec<_> = inputs.iter().map(|(index, value)| (*index, value)).collect();
            session.run_values(&views, deadline)
        })
    }

    /// [`Self::run`] with tensors in the device's memory among the inputs; outputs whose entry in
    /// `stay` is true remain there.
    pub fn run_placed(
        &self,
        inputs: Vec<(usize, HostOrDevice<Tensor>)>,
        stay: &[bool],
        deadline: Option<Instant>,
    ) -> Result<Vec<HostOrDevice<Tensor>>, SessionRunError> {
        let bytes = inputs.iter().map(|(_, tensor)| tensor.byte_len()).sum();
        let stay: SmallVec<[bool; 8]> = stay.into();
        self.on_session(bytes, deadline, move |session: &mut dyn Session| {
            let views: Vec<_> = inputs.iter().map(|(index, tensor)| (*index, tensor)).collect();
            session.run_placed(&views, &stay, deadline)
        })
    }

    /// Reserves a free session for the calling thread's next run, which then neither waits nor is offloaded. `None` if
    /// no loaded session is free.
    pub fn reserve(&self) -> Option<SessionReservation<'_>> {
        let _caller = self.count_caller();
        let slot = self.shared.free(0)?;
        if self.shared.exclusive || slot.session.is_none() {
            self.shared.pool.give_back(slot);
            return None;
        }
        Some(SessionReservation::new(&self.shared, slot))
    }

    fn on_session<T: Send + 'static>(
        &self,
        bytes: usize,
        deadline: Option<Instant>,
        work: impl Work<T>,
    ) -> Result<T, SessionRunError> {
        let _caller = self.count_caller();
        let reserved = reservation::take(&self.shared);
        let may_offload = reserved.is_none();
        let slot = reserved.or_else(|| self.shared.check_out(bytes, deadline)).ok_or(SessionRunError::Timeout)?;
        let Some(until) = deadline.filter(|_| may_offload && !self.shared.can_run_inline(&slot, bytes)) else {
            return CheckedOut { shared: &self.shared, slot }.run(bytes, deadline, work);
        };
        let (answer, answered) = sync_channel(1);
        // The receiver is gone after the deadline.
        let offloaded = self.shared.offload(slot, bytes, deadline, work, move |result| drop(answer.send(result)));
        let left = until.saturating_duration_since(Instant::now()) + GRACE;
        match answered.recv_timeout(left) {
            Ok(result) => result,
            Err(RecvTimeoutError::Disconnected) => {
                Err(RunFailure::Broken("the engine failed within".to_owned()).into())
            }
            Err(RecvTimeoutError::Timeout) => {
                offloaded.retire();
                Err(SessionRunError::Timeout)
            }
        }
    }

    /// Runs the model and passes the result to `then`: before this returns, or on another thread for a
    /// run that is not known to be short. `timer` measures the time on the session.
    pub(super) fn start(
        &self,
        inputs: ModelInputs,
        deadline: Option<Instant>,
        timer: &Arc<RunTimer>,
        then: impl FnOnce(Result<Vec<Tensor>, SessionRunError>) + Send + 'static,
    ) -> Option<OffloadedRun> {
        let bytes = bytes(&inputs);
        let Some(slot) = self.shared.check_out(bytes, deadline) else {
            then(Err(SessionRunError::Timeout));
            return None;
        };
        timer.set_mode(slot.mode);
        let work = timer.clone().timing(run_tensors(inputs, deadline));
        if deadline.is_some() && !self.shared.can_run_inline(&slot, bytes) {
            return Some(self.shared.offload(slot, bytes, deadline, work, then));
        }
        // The session is free before the result is delivered.
        let result = CheckedOut { shared: &self.shared, slot }.run(bytes, deadline, work);
        then(result);
        None
    }
}

impl Drop for SessionSet {
    /// Once all models are dropped the process may exit, so no session may be loading then.
    fn drop(&mut self) {
        if self.shared.pool.is_loading_session() {
            background_work::wait();
        }
    }
}

fn run_tensors(inputs: ModelInputs, deadline: Option<Instant>) -> impl Work<Vec<Tensor>> {
    move |session: &mut dyn Session| {
        let views: SmallVec<[(usize, &Tensor); 4]> = inputs.iter().map(|(index, tensor)| (*index, tensor)).collect();
        session.run(&views, deadline)
    }
}

/// The number of single-threaded sessions that the model may have.
fn single_threaded(engine: &dyn Engine, file: &ModelFile, options: &SessionOptions) -> usize {
    let cores = engine.threads(None);
    let is_small = file.info().size_bytes <= SMALL_MODEL || options.optimized.is_some();
    let on_cpu = options.provider == ExecutionProvider::Cpu;
    if options.threads.is_none() && on_cpu && is_small && cores > 1 { cores } else { 0 }
}

pub(super) fn bytes(inputs: &ModelInputs) -> usize {
    inputs.iter().map(|(_, tensor)| tensor.byte_len()).sum()
}

#[cfg(test)]
mod tests;
