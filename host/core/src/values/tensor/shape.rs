//! How many elements a shape holds, and where they lie.

use super::error::{MAX_AXES, TensorError};
use crate::ElementType;

/// The most that the other dimensions of an empty tensor may multiply to: code that walks a shape
/// may trust that its parts are of a size that memory could hold.
const MAX_EMPTY: usize = 1 << 20;

/// Elements in a tensor of this shape; `None` when the product overflows, when an empty tensor has
/// absurd other dimensions, or when there are too many axes.
pub fn element_count(shape: &[usize]) -> Option<usize> {
    check_axis_count(shape).ok()?;
    let others = shape.iter().try_fold(1_usize, |product, dim| product.checked_mul((*dim).max(1)))?;
    if shape.contains(&0) { (others <= MAX_EMPTY).then_some(0) } else { Some(others) }
}

/// Refuses a shape of more axes than a tensor has.
pub fn check_axis_count(shape: &[usize]) -> Result<(), TensorError> {
    if shape.len() > MAX_AXES { Err(TensorError::TooManyAxes(shape.len())) } else { Ok(()) }
}

/// Elements and bytes of a tensor, refused where they exceed what Rust can allocate.
pub(super) fn sizes(element: ElementType, shape: &[usize]) -> Result<(usize, usize), TensorError> {
    check_axis_count(shape)?;
    element_count(shape)
        .and_then(|count| {
            let size = element.size().unwrap_or(size_of::<String>());
            let bytes = count.checked_mul(size)?;
            isize::try_from(bytes).is_ok().then_some((count, bytes))
        })
        .ok_or_else(|| TensorError::TooLarge { element, shape: shape.to_vec() })
}

/// How far apart the elements of each axis lie in a row-major tensor.
pub(super) fn strides(shape: &[usize]) -> Vec<isize> {
    let mut strides = vec![1; shape.len()];
    for axis in (0..shape.len().saturating_sub(1)).rev() {
        strides[axis] = strides[axis + 1] * shape[axis + 1] as isize;
    }
    strides
}
