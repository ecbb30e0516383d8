//! Elements of one type, shared until one side writes.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// The elements of a tensor. Cloning shares them; [`make_mut`](Self::make_mut) copies shared ones first.
///
/// They lie in a `Vec`, or in the memory of an owner outside gpux, such as a NumPy array.
#[derive(Clone)]
pub struct Elements<T> {
    /// empty where there is a foreign owner
    vec: Arc<Vec<T>>,
    foreign: Option<Arc<dyn AsRef<[T]> + Send + Sync>>,
}

impl<T> Elements<T> {
    /// The elements that `owner` holds, in place. Every call of its `as_ref` must give the same slice.
    pub fn from_owner(owner: impl AsRef<[T]> + Send + Sync + 'static) -> Self {
        Self { vec: Arc::default(), foreign: Some(Arc::new(owner)) }
    }

    /// The elements, as `Deref` gives them.
    pub fn as_slice(&self) -> &[T] {
        match &self.foreign {
            None => &self.vec,
            Some(owner) => (**owner).as_ref(),
        }
    }

    /// Whether writing would copy them.
    pub fn is_shared(&self) -> bool {
        self.foreign.is_some() || Arc::strong_count(&self.vec) > 1
    }

    /// The elements for writing; shared ones are copied first.
    pub fn make_mut(&mut self) -> &mut Vec<T>
    where
        T: Clone,
    {
        if let Some(owner) = self.foreign.take() {
            self.vec = Arc::new((*owner).as_ref().to_vec());
        }
        Arc::make_mut(&mut self.vec)
    }
}

impl<T> From<Vec<T>> for Elements<T> {
    fn from(data: Vec<T>) -> Self {
        Self { vec: Arc::new(data), foreign: None }
    }
}

impl<T> Deref for Elements<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.as_slice()
    }
}

impl<T: fmt::Debug> fmt::Debug for Elements<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

impl<T: PartialEq> PartialEq for Elements<T> {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}
