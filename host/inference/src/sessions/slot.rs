//! One session of a set, as it passes between the pool and a run.

use crate::engine::Session;

/// A session, or an empty slot whose next user loads one.
pub(super) struct SessionSlot {
    pub(super) mode: ThreadMode,
    /// its index among the slots of its mode
    pub(super) index: usize,
    pub(super) session: Option<Box<dyn Session>>,
}

/// The threads of a session's runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThreadMode {
    /// the shared thread pool, or the session's own
    MultiThreaded,
    /// the caller's thread only
    SingleThreaded,
}

impl SessionSlot {
    pub(super) const fn empty(mode: ThreadMode, index: usize) -> Self {
        Self { mode, index, session: None }
    }

    pub(super) const fn take(&mut self) -> Self {
        Self { mode: self.mode, index: self.index, session: self.session.take() }
    }
}
