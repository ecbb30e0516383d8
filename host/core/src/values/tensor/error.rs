//! What can be wrong with a tensor.

use crate::ElementType;

/// The most axes that a tensor has, as in NumPy.
pub const MAX_AXES: usize = 64;

/// Why a tensor could not be made or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TensorError {
    /// the data does not fill the shape
    #[error("shape {shape:?} holds {expected} elements, but {given} were given")]
    Length {
        /// the shape asked for
        shape: Vec<usize>,
        /// its number of elements
        expected: usize,
        /// how many there were
        given: usize,
    },
    /// the bytes do not fill the shape
    #[error("a {element} tensor of shape {shape:?} takes {expected} bytes, but {given} were given")]
    ByteLength {
        /// the element type asked for
        element: ElementType,
        /// the shape asked for
        shape: Vec<usize>,
        /// its size in bytes
        expected: usize,
        /// how many bytes there were
        given: usize,
    },
    /// more axes than any model has: code that walks a shape may trust in few
    #[error("a tensor has at most {MAX_AXES} axes, not {0}")]
    TooManyAxes(usize),
    /// the product of the dimensions does not fit the address space
    #[error("a {element} tensor of shape {shape:?} does not fit in memory")]
    TooLarge {
        /// the element type asked for
        element: ElementType,
        /// the shape asked for
        shape: Vec<usize>,
    },
    /// a bool that is neither 0 nor 1
    #[error("byte {0} is not a bool: only 0 and 1 are")]
    NotABool(u8),
    /// bytes were asked of, or given for, a tensor of strings
    #[error("a tensor of strings has no fixed-size bytes")]
    Strings,
    /// a range outside the tensor
    #[error("bytes {offset}..{end} lie outside a tensor of {len} bytes")]
    Range {
        /// first byte
        offset: usize,
        /// one past the last byte
        end: usize,
        /// the tensor's size
        len: usize,
    },
    /// a permutation that does not name each axis once
    #[error("{axes:?} does not name each of the {rank} axes once")]
    Axes {
        /// the axes given
        axes: Vec<usize>,
        /// the tensor's rank
        rank: usize,
    },
    /// elements were asked for that are not there
    #[error("a tensor of shape {shape:?} would reach outside of {len} elements")]
    Outside {
        /// the shape asked for
        shape: Vec<usize>,
        /// how many elements there are
        len: usize,
    },
    /// strings cannot be cast
    #[error("cannot cast {from} to {to}")]
    Cast {
        /// element type before
        from: ElementType,
        /// element type asked for
        to: ElementType,
    },
    /// it was cancelled
    #[error("it was stopped")]
    Stopped,
}
