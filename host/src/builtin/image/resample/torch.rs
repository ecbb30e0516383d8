//! torchvision's `resize` of tensors (`torch.nn.functional.interpolate`).

use super::super::dims::ImageDims;
use super::taps::{Mixed, Precision, Taps, mix};
use super::{Filter, Sampling, nearest, pillow, to_tensor};
use crate::builtin::watch::{Late, Watch};
use crate::pipeline::{Metadata, StepFailure, Tensor, TensorData};

pub(super) fn resize(
    tensor: &Tensor,
    dims: ImageDims,
    target: ImageDims,
    how: Sampling,
    watch: &Watch,
) -> Result<Tensor, StepFailure> {
    if how.antialias && how.filter != Filter::Nearest {
        // The weights are Pillow's, but nothing is weighed by opacity.
        let plain = tensor.clone().with_metadata(Metadata::default());
        return pillow::resize(&plain, dims, target, how.filter, watch);
    }
    let (rows, columns) = (places(dims.height, target.height), places(dims.width, target.width));
    match (tensor.data(), how.filter) {
        (TensorData::Uint8(data), Filter::Nearest) => to_tensor(target, nearest(data, dims, &rows, &columns, watch)?),
        (TensorData::Float32(data), Filter::Nearest) => to_tensor(target, nearest(data, dims, &rows, &columns, watch)?),
        (TensorData::Uint8(data), Filter::Bicubic) => {
            to_tensor(target, levels(data, dims, target, Taps::cubic, watch)?)
        }
        (TensorData::Uint8(data), _) => to_tensor(target, levels(data, dims, target, Taps::linear, watch)?),
        (TensorData::Float32(data), Filter::Bicubic) => {
            to_tensor(target, floats(data, dims, target, Taps::cubic, watch)?)
        }
        (TensorData::Float32(data), _) => to_tensor(target, floats(data, dims, target, Taps::linear, watch)?),
        (other, _) => Err(StepFailure::Failed(format!("cannot resize {}", other.element()))),
    }
}

fn floats<const N: usize>(
    data: &[f32],
    dims: ImageDims,
    target: ImageDims,
    taps: fn(usize, usize, Precision) -> Taps<N>,
    watch: &Watch,
) -> Result<Vec<f32>, Late>
where
    f32: Mixed<N>,
{
    let taps = |old, new| taps(old, new, Precision::Single);
    mix(data, dims, &taps(dims.width, target.width), &taps(dims.height, target.height), watch)
}

/// torch's own kernel for bytes: across, rounded to 8 bits, then down.
fn levels<const N: usize>(
    data: &[u8],
    dims: ImageDims,
    target: ImageDims,
    taps: fn(usize, usize, Precision) -> Taps<N>,
    watch: &Watch,
) -> Result<Vec<u8>, Late> {
    let taps = |old, new| taps(old, new, Precision::Rounded);
    let wide = taps(dims.width, target.width).along(data, dims.width, dims.channels, watch)?;
    taps(dims.height, target.height).along(&wide, dims.height, target.width * dims.channels, watch)
}

fn places(old: usize, new: usize) -> Vec<usize> {
    let scale = old as f32 / new as f32;
    (0..new).map(|index| ((index as f32 * scale) as usize).min(old - 1)).collect()
}
