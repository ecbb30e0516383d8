//! Floats along an axis, changed in place: what `softmax` and `l2-normalize` share.

use half::{bf16, f16};

use crate::deadline::{Deadline, DeadlineExceeded};
use crate::ports;
use gpux_core::{
    Context, ElementSet, Kind, Mismatch, Port, Signature, StepFailure, Tensor, TensorData, TensorElement, TensorKind,
};

/// One port of floats, and one of what becomes of them, of the same name.
pub(super) fn signature(name: &str, takes: &str, gives: &str) -> Signature {
    let floats = Kind::Tensor(TensorKind::of_elements(ElementSet::floats()));
    let port = |description: &str| Port { description: description.into(), ..Port::new(name, floats.clone()) };
    Signature::unary(port(takes), port(gives))
}

/// Shape and type stay; an axis that is not there is refused.
pub(super) fn infer(signature: &Signature, inputs: &[Option<Kind>], axis: i64) -> Result<Vec<Kind>, Mismatch> {
    ports::check(signature, inputs)?;
    let Some(given) = ports::known_tensor(inputs) else { return Ok(vec![signature.outputs[0].kind.clone()]) };
    if let Some(rank) = given.shape.as_ref().map(Vec::len)
        && ports::axis(axis, rank).is_none()
    {
        return Err(ports::refuse(signature, given, no_axis(axis, rank)));
    }
    let elements = given.elements.intersection(ElementSet::floats());
    Ok(vec![Kind::Tensor(TensorKind { elements, ..given.clone() })])
}

/// Changes every row along the axis; halves as float32.
pub(super) fn change(
    tensor: &mut Tensor,
    axis: i64,
    step: &str,
    context: &Context,
    single: impl Fn(&mut [f32], &Deadline) -> Result<(), DeadlineExceeded>,
    double: impl Fn(&mut [f64], &Deadline) -> Result<(), DeadlineExceeded>,
) -> Result<(), StepFailure> {
    let deadline = &Deadline::from_context(context);
    deadline.check()?;
    let invalid = |why: String| StepFailure::InvalidInput(format!("{step}: {why}"));
    let axis = ports::axis(axis, tensor.rank()).ok_or_else(|| invalid(no_axis(axis, tensor.rank())))?;
    let (length, stride) = (tensor.shape()[axis], tensor.shape()[axis + 1..].iter().product());
    match tensor.data() {
        TensorData::Float32(_) => along(tensor, length, stride, |row| single(row, deadline))?,
        TensorData::Float64(_) => along(tensor, length, stride, |row| double(row, deadline))?,
        TensorData::Float16(_) => {
            along(tensor, length, stride, |row| {
                through_f32(row, f16::to_f32, f16::from_f32, |row| single(row, deadline))
            })?;
        }
        TensorData::Bfloat16(_) => {
            along(tensor, length, stride, |row| {
                through_f32(row, bf16::to_f32, bf16::from_f32, |row| single(row, deadline))
            })?;
        }
        other => return Err(invalid(format!("it takes floats, but gets {}; cast them first", other.element()))),
    }
    Ok(())
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
