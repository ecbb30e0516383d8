//! A model as a set of sessions, checked out without a lock while one is free.

use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use crossbeam_queue::ArrayQueue;

use super::engine::{Engine, RunFailure, Session, SessionOptions};
use super::error::ModelLoadError;
use super::model_file::ModelFile;
use super::value::OnnxValue;
use crate::guard::guard;
use crate::pipeline::Tensor;

/// A session, or the place of one that broke and is made anew by whoever needs it next.
type Slot = Option<Box<dyn Session>>;

/// The sessions of one model. Each run has one to itself.
pub struct SessionSet {
    engine: Arc<dyn Engine>,
    file: Arc<ModelFile>,
    options: SessionOptions,
    free: ArrayQueue<Slot>,
    waiting: AtomicUsize,
    gate: Mutex<()>,
    freed: Condvar,
}

/// Why a run did not happen, or gave no result.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// every session was in use until the deadline
    #[error("no session of the model became free in time")]
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
            let _ = free.push(Some(session));
        }
        Ok(Self {
            engine,
            file,
            options,
            free,
            waiting: AtomicUsize::new(0),
            gate: Mutex::new(()),
            freed: Condvar::new(),
        })
    }

    /// How many runs can go on at once.
    pub fn instances(&self) -> usize {
        self.free.capacity()
    }

    /// How each session was made.
    pub fn options(&self) -> &SessionOptions {
        &self.options
    }

    /// Runs the model on a free session; waits for one until `deadline`, and hands it on to
    /// [`Session::run`].
    pub fn run(&self, inputs: &[(usize, &Tensor)], deadline: Option<Instant>) -> Result<Vec<Tensor>, Unavailable> {
        self.on_session(deadline, |session| session.run(inputs, deadline))
    }

    /// The same for [`Session::run_values`].
    pub fn run_values(
        &self,
        inputs: &[(usize, &OnnxValue)],
        deadline: Option<Instant>,
    ) -> Result<Vec<OnnxValue>, Unavailable> {
        self.on_session(deadline, |session| session.run_values(inputs, deadline))
    }

    fn on_session<T>(
        &self,
        deadline: Option<Instant>,
        run: impl FnOnce(&mut dyn Session) -> Result<T, RunFailure>,
    ) -> Result<T, Unavailable> {
        let slot = self.check_out(deadline).ok_or(Unavailable::Timeout)?;
        let mut out = CheckedOut { set: self, slot: None };
        let mut session = match slot {
            Some(session) => session,
            None => self.engine.load(&self.file, &self.options)?,
        };
        let result = guard(|| run(session.as_mut()));
        let result =
            result.unwrap_or_else(|panic| Err(RunFailure::Broken(format!("the engine failed within ({panic})"))));
        if !matches!(result, Err(RunFailure::Broken(_))) {
            out.slot = Some(session);
        }
        Ok(result?)
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
}

/// Gives its slot back however the run ends.
struct CheckedOut<'a> {
    set: &'a SessionSet,
    slot: Slot,
}

impl Drop for CheckedOut<'_> {
    fn drop(&mut self) {
        self.set.give_back(self.slot.take());
    }
}

#[cfg(test)]
mod tests;
