//! The table of tensors behind a guest's resource handles.

use wasmtime::component::Resource;

use gpux_core::Tensor;

/// A table of tensors; a handle's number is its place. wasmtime checks that a guest only uses
/// handles that it was given, and each of them at most until it drops it.
#[derive(Default)]
pub(super) struct TensorTable {
    slots: Vec<Option<TensorEntry>>,
    free: Vec<u32>,
}

/// One tensor in the table.
pub(super) struct TensorEntry {
    pub(super) tensor: Tensor,
    /// bytes counted for it against the memory limit: none for an input until it is written to
    pub(super) charged: usize,
}

impl TensorTable {
    /// How many are held.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether an input is among them: nothing is counted for it.
    pub(super) fn has_input(&self) -> bool {
        self.slots.iter().flatten().any(|held| held.charged == 0)
    }

    pub(super) fn insert(&mut self, tensor: Tensor, charged: usize) -> Resource<Tensor> {
        let held = Some(TensorEntry { tensor, charged });
        if let Some(place) = self.free.pop() {
            self.slots[place as usize] = held;
            return Resource::new_own(place);
        }
        self.slots.push(held);
        Resource::new_own(self.slots.len() as u32 - 1)
    }

    pub(super) fn get(&self, handle: &Resource<Tensor>) -> Option<&TensorEntry> {
        self.slots.get(handle.rep() as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, handle: &Resource<Tensor>) -> Option<&mut TensorEntry> {
        self.slots.get_mut(handle.rep() as usize)?.as_mut()
    }

    /// Takes a tensor out of its place, which waits for [`put_back`](Self::put_back).
    pub(super) fn lift(&mut self, handle: &Resource<Tensor>) -> Option<TensorEntry> {
        self.slots.get_mut(handle.rep() as usize)?.take()
    }

    /// Puts a tensor back in the place that it was lifted from.
    pub(super) fn put_back(&mut self, handle: &Resource<Tensor>, held: TensorEntry) {
        if let Some(place) = self.slots.get_mut(handle.rep() as usize) {
            *place = Some(held);
        }
    }

    pub(super) fn remove(&mut self, handle: &Resource<Tensor>) -> Option<TensorEntry> {
        let held = self.slots.get_mut(handle.rep() as usize)?.take()?;
        self.free.push(handle.rep());
        Some(held)
    }
}

/// Bytes that the allocator takes for a short text, beside its own.
const ALLOCATION: usize = 32;

/// Bytes that a tensor costs the host.
pub(super) fn cost(tensor: &Tensor) -> usize {
    let text = size_of::<String>() + ALLOCATION;
    let texts = if tensor.element().size().is_none() { tensor.len() * text } else { 0 };
    tensor.byte_len() + size_of_val(tensor.shape()) + texts + size_of::<TensorEntry>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reuses_freed_entries_and_invalidates_their_handles() {
        let mut handles = TensorTable::default();
        let first = handles.insert(Tensor::scalar(1_u8), 0);
        assert!(handles.remove(&first).is_some());
        assert!(handles.remove(&first).is_none());
        assert_eq!(handles.len(), 0);
        let second = handles.insert(Tensor::scalar(2_u8), 7);
        assert_eq!((handles.len(), second.rep()), (1, first.rep()));
        assert_eq!(handles.get(&second).unwrap().charged, 7);
        assert!(handles.get(&Resource::new_own(9)).is_none());
    }

    #[test]
    fn detects_inputs_still_held() {
        let mut handles = TensorTable::default();
        let input = handles.insert(Tensor::scalar(1_u8), 0);
        handles.insert(Tensor::scalar(2_u8), 7);
        assert!(handles.has_input());
        handles.remove(&input);
        assert!(!handles.has_input());
    }
}
