//! A model as a set of sessions, checked out without a lock while one is free.

mod alone;
mod pace;
mod threads;

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering, fence};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_queue::ArrayQueue;
use smallvec::SmallVec;

use super::engine::{Engine, RunFailure, Session, SessionOptions};
use super::error::ModelLoadError;
use super::model_file::ModelFile;
use super::value::OnnxValue;
use crate::guard::guard;
use crate::pipeline::Tensor;

use pace::Pace;

/// How long after its deadline a run may still end, before its caller is sent away without it:
/// ONNX Runtime stops most runs sooner, and then the session need not be replaced.
pub(super) const GRACE: Duration = Duration::from_millis(15);

/// A session, or the place of one that is to be made by whoever needs it next.
type Slot = Option<Box<dyn Session>>;

/// What a run is given: each input with its index among the model's inputs, in ascending order.
pub type ModelInputs = SmallVec<[(usize, Tensor); 4]>;

/// The sessions of one model. Each run has one to itself.
pub struct SessionSet {
    shared: Arc<Shared>,
}

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

impl SessionSet {
    /// A set of `instances` sessions (at least one); `first` is one that is made already.
    pub fn new(
        engine: Arc<dyn Engine>,
        file: Arc<ModelFile>,
        options: SessionOptions,
        first: Box<dyn Session>,
        instances: usize,
    ) -> Result<Self, ModelLoadError> {
        let free = ArrayQueue::new(instances.max(1));
        let mut slot = Some(first);
        while !free.is_full() {
            let session = match slot.take() {
                Some(session) => session,
                None => engine.load(&file, &options)?,
            };
            let _ = free.push(Some(alone::doubled(&engine, &file, &options, session)));
        }
        let shared = Shared {
            engine,
            file,
            options,
            free,
            waiting: AtomicUsize::new(0),
            retired: AtomicUsize::new(0),
            gate: Mutex::new(()),
            freed: Condvar::new(),
            pace: Pace::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// How many runs can go on at once.
    pub fn instances(&self) -> usize {
        self.shared.free.capacity()
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

    fn on_session<T: Send + 'static>(
        &self,
        bytes: usize,
        deadline: Option<Instant>,
        work: impl Work<T>,
    ) -> Result<T, Unavailable> {
        let slot = self.shared.check_out(deadline).ok_or(Unavailable::Timeout)?;
        let Some(deadline) = deadline.filter(|_| !self.shared.stays_here(&slot, bytes)) else {
            return CheckedOut { shared: &self.shared, slot }.run(bytes, work);
        };
        let (answer, answered) = sync_channel(1);
        // Nobody listens any more after the deadline.
        let elsewhere = self.run_elsewhere(slot, bytes, work, move |result| drop(answer.send(result)));
        let left = deadline.saturating_duration_since(Instant::now()) + GRACE;
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
    /// thread, for a run that is not known to be short.
    pub(super) fn start(
        &self,
        inputs: ModelInputs,
        deadline: Option<Instant>,
        then: impl FnOnce(Result<Vec<Tensor>, Unavailable>) + Send + 'static,
    ) -> Option<Elsewhere> {
        let Some(slot) = self.shared.check_out(deadline) else {
            then(Err(Unavailable::Timeout));
            return None;
        };
        let bytes = bytes(&inputs);
        let work = run_tensors(inputs, deadline);
        if deadline.is_some() && !self.shared.stays_here(&slot, bytes) {
            return Some(self.run_elsewhere(slot, bytes, work, then));
        }
        // The session is free again before anybody hears of the result.
        let result = CheckedOut { shared: &self.shared, slot }.run(bytes, work);
        then(result);
        None
    }

    fn run_elsewhere<T: 'static>(
        &self,
        slot: Slot,
        bytes: usize,
        work: impl Work<T>,
        then: impl FnOnce(Result<T, Unavailable>) + Send + 'static,
    ) -> Elsewhere {
        let elsewhere = Elsewhere { shared: self.shared.clone(), stay: Arc::default() };
        let mut leave = Leave { shared: self.shared.clone(), stay: elsewhere.stay.clone(), slot };
        let job = move || {
            let shared = leave.shared.clone();
            let result = shared.run(&mut leave.slot, bytes, work);
            drop(leave);
            then(result);
        };
        // Late is better than never.
        threads::start(Box::new(job)).unwrap_or_else(|job| job());
        elsewhere
    }
}

/// What is done with a session.
trait Work<T>: FnOnce(&mut dyn Session) -> Result<T, RunFailure> + Send + 'static {}

impl<T, F: FnOnce(&mut dyn Session) -> Result<T, RunFailure> + Send + 'static> Work<T> for F {}

fn run_tensors(inputs: ModelInputs, deadline: Option<Instant>) -> impl Work<Vec<Tensor>> {
    move |session: &mut dyn Session| {
        let views: SmallVec<[(usize, &Tensor); 4]> = inputs.iter().map(|(index, tensor)| (*index, tensor)).collect();
        session.run(&views, deadline)
    }
}

struct Shared {
    engine: Arc<dyn Engine>,
    file: Arc<ModelFile>,
    options: SessionOptions,
    free: ArrayQueue<Slot>,
    waiting: AtomicUsize,
    retired: AtomicUsize,
    gate: Mutex<()>,
    freed: Condvar,
    pace: Pace,
}

impl Shared {
    /// Works on the session in `slot`, which is made if there is none and taken away if it breaks.
    fn run<T>(&self, slot: &mut Slot, bytes: usize, work: impl Work<T>) -> Result<T, Unavailable> {
        let mut session = match slot.take() {
            Some(session) => session,
            None => self.load()?,
        };
        let start = Instant::now();
        let result = guard(|| work(session.as_mut()));
        self.pace.note(bytes, start.elapsed());
        let result =
            result.unwrap_or_else(|panic| Err(RunFailure::Broken(format!("the engine failed within ({panic})"))));
        if !matches!(result, Err(RunFailure::Broken(_))) {
            *slot = Some(session);
        }
        Ok(result?)
    }

    fn load(&self) -> Result<Box<dyn Session>, ModelLoadError> {
        let session = self.engine.load(&self.file, &self.options)?;
        Ok(alone::doubled(&self.engine, &self.file, &self.options, session))
    }

    /// Whether a run on so many bytes may keep the caller's thread, though it has a deadline.
    fn stays_here(&self, slot: &Slot, bytes: usize) -> bool {
        slot.is_some() && self.pace.is_short(bytes)
    }

    fn check_out(&self, deadline: Option<Instant>) -> Option<Slot> {
        self.free.pop().or_else(|| self.wait(deadline))
    }

    #[cold]
    fn wait(&self, deadline: Option<Instant>) -> Option<Slot> {
        let mut gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        // Whoever gives a session back after this fence sees that somebody waits.
        fence(Ordering::SeqCst);
        let found = loop {
            if let Some(slot) = self.free.pop() {
                break Some(slot);
            }
            gate = match deadline {
                None => self.freed.wait(gate).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break None;
                    }
                    self.freed.wait_timeout(gate, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        found
    }

    fn give_back(&self, slot: Slot) {
        // There is room: the set never holds more slots than it was made with.
        let _ = self.free.push(slot);
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let _gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
            self.freed.notify_one();
        }
    }

    /// The session of a run whose place was given away has ended its kernel: it takes the place of
    /// one that nobody has made yet, or is dropped.
    fn rejoin(&self, mut slot: Slot) {
        if slot.is_some()
            && let Some(mut other) = self.free.pop()
        {
            if other.is_none() {
                std::mem::swap(&mut slot, &mut other);
            }
            self.give_back(other);
        }
        drop(slot);
        self.retired.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Whether a run on another thread still has its place in the set.
#[derive(Default)]
struct Stay(AtomicU8);

impl Stay {
    const RUNNING: u8 = 0;
    const ENDED: u8 = 1;
    const REPLACED: u8 = 2;

    /// Gives its place to another; `false` if it has ended.
    fn replace(&self) -> bool {
        self.0.compare_exchange(Self::RUNNING, Self::REPLACED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Ends it; `false` if its place is taken.
    fn end(&self) -> bool {
        self.0.compare_exchange(Self::RUNNING, Self::ENDED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// Gives its slot back however the run ends.
struct CheckedOut<'a> {
    shared: &'a Arc<Shared>,
    slot: Slot,
}

impl Drop for CheckedOut<'_> {
    fn drop(&mut self) {
        self.shared.give_back(self.slot.take());
    }
}

impl CheckedOut<'_> {
    fn run<T>(mut self, bytes: usize, work: impl Work<T>) -> Result<T, Unavailable> {
        self.shared.run(&mut self.slot, bytes, work)
    }
}

/// The same for a run on another thread, whose place may be taken meanwhile.
struct Leave {
    shared: Arc<Shared>,
    stay: Arc<Stay>,
    slot: Slot,
}

impl Drop for Leave {
    fn drop(&mut self) {
        if self.stay.end() {
            self.shared.give_back(self.slot.take());
        } else {
            self.shared.rejoin(self.slot.take());
        }
    }
}

/// A run that goes on, or has gone on, on another thread.
pub(super) struct Elsewhere {
    shared: Arc<Shared>,
    stay: Arc<Stay>,
}

impl Elsewhere {
    /// Puts an empty slot in the place of a session that is still at work, so that the next request
    /// makes another. Not more of them than the set has sessions: beyond that, and after the end of
    /// the run, this is `false`.
    pub(super) fn retire(&self) -> bool {
        let most = self.shared.free.capacity();
        let one_more = |retired: usize| (retired < most).then_some(retired + 1);
        if self.shared.retired.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).is_err() {
            return false;
        }
        let replaced = self.stay.replace();
        if replaced {
            self.shared.give_back(None);
        } else {
            self.shared.retired.fetch_sub(1, Ordering::AcqRel);
        }
        replaced
    }
}

fn bytes(inputs: &ModelInputs) -> usize {
    inputs.iter().map(|(_, tensor)| tensor.byte_len()).sum()
}

#[cfg(test)]
mod tests;
