//! Long work on tensors that can be stopped.

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
