//! Long work that can be stopped.

use std::sync::atomic::{AtomicBool, Ordering};

/// Tells whether a run was cancelled.
pub trait CancelFlag: Send + Sync {
    /// Whether it was; from then on always.
    fn is_cancelled(&self) -> bool;
}

impl CancelFlag for AtomicBool {
    fn is_cancelled(&self) -> bool {
        self.load(Ordering::Relaxed)
    }
}

impl<T: CancelFlag> CancelFlag for &T {
    fn is_cancelled(&self) -> bool {
        T::is_cancelled(self)
    }
}

impl std::fmt::Debug for dyn CancelFlag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CancelFlag({})", self.is_cancelled())
    }
}

/// Decides whether work on a tensor continues.
pub trait CancelCheck {
    /// Called before or after work on `elements` more elements; `false` stops the work.
    fn can_continue(&self, elements: usize) -> bool;
}

/// Never stops.
impl CancelCheck for () {
    fn can_continue(&self, _: usize) -> bool {
        true
    }
}
