//! A model as a set of sessions, checked out without a lock while one is free.

mod cores;
mod costs;
mod elsewhere;
mod pace;
mod places;
mod shared;
mod shelf;
mod slot;
mod trial;
mod worked;

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
use gpux_core::{Placed, Tensor};

use costs::Costs;
use pace::Pace;
use places::Places;
use shared::{CheckedOut, Shared, Work};
use slot::{Slot, Width};
use trial::Trial;

pub(super) use elsewhere::Elsewhere;
pub(super) use places::Inside;
pub use shared::Unavailable;
pub use shelf::in_turn;
pub(super) use worked::Worked;

/// How long after its deadline a run may still end, before its caller is sent away without it:
/// ONNX Runtime stops most runs sooner, and then the session need not be replaced.
pub(super) const GRACE: Duration = Duration::from_millis(15);

/// The largest model whose weights several sessions hold without being asked to, in bytes. Those of
/// larger ones they only map.
const LIGHT: u64 = 8 << 20;

/// What a run is given: each input with its index among the model's inputs, in ascending order.
pub type ModelInputs = SmallVec<[(usize, Tensor); 4]>;

/// The sessions of one model. Each run has one to itself.
pub struct SessionSet {
    shared: Arc<Shared>,
}

impl SessionSet {
    /// A set of `instances` sessions (at least one); `first` is one that is made already. Where
    /// neither their number nor their threads are asked for, and all run on the CPU, there is one
    /// for a few callers, and one a core for more, made when they come.
    pub fn new(
        engine: Arc<dyn Engine>,
        file: Arc<ModelFile>,
        options: SessionOptions,
        first: Box<dyn Session>,
        instances: Option<usize>,
    ) -> Result<Self, ModelLoadError> {
        let wide = instances.unwrap_or(1).max(1);
        let narrow = if instances.is_none() { narrow(&*engine, &file, &options) } else { 0 };
        let places = Places::new(wide, narrow);
        places.give_back(Slot { width: Width::Wide, place: 0, session: Some(first) });
        for place in 1..wide {
            let session = Some(engine.load(&file, &options)?);
            places.give_back(Slot { width: Width::Wide, place, session });
        }
        let (retired, pace, trial) = (AtomicUsize::new(0), Pace::new(), Trial::new(narrow > 0));
        let (costs, alone) = (OnceLock::new(), engine.alone(&options));
        Ok(Self { shared: Arc::new(Shared { engine, file, options, alone, places, retired, pace, trial, costs }) })
    }

    /// How many runs can go on at once, when there are callers for all.
    pub fn most(&self) -> usize {
        self.shared.places.most()
    }

    /// Sessions that are there for a single caller. [`Self::most`] may be more.
    pub fn instances(&self) -> usize {
        self.shared.places.wide()
    }

    /// How many there are now.
    pub fn count(&self) -> usize {
        self.shared.places.count()
    }

    /// How many runs are best begun at once now, with so many callers as there are.
    pub(super) fn open(&self) -> usize {
        self.shared.places.open()
    }

    /// Counts a caller who will [`start`](Self::start) a run, or wait for one.
    pub(super) fn enter(&self) -> Inside<'_> {
        self.shared.places.enter()
    }

    /// The bytes of input that cost as much as beginning a run, once enough runs of different sizes
    /// were seen. They are looked at from the first call on.
    pub(super) fn start_cost(&self) -> Option<usize> {
        self.shared.costs.get_or_init(Costs::new).start()
    }

    /// How each session was made.
    pub fn options(&self) -> &SessionOptions {
        &self.shared.options
    }

    /// Sessions whose caller was sent away at its deadline while a kernel was at work. Each is gone,
    /// or free again, when that kernel returns.
    pub fn retired(&self) -> usize {
        self.shared.retired.load(Ordering::Acquire)
    }

    /// Runs the model on a free session. By `deadline`, or some milliseconds later, there is an
    /// answer, whatever the engine is at: a run that is not known to be short goes to a thread that
    /// can be left behind.
    pub fn run(&self, inputs: ModelInputs, deadline: Option<Instant>) -> Result<Vec<Tensor>, Unavailable> {
        self.on_session(bytes(&inputs), deadline, run_tensors(inputs, deadline))
    }

    /// The same; `worked` tells how long a session was at it.
    pub(super) fn run_timed(
        &self,
        inputs: ModelInputs,
        deadline: Option<Instant>,
        worked: &Arc<Worked>,
    ) -> Result<Vec<Tensor>, Unavailable> {
        self.on_session(bytes(&inputs), deadline, worked.clone().noting(run_tensors(inputs, deadline)))
    }

    /// The same for models of other values than plain tensors.
    pub fn run_values(
        &self,
        inputs: Vec<(usize, OnnxValue)>,
        deadline: Option<Instant>,
    ) -> Result<Vec<OnnxValue>, Unavailable> {
        let bytes = inputs.iter().map(|(_, value)| value.byte_len()).sum();
        self.on_session(bytes, deadline, move |session: &mut dyn Session| {
            let views: Vec<_> = inputs.iter().map(|(index, value)| (*index, value)).collect();
            session.run_values(&views, deadline)
        })
    }

    /// The same with tensors in the device's memory among the inputs; outputs whose number is true in
    /// `stay` are left there.
    pub fn run_placed(
        &self,
        inputs: Vec<(usize, Placed<Tensor>)>,
        stay: &[bool],
        deadline: Option<Instant>,
    ) -> Result<Vec<Placed<Tensor>>, Unavailable> {
        let bytes = inputs.iter().map(|(_, tensor)| tensor.byte_len()).sum();
        let stay: SmallVec<[bool; 8]> = stay.into();
        self.on_session(bytes, deadline, move |session: &mut dyn Session| {
            let views: Vec<_> = inputs.iter().map(|(index, tensor)| (*index, tensor)).collect();
            session.run_placed(&views, &stay, deadline)
        })
    }

    /// Whether a run would find a free session now.
    pub fn is_free(&self) -> bool {
        self.shared.places.is_free()
    }

    /// Runs it on a session that is free now, and on the calling thread; [`Unavailable::Timeout`] where there is
    /// none, or the run is not known to be short.
    pub fn run_at_once(&self, inputs: ModelInputs, deadline: Option<Instant>) -> Result<Vec<Tensor>, Unavailable> {
        let bytes = bytes(&inputs);
        let _inside = self.enter();
        let slot = self.shared.free(bytes).ok_or(Unavailable::Timeout)?;
        let checked_out = CheckedOut { shared: &self.shared, slot };
        if self.shared.alone || !self.shared.stays_here(&checked_out.slot, bytes) {
            return Err(Unavailable::Timeout);
        }
        checked_out.run(bytes, deadline, run_tensors(inputs, deadline))
    }

    fn on_session<T: Send + 'static>(
        &self,
        bytes: usize,
        deadline: Option<Instant>,
        work: impl Work<T>,
    ) -> Result<T, Unavailable> {
        let _inside = self.enter();
        let slot = self.shared.check_out(bytes, deadline).ok_or(Unavailable::Timeout)?;
        let Some(until) = deadline.filter(|_| !self.shared.stays_here(&slot, bytes)) else {
            return CheckedOut { shared: &self.shared, slot }.run(bytes, deadline, work);
        };
        let (answer, answered) = sync_channel(1);
        // Nobody listens any more after the deadline.
        let elsewhere = self.shared.run_elsewhere(slot, bytes, deadline, work, move |result| drop(answer.send(result)));
        let left = until.saturating_duration_since(Instant::now()) + GRACE;
        match answered.recv_timeout(left) {
            Ok(result) => result,
            Err(RecvTimeoutError::Disconnected) => {
                Err(RunFailure::Broken("the engine failed within".to_owned()).into())
            }
            Err(RecvTimeoutError::Timeout) => {
                elsewhere.retire();
                Err(Unavailable::Timeout)
            }
        }
    }

    /// Runs the model and hands what comes of it to `then`: before this returns, or on another
    /// thread, for a run that is not known to be short. `worked` tells how long a session was at it.
    pub(super) fn start(
        &self,
        inputs: ModelInputs,
        deadline: Option<Instant>,
        worked: &Arc<Worked>,
        then: impl FnOnce(Result<Vec<Tensor>, Unavailable>) + Send + 'static,
    ) -> Option<Elsewhere> {
        let bytes = bytes(&inputs);
        let Some(slot) = self.shared.check_out(bytes, deadline) else {
            then(Err(Unavailable::Timeout));
            return None;
        };
        let work = worked.clone().noting(run_tensors(inputs, deadline));
        if deadline.is_some() && !self.shared.stays_here(&slot, bytes) {
            return Some(self.shared.run_elsewhere(slot, bytes, deadline, work, then));
        }
        // The session is free again before anybody hears of the result.
        let result = CheckedOut { shared: &self.shared, slot }.run(bytes, deadline, work);
        then(result);
        None
    }
}

impl Drop for SessionSet {
    /// Whoever has let go of all models may end the process.
    fn drop(&mut self) {
        if self.shared.places.is_making() {
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

/// How many narrow sessions the model may have.
fn narrow(engine: &dyn Engine, file: &ModelFile, options: &SessionOptions) -> usize {
    let cores = engine.threads(None);
    let light = file.info().size_bytes <= LIGHT || options.optimized.is_some();
    let on_cpu = options.provider == ExecutionProvider::Cpu;
    if options.threads.is_none() && on_cpu && light && cores > 1 { cores } else { 0 }
}

fn bytes(inputs: &ModelInputs) -> usize {
    inputs.iter().map(|(_, tensor)| tensor.byte_len()).sum()
}

#[cfg(test)]
mod tests;
