//! Long work on tensors that can be stopped.

/// Who says whether work on a tensor goes on.
pub trait GoesOn {
    /// So many elements more are done, or about to be: whether there is still somebody who wants them.
    fn goes_on(&self, elements: usize) -> bool;
}

/// Whatever it takes.
impl GoesOn for () {
    fn goes_on(&self, _: usize) -> bool {
        true
    }
}
