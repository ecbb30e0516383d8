//! Long work on tensors that can be stopped.

/// Who says whether work on a tensor goes on.
pub trait CancelCheck {
    /// So many elements more are done, or about to be: whether there is still somebody who wants them.
    fn can_continue(&self, elements: usize) -> bool;
}

/// Whatever it takes.
impl CancelCheck for () {
    fn can_continue(&self, _: usize) -> bool {
        true
    }
}
