//! Elements of one type, shared until one side writes.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// Memory outside gpux that holds the elements of a tensor, such as a NumPy array.
///
/// Every call gives the same slice, whose place does not change.
pub trait ElementsOwner<T>: Send + Sync {
    /// The elements.
    fn elements(&self) -> &[T];

    /// The elements for writing; `None` if others may read them.
    fn elements_mut(&mut self) -> Option<&mut [T]> {
        None
    }

    /// Whether `elements_mut` gives them.
    fn is_writable(&self) -> bool {
        false
    }
}

/// The elements of a tensor. Cloning shares them; [`make_mut`](Self::make_mut) copies shared ones first.
///
/// They lie in a `Vec`, or in the memory of an [`ElementsOwner`].
#[derive(Clone)]
pub struct Elements<T> {
    /// empty where there is a foreign owner
    vec: Arc<Vec<T>>,
    foreign: Option<Arc<dyn ElementsOwner<T>>>,
}

impl<T> Elements<T> {
    /// The elements that `owner` holds, in place.
    pub fn from_owner(owner: impl ElementsOwner<T> + 'static) -> Self {
        Self { vec: Arc::default(), foreign: Some(Arc::new(owner)) }
    }

    /// The elements, as `Deref` gives them.
    pub fn as_slice(&self) -> &[T] {
        match &self.foreign {
            None => &self.vec,
            Some(owner) => owner.elements(),
        }
    }

    /// Whether writing would copy them.
    pub fn is_shared(&self) -> bool {
        match &self.foreign {
            None => Arc::strong_count(&self.vec) > 1,
            Some(owner) => Arc::strong_count(owner) > 1 || !owner.is_writable(),
        }
    }

    /// The elements for writing; shared ones are copied first.
    pub fn make_mut(&mut self) -> &mut [T]
    where
        T: Clone,
    {
        if self.is_shared()
            && let Some(owner) = self.foreign.take()
        {
            self.vec = Arc::new(owner.elements().to_vec());
        }
        match self.foreign.as_mut().and_then(Arc::get_mut).and_then(ElementsOwner::elements_mut) {
            Some(elements) => elements,
            None => Arc::make_mut(&mut self.vec).as_mut_slice(),
        }
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
