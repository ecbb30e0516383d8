//! A free session that a thread reserves before a run, so that the run does not wait.

use std::cell::Cell;
use std::sync::Arc;

use super::checkout::Shared;
use super::slot::SessionSlot;

thread_local! {
    /// The session that the thread has reserved, with the address of its set's state.
    static RESERVED: Cell<Option<(usize, SessionSlot)>> = const { Cell::new(None) };
}

/// A session reserved by this thread. Unless a run has taken it, dropping this gives it back.
pub struct SessionReservation<'s> {
    shared: &'s Arc<Shared>,
}

impl<'s> SessionReservation<'s> {
    pub(super) fn new(shared: &'s Arc<Shared>, slot: SessionSlot) -> Self {
        RESERVED.set(Some((address(shared), slot)));
        Self { shared }
    }
}

impl Drop for SessionReservation<'_> {
    fn drop(&mut self) {
        if let Some(slot) = take(self.shared) {
            self.shared.pool.give_back(slot);
        }
    }
}

/// Takes the session that this thread has reserved of the set.
pub(super) fn take(shared: &Arc<Shared>) -> Option<SessionSlot> {
    let (address_of_set, slot) = RESERVED.take()?;
    if address_of_set == address(shared) {
        return Some(slot);
    }
    RESERVED.set(Some((address_of_set, slot)));
    None
}

fn address(shared: &Arc<Shared>) -> usize {
    Arc::as_ptr(shared).addr()
}
