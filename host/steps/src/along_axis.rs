//! Floats along an axis, changed in place: what `softmax`, `l2-normalize` and `standardize` share.

use half::{bf16, f16};

use crate::deadline::{Deadline, DeadlineExceeded};
use crate::ports;
use gpux_core::{ElementType, Tensor, TensorElement, TensorKind};

/// Shape and type stay; an axis that is not there is rejected.
pub(crate) fn kind(given: &TensorKind, axis: i64) -> Result<TensorKind, String> {
    match given.shape.as_ref().map(Vec::len) {
        Some(rank) if ports::axis(axis, rank).is_none() => Err(no_axis(axis, rank)),
        _ => Ok(given.clone()),
    }
}

/// Changes every row along the axis; halves as float32.
pub(crate) fn change(
    mut tensor: Tensor,
    axis: i64,
    deadline: &Deadline,
    single: impl Fn(&mut [f32], &Deadline) -> Result<(), DeadlineExceeded>,
    double: impl Fn(&mut [f64], &Deadline) -> Result<(), DeadlineExceeded>,
) -> Result<Tensor, String> {
    let axis = ports::axis(axis, tensor.rank()).ok_or_else(|| no_axis(axis, tensor.rank()))?;
    let (length, stride) = (tensor.shape()[axis], tensor.shape()[axis + 1..].iter().product());
    let given = &mut tensor;
    match given.element() {
        ElementType::Float64 => along(given, length, stride, |row| double(row, deadline))?,
        ElementType::Float16 => along(given, length, stride, |row| {
            through_f32(row, f16::to_f32, f16::from_f32, |row| single(row, deadline))
        })?,
        ElementType::Bfloat16 => along(given, length, stride, |row| {
            through_f32(row, bf16::to_f32, bf16::from_f32, |row| single(row, deadline))
        })?,
        _ => along(given, length, stride, |row| single(row, deadline))?,
    }
    Ok(tensor)
}

fn no_axis(axis: i64, rank: usize) -> String {
    format!("it works along axis {axis}, but there are {rank} axes")
}

/// Calls `change` with every run of `length` elements that lie `stride` apart.
fn along<T: TensorElement + Copy>(
    tensor: &mut Tensor,
    length: usize,
    stride: usize,
    change: impl Fn(&mut [T]) -> Result<(), DeadlineExceeded>,
) -> Result<(), DeadlineExceeded> {
    let data = tensor.as_mut_slice::<T>().unwrap_or_default();
    if data.is_empty() {
        return Ok(());
    }
    if stride == 1 {
        return data.chunks_exact_mut(length).try_for_each(change);
    }
    let mut row = vec![T::default(); length];
    for block in data.chunks_exact_mut(length * stride) {
        for offset in 0..stride {
            for (value, from) in row.iter_mut().zip(block[offset..].iter().step_by(stride)) {
                *value = *from;
            }
            change(&mut row)?;
            for (to, value) in block[offset..].iter_mut().step_by(stride).zip(&row) {
                *to = *value;
            }
        }
    }
    Ok(())
}

fn through_f32<T: Copy>(
    row: &mut [T],
    to: fn(T) -> f32,
    from: fn(f32) -> T,
    change: impl Fn(&mut [f32]) -> Result<(), DeadlineExceeded>,
) -> Result<(), DeadlineExceeded> {
    let mut wide: Vec<f32> = row.iter().map(|value| to(*value)).collect();
    change(&mut wide)?;
    for (value, wide) in row.iter_mut().zip(wide) {
        *value = from(wide);
    }
    Ok(())
}
