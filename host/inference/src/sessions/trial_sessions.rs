//! Sessions for trials, while a model is loaded.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::ModelInputs;
use super::checkout::Shared;
use super::slot::{SessionSlot, ThreadMode};
use crate::engine::RunFailure;
use gpux_core::Tensor;
use gpux_core::catch_panic::catch_panic;

/// One session of each thread mode that serves requests. Their runs teach the set nothing about durations and
/// threads: what is tried is not what is served.
pub(in super::super) struct TrialSessions<'s> {
    shared: &'s Arc<Shared>,
    /// the multi-threaded one belongs to the pool
    slots: SmallVec<[SessionSlot; 2]>,
}

impl<'s> TrialSessions<'s> {
    /// `None` while all sessions are in use.
    pub(super) fn new(shared: &'s Arc<Shared>) -> Option<Self> {
        let mut slots: SmallVec<[SessionSlot; 2]> = smallvec![shared.pool.pop_multi_threaded()?];
        if shared.pool.has_single_threaded() {
            slots.push(SessionSlot::empty(ThreadMode::SingleThreaded, 0));
        }
        Some(Self { shared, slots })
    }

    /// The number of modes; the first is multi-threaded, or what the options say.
    pub(in super::super) fn modes(&self) -> usize {
        self.slots.len()
    }

    /// Runs the model in this mode.
    pub(in super::super) fn run(&mut self, mode: usize, inputs: &ModelInputs) -> Result<Vec<Tensor>, String> {
        let slot = &mut self.slots[mode];
        let mut session = match slot.session.take() {
            Some(session) => session,
            None => catch_panic(|| self.shared.load(slot.mode))?.map_err(|error| error.to_string())?,
        };
        let views: SmallVec<[(usize, &Tensor); 4]> = inputs.iter().map(|(index, tensor)| (*index, tensor)).collect();
        let result = catch_panic(|| session.run(&views, None))?;
        if !matches!(result, Err(RunFailure::Broken(_))) {
            slot.session = Some(session);
        }
        result.map_err(|failure| failure.to_string())
    }
}

impl Drop for TrialSessions<'_> {
    fn drop(&mut self) {
        self.shared.pool.give_back(self.slots[0].take());
    }
}
