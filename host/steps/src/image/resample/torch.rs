//! torchvision's `resize` of tensors (`torch.nn.functional.interpolate`).

use super::super::dims::ImageDims;
use super::pillow::{kernel, resize_floats};
use super::taps::{Interpolate, Precision, Taps, mix};
use super::weighted::{self, Kernel, WeightType};
use super::{Filter, Sampling, nearest, to_tensor};
use crate::deadline::{Deadline, DeadlineExceeded};
use gpux_core::{StepFailure, Tensor, TensorData};

pub(super) fn resize(
    tensor: &Tensor,
    dims: ImageDims,
    target: ImageDims,
    how: Sampling,
    deadline: &Deadline,
) -> Result<Tensor, StepFailure> {
    if let Some(kernel) = kernel(how.filter).filter(|_| how.antialias) {
        // The filters are Pillow's, but nothing is weighed by opacity, and weights of bytes have 16 bits.
        return match tensor.data() {
            TensorData::Uint8(data) => to_tensor(target, resize_antialiased(data, dims, target, kernel, deadline)?),
            TensorData::Float32(data) => {
                to_tensor(target, resize_floats(data, dims, target, how.filter, false, deadline)?)
            }
            other => Err(StepFailure::Failed(format!("cannot resize {}", other.element()))),
        };
    }
    let (rows, columns) = (places(dims.height, target.height), places(dims.width, target.width));
    match (tensor.data(), how.filter) {
        (TensorData::Uint8(data), Filter::Nearest) => {
            to_tensor(target, nearest(data, dims, &rows, &columns, deadline)?)
        }
        (TensorData::Float32(data), Filter::Nearest) => {
            to_tensor(target, nearest(data, dims, &rows, &columns, deadline)?)
        }
        (TensorData::Uint8(data), Filter::Bicubic) => {
            to_tensor(target, levels(data, dims, target, Taps::cubic, deadline)?)
        }
        (TensorData::Uint8(data), _) => to_tensor(target, levels(data, dims, target, Taps::linear, deadline)?),
        (TensorData::Float32(data), Filter::Bicubic) => {
            to_tensor(target, floats(data, dims, target, Taps::cubic, deadline)?)
        }
        (TensorData::Float32(data), _) => to_tensor(target, floats(data, dims, target, Taps::linear, deadline)?),
        (other, _) => Err(StepFailure::Failed(format!("cannot resize {}", other.element()))),
    }
}

/// Bytes with antialiasing: across, rounded to 8 bits, then down.
fn resize_antialiased(
    from: &[u8],
    dims: ImageDims,
    target: ImageDims,
    kernel: Kernel,
    deadline: &Deadline,
) -> Result<Vec<u8>, DeadlineExceeded> {
    let across = ImageDims { width: target.width, ..dims };
    let pass = |from: &[u8], dims, target| weighted::pass(from, dims, target, kernel, WeightType::Int16, deadline);
    let wide = if across == dims { None } else { Some(pass(from, dims, across)?) };
    let from = wide.as_deref().unwrap_or(from);
    if across == target { Ok(from.to_vec()) } else { pass(from, across, target) }
}

fn floats<const N: usize>(
    data: &[f32],
    dims: ImageDims,
    target: ImageDims,
    taps: fn(usize, usize, Precision) -> Taps<N>,
    deadline: &Deadline,
) -> Result<Vec<f32>, DeadlineExceeded>
where
    f32: Interpolate<N>,
{
    let taps = |old, new| taps(old, new, Precision::Single);
    mix(data, dims, &taps(dims.width, target.width), &taps(dims.height, target.height), deadline)
}

/// torch's own kernel for bytes: across, rounded to 8 bits, then down.
fn levels<const N: usize>(
    data: &[u8],
    dims: ImageDims,
    target: ImageDims,
    taps: fn(usize, usize, Precision) -> Taps<N>,
    deadline: &Deadline,
) -> Result<Vec<u8>, DeadlineExceeded> {
    let taps = |old, new| taps(old, new, Precision::Rounded);
    let wide = taps(dims.width, target.width).along(data, dims.width, dims.channels, deadline)?;
    taps(dims.height, target.height).along(&wide, dims.height, target.width * dims.channels, deadline)
}

fn places(old: usize, new: usize) -> Vec<usize> {
    let scale = old as f32 / new as f32;
    (0..new).map(|index| ((index as f32 * scale) as usize).min(old - 1)).collect()
}
