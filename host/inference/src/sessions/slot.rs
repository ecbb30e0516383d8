//! One session of a set, as it passes between the pool and a run.

use crate::engine::Session;

/// A session, or the place of one that is to be made by whoever needs it next.
pub(super) struct Slot {
    pub(super) width: Width,
    /// its place among those of its width
    pub(super) place: usize,
    pub(super) session: Option<Box<dyn Session>>,
}

/// Which threads a session's runs have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    /// those that the set was asked for
    Wide,
    /// the caller's alone
    Narrow,
}

impl Slot {
    pub(super) const fn empty(width: Width, place: usize) -> Self {
        Self { width, place, session: None }
    }

    pub(super) const fn take(&mut self) -> Self {
        Self { width: self.width, place: self.place, session: self.session.take() }
    }
}
