//! Concatenates and slices tensors along their first axis.

use gpux_core::with_elements;
use gpux_core::{Tensor, TensorElement, TensorError};

/// Concatenates the rows of all `parts`. With `padded`, axis 1 gets this size, filled with zeros behind
/// each part's values. The parts have the same element type, and the same shape except for these axes.
pub(super) fn concat_rows(parts: &[&Tensor], padded: Option<usize>) -> Result<Tensor, TensorError> {
    let [first, others @ ..] = parts else { return Tensor::new([0], Vec::<u8>::new()) };
    if others.is_empty() && padded.is_none_or(|size| first.shape()[1] == size) {
        return Ok((*first).clone());
    }
    let mut shape = first.shape().to_vec();
    shape[0] = parts.iter().map(|part| part.shape()[0]).sum();
    if let Some(size) = padded {
        shape[1] = size;
    }
    with_elements!(first.data(), profile => concat_elements(profile, parts, shape, padded.is_some()))
}

fn concat_elements<T: TensorElement>(
    _like: &[T],
    parts: &[&Tensor],
    shape: Vec<usize>,
    padded: bool,
) -> Result<Tensor, TensorError> {
    let row: usize = shape[1..].iter().product();
    let mut data = Vec::with_capacity(shape[0] * row);
    for part in parts {
        let elements = part.as_slice::<T>().unwrap_or_default();
        let own: usize = part.shape()[1..].iter().product();
        if !padded || own == row {
            data.extend_from_slice(elements);
            continue;
        }
        for start in (0..part.shape()[0]).map(|number| number * own) {
            data.extend_from_slice(elements.get(start..start + own).unwrap_or_default());
            data.resize(data.len() - own + row, T::default());
        }
    }
    Tensor::new(shape, data)
}

/// `rows` rows of a tensor from `start` on; with `cut`, no more of that axis than the given size.
pub(super) fn slice_rows(
    tensor: &Tensor,
    start: usize,
    rows: usize,
    cut: Option<(usize, usize)>,
) -> Result<Tensor, TensorError> {
    let whole = rows == tensor.shape()[0];
    if whole && cut.is_none_or(|(axis, size)| tensor.shape()[axis] == size) {
        return Ok(tensor.clone());
    }
    let strides = tensor.strides();
    let size = |axis: usize| match (axis, cut) {
        (0, _) => rows,
        (axis, Some((long, size))) if axis == long => size,
        _ => tensor.shape()[axis],
    };
    let axes: Vec<_> = strides.iter().enumerate().map(|(axis, stride)| (size(axis), *stride)).collect();
    tensor.pick(start * strides[0].unsigned_abs(), &axes)
}
